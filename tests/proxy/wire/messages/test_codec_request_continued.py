"""A body that continues an earlier one is read, decoded and written as if it came alone."""

from collections.abc import Iterator, Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.messages.codec import MESSAGES
from trimtab.proxy.wire.transcript.body import KeptBodies, KeptBody
from trimtab.rules.policy import Policy

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["grow", "again", "rewind", "edit", "markers", "two markers", "keys", "system"]),
        st.integers(0, 40),
        st.text("ab \n", max_size=12),
    ),
    max_size=12,
)
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


def _change(steps: list[dict], change: str, place: int, text: str, number: int) -> list[dict]:
    """The transcript after a change."""
    if change == "grow":
        new = (
            _step(100 * number + one, f"{number} {text} {one} of note\n" * (20 * place)) for one in range(place % 9 + 1)
        )
        return [*steps, *(message for step in new for message in step)]
    if change == "rewind":
        return steps[: max(len(steps) - place, 1)]
    if change == "edit":
        at = place % len(steps)
        return [*steps[:at], {"role": "user", "content": f"{text}."}, *steps[at + 1 :]]
    return steps


def _replay(changes: Sequence[tuple[str, int, str]]) -> Iterator[bytes]:
    """The bodies of a session to which changes of all kinds happen; markers move from the end to the end."""
    steps = [{"role": "user", "content": "Fix the bug."}]
    around: dict[str, object] = {"model": "m", "max_tokens": 50, "system": "Be brief."}
    places: tuple[int, ...] = (-1,)
    for number, (change, place, text) in enumerate([("grow", 9, "x"), *changes]):
        steps = _change(steps, change, place, text, number)
        if change in {"markers", "two markers"}:
            places = (-1, -3) if change == "two markers" else (-1,) * (place % 2)
        elif change == "keys":
            around = dict(reversed(around.items()))
        elif change == "system":
            around["system"] = [{"type": "text", "text": f"x{text}", "cache_control": MARKER}]
        told = _mark(steps, *places)
        yield orjson.dumps({**around, "messages": told} if place % 2 else {"messages": told, **around})


@given(CHANGES, st.sampled_from([3_000, 1_000_000]))
def test_what_was_compacted_before_changes_nothing_but_the_time(changes, window) -> None:
    """A body may grow, repeat, go back or change. The result is that of a proxy that saw none of it."""
    kept: dict[tuple[str, bytes], tuple[KeptBody, ...]] = {}
    kept_bodies, knowing, policy = KeptBodies(kept, 10**9), Compactor(count_by_heuristic), Policy(context_window=window)
    for body in _replay(changes):
        begun = kept_bodies.find("messages", body)
        request = MESSAGES.read(body, begun)
        assert request.kept_body is not None
        on = knowing.apply(knowing.plan(request, policy), None)
        kept_bodies.keep("messages", request.kept_body, begun)
        fresh = Compactor(count_by_heuristic)
        new = fresh.apply(fresh.plan(MESSAGES.read(body), policy), None)
        assert (on.body, on.decisions, on.forwarded.messages) == (new.body, new.decisions, new.forwarded.messages)


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
