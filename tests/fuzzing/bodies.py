"""Fuzzes the body of a request in any dialect, from the received bytes through the whole compaction to the bytes sent.

Laws: only UndecodableError and LimitExceededError are raised. Everything that no rule edited keeps its bytes. A body
that was JSON remains JSON, with the same members. The same body has the same outcome, with cold and with warm caches.
"""

import json  # noqa: TID251 - the oracle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fuzzing.choices import Choices
from fuzzing.policies import choose_policy
from msgspec import structs
from support.dialects.spoken.dialect import Dialect

from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.proxy.wire.transcript.body import Unsent
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.policy import OnExceeded, Policy
from trimtab.rules.summary.prompts import write_prompt
from trimtab.rules.summary.request import Summary

Outcome = Compacted | LimitExceededError | UndecodableError
SUMMARY = Summary("The build was mended in part; the tests are still to be run.", by_model=True)

GLOBS = (("*",), ("*e*",), ("[a-m]*", "run"))
OF_TOOLS = frozenset({"tools", "functions", "tool_choice", "function_call", "parallel_tool_calls"})


@dataclass(frozen=True, slots=True)
class Sent:
    """A body that was changed.

    arrived: it, as its reader splits it.
    is_plain: the client's was a session that any upstream of the dialect can read.
    """

    request: Request
    arrived: Request
    compacted: Compacted
    policy: Policy
    is_plain: bool


@dataclass(frozen=True, slots=True)
class Speech:
    """How a dialect is fuzzed.

    write: a body, and whether it is a plain session.
    find_problems: what is wrong with a changed body, besides what is wrong in any dialect.
    """

    dialect: Dialect
    write: Callable[[Choices], tuple[bytes, bool]]
    find_problems: Callable[[Sent], Sequence[str]]

    def fuzz(self, data: bytes) -> None:
        """Compact one body under one policy."""
        choices = Choices(data)
        body, is_plain = self.write(choices)
        policy = choose_policy(choices)
        summary = choices.pick((SUMMARY, None))
        request = self.read(body)
        if request is None:
            assert not is_plain, "a plain session was not read"
            return
        compactor = Compactor(count_by_heuristic)
        outcome = _compact(compactor, request, policy, summary)
        # Always with warm caches. With cold ones only each fourth time: it takes as long as everything else together.
        for other in (compactor, *((Compactor(count_by_heuristic),) if choices.happens(64) else ())):
            assert _describe(_compact(other, request, policy, summary)) == _describe(outcome), "two outcomes of a body"
        assert not isinstance(outcome, UndecodableError) or not is_plain, "a plain session was not decoded"
        if isinstance(outcome, Compacted):
            self._check(request, outcome, policy, is_plain=is_plain)
            self._ask_for_summaries(compactor, request, policy, outcome)
        self._drop_tools(compactor, request, choices.pick(GLOBS))

    def read(self, body: bytes) -> Request | None:
        """The request as the proxy reads it; None if it cannot be decoded."""
        with suppress(UndecodableError):
            return self.dialect.codec.read(body)
        return None

    def _drop_tools(self, compactor: Compactor, request: Request, globs: tuple[str, ...]) -> None:
        """Take declarations out of the body: only what concerns tools changes, and a second time nothing does."""
        try:
            left = compactor.clean(request, Unsent(tools=globs))
        except UndecodableError:
            return
        if not left.cleaned:
            assert left is request, "no decision was made, but the body changed"
            return
        assert left.cleaned[0].saved_tokens >= 0, "fewer tools cost more"
        assert compactor.clean(left, Unsent(tools=globs)) is left, "more tools were dropped the second time"
        assert left.raws == request.raws, "an element of the transcript changed"
        before, after = load(request.body), load(left.body)
        if before is not None:
            assert after is not None, "the body without tools is not JSON"
            others = [[member for member in each if member[0] not in OF_TOOLS] for each in (before, after)]
            assert others[0] == others[1], "other members than those of tools changed"

    def _ask_for_summaries(self, compactor: Compactor, request: Request, policy: Policy, sent: Compacted) -> None:
        """The other uses of a plan: questions for a summary, counts of sections, a postponed cut."""
        planned = compactor.plan(request, policy)
        assert compactor.uncounted_bytes(request) == 0, "decoded, but still not counted"
        compactor.count_sections(request)
        for wanted in filter(None, (planned.plan.request, planned.plan.prefetch)):
            inline = compactor.ask_behind(request, sent.forwarded, wanted, Question(request.model, 400))
            if inline is not None and load(request.body) is not None:
                assert load(inline) is not None, "the question for a summary is not JSON"
            assert write_prompt(wanted, base_text=None, max_tokens=400, count=count_by_heuristic)
        earlier = planned.plan.put_off()
        if earlier is not None:
            forward = replace(policy, on_exceeded=OnExceeded.FORWARD)
            put_off = structs.replace(planned, policy=forward, plan=earlier)
            self._check(request, compactor.apply(put_off, SUMMARY), forward, is_plain=False)

    def _check(self, request: Request, sent: Compacted, policy: Policy, *, is_plain: bool) -> None:
        """Check everything that must be true of the body sent."""
        if not sent.decisions:
            assert sent.body is request.body, "no decision was made, but the body changed"
            return
        if policy.on_exceeded is not OnExceeded.FORWARD and not sent.forwarded.continues:
            # What is guessed about a file is the upstream's to correct, and no ground for a refusal.
            tokens = sent.forwarded.tokens - sent.forwarded.guessed_tokens
            assert tokens <= policy.hard_limit_tokens(request.max_tokens), "over the limit, not refused"
        arrived = self.read(sent.body)
        assert arrived is not None, "the body sent cannot be read"
        before, after = load(request.body), load(sent.body)
        if before is not None:
            assert after is not None, "the body sent is not JSON"
            _check_members(before, after, self.dialect.transcript)
        problems = self.find_problems(Sent(request, arrived, sent, policy, is_plain))
        assert not problems, "; ".join(problems)


def _compact(compactor: Compactor, request: Request, policy: Policy, summary: Summary | None) -> Outcome:
    try:
        return compactor.apply(compactor.plan(request, policy), summary)
    except (LimitExceededError, UndecodableError) as error:
        return error


def _describe(outcome: Outcome) -> Any:
    return outcome if isinstance(outcome, Compacted) else (type(outcome), str(outcome))


def _check_members(before: Sequence[Any], after: Sequence[Any], transcript: str) -> None:
    """At most one transcript differs. Order, duplicates and numbers of the other members are unchanged."""
    assert len(before) == len(after), "members were added or lost"
    changed = [left for left, right in zip(before, after, strict=True) if left != right]
    assert [name for name, _ in changed] == [transcript] * len(changed), "other members than the transcript changed"
    assert len(changed) <= 1, "more than one transcript was changed"


def load(body: bytes) -> Any:
    """Members in order, with duplicates, and numbers as written. None if the body is not a JSON object."""
    try:
        loaded = json.loads(body.decode(), object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        return None
    return loaded if isinstance(loaded, _Pairs) else None


class _Pairs(list[tuple[str, Any]]):
    """The members of an object. The class distinguishes them from an array."""


class _Number(str):
    """A number as written."""

    __slots__ = ()
