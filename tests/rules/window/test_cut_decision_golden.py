"""The windows of whole sessions, as they are: when a cut comes, where it falls, and what it keeps."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace

import pytest
from msgspec import Struct, structs
from support.builders import (
    assistant,
    call,
    fill,
    measure,
    rereading,
    result,
    screenshots,
    session,
    system,
    user,
)
from support.golden import check_golden

from trimtab.rules.conversation import Message
from trimtab.rules.policy import OnExceeded, OverflowStrategy, Policy, PreserveSystem, Prices, SectionShares
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.state import Window

LIMIT = 3200
POLICY = Policy(context_window=LIMIT, completion_reserve=0, keep_user_tokens=300, summary_max_tokens=200)


def _talk(turns: int) -> tuple[Message, ...]:
    """Turns of different lengths; sometimes with calls, a reminder, memory, or several words in a row."""
    messages = [system(), user(fill("task", 90))]
    for turn in range(turns):
        messages.append(assistant(fill(f"answer {turn}", 20 + 37 * turn % 90)))
        if turn % 4 == 1:
            calls = [call(f"t{turn}-{number}") for number in range(turn % 3 + 1)]
            messages.append(assistant(None, *calls))
            messages += [result(one.id, fill(f"result {one.id}", 40 + 61 * turn % 200)) for one in calls]
        if turn % 5 == 2:
            messages.append(system(fill(f"reminder {turn % 2}", 15)))
        memory = f"<memory>{fill(f'memory {turn}', 30)}</memory>" if turn % 3 == 0 else ""
        messages.append(user(fill(f"question {turn}", 15 + 53 * turn % 120) + memory))
        if turn % 7 == 6:
            messages.append(user(fill(f"addition {turn}", 12)))
    return tuple(messages)


SESSIONS = {
    "agent": session(40, call_tokens=20, result_tokens=90),
    "rereading": rereading(30),
    "screenshots": screenshots(26),
    "talk": _talk(28),
    "long-step": (*session(12), *(user(fill("a long text", 2900)), assistant("I see."), *session(12)[1:])),
}
POLICIES = {
    "usual": POLICY,
    "at threshold": replace(POLICY, cuts_at_threshold=True, high_water=0.6, low_water=0.3),
    "dear cache": replace(POLICY, prices=Prices(1, 0.5, 5, 1.25)),
    "cheap cache": replace(POLICY, prices=Prices(1, 0.02, 8), summary_min_steps=2),
    "summarize": replace(POLICY, overflow_strategy=OverflowStrategy.SUMMARIZE, on_exceeded=OnExceeded.TRUNCATE),
    "prune": replace(POLICY, overflow_strategy=OverflowStrategy.PRUNE, protect_turns=1, on_exceeded=OnExceeded.ERROR),
    "few turns": replace(POLICY, max_turns=4, keep_images=3, preserve_system=PreserveSystem.ALL),
    "cheap summaries": replace(POLICY, prices=Prices(1, 0.001, 0.01, 1.25)),
    "sections": replace(POLICY, sections=SectionShares(), keep_recent_steps=3, anchor_share=0.1, risk_share=0.02),
}
UNTOLD = {"removed_from", "users_stop", "made_at", "lost"}
"""The fields on which it does not depend what is forwarded, asked or told."""


def _describe(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_describe, value))}]"
    if not isinstance(value, Struct) and (not is_dataclass(value) or isinstance(value, type)):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    declared = structs.fields(value) if isinstance(value, Struct) else fields(value)
    names = [field.name for field in declared if getattr(value, field.name) != field.default]
    told = {name: getattr(value, name) for name in names if name not in UNTOLD}
    return f"({', '.join(f'{name}={_describe(one)}' for name, one in told.items())})"


def _follow(messages: Sequence[Message], policy: Policy) -> str:
    """Each state that differs from the one before it, behind the number of messages."""
    lines, last = list[str](), _describe(Window())
    folded: Fold | None = None
    for stop in range(1, len(messages) + 1):
        room = measure(messages[:stop], policy, limit=LIMIT, fixed_tokens=120)
        if folded is None or folded.room != room:
            folded = Fold(room, policy)
        window = folded.extend(messages[:stop]).finish()
        newest = _describe(structs.replace(window, cuts=window.cuts[-1:]))
        if newest != last:
            lines.append(f"{stop}: {len(window.cuts)} cuts {newest}")
            last = newest
    return "\n".join(lines)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_sessions_windows_are_as_they_were(name: str) -> None:
    """With policies that differ in when they cut and in what they keep."""
    check_golden(f"windows/{name}", {title: _follow(SESSIONS[name], policy) for title, policy in POLICIES.items()})
