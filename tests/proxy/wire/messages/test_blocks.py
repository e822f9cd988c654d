"""An element is split into its blocks; cache markers come off without a trace."""

from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialects.messages_validity import check_markers, walk_markable
from support.odd_json import dump, odd_objects

from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.cache_help import MAX_MARKERS, CacheHelp
from trimtab.proxy.wire.json import DECODE_ERRORS
from trimtab.proxy.wire.messages.blocks import (
    find_client_markers,
    find_content,
    split_blocks,
    split_parts,
    strip_markers,
)
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.transcript.body import KeptBodies
from trimtab.rules.policy import Policy
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import INTRODUCTION

MARKER = b'"cache_control":{"type":"ephemeral"}'
TEXT = b'{ "type":"text", "text" :"a \\"cache_control\\":{} b"}'
RESULT = b'{"type":"tool_result","tool_use_id":"c","content":"out"}'
IMAGE = b'{"type":"image","source":{"type":"url","url":"https://x/y.png"}}'


def _element(*blocks: bytes, separator: bytes = b",") -> bytes:
    return b'{"role":"user", "content":[' + separator.join(blocks) + b"]}"


def _content(raw: bytes) -> msgspec.Raw:
    return msgspec.Raw(find_content(raw))


def test_a_block_that_must_be_repaired_keeps_its_bytes() -> None:
    """A lone surrogate stays in `raw`, and is replaced in `clean`. Blocks after it are found."""
    broken = b'{"type":"text","text":"\\ud83d"}'
    raw = _element(RESULT, broken, TEXT)
    clean = raw.replace(b"\\ud83d", b"\\ufffd")
    blocks = split_blocks(raw, _content(clean))
    assert [block.raw for block in blocks] == [RESULT, broken, TEXT]
    assert blocks[1].clean == broken.replace(b"\\ud83d", b"\\ufffd")


def test_each_result_and_each_run_of_other_blocks_is_a_part() -> None:
    raw = _element(RESULT, RESULT, TEXT, IMAGE, RESULT)
    parts = split_parts(raw, _content(raw))
    assert [(part.is_result, part.content) for part in parts] == [
        (True, b"[%b]" % RESULT),
        (True, b"[%b]" % RESULT),
        (False, b"[%b,%b]" % (TEXT, IMAGE)),
        (True, b"[%b]" % RESULT),
    ]


@pytest.mark.parametrize("raw", [_element(TEXT, IMAGE), b'{"content":"tool_result"}', b'{"x":"tool_result"}'])
def test_an_element_without_results_has_no_parts(raw: bytes) -> None:
    assert split_parts(raw, _content(raw)) == []


@pytest.mark.parametrize("spaces", [b"", b" ", b"\n\t"])
@pytest.mark.parametrize("block", [TEXT, IMAGE, RESULT, RESULT.replace(b'"out"', b"[%b]" % TEXT)])
def test_without_its_markers_an_element_is_what_the_client_sends_later(block: bytes, spaces: bytes) -> None:
    """Whether the marker is on a block or in the content of a result, and however it is spaced."""
    marked = block[:-1] + b"," + spaces + MARKER.replace(b":", spaces + b":" + spaces) + b"}"
    nested = b'{"type":"tool_result","tool_use_id":"c","content":[%b]}'
    assert strip_markers(_element(TEXT, marked, RESULT)) == _element(TEXT, block, RESULT)
    assert strip_markers(_element(nested % marked)) == _element(nested % block)


def test_a_marker_that_does_not_come_last_goes_too() -> None:
    first = b"{" + MARKER + b', "type": "text", "text":"a"}'
    assert orjson.loads(strip_markers(_element(first))) == {"role": "user", "content": [{"type": "text", "text": "a"}]}


@pytest.mark.parametrize(
    "kept",
    [
        b'{"type":"text","text":"\\"cache_control\\":{\\"type\\":\\"ephemeral\\"}"}',
        b'{"type":"tool_use","id":"c","name":"x","input":{"a":1,"cache_control":{"type":"ephemeral"}}}',
        b'"cache_control"',
    ],
)
def test_what_only_looks_like_a_marker_stays(kept: bytes) -> None:
    assert strip_markers(_element(kept)) == _element(kept)


@given(odd_objects("role", "content", content=st.lists(odd_objects("type", "cache_control", "content"), max_size=4)))
def test_odd_elements_lose_only_markers(element: object) -> None:
    raw = dump(element)
    try:
        stripped = strip_markers(raw)
    except DECODE_ERRORS:
        pytest.fail("strip_markers raised")
    if b'"cache_control"' not in raw:
        assert stripped is raw
    assert msgspec.json.decode(stripped) is not None or element is None


# A cut leaves a cache marker where the next request finds it, and never one too many.

Wire = dict[str, Any]

SHORT = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SMALL = Policy(context_window=6000)
STEPS = 22
_SYSTEM = {"type": "text", "text": "s", "cache_control": HOUR}


def _session(steps: int) -> list[Wire]:
    messages: list[Wire] = [{"role": "user", "content": [{"type": "text", "text": "Mend the build."}]}]
    for number in range(steps):
        use = {"type": "tool_use", "id": f"c{number}", "name": "run", "input": {"n": number}}
        text = " ".join(f"word{number}x{each}" for each in range(100))
        messages.append({"role": "assistant", "content": [use]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": text}]}
        )
    return messages


def _mark(messages: list[Wire], at: int, marker: Wire = SHORT) -> list[Wire]:
    content = messages[at]["content"]
    marked = {**messages[at], "content": [*content[:-1], {**content[-1], "cache_control": marker}]}
    return [*messages[:at], marked, *messages[at:][1:]]


def _send_told(
    messages: list[Wire], compactor: Compactor | None = None, cache: CacheHelp | None = None, **members: object
) -> tuple[Wire, tuple[str, ...]]:
    """The body that is forwarded after a cut, and what is told of it. `cache`: of a host that takes markers."""
    compactor = compactor or Compactor(count_by_heuristic)
    request = MESSAGES.read(orjson.dumps({"model": "m", "max_tokens": 100, "messages": messages, **members}))
    request = replace(request, cache=cache or request.cache)
    compacted = compactor.apply(compactor.plan(request, SMALL), Summary("Goal: mend the build.", by_model=True))
    assert compacted.decisions[-1].rule == "summarise"
    helped = MESSAGES.help_cache(request, compacted.forwarded, compacted.pieces)
    assert helped.pieces is compacted.pieces
    sent: Wire = orjson.loads(compacted.body)
    assert check_markers(sent) == []
    return sent, helped.added


def _send(messages: list[Wire], compactor: Compactor | None = None, **members: object) -> Wire:
    return _send_told(messages, compactor, **members)[0]


KNOWN = CacheHelp(frozenset({"cache_control"}))


def _find_marked(sent: Wire) -> list[Wire]:
    return [block for block in walk_markable(sent) if "cache_control" in block]


def test_the_summary_ends_with_a_marker() -> None:
    """The client's own marker stays at the end, and that of the system prompt before it."""
    sent = _send(_mark(_session(STEPS), -1), system=[{"type": "text", "text": "s", "cache_control": SHORT}])
    system, summary, last = _find_marked(sent)
    assert (system["text"], last["type"]) == ("s", "tool_result")
    assert summary["text"].startswith(INTRODUCTION)
    assert summary is sent["messages"][0]["content"][-1]


def test_the_marker_stays_while_the_client_moves_its_own() -> None:
    """From request to request, the forwarded body begins with the same bytes up to the summary's end."""
    compactor = Compactor(count_by_heuristic)
    sent = [_send(_mark(_session(steps), -1), compactor) for steps in (STEPS, STEPS + 1, STEPS + 2)]
    summaries = [orjson.dumps(one["messages"][0]) for one in sent]
    assert len(set(summaries)) == 1
    assert [len(_find_marked(one)) for one in sent] == [2, 2, 2]


def test_a_marker_that_was_cut_away_or_that_the_api_places_itself_moves_to_the_summary() -> None:
    sent = _send(_mark(_session(STEPS), 2, HOUR))
    (marked,) = _find_marked(sent)
    assert (marked["cache_control"], marked["text"].startswith(INTRODUCTION)) == (HOUR, True)
    (marked,) = _find_marked(_send(_session(STEPS), cache_control=HOUR))
    assert marked["cache_control"] == HOUR


@pytest.mark.parametrize("members", [{}, {"system": [{"type": "text", "text": "s", "cache_control": SHORT}]}])
def test_a_client_that_marks_no_message_gets_no_marker(members: Wire) -> None:
    sent = _send(_session(STEPS), **members)
    assert [block.get("text") for block in _find_marked(sent)] == ["s"] * len(members)


@pytest.mark.parametrize(("members", "marker"), [({}, SHORT), ({"system": [_SYSTEM]}, HOUR)], ids=["silent", "system"])
def test_a_known_host_gets_a_marker_even_so(members: Wire, marker: Wire) -> None:
    sent, added = _send_told(_session(STEPS), cache=KNOWN, **members)
    assert added == ("cache_control",)
    summary = _find_marked(sent)[-1]
    assert (summary["cache_control"], summary["text"].startswith(INTRODUCTION)) == (marker, True)


def test_a_marker_that_the_client_asked_for_is_not_told_as_an_addition() -> None:
    sent, added = _send_told(_mark(_session(STEPS), -1), cache=KNOWN)
    assert (len(_find_marked(sent)), added) == (2, ())
    sent, added = _send_told(_session(STEPS), cache=KNOWN, system=[_SYSTEM] * MAX_MARKERS)
    assert (len(_find_marked(sent)), added) == (MAX_MARKERS, ())


def test_there_are_never_more_than_four() -> None:
    """The one that the API places itself counts, too."""
    system = [{"type": "text", "text": "s", "cache_control": HOUR}]
    tools = [{"name": "run", "input_schema": {"type": "object"}, "cache_control": HOUR}]
    rolling = _mark(_mark(_session(STEPS), -1), -3)
    full = _send(rolling, system=system, tools=tools)
    kinds = [block.get("name") or block["type"] for block in _find_marked(full)]
    assert kinds == ["run", "text", "tool_result", "tool_result"]
    automatic = _send(_mark(_session(STEPS), -1), system=system, tools=tools, cache_control=SHORT)
    assert len(_find_marked(automatic)) == MAX_MARKERS - 1


@pytest.mark.parametrize("last", [SHORT, HOUR])
def test_an_hour_comes_before_five_minutes(last: Wire) -> None:
    """The marker is like the client's next one; `check_markers` finds a wrong order."""
    system = [{"type": "text", "text": "s", "cache_control": HOUR}]
    _, summary, end = _find_marked(_send(_mark(_session(STEPS), -1, last), system=system))
    assert summary["cache_control"] == end["cache_control"] == last


def test_only_markers_are_found() -> None:
    """Not a schema or a text that looks like one."""
    tools = orjson.dumps([{"input_schema": {"properties": {"cache_control": {"type": "string"}}}}])
    raws = [
        orjson.dumps({"role": "user", "content": [{"type": "text", "text": '"cache_control":{"type":"ephemeral"}'}]}),
        b'{"role":"user","content":[{"type":"text","text":"a","cache_control":null}]}',
        b'{"role":"user","content":[{"type":"tool_result","x":1},{"type":"text","cache_control":{"type":"ephemeral"}}]}',
        b'{"role":1,"content":"cache_control"',
        b'"cache_control"',
    ]
    found = find_client_markers({"tools": tools}, raws)  # type: ignore[dict-item]
    assert (found.heads, found.automatic) == ([], [])
    assert found.placed == [(2, 1, b'{"type":"ephemeral"}')]


# A body that continues an earlier one is read, decoded and written as if it came alone.

STEP_MARKER = {"type": "ephemeral"}


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


def _step(number: int, text: str) -> list[dict]:
    use = {"type": "tool_use", "id": f"c{number}", "name": "run", "input": {"n": number}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def _step_mark(steps: list[dict], *places: int) -> list[dict]:
    marked = list(steps)
    for at in (at for at in places if -at <= len(steps)):
        content = steps[at]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        marked[at] = {**steps[at], "content": [*blocks[:-1], {**blocks[-1], "cache_control": STEP_MARKER}]}
    return marked


def test_a_turn_whose_markers_moved_is_written_behind_what_was_written_before() -> None:
    """The forwarded prefix consists of the same objects, although the last elements have changed."""
    kept_bodies, compactor = KeptBodies({}, 10**9), Compactor(count_by_heuristic)
    written: list[tuple[bytes, ...]] = []
    steps = [{"role": "user", "content": "Fix the bug."}]
    for number in range(8):
        spaced = [{"line": line, "of": {"x": line * number}} for line in range(40)]
        steps += _step(number, orjson.dumps(spaced, option=orjson.OPT_INDENT_2).decode())
        body = orjson.dumps({"model": "m", "max_tokens": 50, "messages": _step_mark(steps, -1, -3)})
        begun = kept_bodies.find("messages", body)
        request = MESSAGES.read(body, begun)
        planned = compactor.plan(request, Policy(context_window=1_000_000))
        written.append(compactor.apply(planned, None).pieces)
        assert request.kept_body is not None
        kept_bodies.keep("messages", request.kept_body, begun)
    before, after = written[-2:]
    is_known = {id(piece) for piece in before}
    new = sum(len(piece) for piece in after if id(piece) not in is_known)
    assert new < sum(map(len, after)) // 2
