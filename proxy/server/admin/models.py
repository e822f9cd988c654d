"""What is known of models, for people to look at.

Law: no name is shown that only a client has said, and of an upstream no more than its host.
"""

from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import orjson

from proxy.config.schema import DEFAULT_CONTEXT_WINDOW, PolicyConfig
from proxy.exchange.services import Services
from proxy.state.models.facts import Facts, Known
from proxy.state.models.records import ModelName

MAX_SHOWN = 500


@dataclass(frozen=True, slots=True)
class _Shown:
    """One model; the window is what its requests are compacted to."""

    model: str
    upstream: str
    window_tokens: int
    window_from: str
    vocabulary: str
    token_ratio: float
    calibrated: bool
    samples: int
    mean_error: float


def describe_window(settings: PolicyConfig, facts: Facts) -> tuple[int, str]:
    """The window in tokens that a policy makes of what is known, and where it comes from."""
    if settings.context_window != "auto":
        window_tokens, origin = settings.context_window, "configured"
    elif facts.window_tokens is None:
        window_tokens, origin = DEFAULT_CONTEXT_WINDOW, "default"
    else:
        window_tokens, origin = facts.window_tokens, "catalogue" if facts.from_catalogue else "discovered"
    corrected = facts.correct(window_tokens, is_configured=origin == "configured")
    return corrected, origin if corrected == window_tokens else "learned"


def write_models(services: Services) -> bytes:
    """JSON: the models that an upstream has answered for, and those whose windows one has told; and how many more."""
    known = {(one.name.base_url, one.name.model): one for one in services.models.list_known()}
    told = [place for place in services.models.list_told() if place not in known]
    every = [*reversed(known.values()), *(_recall(services, *place) for place in told[:MAX_SHOWN])]
    shown = [asdict(_show(services, one)) for one in every[:MAX_SHOWN]]
    return orjson.dumps({"models": shown, "unlisted": len(known) + len(told) - len(shown)})


def _recall(services: Services, base_url: str, model: str) -> Known:
    """A model that no request was for."""
    name = ModelName(base_url, model, services.config.policy_for(model).count)
    return Known(name, services.models.recall(name))


def _show(services: Services, known: Known) -> _Shown:
    model = known.name.model
    settings = services.config.policy_for(model)
    window_tokens, window_from = describe_window(settings, known.facts)
    return _Shown(
        model=model,
        upstream=urlsplit(known.name.base_url).netloc,
        window_tokens=window_tokens,
        window_from=window_from,
        vocabulary=services.compactors.name_vocabulary(settings, model),
        token_ratio=known.facts.ratio,
        calibrated=known.is_calibrated,
        samples=known.samples,
        mean_error=round(known.mean_error, 4),
    )
