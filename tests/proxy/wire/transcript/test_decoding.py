"""Messages that a server has compacted itself."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, conversation, result, user

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.dialects import name_codec, read_request
from trimtab.proxy.wire.transcript.body import Decoded, Form, KeptBody, PrefixMatch, split_body
from trimtab.proxy.wire.transcript.decoding import (
    Elements,
    FindUnits,
    Fixed,
    FixedTokens,
    Known,
    KnownView,
    decode_units,
    discount_compacted,
    join_units,
    recall,
    weigh_element,
)
from trimtab.rules.conversation import Conversation, Message, Origin, Role
from trimtab.rules.policy import Policy
from trimtab.rules.results.work import OBJECT_BYTES

GO_ON = {"role": "user", "content": "Go on."}
MEMO = replace(assistant("A memo for the server."), keeps_before=True)


def test_what_is_before_the_last_compaction_costs_nothing() -> None:
    """Only counts change. Roles that the server reads anyway keep theirs. Without one, nothing changes."""
    messages = conversation(user(), assistant("Yes.")).messages
    assert discount_compacted(messages) is messages
    messages = (user(), MEMO, result("c", "long"), MEMO, user())
    assert [one.tokens > 0 for one in discount_compacted(messages)] == [False, False, False, True, True]
    spared = discount_compacted(messages, {Role.USER})
    assert [one.tokens > 0 for one in spared] == [True, False, False, True, True]
    assert [replace(one, tokens=0) for one in spared] == [replace(one, tokens=0) for one in messages]


def _responses(long: str) -> dict[str, object]:
    call = {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": long}
    memo = {"type": "compaction", "encrypted_content": "A" * 4000}
    return {"model": "m", "input": [{"role": "user", "content": "Task"}, call, output, memo, GO_ON]}


def _messages(long: str) -> dict[str, object]:
    call = {"type": "tool_use", "id": "c", "name": "run", "input": {}}
    output = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": long}]}
    memo = {"type": "compaction", "content": "What was done."}
    said = [{"role": "assistant", "content": [call]}, output, {"role": "assistant", "content": [memo]}, GO_ON]
    return {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Task"}, *said]}


@pytest.mark.parametrize(("dialect", "write"), [("responses", _responses), ("messages", _messages)])
def test_a_session_that_the_server_has_compacted_is_not_refused(dialect, write) -> None:
    """What is before the compaction would fill the window several times, but the model does not read it."""
    compactor = Compactor(lambda text: len(text) // 4)
    long = "".join(f"line {number}: nothing of note in here\n" for number in range(4000))
    body = orjson.dumps(write(long))
    planned = compactor.plan(read_request(body, dialect), Policy(context_window=16_000))
    compacted = compactor.apply(planned, None)

    assert compacted.body == body
    assert compacted.sent_tokens == planned.original.tokens < 2000


# What codecs remember.


def _decode(raw: bytes) -> tuple[Message, ...]:
    return (Message(Role.USER, (raw.decode(),), raw=raw),)


def _fail(_raw: object) -> tuple[Message, ...]:
    raise AssertionError


def test_an_element_is_decoded_once() -> None:
    """Even if it occurs twice in a request: both get the same messages."""
    view = make_known().view("chat", 0)
    assert view.count_unknown_bytes([b"one", b"two"]) == 6
    one, two, again = view.decode([b"one", b"two", b"one"], _decode)

    assert one is again is not two
    assert view.count_unknown_bytes([b"one", b"two", b"three"]) == 5
    assert view.decode([b"two", b"one"], _fail) == [two, one]


@pytest.mark.parametrize("other", [("chat", 1), ("turns", 0)])
def test_dialects_and_ways_of_counting_know_nothing_of_each_other(other: tuple[str, int]) -> None:
    """The same bytes are another message in another dialect, and have other costs with another vocabulary."""
    known = make_known()
    known.view("chat", 0).decode([b"one"], _decode)
    known.view("chat", 0).count_fixed((b"tools",), lambda _: FixedTokens(1, 2))

    assert known.view("chat", 0).count_unknown_bytes([b"one"]) == 0
    assert known.view("chat", 0).count_unknown_bytes([], (b"tools",), fixed_factor=2) == 0
    assert known.view(*other).count_unknown_bytes([b"one"]) == 3
    assert known.view(*other).count_unknown_bytes([], (b"tools",), fixed_factor=2) == 10


def test_what_the_first_message_costs_is_remembered_of_the_newest() -> None:
    view, messages = make_known().view("chat", 0), (*_decode(b"one"), *_decode(b"three"))
    found = [view.count_first(messages[at], lambda one: len(one.raw)) for at in (0, 0, 1)]
    assert (found, view.count_first(messages[1], lambda _: 0)) == ([3, 3, 5], 5)


def test_the_memory_of_an_element_is_that_of_its_bytes_its_texts_and_its_objects() -> None:
    short, long = (weigh_element((0, b"key"), (Message(Role.USER, ("x" * chars,)),)) for chars in (10, 1010))
    assert short > len(b"key") + 10 + OBJECT_BYTES
    assert long - short == 1000


# Tool results that a client wrote as text are tool results; they go out in the role in which they came.

HEADERS = {
    "[tool: read_file]": "read_file",
    "[Tool: read_file(path=a.py, lines=[1, 2])]": "read_file",
    "[tool result: mcp__git__log]": "mcp__git__log",
    "[TOOL_RESULT: read]:": "read",
    "[Tool result for `ls`]": "ls",
    "[tool bash result]": "bash",
    "[tool:7zip]": "7zip",
    "EXECUTION RESULT of [execute_bash]:": "execute_bash",
}
OTHERS = (
    "[tool:]", "[tool: ]", "[tool: two words]", "[tool: a](http://x)", "tool: read", "[tools: read]",
    "see [tool: read]", "[note: read]", "[tool", "[tool: read", "[read_file for 'a.py'] Result:", "",
)  # fmt: skip
DIALECTS = ("chat", "responses", "messages")
dialects = pytest.mark.parametrize("dialect", DIALECTS)


def say(role: str, text: object) -> dict[str, object]:
    return {"role": role, "content": text}


def decode(dialect: str, *said: dict[str, object], counting: Counting | None = None) -> Conversation:
    key = "input" if dialect == "responses" else "messages"
    request = name_codec(dialect).read(orjson.dumps({"model": "m", key: said}))
    return request.codec.decode(request, counting or Counting(count_by_heuristic, make_known()))


BEGINNING = (say("system", "s"), say("user", "Do it."), say("assistant", "I read."))


@dialects
@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("role", ["user", "system"])
def test_each_form_is_recognised(dialect: str, header: str, role: str) -> None:
    """The result has the tool's name, its own role on the wire, and the size and the digest of the message."""
    text = f"{header}\nfound 3 errors"
    message = decode(dialect, *BEGINNING, say(role, text)).messages[-1]
    plain = decode(dialect, say(role, text)).messages[-1]

    assert (message.role, message.name, message.answers) == (Role.TOOL, HEADERS[header], None)
    assert (message.is_written, message.speaker, message.role_name) == (True, plain.role, role)
    assert (message.header + message.text, message.text) == (text, "found 3 errors")
    assert (message.tokens, message.digest, message.raw) == (plain.tokens, plain.digest, plain.raw)
    assert message.as_said() == replace(plain, name=HEADERS[header], wire_role=role)


@dialects
def test_other_texts_are_left_alone(dialect: str) -> None:
    for text in OTHERS:
        message = decode(dialect, *BEGINNING, say("user", f"{text} and more")).messages[-1]
        assert (message.role, message.header) == (Role.USER, ""), text


@dialects
def test_the_beginning_is_never_recognised(dialect: str) -> None:
    """A leading system message and the task statement stay; neither is a message of the assistant ever a result."""
    text = "[tool: read]\nfound"
    said = [say("system", text), say("user", text), say("assistant", text), say("user", text)]
    roles = [message.role for message in decode(dialect, *said).messages]
    assert roles == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL]


@dialects
@given(
    said=st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "system"]), st.sampled_from(["hi", "[tool: read]\nx", "[tool: ls] y"])
        ),
        max_size=8,
    ),
    parts=st.integers(0, 8),
)
def test_a_longer_transcript_changes_nothing_before(dialect: str, said: list[tuple[str, str]], parts: int) -> None:
    """What was recognised stays, and equal texts at equal sides of the first message are the same objects."""
    elements = [say(*one) for one in said]
    counting = Counting(count_by_heuristic, make_known())
    whole = decode(dialect, *elements, counting=counting).messages
    # The last unit of a response may grow, so the model's own messages are not compared there.
    early = [
        one for one in decode(dialect, *elements[:parts], counting=counting).messages if one.role is not Role.ASSISTANT
    ]
    late = [one for one in whole if one.role is not Role.ASSISTANT]
    assert all(left is right for left, right in zip(early, late, strict=False))
    results = {id(one) for one in whole if one.is_written and one.texts == ("x",) and one.wire_role == "user"}
    assert len(results) <= 1


def test_several_texts_are_results_only_together() -> None:
    """A user's words behind a result in the same message are not treated as a result."""
    texts = [{"type": "text", "text": text} for text in ("[tool: a]\nx", "[tool: b]\ny", "Now go on.")]
    both, mixed = (decode("messages", *BEGINNING, say("user", texts[:stop])).messages[-1] for stop in (2, 3))
    assert (both.role, both.texts, both.header) == (Role.TOOL, ("x", "[tool: b]\ny"), "[tool: a]\n")
    assert mixed.role is Role.USER


@pytest.mark.parametrize("text", ["[tool: read]", "[tool: read]\n  ", f"[tool: read({'x' * 90})] found"])
def test_a_header_stays_in_the_text_if_it_is_long_or_all(text: str) -> None:
    """No text becomes empty, and a placeholder has room behind a header."""
    message = decode("chat", *BEGINNING, say("user", text)).messages[-1]
    assert (message.role, message.header, message.texts) == (Role.TOOL, "", (text,))


def edit(message: Message) -> Message:
    return message.shorten(("short",), 1)


@dialects
def test_an_edited_result_keeps_its_role_its_header_and_its_members(dialect: str) -> None:
    """Only the text behind the header is replaced."""
    key = "input" if dialect == "responses" else "messages"
    said = [*BEGINNING, {**say("user", "[tool: read]\nlong text"), "extra": 1.50}, say("assistant", "Done.")]
    request = name_codec(dialect).read(orjson.dumps({"model": "m", key: said}))
    before = request.codec.decode(request, Counting(count_by_heuristic, make_known()))
    messages = [edit(message) if message.is_written else message for message in before.messages]
    written = orjson.loads(b"".join(request.codec.encode(request, before, before.edit(messages))))[key]

    assert written[:3] + written[4:] == [*said[:3], *said[4:]]
    assert {**written[3], "content": 0} == {**said[3], "content": 0}
    assert orjson.dumps(written[3]["content"]).count(b"[tool: read]\\nshort") == 1


# Decoding a transcript unit by unit, and going on from what was decoded of an earlier body.

FORM = Form("items", (), long=())
USER, LEADER = b'"user"', b'"leads"'
ELEMENTS = st.sampled_from([USER, b'"model 1"', b'"model 2"', LEADER, b'["a","b"]', b'["a"]', b'["c","d","e"]'])
"""Equal neighbours that are not the user's are one unit. A leader belongs to what follows it; if that is nothing or the
user's, to what is before it. An array has a message for each text."""
TRANSCRIPTS = st.lists(ELEMENTS, min_size=1, max_size=7).map(tuple)
WAYS = [None, "runs"]


def _find_runs(raws: Sequence[bytes], start: int) -> Iterator[tuple[int, int]]:
    stop = start  # where the unit ends without the leaders at its end
    for at in range(start, len(raws)):
        if raws[at] == LEADER:
            continue
        end = at if raws[at] == USER else stop
        if start < end and (raws[at] == USER or raws[at] != raws[end - 1]):
            yield start, end
            start = end
        stop = at + 1
        if raws[at] == USER:
            yield at, stop
            start = stop
    if start < len(raws):
        yield start, len(raws)


def _find_units(way: str | None) -> FindUnits | None:
    return None if way is None else _find_runs


def _unit_decode(unit: bytes) -> tuple[Message, ...]:
    *before, last = orjson.loads(b"[" + unit + b"]")
    parts = last if isinstance(last, list) else [last]
    return tuple(Message(Role.USER, (*map(str, before), part), raw=unit) for part in parts)


def _decode_whole(raws: tuple[bytes, ...], way: str | None) -> Decoded:
    """The transcript, decoded as if nothing were remembered."""
    units = [(at, at + 1) for at in range(len(raws))] if way is None else list(_find_runs(raws, 0))
    placed = [
        (message, Origin(start, stop, part))
        for start, stop in units
        for part, message in enumerate(_unit_decode(b",".join(raws[start:stop])))
    ]
    return Decoded(tuple(message for message, _ in placed), tuple(origin for _, origin in placed))


class Forgetful(dict[object, None]):
    """A memo that forgets everything at once."""

    def get_many(self, keys: Iterable[object], /) -> list[None]:
        return [None for _ in keys]

    def find_missing(self, keys: Iterable[object], /) -> list[object]:
        return list(keys)

    def __setitem__(self, key: object, value: object, /) -> None:
        pass


def _make_view(*, forgets: bool, number: int = 0) -> KnownView:
    elements: Elements = Forgetful()  # type: ignore[assignment]
    fixed: Fixed = Forgetful()  # type: ignore[assignment]
    return (Known(elements, fixed) if forgets else make_known()).view("test", number)


def _begin(raws: Sequence[bytes], begun: PrefixMatch | None = None) -> KeptBody:
    kept_body = split_body(FORM, b'{"items":[' + b",".join(raws) + b"]}", begun).kept_body
    assert kept_body.raws == tuple(raws)
    return kept_body


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


@pytest.mark.parametrize("way", WAYS)
@given(TRANSCRIPTS)
def test_each_message_has_the_place_of_its_unit(way: str | None, raws: tuple[bytes, ...]) -> None:
    """Whether or not the body may be continued, and whether or not its units are known."""
    whole, view, find_units = _decode_whole(raws, way), _make_view(forgets=False), _find_units(way)
    for kept_body in (None, _begin(raws), None, _begin(raws)):
        assert decode_units(raws, kept_body, view, _unit_decode, find_units) == whole


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("forgets", [False, True])
@given(turns=st.lists(st.tuples(st.integers(1, 20), st.lists(ELEMENTS, max_size=3)), min_size=1, max_size=6))
def test_a_session_that_goes_back_and_on_is_decoded_as_if_it_were_new(
    way: str | None, turns: list[tuple[int, list[bytes]]], *, forgets: bool
) -> None:
    """Each request keeps the first elements of the last one, all or some, and adds others or none."""
    view = _make_view(forgets=forgets)
    last = _begin([b'"user"'])
    for kept, new in turns:
        number = min(kept, len(last.raws))
        raws = (*last.raws[:number], *new)
        last = _begin(raws, PrefixMatch(last, number))
        assert decode_units(raws, last, view, _unit_decode, _find_units(way)) == _decode_whole(raws, way)


@pytest.mark.parametrize("way", WAYS)
@given(TRANSCRIPTS, st.data())
def test_only_what_is_new_is_decoded(way: str | None, raws: tuple[bytes, ...], data: st.DataObject) -> None:
    """What is recalled begins the transcript. If others follow, the earlier body's last unit is decoded again."""
    view, find_units = _make_view(forgets=True), _find_units(way)
    number = data.draw(st.integers(1, len(raws)))
    earlier = _begin(raws[:number])
    decode_units(raws[:number], earlier, view, _unit_decode, find_units)
    on = _begin(raws, PrefixMatch(earlier, number))
    recalled, whole, decoded = recall(raws, on, view, find_units), _decode_whole(raws, way), list[bytes]()

    assert recalled.messages == whole.messages[: len(recalled.messages)]
    assert recalled.origins == whole.origins[: len(recalled.origins)]
    last = _decode_whole(raws[:number], way).origins[-1]
    at = last.start if way is not None and number < len(raws) else number
    assert len(recalled.origins) == sum(origin.stop <= at for origin in whole.origins)

    decode_units(raws, on, view, lambda unit: decoded.append(unit) or _unit_decode(unit), find_units)
    units = [(start, start + 1) for start in range(at, len(raws))] if way is None else _find_runs(raws, at)
    assert decoded == list(dict.fromkeys(join_units(raws, units)))  # equal units are decoded once


def test_without_a_beginning_nothing_is_recalled() -> None:
    """Nor for another way of counting, nor before anything was decoded."""
    raws, known = (b'"user"', b'"model 1"'), make_known()
    view, other = known.view("test", 0), known.view("test", 1)
    kept_body = _begin(raws)
    assert recall(raws, kept_body, view) == Decoded()
    decode_units(raws, kept_body, view, _unit_decode)

    assert recall(raws, kept_body, view) == _decode_whole(raws, None)
    assert recall(raws, kept_body, other) == recall(raws, None, view) == Decoded()


def _refuse(unit: bytes) -> tuple[Message, ...]:
    raise msgspec.DecodeError


def test_an_error_of_a_unit_is_raised_and_nothing_is_noted() -> None:
    raws, view = (b'"user"', b'"model 1"'), _make_view(forgets=False)
    kept_body = _begin(raws)
    with pytest.raises(msgspec.DecodeError):
        decode_units(raws, kept_body, view, _refuse)

    assert recall(raws, kept_body, view) == Decoded()
    assert decode_units(raws, kept_body, view, _unit_decode) == _decode_whole(raws, None)


@pytest.mark.parametrize(("number", "is_grown"), [(0, False), (1, False), (8, True), (9, True)])
def test_a_body_of_mostly_known_elements_counts_as_grown(number: int, *, is_grown: bool) -> None:
    """A client that writes the JSON around its messages differently at each turn is known by them."""
    raws, view = tuple(b'"user %d"' % each for each in range(9)), _make_view(forgets=False)
    decode_units(raws[:number], None, view, _unit_decode)
    kept_body = _begin(raws)
    assert not kept_body.is_grown
    decode_units(raws, kept_body, view, _unit_decode)
    assert kept_body.is_grown is is_grown
