"""How long an upstream keeps a prompt in its cache after it was last read.

Law: an estimate. It decides when a cut costs little, and how a missed cache is explained, never what is correct.
"""

from collections.abc import Sequence

from proxy.state.catalogue.providers import find_host, is_local

USUAL_SECONDS = 300.0
"""Source: OpenAI (5 to 10 minutes before GPT-5.6) and Anthropic (5 minutes, if no ttl is set)."""


def find_lifetime_seconds(base_url: str, model: str, wanted: Sequence[str] = ()) -> float | None:
    """The seconds that a cached prompt lives without being read; None if only the server's memory limits it.

    wanted: what the request says about it, as `24h` (OpenAI's retention) or `1h` (Anthropic's ttl).
    """
    if is_local(base_url):
        return None
    del model, wanted
    find_host(base_url)
    return USUAL_SECONDS
