"""What an answer teaches, and what is known of a request that is over.

Law: it only observes. A fault here never changes an answer, and the client has its answer already.
"""

import time
from collections.abc import Callable

import aiohttp
import msgspec
from yarl import URL

from proxy.account.outcome import NOTHING_ANSWERED, Answered
from proxy.account.recorder import fail_open
from proxy.catalogue.prices import Bill
from proxy.compaction.compactor import Compacted
from proxy.compaction.offload import INLINE_BYTES, MANY_MESSAGES
from proxy.config.secrets import find_in_name
from proxy.exchange.answer import ModelTap, Observed, SafeTap, count_answer, observe
from proxy.exchange.arrival import Arrival
from proxy.exchange.attempt import Attempt, Passed, Prepared
from proxy.exchange.bill import draw_bill
from proxy.exchange.cold import prepare_cold, remember
from proxy.exchange.early_answer import Opening
from proxy.exchange.phases import Phases
from proxy.exchange.route import Route, Target
from proxy.exchange.services import Services
from proxy.exchange.trace import NO_TRACE, Trace
from proxy.http.client import Sending
from proxy.http.errors import ProxyError
from proxy.http.headers import Headers, write_ledger_headers, write_own_headers
from proxy.http.relay import Reply
from proxy.http.request_body import ReceivedBody
from proxy.tasks import see_through
from proxy.wire.codec import Codec, Request
from rules.tokens.sections import Sections

NO_TARGET = Target("")
"""Of a request that was not read yet."""
NO_ATTEMPT = Passed("aborted")
"""Of a request that was not planned yet."""
_NOTHING_OBSERVED = Observed()
_NO_SECTIONS = Sections()


class Learned(msgspec.Struct, frozen=True):
    """What an answer has taught. A Struct, because a frozen dataclass costs a call for each field.

    response_model: the model that has answered, in the form for the log; only known if the request is traced.
    """

    answered: Answered = NOTHING_ANSWERED
    observed: Observed = _NOTHING_OBSERVED
    bill: Bill | None = None
    response_model: str = ""


NOTHING_LEARNED = Learned()


class Ready(msgspec.Struct, frozen=True):
    """A request that is about to be sent.

    received: its body. request: that body, split; None if it was not decoded.
    target: of the route, or of its session if that is only observed.
    attempt: the first one. sent_at: the time of the first attempt on the monotonic clock.
    """

    arrival: Arrival
    reply: Reply
    codec: Codec
    received: ReceivedBody
    request: Request | None
    route: Route
    url: URL
    target: Target
    trace: Trace
    attempt: Attempt
    sent_at: float


class Finished(msgspec.Struct, frozen=True):
    """One request that is over, with what was found out of it.

    attempt: the last one that was made. request: what the client sent; None if it was not decoded.
    sent_at: time of the first attempt on the monotonic clock; 0.0 if nothing was sent.
    opening: the beginning of the last attempt's answer; None before it.
    is_hopeless: the client gets the refusal, because nothing shorter could be sent.
    """

    arrival: Arrival
    reply: Reply
    target: Target = NO_TARGET
    attempt: Attempt = NO_ATTEMPT
    request: Request | None = None
    trace: Trace = NO_TRACE
    sent_at: float = 0.0
    opening: Opening | None = None
    learned: Learned = NOTHING_LEARNED
    is_hopeless: bool = False


Note = Callable[[Finished], None]
"""Takes what was found out of a request, also if it ends with an error; the last note counts."""
Keep = Callable[[Learned], None]


def write_headers(arrival: Arrival, attempt: Attempt, sent_at: float, error: ProxyError | None = None) -> Headers:
    """The `x-trimtab-*` headers to add to the answer."""
    call, compacted, planned, used = attempt.call, attempt.compacted, None, None
    overhead_seconds = (sent_at or time.monotonic()) - arrival.started_at
    outcome = attempt.outcome if error is None else error.outcome
    if isinstance(attempt, Prepared):
        planned, used = attempt.chosen.planned, attempt.summary
        if planned.original.continues:
            outcome += ";history=upstream"
        if planned.plan.is_client_compaction:
            outcome += ";compaction=client"
    if call is None or compacted is None:
        return write_own_headers(arrival.request_id, overhead_seconds, outcome)
    sent_tokens, sent_sections = find_sent(attempt, compacted, sent_at)
    tokens = {"original": compacted.original_tokens, "sent": sent_tokens, "limit": compacted.limit_tokens}
    is_over = compacted.original_tokens > compacted.limit_tokens  # for a request that was refused: it has no plan
    if is_over if planned is None else planned.plan.window.is_near:
        tokens["high_water"] = True
    headers = write_own_headers(arrival.request_id, overhead_seconds, outcome, tokens)
    told = write_ledger_headers(compacted.original_sections, sent_sections, call.ledger.entries, used)
    return [*headers, *told]


def find_sent(attempt: Attempt, compacted: Compacted, sent_at: float) -> tuple[int, Sections]:
    """The tokens of what was sent, and their sections; 0 if nothing was."""
    if not sent_at:
        return 0, _NO_SECTIONS
    if attempt.call is not None and attempt.call.route.target.mode != "enforce":
        return compacted.original_tokens, compacted.original_sections
    return compacted.sent_tokens, compacted.sent_sections


def listen(services: Services, ready: Ready, answer: aiohttp.ClientResponse) -> SafeTap | None:
    """What reads the answer along; None if it has nothing to tell."""
    request, codec = ready.request, ready.codec
    if answer.status != 200 or (codec.is_count and request is not None):
        return None
    is_stream = answer.content_type == "text/event-stream"
    tap = codec.tap(is_stream=is_stream, asks_usage=request is not None and request.asks_usage)
    made = ModelTap if ready.trace.is_on else SafeTap
    return made(tap, services.recorder, ready.arrival.request_id)


async def learn(services: Services, ready: Ready, attempt: Attempt, tap: SafeTap, keep: Keep) -> None:
    """Learn from an answer, or from the part of it that was read. `keep` gets what was learned."""
    learning = _learn(services, ready, attempt, tap, keep)
    # A client may close its connection as soon as it has the answer, which cancels whatever waits.
    await (learning if _learns_at_once(services, ready.route, attempt, tap) else see_through(learning))


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
    """Book the prompt of a request that the upstream has got, and not begun to answer: it may be charged.

    What the model wrote is not known, and nothing is learned.
    """
    observed, bill = _NOTHING_OBSERVED, None
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
    answered, observed, bill = NOTHING_ANSWERED, _NOTHING_OBSERVED, None
    if isinstance(tap, ModelTap):
        model, _ = arrival.tell_name(tap.model, find_in_name(services.config, tap.model))
    phases = Phases("count")
    guarded = fail_open(services.recorder, arrival.request_id, phases)
    if tap.tap is not None:
        with guarded:
            answered = await count_answer(services, arrival.tenant, route, tap.tap, _find_window(route, attempt))
    phases.current = "observe"
    with guarded:
        age_seconds = time.monotonic() - ready.sent_at
        observed = await observe(services, attempt, answered, age_seconds=age_seconds)
    phases.current = "bill"
    with guarded:
        bill = draw_bill(services, route, attempt, answered, observed)
    keep(Learned(answered, observed, bill, model))
    phases.current = "observe"
    if services.cold_cuts.is_kept:
        with guarded:
            prepare_cold(services, attempt, answered)
            await remember(services, attempt, answered)  # the last, because it waits for the store


def _find_window(route: Route, attempt: Attempt) -> int:
    """The model's window, or the prompt if that is longer, for what can be true of an answer."""
    window_tokens = route.settings.find_window() if attempt.call is None else attempt.call.view.believed_tokens
    return window_tokens if attempt.compacted is None else max(window_tokens, attempt.compacted.original_tokens)
