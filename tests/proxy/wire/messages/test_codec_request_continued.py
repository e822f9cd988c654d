"""A body that continues an earlier one is read, decoded and written as if it came alone."""

import orjson
import pytest

from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.transcript.body import KeptBodies
from trimtab.rules.policy import Policy

MARKER = {"type": "ephemeral"}


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of a few bytes are kept, too."""
    monkeypatch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)


def _step(number: int, text: str) -> list[dict]:
    use = {"type": "tool_use", "id": f"c{number}", "name": "run", "input": {"n": number}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def _mark(steps: list[dict], *places: int) -> list[dict]:
    marked = list(steps)
    for at in (at for at in places if -at <= len(steps)):
        content = steps[at]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        marked[at] = {**steps[at], "content": [*blocks[:-1], {**blocks[-1], "cache_control": MARKER}]}
    return marked


def test_a_turn_whose_markers_moved_is_written_behind_what_was_written_before() -> None:
    """The forwarded prefix consists of the same objects, although the last elements have changed."""
    kept_bodies, compactor = KeptBodies({}, 10**9), Compactor(count_by_heuristic)
    written: list[tuple[bytes, ...]] = []
    steps = [{"role": "user", "content": "Fix the bug."}]
    for number in range(8):
        spaced = [{"line": line, "of": {"x": line * number}} for line in range(40)]
        steps += _step(number, orjson.dumps(spaced, option=orjson.OPT_INDENT_2).decode())
        body = orjson.dumps({"model": "m", "max_tokens": 50, "messages": _mark(steps, -1, -3)})
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
