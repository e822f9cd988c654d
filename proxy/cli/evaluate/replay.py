"""Replays the session: finds what the proxy would cut, and asks for the summaries that it would ask for.

Law: the library's interface plans every request before a model is asked, because no cut depends on a summary's text. A
summary is asked for as the proxy does: after what was forwarded, or with a transcript, continuing the previous one.
Each is assumed to be ready in time. If one fails, the digest replaces it, and the result says so.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

from proxy.cli.evaluate.session import Session
from proxy.compaction import Compacted, Compactor, Planned
from proxy.http.client import UpstreamClient
from proxy.state.summaries.calls import NoSummaryError, SummaryCalls
from proxy.state.summaries.summariser import Inline, Summariser, Task, ask_model
from rules.policy import Policy
from rules.summary.asking.prompts import EXCERPTS_TOKENS, PROMPT_TOKENS
from rules.summary.request import Summary, SummaryRequest, make_digest


@dataclass(frozen=True, slots=True)
class Wanted:
    """The text that a cut needs.

    stop: number of messages in the request that first asks for it.
    prompt_tokens: about how many tokens the question for it sends.
    """

    request: SummaryRequest
    stop: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A session with all its requests planned.

    planned: the plan of the last request.
    wanted: the texts that the requests need on the way, oldest first.
    """

    session: Session
    compactor: Compactor
    policy: Policy
    planned: Planned
    wanted: tuple[Wanted, ...]

    def apply(self, texts: Mapping[str, Summary]) -> Compacted:
        """What is forwarded in the end with these texts; a digest replaces a missing one. Raises LimitExceededError."""
        request = self.planned.plan.request
        return self.compactor.apply(self.planned, None if request is None else texts.get(request.key))


def rehearse(session: Session, compactor: Compactor, policy: Policy) -> Rehearsal:
    """Plan every request of a session. Raises UndecodableError."""
    first_seen: dict[str, tuple[int, int]] = {}
    wanted: dict[str, Wanted] = {}
    planned: Planned | None = None
    for stop in session.stops():
        # Its body is still that of the whole session; planning does not read it.
        planned = compactor.plan(replace(session.request, raws=session.request.raws[:stop]), policy)
        for request in (planned.plan.prefetch, planned.plan.request):
            if request is not None and request.key not in first_seen:
                first_seen[request.key] = stop, planned.plan.reserved_tokens + PROMPT_TOKENS
        request = planned.plan.request
        if request is not None and request.key not in wanted:
            wanted[request.key] = Wanted(request, *first_seen[request.key])
    assert planned is not None  # a session has at least one request  # noqa: S101
    planned = replace(planned, request=session.request)
    return Rehearsal(session, compactor, policy, planned, tuple(wanted.values()))


@dataclass(slots=True)
class Written:
    """The texts of a session's cuts by key, and why models failed to write some of them."""

    texts: dict[str, Summary] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


async def write_summaries(
    rehearsal: Rehearsal,
    summariser: Summariser,
    client: UpstreamClient,
    calls: SummaryCalls,
    on_written: Callable[[], None],
) -> Written:
    """Have the texts of a session written, one after the other, as each continues the previous one.

    on_written: called after each call to a model.
    """
    written = Written()
    count = rehearsal.compactor.count
    for one in rehearsal.wanted:
        base = written.texts.get(one.request.base or "")
        text: str | None = None
        if one.request.asks_model:
            inline = await asyncio.to_thread(_find_inline, rehearsal, one, written.texts, summariser)
            task = Task(one.request, summariser, count, inline)
            try:
                text = await ask_model(task, base.text if base and base.by_model else None, client, calls)
            except NoSummaryError as error:
                written.failures.append(str(error) or type(error).__name__)
            on_written()
        digest = partial(make_digest, one.request, base=base, count=count)
        by_model = text is not None
        written.texts[one.request.key] = Summary(
            await asyncio.to_thread(digest) if text is None else text, by_model=by_model
        )
    return written


def _find_inline(
    rehearsal: Rehearsal, one: Wanted, texts: Mapping[str, Summary], summariser: Summariser
) -> Inline | None:
    """The question for a summary after the forwarded messages; None if it must contain a transcript instead."""
    request, wanted = rehearsal.session.request_of(one.stop), one.request
    if summariser.settings.upstream is not None or summariser.model != request.model:
        return None
    planned = rehearsal.compactor.plan(request, rehearsal.policy)
    plan = planned.plan
    if plan.request is not None and plan.request.key == wanted.key:
        before = plan.put_off()
        if before is None:
            return None
        plan = before
    text = None if plan.request is None else texts.get(plan.request.key)
    forwarded = rehearsal.compactor.apply(replace(planned, plan=plan), text).forwarded
    prefix = plan.find_prefix(forwarded, wanted.at)
    if prefix is None:
        return None
    tokens = prefix.tokens + PROMPT_TOKENS + (EXCERPTS_TOKENS if wanted.pruned else 0)
    if tokens > rehearsal.policy.limit_tokens(ceil(wanted.max_tokens * rehearsal.policy.token_ratio)):
        return None
    question = partial(rehearsal.compactor.ask_behind, request, prefix, wanted)
    return Inline(question, tokens)
