"""Runs every contestant on every output and budget, and counts the facts that are left."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.material.tool_outputs import Output
from bench.peers.environments import MissingPeerError
from bench.retention.peers import HEADROOM, HEADROOM_BY_KIND, LLMLINGUA, shorten_by_headroom, shorten_by_llmlingua
from bench.retention.score import Scored, find_violations, score
from bench.retention.shorteners import OURS, SHORTENERS, load_counter, take_head_tail

UNBOUND = 0
"""The key of a run without a budget."""


@dataclass(slots=True)
class Run:
    """A contestant's scored outputs by budget (also UNBOUND if it has a run without one), or why there are none."""

    contestant: str
    scored: dict[int, list[Scored]] = field(default_factory=dict)
    missing: str = ""


def measure_facts(outputs: Sequence[Output], budgets: Sequence[int], arguments: argparse.Namespace) -> list[Run]:
    """The runs of the contestants that `arguments` name, by default of all."""
    runners: dict[str, Callable[[str], Run]] = {
        **dict.fromkeys(SHORTENERS, lambda name: _run_here(name, outputs, budgets)),
        **dict.fromkeys((HEADROOM, HEADROOM_BY_KIND), lambda name: _run_headroom(name, outputs, budgets, arguments)),
        LLMLINGUA: lambda name: _run_llmlingua(name, outputs, budgets, arguments),
    }
    wanted = arguments.contestant or runners
    unknown = set(wanted) - set(runners)
    if unknown:
        message = f"no such contestant: {', '.join(sorted(unknown))}; known: {', '.join(runners)}"
        raise SystemExit(message)
    return [run(name) for name, run in runners.items() if name in wanted]


def _run_here(name: str, outputs: Sequence[Output], budgets: Sequence[int]) -> Run:
    run = Run(name)
    for budget in budgets:
        run.scored[budget] = [_score_here(name, output, budget) for output in outputs]
    return run


def _score_here(name: str, output: Output, budget: int) -> Scored:
    text = SHORTENERS[name](output, budget)
    scored = score(output, text, load_counter())
    if not name.startswith(OURS):
        return scored
    return replace(scored, violations=tuple(find_violations(output.text, text, scored.tokens, budget)))


def _run_headroom(name: str, outputs: Sequence[Output], budgets: Sequence[int], arguments: argparse.Namespace) -> Run:
    run = Run(name)
    try:
        texts = shorten_by_headroom(arguments.peers, outputs, name)
    except MissingPeerError:
        run.missing = "not installed"
        return run
    run.scored[UNBOUND] = _score_all(outputs, texts)
    for budget in budgets:
        cut = {file: take_head_tail(text, budget) for file, text in texts.items()}
        run.scored[budget] = _score_all(outputs, cut)
    return run


def _run_llmlingua(name: str, outputs: Sequence[Output], budgets: Sequence[int], arguments: argparse.Namespace) -> Run:
    """It is asked for the budget, and may exceed it; then head and tail shorten the rest."""
    run = Run(name)
    try:
        for budget in budgets:
            texts = shorten_by_llmlingua(arguments.peers, outputs, arguments.llmlingua_model, budget)
            run.scored[budget] = _score_all(
                outputs, {file: take_head_tail(text, budget) for file, text in texts.items()}
            )
    except MissingPeerError as error:
        run.missing = f"not run: {error}"
    return run


def _score_all(outputs: Sequence[Output], texts: Mapping[str, str]) -> list[Scored]:
    return [score(output, texts[output.name], load_counter()) for output in outputs]
