"""Writing a changed transcript: everything that no rule touched keeps its bytes."""

from collections.abc import Sequence
from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.wire.json import find_array
from trimtab.proxy.wire.transcript.elements import Placed, Source, Written, write_elements
from trimtab.rules.conversation import Conversation, Message, Origin, Role

# A drawn transcript: the number of parts of each element; 0 for a message that spans two elements.
SHAPES = st.lists(st.integers(0, 3), min_size=1, max_size=6)
SPACES = (b",", b" , ", b"\n,\t")


def _element(place: int, part: int) -> bytes:
    return b"[%d,%d]" % (place, part)


def _build(shape: Sequence[int]) -> tuple[bytes, list[bytes], Conversation]:
    """A body, its elements, and its transcript: each part is a message with a name of its own."""
    raws: list[bytes] = []
    placed: list[tuple[Message, Origin]] = []
    for parts in shape:
        start, stop = len(raws), len(raws) + (1 if parts else 2)
        elements = [[_element(at, part) for part in range(max(parts, 1))] for at in range(start, stop)]
        raws += [b"[" + b",".join(element) + b"]" for element in elements]
        said = [Message(Role.USER, (f"{start}-{part}",)) for part in range(max(parts, 1))]
        placed += [(message, Origin(start, stop, part)) for part, message in enumerate(said)]
    spaced = b"".join(raw + (SPACES[at % 3] if at < len(raws) - 1 else b"") for at, raw in enumerate(raws))
    body = b'{"a":1,  "items" : [ ' + spaced + b'\n] ,"z":2}'
    return body, raws, Conversation(tuple(one for one, _ in placed), 0, tuple(origin for _, origin in placed))


def _write(placed: Sequence[Placed]) -> bytes:
    return orjson.dumps([message.texts[0] for message, _ in placed])


def _encode(
    body: bytes, raws: list[bytes], before: Conversation, after: Conversation, *, shares: bool = False
) -> bytes:
    array = find_array(body, b'"items"', raws)
    assert array is not None
    written, ending = write_elements(Source(body, array, before), after, _write, (lambda *_: True) if shares else None)
    return b"".join((*written.pieces, ending))


@given(SHAPES, st.booleans())
def test_a_transcript_that_is_as_it_came_is_the_body(shape: list[int], shares: bool) -> None:  # noqa: FBT001
    """Whatever shape its elements have, and whether or not made messages would share them."""
    body, raws, before = _build(shape)
    assert _encode(body, raws, before, replace(before), shares=shares) == body


@given(SHAPES, st.data())
def test_an_edited_message_changes_its_own_elements_alone(shape: list[int], data: st.DataObject) -> None:
    """All bytes before and after them stay the same."""
    body, raws, before = _build(shape)
    at = data.draw(st.integers(0, len(before.messages) - 1))
    origin = before.origins[at]
    assert origin is not None
    messages = list(before.messages)
    messages[at] = replace(messages[at], texts=("EDITED",), edited=True)
    array = find_array(body, b'"items"', raws)
    head, tail = body[: array.elements[origin.start].start], body[array.elements[origin.stop - 1].stop :]
    together = [
        one.texts[0]
        for one, other in zip(messages, before.origins, strict=True)
        if other and other.start == origin.start
    ]
    assert _encode(body, raws, before, before.edit(messages)) == head + orjson.dumps(together) + tail


@given(SHAPES, st.data())
def test_whatever_a_rule_makes_of_it_is_written_in_its_order(shape: list[int], data: st.DataObject) -> None:
    """With messages dropped, moved and made, the array holds them all, and untouched elements keep their bytes."""
    body, raws, before = _build(shape)
    made = [(Message(Role.USER, (f"made-{number}",), edited=True), None) for number in range(2)]
    pairs = [*zip(before.messages, before.origins, strict=True), *made]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique_by=lambda pair: pair[0].texts))
    after = replace(before, messages=tuple(one for one, _ in chosen), origins=tuple(origin for _, origin in chosen))
    written = orjson.loads(_encode(body, raws, before, after, shares=data.draw(st.booleans())))
    assert (written["a"], written["z"]) == (1, 2)
    said: list[str] = []
    for element in written["items"]:
        parts = element if isinstance(element[0], list) else [element]
        said += [f"{part[0]}-{part[1]}" for part in parts] if isinstance(element[0], list) else element
    spans = {origin.start: origin.stop for origin in before.origins if origin is not None}
    wide = {f"{stop - 1}-0" for start, stop in spans.items() if stop - start > 1}
    assert [name for name in said if name not in wide] == [one.texts[0] for one in after.messages]


def test_a_made_message_shares_the_element_of_its_neighbours() -> None:
    """If the dialect says so. Unchanged messages stay apart from edited ones."""
    body, raws, before = _build([1, 2, 1])
    made = Message(Role.USER, ("made",), edited=True)
    first, left, right, last = zip(before.messages, before.origins, strict=True)
    placed = [first, left, (made, None), right, last]
    after = replace(before, messages=tuple(one for one, _ in placed), origins=tuple(origin for _, origin in placed))

    assert orjson.loads(_encode(body, raws, before, after))["items"] == [[[0, 0]], ["1-0"], ["made"], ["1-1"], [[2, 0]]]
    joined = orjson.loads(_encode(body, raws, before, after, shares=True))["items"]
    assert joined == [[[0, 0]], ["1-0", "made", "1-1"], [[2, 0]]]
    edited = before.edit([replace(before.messages[0], edited=True), *before.messages[1:]])
    assert orjson.loads(_encode(body, raws, before, edited, shares=True))["items"] == [
        ["0-0"],
        [[1, 0], [1, 1]],
        [[2, 0]],
    ]


def _transform(before: Conversation, drawn: dict[str, str]) -> Conversation:
    """A change that depends on each message alone: it is dropped or edited, or one is made after it."""
    placed: list[Placed] = []
    for message, origin in zip(before.messages, before.origins, strict=True):
        (name,) = message.texts
        what = drawn.get(name, "")
        if what != "drop":
            placed.append((replace(message, edited=what == "edit"), origin))
        if what == "add":
            placed.append((Message(Role.USER, (f"after {name}",), edited=True), None))
    return replace(before, messages=tuple(one for one, _ in placed), origins=tuple(origin for _, origin in placed))


NAMES = st.sampled_from([f"{place}-{part}" for place in range(12) for part in range(3)])
WHAT = st.dictionaries(NAMES, st.sampled_from(["drop", "edit", "add"]), max_size=8)


@given(st.tuples(SHAPES, SHAPES, SHAPES), st.tuples(WHAT, WHAT), st.booleans())
def test_what_was_written_of_another_body_changes_nothing(shapes, drawn, shares) -> None:
    """Of one that begins with the same elements and ends in another way, whatever the rules made of both."""
    common, *ends = shapes
    number = sum(1 if parts else 2 for parts in common)
    shared = {name: what for name, what in drawn[0].items() if int(name.split("-")[0]) < number}
    before, written = None, None
    for end, more in zip(ends, drawn, strict=True):
        body, raws, before = _build([*common, *end])
        array = find_array(body, b'"items"', raws)
        assert array is not None
        after, source = _transform(before, {**more, **shared}), Source(body, array, before)
        says = (lambda left, _: left.texts != ("0-0",)) if shares else None
        alone, ending = write_elements(source, after, _write, says)
        known = None if written is None else written.within(number)
        on, _ = write_elements(source, after, _write, says, written=known)
        assert b"".join((*on.pieces, ending)) == b"".join((*alone.pieces, ending))
        assert (on.last, on.stop, on.messages) == (alone.last, alone.stop, alone.messages)
        again, _ = write_elements(source, after, _write, says, written=on)
        assert b"".join(again.pieces) == b"".join(on.pieces)
        written = again


def test_what_is_before_the_changing_elements_is_not_written_again() -> None:
    """Not even if it is one edited message: what was written of it is known for the next body."""
    body, raws, before = _build([1, 1, 1, 1, 1])
    array = find_array(body, b'"items"', raws)
    assert array is not None
    after = _transform(before, {"0-0": "edit"})
    written, _ = write_elements(Source(body, array, before), after, _write)
    known = written.within(2)
    assert known is not None
    assert known.messages == after.messages[:1]


def test_a_written_body_is_continued_only_where_an_element_begins() -> None:
    """What it has is not written again. A message that shares its last element is not written behind that."""
    body, raws, longer = _build([1, 1])
    array = find_array(body, b'"items"', raws)
    assert array is not None
    first, second = zip(longer.messages, longer.origins, strict=True)
    made = (Message(Role.USER, ("made",), edited=True), None)

    def write(*placed: Placed, written: Written | None = None) -> Written:
        after = replace(longer, messages=tuple(one for one, _ in placed), origins=tuple(origin for _, origin in placed))
        return write_elements(Source(body, array, longer), after, _write, lambda *_: True, written=written)[0]

    begun = write(first)
    assert write(first, second, written=begun).pieces[0] is begun.pieces[0]
    for more in ((first, made), (first, made, second)):
        assert b"".join(write(*more, written=begun).pieces) == b"".join(write(*more).pieces)
    made_again = (replace(made[0], texts=("again",)), None)
    ended = write(first, made, made_again, written=write(first, made))
    assert b"".join(ended.pieces).endswith(b'["0-0","made","again"]')
