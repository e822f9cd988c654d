"""Decoding a transcript unit by unit, and going on from what was decoded of an earlier body."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.wire.transcript.body import Decoded, Form, KeptBody, PrefixMatch, split_body
from trimtab.proxy.wire.transcript.decoding import (
    Elements,
    FindUnits,
    Fixed,
    Known,
    KnownView,
    decode_units,
    join_units,
    recall,
)
from trimtab.rules.conversation import Message, Origin, Role

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


def _decode(unit: bytes) -> tuple[Message, ...]:
    *before, last = orjson.loads(b"[" + unit + b"]")
    parts = last if isinstance(last, list) else [last]
    return tuple(Message(Role.USER, (*map(str, before), part), raw=unit) for part in parts)


def _decode_whole(raws: tuple[bytes, ...], way: str | None) -> Decoded:
    """The transcript, decoded as if nothing were remembered."""
    units = [(at, at + 1) for at in range(len(raws))] if way is None else list(_find_runs(raws, 0))
    placed = [
        (message, Origin(start, stop, part))
        for start, stop in units
        for part, message in enumerate(_decode(b",".join(raws[start:stop])))
    ]
    return Decoded(tuple(message for message, _ in placed), tuple(origin for _, origin in placed))


class Forgetful:
    """A memo that forgets everything at once."""

    def get(self, key: object, /) -> None:
        """Nothing."""

    def get_many(self, keys: Iterable[object], /) -> list[None]:
        """Nothing for each key."""
        return [None for _ in keys]

    def find_missing(self, keys: Iterable[object], /) -> list[object]:
        """All of them."""
        return list(keys)

    def __setitem__(self, key: object, value: object, /) -> None:
        """Forget the value."""


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
    """Bodies of a few bytes are kept, too."""
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


@pytest.mark.parametrize("way", WAYS)
@given(TRANSCRIPTS)
def test_each_message_has_the_place_of_its_unit(way: str | None, raws: tuple[bytes, ...]) -> None:
    """Whether or not the body may be continued, and whether or not its units are known."""
    whole, view, find_units = _decode_whole(raws, way), _make_view(forgets=False), _find_units(way)
    for kept_body in (None, _begin(raws), None, _begin(raws)):
        assert decode_units(raws, kept_body, view, _decode, find_units) == whole


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
        assert decode_units(raws, last, view, _decode, _find_units(way)) == _decode_whole(raws, way)


@pytest.mark.parametrize("way", WAYS)
@given(TRANSCRIPTS, st.data())
def test_only_what_is_new_is_decoded(way: str | None, raws: tuple[bytes, ...], data: st.DataObject) -> None:
    """What is recalled begins the transcript. If others follow, the earlier body's last unit is decoded again."""
    view, find_units = _make_view(forgets=True), _find_units(way)
    number = data.draw(st.integers(1, len(raws)))
    earlier = _begin(raws[:number])
    decode_units(raws[:number], earlier, view, _decode, find_units)
    on = _begin(raws, PrefixMatch(earlier, number))
    recalled, whole, decoded = recall(raws, on, view, find_units), _decode_whole(raws, way), list[bytes]()

    assert recalled.messages == whole.messages[: len(recalled.messages)]
    assert recalled.origins == whole.origins[: len(recalled.origins)]
    last = _decode_whole(raws[:number], way).origins[-1]
    at = last.start if way is not None and number < len(raws) else number
    assert len(recalled.origins) == sum(origin.stop <= at for origin in whole.origins)

    decode_units(raws, on, view, lambda unit: decoded.append(unit) or _decode(unit), find_units)
    units = [(start, start + 1) for start in range(at, len(raws))] if way is None else _find_runs(raws, at)
    assert decoded == list(dict.fromkeys(join_units(raws, units)))  # equal units are decoded once


def test_without_a_beginning_nothing_is_recalled() -> None:
    """Nor for another way of counting, nor before anything was decoded."""
    raws, known = (b'"user"', b'"model 1"'), make_known()
    view, other = known.view("test", 0), known.view("test", 1)
    kept_body = _begin(raws)
    assert recall(raws, kept_body, view) == Decoded()
    decode_units(raws, kept_body, view, _decode)

    assert recall(raws, kept_body, view) == _decode_whole(raws, None)
    assert recall(raws, kept_body, other) == recall(raws, None, view) == Decoded()


def _refuse(unit: bytes) -> tuple[Message, ...]:
    raise msgspec.DecodeError


def test_an_error_of_a_unit_is_raised_and_nothing_is_noted() -> None:
    """The next attempt decodes the transcript as if it were the first."""
    raws, view = (b'"user"', b'"model 1"'), _make_view(forgets=False)
    kept_body = _begin(raws)
    with pytest.raises(msgspec.DecodeError):
        decode_units(raws, kept_body, view, _refuse)

    assert recall(raws, kept_body, view) == Decoded()
    assert decode_units(raws, kept_body, view, _decode) == _decode_whole(raws, None)


@pytest.mark.parametrize(("number", "is_grown"), [(0, False), (1, False), (8, True), (9, True)])
def test_a_body_of_mostly_known_elements_counts_as_grown(number: int, *, is_grown: bool) -> None:
    """A client that writes the JSON around its messages differently at each turn is known by them."""
    raws, view = tuple(b'"user %d"' % each for each in range(9)), _make_view(forgets=False)
    decode_units(raws[:number], None, view, _decode)
    kept_body = _begin(raws)
    assert not kept_body.is_grown
    decode_units(raws, kept_body, view, _decode)
    assert kept_body.is_grown is is_grown
