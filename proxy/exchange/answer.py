"""Reads what an answer reports: tokens that the model read and wrote, its model, and what the prompt cache had.

Law: it only observes. A fault here never changes an answer.
"""

import re
from dataclasses import dataclass
from functools import partial

import msgspec

from proxy.account.outcome import Answered
from proxy.account.previous_request import Seen, Sent
from proxy.account.prompt_cache import Cause, find_cause
from proxy.account.recorder import Recorder, fail_open
from proxy.compaction.offload import INLINE_BYTES, LARGE_BODY_BYTES, MANY_MESSAGES
from proxy.exchange.attempt import Attempt, Call, Prepared, is_counted, is_text_only
from proxy.exchange.cold import find_lifetime
from proxy.exchange.route import Route
from proxy.exchange.services import Services
from proxy.http.tenancy import Tenant
from proxy.models.calibration import IN_FULL_SHARE, MIN_SAMPLE_TOKENS
from proxy.models.calibration import Report as Sample
from proxy.telemetry.pace import Pace
from proxy.wire.answers.tap import Tap
from proxy.wire.answers.usage import Usage, believe
from proxy.wire.json.decode import DECODE_ERRORS
from rules.conversation import Conversation


class SafeTap:
    """A tap that cannot break an answer: after a fault of ours it is counted and reading stops; the answer goes on.

    tap: None after a fault.
    """

    __slots__ = ("_guard", "tap")

    def __init__(self, tap: Tap, recorder: Recorder, request_id: str) -> None:
        self.tap: Tap | None = tap
        self._guard = fail_open(recorder, request_id, "count")

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        """Read the next bytes; `arrived_at` is their time on the monotonic clock."""
        tap = self.tap
        if tap is None or tap.put_off(chunk, arrived_at):  # by far the most chunks of a stream
            return
        self.tap = None
        with self._guard:
            tap.feed(chunk, arrived_at)
            self.tap = tap

    def has_ended(self) -> bool:
        """Whether the stream has said that it is complete."""
        tap, self.tap, has_ended = self.tap, None, False
        if tap is not None:
            with self._guard:
                has_ended = tap.has_ended
                self.tap = tap
        return has_ended

    def finish(self, *, is_cut: bool) -> bool:
        """Nothing more will be read; `is_cut`: although the body had not ended. Returns whether the answer is whole."""
        tap, self.tap = self.tap, None
        if tap is not None:
            with self._guard:
                tap.finish(is_cut=is_cut)
                self.tap = tap
                return not tap.is_cut
        return not is_cut

    def find_uncounted_chars(self) -> int:
        """The characters of the text that trimtab must count; 0 if the upstream has reported their tokens."""
        tap, self.tap, chars = self.tap, None, 0
        if tap is not None:
            with self._guard:
                usage = tap.usage
                is_told = usage is not None and usage.completion_tokens is not None and not tap.has_partial_usage
                chars = 0 if is_told else tap.text_chars
                self.tap = tap
        return chars

    def tell_pace(self) -> Pace:
        """The times and lengths of the text so far."""
        tap, self.tap, pace = self.tap, None, Pace()
        if tap is not None:
            with self._guard:
                pace = Pace(tap.first_at, tap.last_at, tap.first_chars, tap.text_chars)
                self.tap = tap
        return pace


async def count_answer(services: Services, tenant: Tenant, route: Route, tap: Tap, window_tokens: int) -> Answered:
    """Count the answer's tokens: the upstream's own figures if they can be true, else our estimate.

    Of a stream that was cut off, what was streamed is counted; the upstream may have reported a part of it.
    window_tokens: the model's window, or the prompt if it is longer.
    """
    usage = tap.usage or Usage()
    usage = believe(usage, answer_bytes=tap.size_bytes, window_tokens=window_tokens)
    told_tokens = usage.completion_tokens
    if told_tokens is not None and not tap.has_partial_usage:
        tokens, streamed_tokens = told_tokens, tap.find_sent_tokens(told_tokens)
    else:
        streamed_tokens = await _count_completion(services, tenant, route, tap)
        tokens = max(streamed_tokens, told_tokens or 0)
    return Answered(
        usage.prompt_tokens, usage.cached_tokens, tokens, tokens != told_tokens, streamed_tokens,
        usage.written_tokens, not tap.calls_tools and not tap.is_cut,
    )  # fmt: skip


async def _count_completion(services: Services, tenant: Tenant, route: Route, tap: Tap) -> int:
    """Our count of what the model wrote, in its own tokens."""
    settings, model = route.settings, route.target.model
    compactor = await services.compactors.get(settings, model, tenant.id)
    work = partial(tap.count_completion, compactor.count)
    tokens = await services.workers.run(services.lane(tenant), work, size_bytes=tap.text_chars)
    return round(services.models.recall(route.name).ratio * tokens)


@dataclass(frozen=True, slots=True)
class Observed:
    """What an answer shows about the prompt cache.

    prefix_kept: the share of the prompt that equals the previous request's prefix; None if it is not known.
    cache_miss: why the upstream read less from its cache than it could have; empty if it did not.
    seen: the request beside the previous one of its session; None if its transcript is not known.
    """

    prefix_kept: float | None = None
    cache_miss: Cause = ""
    seen: Seen | None = None


async def observe(
    services: Services, attempt: Attempt, answered: Answered, *, age_seconds: float = 0.0, is_answered: bool = True
) -> Observed:
    """Learn from `usage` how the upstream's tokens compare with ours.

    age_seconds: how long ago the request was sent. is_answered: the upstream has begun to answer.
    """
    if not isinstance(attempt, Prepared):
        return Observed()
    call, planned, compacted = attempt.call, attempt.chosen.planned, attempt.compacted
    if is_answered and not call.route.target.is_secret:
        services.models.vouch_for(call.view.name)
    is_enforced = call.route.target.mode == "enforce"
    sent = compacted.forwarded if is_enforced else planned.original
    if is_answered and is_enforced:
        _note_answer(services, attempt, answered)
    cleaned = () if is_enforced else call.request.cleaned  # the original has what was taken out
    tokens = sent.tokens + sum(one.saved_tokens for one in cleaned)
    is_long = tokens >= MIN_SAMPLE_TOKENS
    if answered.prompt_tokens and is_long and is_text_only(sent) and _is_counted(call, sent):
        believed_tokens, cached_tokens = call.view.believed_tokens, answered.cached_tokens or 0
        sample = Sample(tokens, answered.prompt_tokens, compacted.limit_tokens, believed_tokens, cached_tokens)
        services.models.observe(call.view.name, sample)
    seen = await _compare(services, attempt, sent, age_seconds)
    if not is_enforced:
        return Observed(seen=seen)
    prefix = seen.prefix
    kept = prefix.kept_share if prefix is not None and prefix.continues else None
    if planned.original.continues:  # the upstream holds messages that are not known here
        return Observed(kept, seen=seen)
    return Observed(kept, find_cause(prefix, answered, partial(find_lifetime, services, call)), seen)


def _note_answer(services: Services, attempt: Prepared, answered: Answered) -> None:
    """An answer proves that its prompt fits the window. A test fails if the server dropped a part of the prompt."""
    call, compacted = attempt.call, attempt.compacted
    tokens = answered.prompt_tokens or (compacted.sent_tokens if attempt.is_test else 0)
    if attempt.is_test and tokens < IN_FULL_SHARE * compacted.sent_tokens:
        services.models.fail_test(call.view.name)
    else:
        services.models.note_answer(call.view.name, tokens, is_test=attempt.is_test)


def _is_counted(call: Call, sent: Conversation) -> bool:
    """Whether a request can be used to calibrate; very large requests are not examined."""
    return len(call.request.body) <= LARGE_BODY_BYTES and is_counted(call.request, sent)


async def _compare(services: Services, attempt: Prepared, sent: Conversation, age_seconds: float) -> Seen:
    """Compare the request with the previous one of its session, and keep it."""
    call, planned = attempt.call, attempt.chosen.planned
    hashes = planned.plan.hashes
    # Prompt caches are per model. Python's hash is keyed, so a client cannot choose a collision.
    client = f"{call.arrival.tenant.id} {hash((call.route.upstream.base_url, call.route.target.model))}"
    original, is_changed = planned.original.messages, attempt.outcome == "compacted"
    work = partial(
        services.previous.observe, client, hashes, Sent(original, sent, call.request.fixed, age_seconds, is_changed)
    )
    size_bytes = INLINE_BYTES + 1 if len(hashes) > MANY_MESSAGES else 0
    return await services.workers.run(services.lane(call.arrival.tenant), work, size_bytes=size_bytes)


MAX_BYTES = 16 * 1024
"""Bytes of an answer in which the name is sought. Chosen: all dialects write it before the text, or in the first event;
an answer of usual length is in it as a whole."""
MAX_NAME_BYTES = 200  # chosen: longer than real names
# Within a text of the answer, each quotation mark would have a backslash before it.
_MODEL = re.compile(rb'(?<!\\)"model"\s*:\s*("(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f]){1,%d}")' % MAX_NAME_BYTES)


class ModelTap(SafeTap):
    """A tap that also finds the model's name. `model`: empty until it is found."""

    __slots__ = ("_seen", "model")

    def __init__(self, tap: Tap, recorder: Recorder, request_id: str) -> None:
        super().__init__(tap, recorder, request_id)
        self.model = ""
        self._seen = b""

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        """Read the next bytes."""
        super().feed(chunk, arrived_at)
        if not self.model and len(self._seen) < MAX_BYTES:
            self._seen += chunk[: MAX_BYTES - len(self._seen)]
            self.model = find_model(self._seen)


def find_model(answer: bytes) -> str:
    """The name in the first member `model`; empty if there is none that can be read."""
    found = _MODEL.search(answer)
    if found is None:
        return ""
    try:
        return msgspec.json.decode(found[1], type=str)
    except DECODE_ERRORS:
        return ""
