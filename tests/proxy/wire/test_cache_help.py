"""Markers and the key are added where providers accept them, and nowhere else."""

from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.dialects.spoken.responses import RESPONSES
from support.odd_json import ODD, dump
from support.sessions import make_session

from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.cache_help import (
    BREAKPOINT,
    CACHE_MARKERS,
    CONTROL,
    MIN_TOKENS,
    CacheHelp,
    Client,
    add_breakpoint,
    add_controls,
    add_key,
    find_key,
    find_markers,
    find_markers_within,
    find_summary,
    has_markers,
    help_openly,
    mark,
    replace_element,
    unmark,
)
from trimtab.proxy.wire.json import decode_any, decode_members
from trimtab.rules.conversation import Media, Message, Origin, Role
from trimtab.rules.policy import Policy
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import INTRODUCTION

WINDOW = Policy(context_window=2000, completion_reserve=200)
NOTE = Summary("Goal: mend the build.", by_model=True)
SILENT = Client({}, {})
SYSTEM = Message(Role.SYSTEM, ("Be brief.",), tokens=600)
TASK = Message(Role.USER, ("Mend it.",))
SUMMARY = Message(Role.USER, ("Mend it.", f"{INTRODUCTION}\nAll went well."), edited=True)
SAID = Message(Role.ASSISTANT, ("I look.",))
RESULT = Message(Role.TOOL, ("All is well.",), answers="c")


def _marked(messages: list[Message], client: Client = SILENT) -> list[int]:
    return sorted(add_controls(messages, client))


def test_controls_stand_at_the_ends_of_system_summary_and_transcript() -> None:
    messages = [SYSTEM, SYSTEM, SUMMARY, SAID, RESULT, SAID]
    assert _marked(messages) == [1, 2, 4]
    assert all(message.taken_in == (CONTROL,) for message in add_controls(messages, SILENT).values())
    assert _marked([SYSTEM, TASK]) == [0, 1]
    assert _marked([SYSTEM, SUMMARY]) == [0, 1]


@pytest.mark.parametrize(
    "unfit",
    [
        Message(Role.TOOL, ("  \n",), answers="c"),
        Message(Role.TOOL, (), answers="c"),
        Message(Role.USER, ("Look:",), media=(Media(b"{}", 5),)),
    ],
    ids=["blank", "empty", "image"],
)
def test_a_message_that_does_not_end_in_a_text_is_passed_over(unfit: Message) -> None:
    assert _marked([SYSTEM, TASK, SAID, unfit]) == [0, 1]


def test_no_control_is_added_beside_the_clients_own_or_to_a_short_prompt() -> None:
    own = Client({}, {3: b'{"content":[{"text":"x","cache_control":{}}]}'})
    top = Client(decode_members(b'{"cache_control":{"type":"ephemeral"}}'), {})
    tool = Client(decode_members(b'{"tools":[{"cache_control":{"type":"ephemeral"}}]}'), {})
    named = Client(decode_members(b'{"tools":[{"parameters":{"cache_control":{"type":"string"}}}]}'), {})
    assert _marked([SYSTEM, TASK], named) == [0, 1]
    for client in (own, top, tool):
        assert _marked([SYSTEM, TASK], client) == []
    assert _marked([Message(Role.SYSTEM, ("x",), tokens=MIN_TOKENS - 1), TASK]) == []


def test_a_breakpoint_stands_at_the_end_of_the_summary_only() -> None:
    """A client that places all breakpoints itself gets none."""
    messages = [SYSTEM, SUMMARY, SAID, RESULT]
    found = add_breakpoint(messages, [None] * 4, SILENT)
    assert {at: message.taken_in for at, message in found.items()} == {1: (BREAKPOINT,)}
    assert sorted(add_breakpoint(messages, [None] * 4, SILENT, at_end=True)) == [1, 3]
    assert sorted(add_breakpoint(messages[:3], [None] * 3, SILENT, at_end=True)) == [1]
    assert add_breakpoint([SYSTEM, TASK], [None] * 2, SILENT) == {}
    assert find_summary([Message(Role.USER, SUMMARY.texts)]) is None  # the client's own words
    spoken = Message(Role.ASSISTANT, SUMMARY.texts, edited=True)
    assert add_breakpoint([TASK, spoken], [None] * 2, SILENT) == {}
    client = Client(decode_members(b'{"prompt_cache_options":{"mode":"explicit"}}'), {})
    assert add_breakpoint([SUMMARY], [None], client) == {}


@given(st.integers(0, 6), st.booleans())
def test_there_are_never_more_than_four_breakpoints(own: int, at_end: bool) -> None:  # noqa: FBT001 - drawn
    """The implicit one counts. Those of the client in messages that were cut away do not."""
    raw = b'{"prompt_cache_breakpoint":{}}'
    messages, origins = [SYSTEM, SUMMARY, SAID, RESULT], [Origin(at, at + 1) for at in (0, 1, 50, 51)]
    client = Client({}, {51: raw * own, 7: raw * 9})
    added = add_breakpoint(messages, origins, client, at_end=at_end)
    assert 1 + own + len(added) <= 4 or not added
    assert bool(added) == (own <= (1 if at_end else 2))


def test_a_text_about_markers_is_no_marker_and_a_damaged_part_keeps_its_own() -> None:
    """A lone surrogate is repaired, because the part is written again."""
    assert not has_markers(orjson.dumps({"content": 'add "cache_control" and "prompt_cache_breakpoint"'}))
    assert has_markers(b'{"content":[{"text":"x", "cache_control" : {}}]}')
    part = b'{"text":"\\ud83d","cache_control":{"type":"ephemeral"}}'
    assert _values(find_markers(part)) == {"cache_control": {"type": "ephemeral"}}
    assert orjson.loads(unmark(part)) == {"text": "\ufffd"}


@given(st.binary(max_size=3).map(lambda _: b"\xef\xbb\xbf"), st.sampled_from([b"", b" ", b"\n\t"]))
def test_the_key_is_one_more_member_and_all_other_bytes_stay(mark: bytes, space: bytes) -> None:
    body = b'{ "model":"m", "messages":[] }'
    written = b"".join(add_key((mark + space + body, b"more"), "abc"))
    assert written == mark + space + b'{"prompt_cache_key":"abc",' + body[1:] + b"more"
    assert (find_key(written), find_key(mark + space + body)) == ("abc", "")
    assert orjson.loads(b"".join(add_key((body,), "abc"))) == {"prompt_cache_key": "abc", **orjson.loads(body)}


@pytest.mark.parametrize(("is_late", "expected"), [(False, (b"[1,X", b"a,a]")), (True, (b"[1,a", b"a,X]"))])
def test_the_first_or_the_last_of_equal_elements_is_replaced(is_late: bool, expected: tuple[bytes, ...]) -> None:  # noqa: FBT001 - parametrised
    assert replace_element((b"[1,a", b"a,a]"), b"a", b"X", is_late=is_late) == expected
    assert replace_element((b"[1", b"]"), b"a", b"X", is_late=is_late) is None


def test_what_is_not_found_is_not_told() -> None:
    """A marker that cannot be put into the body is no decision, and the key is added all the same."""
    asked = CacheHelp(frozenset({"cache_breakpoint", "cache_key"}), "k")
    marked = add_breakpoint([SUMMARY], [None], SILENT)
    helped = help_openly(
        asked, (b'{"messages":[]}',), [SUMMARY], marked, lambda message: message.raw or repr(message).encode()
    )
    assert helped == ((b'{"prompt_cache_key":"k","messages":[]}',), ("cache_key",))


@given(st.lists(st.integers(1, 120), min_size=12, max_size=26), st.sampled_from([CHAT, RESPONSES]))
def test_the_forwarded_prefix_moves_at_cuts_only(lengths: list[int], dialect: Dialect) -> None:
    """Key and breakpoint in place, each body begins like the last one wherever it does without them."""
    messages = make_session(len(lengths))["messages"][:-1]
    for length, at in zip(lengths, range(3, len(messages), 2), strict=True):
        messages[at] = {**messages[at], "content": "word " * length}
    compactor, asked = Compactor(count_by_heuristic), CacheHelp(frozenset({"cache_key", "cache_breakpoint"}), "key")
    before: tuple[bytes, bytes] | None = None
    for stop in range(4, len(messages) + 1, 2):
        body = orjson.dumps(dialect.convert({"messages": messages[:stop]}) | {"model": "m"})
        request = replace(dialect.codec.read(body), cache=asked)
        compacted = compactor.apply(compactor.plan(request, WINDOW), NOTE)
        helped = dialect.codec.help_cache(request, compacted.forwarded, compacted.pieces)
        is_cut = find_summary(compacted.forwarded.messages) is not None
        assert helped.added == (("cache_breakpoint", "cache_key") if is_cut else ("cache_key",))
        after = _take_beginning(compacted.body, dialect), _take_beginning(b"".join(helped.pieces), dialect)
        if before is not None:
            plain_stays, helped_stays = (
                later.startswith(earlier) for earlier, later in zip(before, after, strict=True)
            )
            assert helped_stays == plain_stays
        before = after


def _take_beginning(body: bytes, dialect: Dialect) -> bytes:
    start = body.index(b'"%b":' % dialect.transcript.encode())
    last = orjson.dumps(orjson.loads(body)[dialect.transcript][-1])
    return body[start : body.rindex(last)]


NAMES = st.sampled_from([*CACHE_MARKERS, "text", "a"])
PARTS = st.dictionaries(NAMES, ODD | st.sampled_from(CACHE_MARKERS), max_size=4)
MARKERS = st.dictionaries(st.sampled_from(CACHE_MARKERS), ODD, max_size=2)


def _raw(markers: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(dump(value)) for name, value in markers.items()}


def _values(markers: dict[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: decode_any(bytes(value)) for name, value in markers.items()}


@given(PARTS)
def test_a_part_is_its_markers_and_the_rest(part: dict[str, Any]) -> None:
    """Each member belongs to one of the two. A part without markers is returned as it is."""
    raw = dump(part)
    markers, rest = _values(find_markers(raw)), decode_any(unmark(raw))

    assert markers.keys() == part.keys() & set(CACHE_MARKERS)
    assert {**rest, **markers} == decode_any(raw)
    assert not rest.keys() & set(CACHE_MARKERS)
    assert markers or unmark(raw) is raw


@given(PARTS, MARKERS)
def test_a_mark_is_added_only_if_it_is_missing(part: dict[str, Any], markers: dict[str, Any]) -> None:
    """The part's own marker stays, and so does every other member. If nothing is missing, the bytes stay."""
    raw = dump(part)
    marked = mark(raw, _raw(markers))

    assert decode_any(marked) == decode_any(dump({**markers, **part}))
    assert decode_any(unmark(marked)) == decode_any(unmark(raw))
    assert markers.keys() - part.keys() or marked is raw


@pytest.mark.parametrize(
    "item",
    [b'"cache_control"', b'["cache_control"]', b"5", b"", b'{"text":"cache_control"}', b'{"a":{"cache_control":{}}}'],
)
def test_what_only_names_a_marker_has_none(item: bytes) -> None:
    """A marker is a member of the part itself."""
    assert find_markers(item) == {}
    assert unmark(item) is item


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"cache_control": 1, "content": "x"}, {"cache_control": 1}),
        ({"content": [{"cache_control": 1}, {"cache_control": 2}, {"a": 3}]}, {"cache_control": 2}),
        ({"cache_control": 1, "content": [{"cache_control": 2}]}, {"cache_control": 2}),
        (
            {"content": [{"cache_control": 1}, "x", {"prompt_cache_breakpoint": 2}]},
            {"cache_control": 1, "prompt_cache_breakpoint": 2},
        ),
        ({"content": {"cache_control": 1}}, {}),
    ],
)
def test_the_last_marker_of_each_name_in_a_message_is_found(message: Any, expected: dict[str, Any]) -> None:
    """On the message, or on one of its parts."""
    assert _values(find_markers_within(orjson.dumps(message))) == expected
