"""Reads what an answer reports, and learns from it: its tokens and model, what the prompt cache had, what it has cost.

Law: it only observes. A fault here never changes an answer, which the client has already. What the upstream reports is
the truth; trimtab's own counts are used only for the rest.
"""

import re
import time
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TypeVar

import aiohttp
import msgspec

from trimtab.proxy.account.outcome import NOTHING_ANSWERED, Answered
from trimtab.proxy.account.prompt_cache import (
    MIN_CACHED_TOKENS,
    Cache,
    Case,
    Cause,
    Request,
    Seen,
    Sent,
    add_removed,
    count_cached,
    find_cause,
    imagine,
    watch_cache,
)
from trimtab.proxy.account.recorder import Recorder, fail_open
from trimtab.proxy.catalogue.prices import Bill, PriceList, Tokens, find_price_list, price
from trimtab.proxy.compaction.compactor import Planned
from trimtab.proxy.compaction.offload import INLINE_BYTES, LARGE_BODY_BYTES, MANY_MESSAGES, THREAD_BYTES
from trimtab.proxy.config.schema import find_in_name
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.attempt import CHANGED, Attempt, Call, Prepared, Ready
from trimtab.proxy.exchange.cold import find_lifetime, find_previous, prepare_cold, remember
from trimtab.proxy.exchange.route import Route
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.exchange.summary import write_meanwhile
from trimtab.proxy.http.client import Sending
from trimtab.proxy.http.relay import Pace
from trimtab.proxy.http.tenancy import Tenant
from trimtab.proxy.models.calibration import IN_FULL_SHARE, MIN_SAMPLE_TOKENS
from trimtab.proxy.models.calibration import Report as Sample
from trimtab.proxy.tasks import shield_to_end
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import Usage, believe
from trimtab.proxy.wire.codec import Request as WireRequest
from trimtab.proxy.wire.json import DECODE_ERRORS
from trimtab.proxy.wire.transcript.body import CutScale, KeptBody
from trimtab.rules.conversation import Conversation
from trimtab.rules.tokens.scripts import count_kinds

T = TypeVar("T")


class SafeTap:
    """A tap that cannot break an answer. tap: None after a fault of ours. is_llama: the headers name llama.cpp."""

    __slots__ = ("_guard", "is_llama", "tap")

    def __init__(self, tap: Tap, recorder: Recorder, request_id: str) -> None:
        self.tap: Tap | None = tap
        self.is_llama = False
        self._guard = fail_open(recorder, request_id, "count")

    @property
    def keeper(self) -> Tap | None:
        return self.tap

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        tap, self.tap = self.tap, None
        if tap is not None:
            with self._guard:
                tap.feed(chunk, arrived_at)
                self.tap = tap

    def has_ended(self) -> bool:
        return self._use(_HAS_ENDED, default=False)

    def finish(self, *, is_cut: bool) -> bool:
        tap, self.tap, is_whole = self.tap, None, not is_cut
        if tap is not None:
            with self._guard:
                tap.finish(is_cut=is_cut)
                is_whole, self.tap = not tap.is_cut, tap
        return is_whole

    def find_uncounted_chars(self) -> int:
        """The characters of the text that trimtab must count; 0 if the upstream has reported their tokens."""
        tap = self.tap
        if tap is None:
            return 0
        usage = tap.usage
        is_told = usage is not None and usage.completion_tokens is not None and not tap.has_partial_usage
        return 0 if is_told else tap.text_chars

    def tell_pace(self) -> Pace:
        return self._use(lambda tap: Pace(tap.first_at, tap.last_at, tap.first_chars, tap.text_chars), Pace())

    def _use(self, work: Callable[[Tap], T], default: T) -> T:
        """What `work` returns for the tap; `default` after a fault of this or of an earlier work."""
        tap, self.tap = self.tap, None
        if tap is not None:
            with self._guard:
                default = work(tap)
                self.tap = tap
        return default


_HAS_ENDED: Callable[[Tap], bool] = attrgetter("has_ended")


async def count_answer(services: Services, tenant: Tenant, route: Route, tap: Tap, window_tokens: int) -> Answered:
    """The answer's tokens: the upstream's if they can be true, else our estimate; of a cut stream, of what came.

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
    settings, model = route.settings, route.target.model
    facts = services.models.recall(route.name)
    known, size_bytes = (tenant.id, facts.reading, facts.weights), tap.text_chars
    compactor = await services.compactors.get(settings, model, *known, size_bytes=size_bytes)
    size_bytes = THREAD_BYTES if compactor.is_early else size_bytes
    work = partial(tap.count_completion, compactor.count)
    tokens = await services.workers.run(services.lane(tenant), work, size_bytes=size_bytes)
    return round(facts.ratio * tokens)


class Observed(msgspec.Struct, frozen=True):
    """What an answer shows about the prompt cache (see `Outcome`). seen: None if the transcript is not known."""

    prefix_kept: float | None = None
    cache_miss: Cause = ""
    seen: Seen | None = None


MAX_SCALES = 8
"""Scales of a session are kept for so many models, the newest. Chosen: clients use two or three models in turn."""


async def observe(
    services: Services, attempt: Attempt, answered: Answered, *, age_seconds: float = 0.0, is_answered: bool = True
) -> Observed:
    """Learn how the upstream's tokens compare with ours. is_answered: the upstream has begun to answer."""
    if not isinstance(attempt, Prepared):
        return Observed()
    call, planned, compacted = attempt.call, attempt.chosen.planned, attempt.compacted
    is_enforced = call.route.target.mode == "enforce"
    sent = compacted.forwarded if is_enforced else planned.original
    if is_answered:
        _note_answer(services, attempt, answered)
        if call.request.kept_body is not None and not (attempt.is_test or call.request.codec.is_count):
            _note_scale(call, planned, call.request.kept_body)
    tokens = sent.tokens
    if not is_enforced and call.request.cleaned:  # the original has what was taken out
        tokens += sum(one.saved_tokens for one in call.request.cleaned)
    # A very large request is not examined here, on the loop.
    is_fit = tokens >= MIN_SAMPLE_TOKENS and len(call.request.body) <= LARGE_BODY_BYTES
    if answered.prompt_tokens and is_fit and is_text_only(sent) and is_counted(call.request, sent):
        believed_tokens, cached_tokens = call.view.believed_tokens, answered.cached_tokens or 0
        costs = call.compactor.counting.costs
        chars = count_kinds(sent, drops_calls=costs.drops_calls)
        told_tokens, limit_tokens = answered.prompt_tokens, compacted.limit_tokens
        sample = Sample(tokens, told_tokens, limit_tokens, believed_tokens, cached_tokens, chars, costs.weights)
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
    """An answer proves that its model exists, and our prompt fits. A test fails if the server dropped a part of it."""
    target, name, sent_tokens = attempt.call.route.target, attempt.call.view.name, attempt.compacted.sent_tokens
    is_enforced = target.mode == "enforce"
    is_test = attempt.is_test and is_enforced
    tokens = (answered.prompt_tokens or (sent_tokens if is_test else 0)) if is_enforced else 0
    failed = is_test and tokens < IN_FULL_SHARE * sent_tokens
    vouches = not target.is_secret
    services.models.note_answer(name, 0 if failed else tokens, is_test=is_test and not failed, vouches=vouches)
    if failed:
        services.models.fail_test(name)


def _note_scale(call: Call, planned: Planned, kept: KeptBody) -> None:
    """Remember by what scale a session was cut, as the server has taken what was sent."""
    if not planned.plan.window.changes_sent:
        return
    by, facts, model = kept.cut_by.pop(call.view.name.key, None), call.view.facts, call.view.name.key
    if by is None or (by.ratio, by.weights) != (facts.ratio, facts.weights):
        origins = planned.original.origins[: find_previous(planned.original.messages)]
        elements = max((one.stop for one in origins if one), default=0)
        by = CutScale(facts.ratio, facts.weights, elements)
    kept.cut_by[model] = by
    if len(kept.cut_by) > MAX_SCALES:
        del kept.cut_by[next(iter(kept.cut_by))]


_HAS_UNCOUNTED, _HAS_REASONING = attrgetter("has_uncounted"), attrgetter("has_reasoning")
_MEDIA = attrgetter("media")


def is_text_only(conversation: Conversation) -> bool:
    """Whether there is no media, whose tokens are an estimate."""
    found = list(filter(None, map(_MEDIA, conversation.messages)))
    return not found or all(part.is_removed for media in found for part in media)


def is_counted(request: WireRequest, conversation: Conversation) -> bool:
    """Whether we count exactly what a server reads of a request: it may read other members, or drop reasoning."""
    messages = conversation.messages
    is_certain = not any(map(_HAS_UNCOUNTED, messages)) and not any(map(_HAS_REASONING, messages))
    return is_certain and request.codec.counts_all(request)


async def _compare(services: Services, attempt: Prepared, sent: Conversation, age_seconds: float) -> Seen:
    call, planned = attempt.call, attempt.chosen.planned
    hashes = planned.plan.hashes
    # Prompt caches are per model. Python's hash is keyed, so a client cannot choose a collision.
    client = f"{call.arrival.tenant.id} {hash((call.route.upstream.base_url, call.route.target.model))}"
    original, is_changed = planned.original.messages, attempt.outcome in CHANGED
    work = partial(
        services.previous.observe, client, hashes, Sent(original, sent, call.request.fixed, age_seconds, is_changed)
    )
    if len(hashes) <= MANY_MESSAGES:
        return work()
    return await services.workers.run(services.lane(call.arrival.tenant), work, size_bytes=THREAD_BYTES)


MAX_BYTES = 16 * 1024
"""In which the name is sought. Chosen: it stands before the text; an answer of usual length is in it as a whole."""
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

    @property
    def keeper(self) -> Tap | None:
        return self.tap if self.model or len(self._seen) >= MAX_BYTES else None

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        super().feed(chunk, arrived_at)
        if not self.model and len(self._seen) < MAX_BYTES:
            self._seen += chunk[: MAX_BYTES - len(self._seen)]
            self.model = find_model(self._seen)


def find_model(answer: bytes) -> str:
    found = _MODEL.search(answer)
    if found is None:
        return ""
    try:
        return msgspec.json.decode(found[1], type=str)
    except DECODE_ERRORS:
        return ""


NOTHING_OBSERVED = Observed()


class Learned(msgspec.Struct, frozen=True):
    """What an answer has taught. response_model: in the form for the log; only known if the request is traced."""

    answered: Answered = NOTHING_ANSWERED
    observed: Observed = NOTHING_OBSERVED
    bill: Bill | None = None
    response_model: str = ""
    recall_rounds: int | None = None
    recall_prompt_tokens: int | None = None


NOTHING_LEARNED = Learned()
LLAMA = "llama.cpp"
Keep = Callable[[Learned], None]


def listen(services: Services, ready: Ready, answer: aiohttp.ClientResponse) -> SafeTap | None:
    request, codec = ready.request, ready.codec
    if answer.status != 200 or (codec.is_count and request is not None):
        return None
    is_stream = answer.content_type in ready.reply.event_kinds
    tap = Tap.of(codec, is_stream=is_stream, asks_usage=request is not None and request.asks_usage)
    made = (SafeTap if ready.trace is None else ModelTap)(tap, services.recorder, ready.arrival.request_id)
    if ready.route.settings.context_window != "auto":
        made.is_llama = LLAMA in answer.headers.get("Server", "")
    return made


async def learn(services: Services, ready: Ready, attempt: Attempt, tap: SafeTap, keep: Keep) -> None:
    """Learn from an answer, or from the part of it that was read. `keep` gets what was learned."""
    learning = _learn(services, ready, attempt, tap, keep)
    # A client may close its connection as soon as it has the answer, which cancels whatever waits.
    await (learning if _learns_at_once(services, ready.route, attempt, tap) else shield_to_end(learning))


async def learn_from_left(
    services: Services,
    ready: Ready,
    attempt: Attempt,
    sending: Sending,
    answer: aiohttp.ClientResponse | None,
    keep: Keep,
) -> None:
    """Learn from a request whose client left before the beginning of its answer was read."""
    if answer is not None:
        tap = listen(services, ready, answer)
        if tap is not None:
            tap.finish(is_cut=True)
            await learn(services, ready, attempt, tap, keep)
    elif sending.is_unanswered and not (ready.codec.is_count and ready.request is not None):
        await _book_unanswered(services, ready, attempt, keep)


async def _book_unanswered(services: Services, ready: Ready, attempt: Attempt, keep: Keep) -> None:
    """Book a prompt that the upstream got and has not begun to answer: it may be charged. It teaches nothing."""
    observed, bill = NOTHING_OBSERVED, None
    answered = Answered(completion_tokens=0, is_estimated=True)
    with fail_open(services.recorder, ready.arrival.request_id, "observe"):
        observed = await observe(services, attempt, answered, is_answered=False)
    with fail_open(services.recorder, ready.arrival.request_id, "bill"):
        bill = draw_bill(services, ready.route, attempt, answered, observed)
    keep(Learned(answered, observed, bill))


def _learns_at_once(services: Services, route: Route, attempt: Attempt, tap: SafeTap) -> bool:
    """Whether learning from an answer waits neither for a thread nor for the store."""
    unknown_chars = tap.find_uncounted_chars()
    if unknown_chars > INLINE_BYTES:
        return False
    if unknown_chars and not services.compactors.is_ready(route.settings, route.target.model):
        return False
    messages = len(attempt.chosen.planned.plan.hashes) if isinstance(attempt, Prepared) else 0
    return not messages or (messages <= MANY_MESSAGES and not services.cold_cuts.is_kept)


async def _learn(services: Services, ready: Ready, attempt: Attempt, tap: SafeTap, keep: Keep) -> None:
    """Count what the model wrote, and note what the answer has cost and shows."""
    arrival, route, model = ready.arrival, ready.route, ""
    answered, observed, bill = NOTHING_ANSWERED, NOTHING_OBSERVED, None
    if isinstance(tap, ModelTap):
        model, _ = arrival.tell_name(tap.model, find_in_name(services.config, tap.model))
    guarded = fail_open(services.recorder, arrival.request_id, "count")
    if tap.tap is not None:
        with guarded:
            answered = await count_answer(services, arrival.tenant, route, tap.tap, _find_window(route, attempt))
    guarded.phase = "observe"
    with guarded:
        age_seconds = time.monotonic() - ready.sent_at
        observed = await observe(services, attempt, answered, age_seconds=age_seconds)
    guarded.phase = "bill"
    with guarded:
        bill = draw_bill(services, route, attempt, answered, observed)
    keep(Learned(answered, observed, bill, model))
    guarded.phase = "observe"
    if route.settings.context_window != "auto":
        with guarded:
            _meet_llama(services, arrival, route, tap)
    if answered.ends_turn and isinstance(attempt, Prepared) and attempt.chosen.later is not None:
        with guarded:
            write_meanwhile(services, attempt)
    if services.cold_cuts.is_kept:
        with guarded:
            prepare_cold(services, attempt, answered)
            await remember(services, attempt, answered)  # the last, because it waits for the store


def _meet_llama(services: Services, arrival: Arrival, route: Route, tap: SafeTap) -> None:
    """Ask llama.cpp for its slots and template although the window is configured; others say hardly more than that."""
    usage = None if tap.tap is None else tap.tap.usage
    if tap.is_llama or (usage is not None and usage.has_timings):
        services.models.seek_windows(route.upstream, route.credentials, arrival.tenant.id)


def _find_window(route: Route, attempt: Attempt) -> int:
    """The model's window, or the prompt if that is longer, for what can be true of an answer."""
    window_tokens = route.settings.find_window() if attempt.call is None else attempt.call.view.believed_tokens
    return window_tokens if attempt.compacted is None else max(window_tokens, attempt.compacted.original_tokens)


def draw_bill(
    services: Services, route: Route, attempt: Attempt, answered: Answered, observed: Observed
) -> Bill | None:
    if answered.completion_tokens is None:
        return None
    if not isinstance(attempt, Prepared):  # it passed unchanged
        prices = find_price_list(services.config, route.settings, route.target.model)
        if answered.prompt_tokens is None:
            return None
        return _draw(_read_tokens(answered), None, prices, is_estimated=answered.is_estimated)
    seen = observed.seen
    case = _make_case(attempt, seen, answered, observed.prefix_kept)
    is_changed = attempt.outcome in CHANGED
    without: Tokens | None = None
    if attempt.chosen.planned.original.continues:  # the upstream holds messages that are not known here
        without = add_removed(case.sent, case.original_tokens - case.sent_tokens) if is_changed else None
    else:
        cache = watch_cache(case)
        without = imagine(case, cache) if is_changed or (seen is not None and seen.now.is_changed) else None
        if seen is not None and case.is_fresh:
            services.previous.learn(seen, cache)
    is_estimated = answered.is_estimated or answered.prompt_tokens is None
    return _draw(case.sent, without, attempt.call.view.price_list, is_estimated=is_estimated)


def _draw(tokens: Tokens, without: Tokens | None, prices: PriceList, *, is_estimated: bool) -> Bill:
    """The bill for some tokens; `without`: None if the request would have cost the same without trimtab."""
    cost = price(tokens, prices)
    if without is None:
        return Bill(tokens, tokens, cost, cost, is_estimated)
    return Bill(tokens, without, cost, price(without, prices), is_estimated)


def _read_tokens(answered: Answered) -> Tokens:
    return Tokens.of(
        answered.prompt_tokens or 0, answered.cached_tokens, answered.written_tokens, answered.completion_tokens
    )


def _make_case(attempt: Prepared, seen: Seen | None, answered: Answered, prefix_kept: float | None) -> Case:
    call, compacted = attempt.call, attempt.compacted
    is_sent_original = call.route.target.mode != "enforce"
    original_tokens = compacted.original_tokens
    sent_tokens = original_tokens if is_sent_original else compacted.sent_tokens
    lifetime_seconds = call.route.lifetime_seconds
    before = None if seen is None else seen.before
    pause_seconds = 0.0 if seen is None or before is None else seen.now.sent_at - before.sent_at
    is_fresh = lifetime_seconds is None or pause_seconds <= lifetime_seconds
    known_share = None if before is None else _find_share(attempt.chosen.planned.original, before)
    sent = _read_tokens(answered)
    if answered.prompt_tokens is None:
        kept_share = known_share if attempt.outcome not in CHANGED else prefix_kept
        cached_tokens = count_cached((kept_share or 0.0) * sent_tokens) if is_fresh else 0
        tier = call.view.price_list.at(sent_tokens)
        writes = tier.cache_write > tier.input and sent_tokens >= MIN_CACHED_TOKENS
        written_tokens = sent_tokens - cached_tokens if writes else 0
        sent = Tokens.of(sent_tokens, cached_tokens, written_tokens, answered.completion_tokens)
    cache = Cache() if before is None else before.cache
    return Case(sent, sent_tokens, original_tokens, prefix_kept, known_share, is_fresh, cache)


def _find_share(original: Conversation, before: Request) -> float:
    """The share of the client's prompt that the previous request of its session had, too."""
    tokens, new_tokens = original.tokens, 0
    for message in original.messages[before.messages :]:
        new_tokens += message.tokens
    return 1 - new_tokens / tokens if tokens else 1.0
