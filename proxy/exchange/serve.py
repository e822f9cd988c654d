"""A chat completion, from the client's bytes to what is sent.

Law: a fault inside compaction forwards the original bytes, and is counted.
"""

import time
from collections.abc import Iterable
from functools import partial

from aiohttp import web
from multidict import CIMultiDict

from proxy.compaction.compactor import Planned, describe_refused
from proxy.compaction.offload import INLINE_BYTES, LARGE_BODY_BYTES, MANY_MESSAGES, run_bounded
from proxy.config.schema import Config, PolicyConfig
from proxy.exchange.body import peek_model, read_chat, receive_body
from proxy.exchange.deliver import Delivery, Done
from proxy.exchange.fail_open import fail_open
from proxy.exchange.loggable import names_secret, tell_name, tell_upstream
from proxy.exchange.record import Exchange
from proxy.exchange.services import Services
from proxy.exchange.summary import Call, Carried, carry_out, make_call
from proxy.http.errors import ContextExceededError, UnknownModeError, UnknownProfileError
from proxy.http.headers import read_headers
from proxy.wire.chat.message import UndecodableError
from proxy.wire.chat.request import ChatRequest
from rules.pipeline.plan import LimitExceededError

MODES = ("off", "observe", "enforce")
"""From the one that does least to the one that does most."""


async def serve_chat(services: Services, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
    """Serve a chat completion, compacted where that is called for."""
    received = await receive_body(request, services.config.limits.max_body_bytes, services.uploads)
    chat = None if received.json is None else await read_chat(received.json)
    done: Done | None = None
    body: bytes | None = None
    if chat is not None:
        settings = _choose_settings(services, request, chat.model, exchange)
        done = await _compact(services, request, chat, settings, exchange)
        enforced = done.carried if done is not None and exchange.mode == "enforce" else None
        body = enforced.compacted.body if enforced is not None else chat.body
    else:
        # Not decoded, but its model still says whose upstream it is for, and whose credential it carries.
        settings = _choose_settings(services, request, peek_model(received.beginning), exchange)
        exchange.outcome = "too_large" if received.is_too_large else "undecodable"
    return await Delivery(services, request, received, settings, exchange).run(body, done)


def _choose_settings(services: Services, request: web.BaseRequest, model: str, exchange: Exchange) -> PolicyConfig:
    """The policy of a request, its mode, and the label under which it is counted.

    Raises UnknownModeError and UnknownProfileError.
    """
    config = services.config
    overrides = request.headers if config.allow_header_override else CIMultiDict[str]()
    match = config.match_for(model)
    exchange.model, exchange.match = model, match.match if match else None
    headers = read_headers(request.raw_headers)
    exchange.shown_model, exchange.is_secret = tell_name(model, headers), names_secret(model, headers)
    exchange.mode = _lower_mode(config.mode, overrides.getall("x-trimtab-mode", ()))
    settings = _choose_policy(config, model, set(overrides.getall("x-trimtab-profile", ())))
    exchange.upstream = tell_upstream(settings.upstream, config.upstream_for(settings.upstream).base_url)
    return settings


def _choose_policy(config: Config, model: str, profiles: set[str]) -> PolicyConfig:
    """The policy of a request whose headers name these profiles. Raises UnknownProfileError."""
    if len(profiles) > 1:
        message = "x-trimtab-profile stands more than once, with different names; send it once"
        raise UnknownProfileError(message)
    try:
        return config.policy_for(model, next(iter(profiles), None))
    except KeyError as error:
        known = ", ".join(config.profiles) or "there are none"
        message = f"x-trimtab-profile names no profile of the configuration; known: {known}"
        raise UnknownProfileError(message) from error


def _lower_mode(configured: str, wanted: Iterable[str]) -> str:
    """The weaker of two modes: a header makes the proxy do less, never more; `wanted` are all its values.

    Raises UnknownModeError.
    """
    modes = {value.strip().lower() for value in wanted} or {configured}
    if not modes.issubset(MODES):
        message = f"x-trimtab-mode must be {', '.join(MODES[:-1])} or {MODES[-1]}"
        raise UnknownModeError(message)
    if len(modes) > 1:
        message = "x-trimtab-mode stands more than once, with different values; send it once"
        raise UnknownModeError(message)
    return MODES[min(map(MODES.index, (configured, *modes)))]


async def _compact(
    services: Services, request: web.BaseRequest, chat: ChatRequest, settings: PolicyConfig, exchange: Exchange
) -> Done | None:
    """The request compacted, or what would become of it; None where it goes out as it came.

    Raises ContextExceededError where the policy refuses what cannot fit.
    """
    exchange.outcome = exchange.mode
    if exchange.mode == "off":
        return None
    done: Done | None = None
    try:
        exchange.outcome = "failed_open"  # unless what follows comes to its end
        with fail_open(services, exchange, "plan"):
            call = await make_call(services, request, chat, settings, exchange)
            uncounted_bytes = call.compactor.uncounted_bytes(chat)
            done = Done(call, await _plan_and_carry_out(call, uncounted_bytes))
    except UndecodableError:
        exchange.outcome = "undecodable"
    except LimitExceededError as error:
        exchange.outcome = exchange.mode
        exchange.compacted = describe_refused(chat, error)
        if exchange.mode == "enforce":
            raise ContextExceededError(_describe_excess(error)) from error
    if done is None:
        return None
    exchange.outcome = exchange.mode
    exchange.compacted = done.carried.compacted
    if exchange.mode == "enforce":
        exchange.outcome = "compacted" if exchange.compacted and exchange.compacted.decisions else "unchanged"
    return done


async def _plan_and_carry_out(call: Call, uncounted_bytes: int) -> Carried:
    exchange, chat, compactor = call.exchange, call.chat, call.compactor
    started = time.monotonic()
    large = len(chat.body) > LARGE_BODY_BYTES or len(chat.raws) > MANY_MESSAGES
    in_thread = large or uncounted_bytes > INLINE_BYTES
    # Messages may be known, and what became of them forgotten.
    planned: Planned = await run_bounded(partial(compactor.plan, chat, call.policy), in_thread=in_thread)
    call.services.recorder.record_overhead("plan", started)
    exchange.phase = "summary"
    return await carry_out(call, planned, in_thread=in_thread)


def _describe_excess(error: LimitExceededError) -> str:
    done = (
        ", ".join(f"{decision.rule} saved {decision.saved_tokens}" for decision in error.decisions) or "nothing helped"
    )
    # OpenAI's own wording, which clients look for.
    return (
        f"This model's maximum context length is {error.window} tokens."
        f" However, your messages resulted in {error.tokens} tokens after compaction ({done})."
        f" {error.window - error.limit} tokens of the window are reserved for the completion,"
        f" which leaves a limit of {error.limit} tokens for the prompt."
        " Please reduce the length of the newest messages, or of what is always kept:"
        " system messages, tools, the first user message."
    )
