"""What compactors remember is bounded by bytes, and only saves time."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction import caches as sizes
from trimtab.proxy.compaction.caches import Caches
from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.tools import ToolList, drop_tools
from trimtab.rules.policy import Budget, Policy

BOUND = 256 * 1024
POLICY = Policy(result_budget=Budget(300))


def session(name: str, steps: int) -> bytes:
    """A session that reads each file twice. Each result is over its budget."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Mend the build of {name}."}]
    for number in range(steps):
        arguments = f'{{"path":"{name}/{number // 2}.py"}}'
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": arguments}}
        text = "\n".join(f"{name}, file {number // 2}, line {line}: nothing of note" for line in range(80))
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    return orjson.dumps({"model": "m", "messages": messages})


def compact(caches: Caches, bodies: Sequence[bytes], policy: Policy = POLICY) -> list[Compacted]:
    """Compact each body, with compactors that share the caches."""
    compactors = [Compactor(count_by_heuristic, caches=caches, number=number) for number in range(2)]
    planned = ((one, one.plan(CHAT.read(body), policy)) for body in bodies for one in compactors)
    return [one.apply(plan, None) for one, plan in planned]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Caches:
    for name in ("RESULTS_BYTES", "SKETCHES_BYTES", "DIFFS_BYTES", "STATES_BYTES"):
        monkeypatch.setattr(sizes, name, BOUND)
    return Caches()


def test_what_is_kept_stays_within_its_bound(small: Caches) -> None:
    """Transcripts, of which the newest are kept; new texts of results, and the sketches that compare them."""
    for steps in range(2, 10, 2):
        compact(small, [session(f"session {number}", steps) for number in range(8)])
        states = [state for _, state in small.states.items()]
        assert states
        assert sum(state.size_bytes for state in states) <= BOUND

    bodies = [session(f"session {number}", 8) for number in range(8)]
    compact(small, bodies)
    kept = [len(text) for _, shortened in small.results.items() for text in shortened.texts]
    assert 0 < sum(kept) <= BOUND
    compact(small, bodies, Policy())
    assert 0 < sum(len(text) for text, _ in small.sketches.items()) <= BOUND


def test_a_state_that_is_too_large_is_not_kept(small: Caches) -> None:
    large = session("large", 80)
    first, second = compact(small, [large]), compact(small, [large])
    assert small.states.items() == []
    assert first == second == compact(Caches(), [large])


def test_small_caches_change_no_byte(small: Caches) -> None:
    """The forwarded bytes do not depend on what the caches have forgotten."""
    bodies = [session(f"session {number % 5}", 2 + number // 5) for number in range(25)]
    assert [one.body for one in compact(small, bodies)] == [one.body for one in compact(Caches(), bodies)]


def test_a_share_knows_nothing_of_what_another_has_seen() -> None:
    """A share finds its own entries again. What one share keeps changes no byte for another."""
    caches = Caches()
    one, two = caches.share(), caches.share()
    body = session("one", 8)
    compacted = compact(one, [body])
    kept = ("elements", "fixed", "results", "sketches", "diffs", "states")
    assert any(getattr(one, name).items() for name in kept)
    assert not any(getattr(held, name).items() for name in kept for held in (caches, two))
    assert compact(two, [body]) == compacted
    one.close()
    assert not any(getattr(one, name).items() for name in kept)
    assert two.states.items()


def test_lists_of_small_tools_stay_within_their_bound() -> None:
    """The declarations that were read take more memory than their JSON."""
    kept = Caches(0.01).tool_lists
    tools = orjson.dumps([{"name": f"t{number}"} for number in range(10)])
    for number in range(100):
        drop_tools(b"{}", None, [ToolList(b'"tools"', tools + b" " * number, b"", ())], frozenset(), ("x",), kept)
    declared = sum(len(listed.tools) for _, listed in kept.items())
    assert 100 < 300 * declared <= sizes.TOOL_LISTS_BYTES // 100
