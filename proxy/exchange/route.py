"""Decides where a request goes, with which settings, and what its provider takes for its prompt cache.

Law: each of these is derived once for a request. A client's headers make the proxy do less, never more. Nothing is
added for an upstream that is not known to take it, nothing that it has refused, and nothing with `cache: off`.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from trimtab.proxy.catalogue.prices import MILLION_TOKENS, asks_million
from trimtab.proxy.catalogue.prompt_caches import Asked, find_additions, find_lifetime_seconds
from trimtab.proxy.config.policy import MODES, ModelConfig, PolicyConfig, with_window
from trimtab.proxy.config.schema import Config, UpstreamConfig, find_in_name
from trimtab.proxy.exchange.arrival import MAX_CHARS, MAX_UPSTREAMS, Arrival, tell_upstream
from trimtab.proxy.http.client import origin_form, target_url
from trimtab.proxy.http.credentials import keep_credentials
from trimtab.proxy.http.errors import (
    PathNotAllowedError,
    UnknownCompactError,
    UnknownKeepError,
    UnknownModeError,
    UnknownProfileError,
)
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.models.model_policy import ModelView, name_model
from trimtab.proxy.models.records import ModelName
from trimtab.proxy.wire.cache_help import NO_HELP, Addition, CacheHelp
from trimtab.proxy.wire.codec import Codec, Request
from trimtab.proxy.wire.dialects import is_bare
from trimtab.proxy.wire.transcript.body import Unsent

EDGE_BYTES = 4096  # Of both ends of a body, which name its features. Chosen: the messages are between them.
_BETAS = re.compile(rb'"(?:anthropic_beta|betas)"\s{0,8}:\s{0,8}(\[[^\]]{0,1000}\]|"[^"]{0,1000}")')
_CLAUDE = ("claude", "sonnet", "opus")
MAX_WORDS_CHARS = 500  # Of what the summary of a cut asked for is to heed. Chosen: some sentences.
MAX_KEPT_NAMES = 16  # Chosen: a request has no more news than that.
_NAME = re.compile(r"[^\s,]{1,200}")
THINKING: Addition = "thinking"
"""What the provider is told of a changed transcript."""
PROVIDER_NOTE: Addition = "provider_note"
OwnHeaders = CIMultiDict[str] | CIMultiDictProxy[str]


class Target(msgspec.Struct, frozen=True):
    """The model and upstream that a request is for, and its mode.

    shown_model, upstream: in the form that may be logged.
    is_secret: the model's name contains a credential of the client, so it must not become a label.
    match: the glob of `models` in the configuration that the model matches; None for none.

    Of a request that no codec claims, the model is known only if it decided the upstream.
    """

    upstream: str
    model: str = ""
    shown_model: str = ""
    is_secret: bool = False
    match: str | None = None
    mode: str = ""

    @property
    def vouched(self) -> str:
        """The model's name if it may become a label once the upstream has answered for it, else empty."""
        return self.model if self.match is None and not self.is_secret else ""


NO_TARGET = Target("")
"""Of a request that was not read yet."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes, and the settings that apply to it.

    observe_share: the share of sessions that are only observed although the mode is enforce.
    url: its address there; None for a path that must not get our key. credentials: the client's that it may get.
    unsent: what is taken out of the body.
    adds: what the host takes for its prompt cache, if this upstream has not refused it.
    asked: the name under which refusals are remembered.
    lifetime_seconds: for which the host keeps a cached prompt that is not read; None if that is not known.
    may_ask_million: whether the request's own words may ask for a window of a million tokens.
    compact_now: set if the client asks for a cut now: what the summary is to heed, may be empty.
    views: the view of the model for the last request on this route; none before. It is made again if its facts change.
    keep: names of messages that the client wants kept, as in its header.
    """

    target: Target
    settings: PolicyConfig
    upstream: UpstreamConfig
    observe_share: float
    config: Config = field(repr=False)
    url: URL | None
    name: ModelName
    credentials: Headers = field(repr=False)
    unsent: Unsent
    adds: frozenset[Addition]
    asked: Asked
    may_ask_million: bool
    lifetime_seconds: float | None
    compact_now: str | None = None
    views: list[ModelView] = field(default_factory=list, repr=False, compare=False)
    keep: tuple[str, ...] = ()


def choose_route(
    config: Config, arrival: Arrival, headers: OwnHeaders, model: str, codec: Codec, request: Request | None = None
) -> Route:
    """Choose upstream and settings of a request for a model. Raises UnknownModeError and UnknownProfileError.

    Requests of one connection with the same head and model go the same way, so it is chosen once.
    request: what could be read of the body, whose own words may ask for a window.
    """
    known = arrival.head.routes
    route = known.get(model)
    if not isinstance(route, Route) or route.config is not config:
        route = _choose(config, arrival, headers, model, codec)
        if len(model) <= MAX_CHARS and (model in known or len(known) < MAX_UPSTREAMS):
            known[model] = route
    return route if request is None or not route.may_ask_million else _apply_own_words(route, arrival, request)


def _choose(config: Config, arrival: Arrival, headers: OwnHeaders, model: str, codec: Codec) -> Route:
    """Choose the route. Raises UnknownModeError and UnknownProfileError."""
    overrides = headers if config.allow_header_override else CIMultiDict[str]()
    wanted = _read_mode(overrides.getall("x-trimtab-mode", ()))
    matched = config.match_for(model)
    profile = _choose_profile(config, set(overrides.getall("x-trimtab-profile", ())))
    settings = config.policy_of(matched, profile)
    mode, share = _find_control(config, matched, profile)
    mode = _lower_mode(mode, wanted)
    if mode == "enforce" and share == 1:
        mode = "observe"
    upstream = config.upstream_for(settings.upstream)
    target = describe_target(config, arrival, model, matched, tell_upstream(settings.upstream, upstream.base_url), mode)
    tokens = settings.window_for(arrival.headers, arrival.endpoint) if settings.context_windows else None
    settings = settings if tokens is None else with_window(settings, tokens)
    takes_help = upstream.cache == "auto" and mode == "enforce" and not codec.is_count
    url: URL | None = None
    with suppress(PathNotAllowedError):
        url = place(upstream, codec, arrival.target)
    return Route(
        target=target,
        settings=settings,
        upstream=upstream,
        observe_share=share,
        config=config,
        url=url,
        name=name_model(config, settings, model, arrival.tenant),
        credentials=find_credentials_for(upstream, arrival.end_to_end),
        unsent=Unsent(settings.local_items, settings.drop_tools, nonces=upstream.strips_nonces),
        adds=find_additions(upstream.base_url, codec.name, model) if takes_help else frozenset(),
        asked=(arrival.tenant.id, upstream.base_url, model),
        lifetime_seconds=find_lifetime_seconds(upstream.base_url, model),
        may_ask_million=settings.context_window == "auto" and (_is_claude(model) or model.endswith("]")),
        compact_now=_read_compact(overrides.getall("x-trimtab-compact", ())),
        keep=_read_keep(overrides.getall("x-trimtab-keep", ())),
    )


def _apply_own_words(route: Route, arrival: Arrival, request: Request) -> Route:
    """The route of a request, with the window of a million tokens if its headers, body or model's name ask for it."""
    betas = _read_betas(arrival, request) if _is_claude(request.model) else ""
    if not (betas or request.model.endswith("]")) or not asks_million(request.model, betas):
        return route
    return replace(route, settings=with_window(route.settings, MILLION_TOKENS))


def _is_claude(model: str) -> bool:
    return any(name in model for name in _CLAUDE)


def _read_betas(arrival: Arrival, request: Request) -> str:
    """The features that a request for Claude asks for: in a header, or in the body as some clouds want it."""
    told = [value for name, value in arrival.headers if name.lower() == "anthropic-beta"]
    edges = request.body[:EDGE_BYTES], request.body[-EDGE_BYTES:]
    found = [match[1].decode("utf-8", "replace") for edge in edges for match in _BETAS.finditer(edge)]
    return ",".join((*told, *found))


def place(upstream: UpstreamConfig, codec: Codec, target: str) -> URL:
    """The upstream URL of a request target that the codec claims. Raises PathNotAllowedError; see `target_url`."""
    path = target if target.startswith("/") else origin_form(target)
    return target_url(upstream, path, is_api=is_bare(codec, path.partition("?")[0]))


def describe_target(
    config: Config, arrival: Arrival, model: str, matched: ModelConfig | None, upstream: str = "", mode: str = ""
) -> Target:
    """Describe the model of a request, with the names that may be shown."""
    shown_model, is_secret = arrival.tell_name(model, find_in_name(config, model))
    return Target(upstream, model, shown_model, is_secret, matched.match if matched else None, mode)


def find_credentials_for(upstream: UpstreamConfig, headers: Headers) -> Headers:
    """The client's headers that authenticate it or name who pays; none if this upstream must not get the client's."""
    return keep_credentials(headers) if upstream.shown == "client" else ()


def _choose_profile(config: Config, profiles: set[str]) -> PolicyConfig | None:
    """The profile that a request names; None for none. Raises UnknownProfileError."""
    if len(profiles) > 1:
        raise UnknownProfileError("x-trimtab-profile was sent more than once, with different names; send it once")
    for profile in profiles:
        if profile not in config.profiles:
            known = ", ".join(config.profiles) or "there are none"
            message = f"x-trimtab-profile names a profile that the configuration does not have; known: {known}"
            raise UnknownProfileError(message)
        return config.profiles[profile]
    return None


def _find_control(config: Config, matched: ModelConfig | None, profile: PolicyConfig | None) -> tuple[str, float]:
    """The configured mode, and the share of sessions that is only observed.

    A client chooses its profile, so a profile never does more than the matching entry of `models` allows: of two modes
    the one that does less applies, and of two shares the larger one. What a profile does not set, that entry sets.
    """
    own = config.over_defaults(matched)
    if profile is None:
        return config.mode_of(own), own.observe_share
    chosen, limits = config.over_defaults(profile), matched or PolicyConfig()
    mode, share = config.mode_of(own), own.observe_share
    if profile.mode is not None:
        mode = _lower_mode(profile.mode, limits.mode)
    if "observe_share" in profile.model_fields_set:
        share = max(chosen.observe_share, limits.observe_share)
    return mode, share


def _read_compact(wanted: Iterable[str]) -> str | None:
    """What a request for a cut tells the summary to heed; None without the header. Raises UnknownCompactError."""
    values = {value.strip() for value in wanted}
    if not values:
        return None
    asked, _, words = values.pop().partition(" ")
    if values or asked.lower() != "now" or len(words) > MAX_WORDS_CHARS:
        message = f"x-trimtab-compact must be `now`, or `now` and up to {MAX_WORDS_CHARS} characters for the summary"
        raise UnknownCompactError(message)
    return words.strip()


def _read_keep(wanted: Iterable[str]) -> tuple[str, ...]:
    """The names in the header, each once; none without it. Raises UnknownKeepError."""
    names = tuple(dict.fromkeys(name.strip() for value in wanted for name in value.split(",")))
    if len(names) > MAX_KEPT_NAMES or not all(map(_NAME.fullmatch, names)):
        message = (
            f"x-trimtab-keep must be last, or up to {MAX_KEPT_NAMES} places in the list of messages (0 is the first, -1"
            " the last) or ids of tool calls, with commas between them"
        )
        raise UnknownKeepError(message)
    return names


def _lower_mode(configured: str, wanted: str | None) -> str:
    """The one of two modes that does less; None is no wish."""
    return configured if wanted is None else min(configured, wanted, key=MODES.index)


def _read_mode(wanted: Iterable[str]) -> str | None:
    """The mode in the header; None without one. `wanted` holds all values of the header. Raises UnknownModeError."""
    modes = {value.strip().lower() for value in wanted}
    if not modes:
        return None
    if not modes.issubset(MODES):
        raise UnknownModeError(f"x-trimtab-mode must be {', '.join(MODES[:-1])} or {MODES[-1]}")
    if len(modes) > 1:
        raise UnknownModeError("x-trimtab-mode was sent more than once, with different values; send it once")
    return modes.pop()


def find_help(route: Route, request: Request, refused: frozenset[Addition]) -> Request:
    """The request with what is added on this route, except what was refused; its key is not known yet."""
    takes_binding = THINKING not in refused
    if not route.adds and takes_binding:
        return request
    return replace(
        request, cache=CacheHelp(route.adds - refused) if route.adds else NO_HELP, takes_binding=takes_binding
    )
