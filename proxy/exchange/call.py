"""Decides where a request goes, and with which settings and tools it is compacted.

Law: each of these is derived once for a request. A client's headers make the proxy do less, never more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from proxy.compaction.compactor import Compactor
from proxy.compaction.offload import Lane
from proxy.config.policies.policy import ModelConfig, PolicyConfig
from proxy.config.schema import Config, UpstreamConfig
from proxy.exchange.arrival import Arrival, tell_upstream
from proxy.exchange.report import Target
from proxy.http.client import origin_form, target_url
from proxy.http.credentials import keep_credentials
from proxy.http.errors import UnknownModeError, UnknownProfileError
from proxy.http.headers import Headers
from proxy.state.models.model_policy import ModelView
from proxy.telemetry.ledger import Ledger
from proxy.wire.codec import Codec, Request
from proxy.wire.dialects import is_bare
from rules.conversation import Conversation, Decision, Message

_HAS_UNCOUNTED = attrgetter("has_uncounted")
_HAS_REASONING = attrgetter("has_reasoning")
MODES = ("off", "observe", "enforce")
"""Ordered from the mode that does least to the mode that does most."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes, and the settings that apply to it."""

    target: Target
    settings: PolicyConfig
    upstream: UpstreamConfig


@dataclass(frozen=True, slots=True)
class Call:
    """A request to be compacted, with everything that this needs.

    request: without what must not be sent; `cleaned` says what was taken out.
    label: the model's label in the metrics.
    lane: the queue in which the request's work waits for a thread.
    ledger: where the decisions about this request are written down.
    attempt: 1 for the first request to the upstream, 2 for the second.
    """

    arrival: Arrival
    route: Route
    request: Request
    compactor: Compactor
    view: ModelView
    label: str
    lane: Lane
    cleaned: tuple[Decision, ...] = ()
    ledger: Ledger = field(default_factory=Ledger, compare=False)
    attempt: int = 1


def choose_route(
    config: Config, arrival: Arrival, headers: CIMultiDict[str] | CIMultiDictProxy[str], model: str
) -> Route:
    """Choose upstream and settings of a request for a model. Raises UnknownModeError and UnknownProfileError."""
    overrides = headers if config.allow_header_override else CIMultiDict[str]()
    mode = _lower_mode(config.mode, overrides.getall("x-trimtab-mode", ()))
    matched = config.match_for(model)
    settings = _choose_settings(config, matched, set(overrides.getall("x-trimtab-profile", ())))
    upstream = config.upstream_for(settings.upstream)
    target = describe_target(arrival, model, matched, tell_upstream(settings.upstream, upstream.base_url), mode)
    return Route(target, settings, upstream)


def place(upstream: UpstreamConfig, codec: Codec, target: str) -> URL:
    """The upstream URL of a request target that the codec claims. Raises PathNotAllowedError; see `target_url`."""
    path = target if target.startswith("/") else origin_form(target)
    return target_url(upstream, path, is_api=is_bare(codec, path.partition("?")[0]))


def describe_target(
    arrival: Arrival, model: str, matched: ModelConfig | None, upstream: str = "", mode: str = ""
) -> Target:
    """Describe the model of a request, with the names that may be shown."""
    shown_model, is_secret = arrival.tell_name(model)
    return Target(upstream, model, shown_model, is_secret, matched.match if matched else None, mode)


def is_text_only(conversation: Conversation) -> bool:
    """Whether there is no media, whose tokens are an upper bound."""
    return not any(_has_media(message) for message in conversation.messages if message.media)


def _has_media(message: Message) -> bool:
    return any(not part.is_removed for part in message.media)


def is_counted(request: Request, conversation: Conversation) -> bool:
    """Whether we count exactly the parts of a request that a server reads. Only such requests help to calibrate.

    A server may read members that are not counted, and it may drop reasoning.
    """
    messages = conversation.messages
    is_certain = not any(map(_HAS_UNCOUNTED, messages)) and not any(map(_HAS_REASONING, messages))
    return is_certain and request.codec.counts_all(request)


def find_credentials_for(upstream: UpstreamConfig, headers: Headers) -> Headers:
    """The client's headers that authenticate it or name who pays; none if this upstream must not get the client's."""
    return keep_credentials(headers) if upstream.shown == "client" else ()


def _choose_settings(config: Config, matched: ModelConfig | None, profiles: set[str]) -> PolicyConfig:
    """The settings of a request: of its profile, else of the matching entry of `models`, else the defaults.

    `profiles`: the names in its headers. Raises UnknownProfileError.
    """
    if len(profiles) > 1:
        message = "x-trimtab-profile was sent more than once, with different names; send it once"
        raise UnknownProfileError(message)
    for profile in profiles:
        if profile not in config.profiles:
            known = ", ".join(config.profiles) or "there are none"
            message = f"x-trimtab-profile names a profile that the configuration does not have; known: {known}"
            raise UnknownProfileError(message)
        return config.over_defaults(config.profiles[profile])
    return config.over_defaults(matched)


def _lower_mode(configured: str, wanted: Iterable[str]) -> str:
    """The weaker of the configured mode and the one in the header; `wanted` holds all values of the header.

    Raises UnknownModeError.
    """
    modes = {value.strip().lower() for value in wanted}
    if not modes:
        return configured
    if not modes.issubset(MODES):
        message = f"x-trimtab-mode must be {', '.join(MODES[:-1])} or {MODES[-1]}"
        raise UnknownModeError(message)
    if len(modes) > 1:
        message = "x-trimtab-mode was sent more than once, with different values; send it once"
        raise UnknownModeError(message)
    return MODES[min(map(MODES.index, (configured, *modes)))]
