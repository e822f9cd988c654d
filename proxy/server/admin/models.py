"""The page that shows what is known about models.

Law: it shows only model names that an upstream has confirmed. Of an upstream it shows the host only, and of a client
only that it exists.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import orjson

from trimtab.proxy.exchange.services import Services
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.models.records import Known, ModelName

MAX_SHOWN = 500  # chosen: bounds the page; the rest is counted as `unlisted`


def write_models(services: Services, max_shown: int = MAX_SHOWN) -> bytes:
    """JSON: models that an upstream has answered for or listed with a window, and how many more there are."""
    met: defaultdict[tuple[str, str], list[Known]] = defaultdict(list)
    for one in reversed(services.models.list_known()):
        met[one.name.base_url, one.name.model].append(one)
    told = [place for place in services.models.list_told() if place not in met]
    every = [_agree(known) for known in met.values()] + [_recall(services, *place) for place in told[:max_shown]]
    shown = [_show(services, one) for one in every[:max_shown]]
    return orjson.dumps({"models": shown, "unlisted": len(met) + len(told) - len(shown)})


def _agree(known: Sequence[Known]) -> Known:
    """The figures of a model that hold for all its clients, and everything learned about it.

    If single clients have learned different figures, show those of a client that has learned nothing.
    """
    of_all = next((one for one in known if not one.name.tenant), known[0])
    of_clients = [one for one in known if one.name.tenant] or [of_all]
    learned = tuple(dict.fromkeys(item for one in known for item in one.learned))
    is_one = all(one.facts == of_clients[0].facts for one in of_clients)
    return replace(of_clients[0] if is_one else of_all, learned=learned)


def _recall(services: Services, base_url: str, model: str) -> Known:
    name = ModelName(base_url, model, services.config.policy_for(model).count)
    return Known(name, services.models.recall(name))


def _show(services: Services, known: Known) -> dict[str, object]:
    """One model; `window_tokens` is the window that its requests are compacted to."""
    model = known.name.model
    view = ModelView.of(services.config, services.config.policy_for(model), known.name, known.facts)
    return {
        "model": model,
        "upstream": urlsplit(known.name.base_url).netloc,
        "mode": services.config.tell_mode(view.settings),
        "window_tokens": view.policy.context_window,
        "window_from": view.window_from,
        "vocabulary": services.compactors.name_vocabulary(view.settings, model),
        "token_ratio": known.facts.ratio,
        "calibrated": known.is_calibrated,
        "samples": known.samples,
        "mean_error": round(known.mean_error, 4),
        "learned": [item.describe(time.time()) for item in known.learned],
    }
