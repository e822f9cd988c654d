"""The windows that upstreams reported when asked, and when to ask each upstream again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.config.schema import UpstreamConfig
from proxy.http.client import UpstreamClient
from proxy.http.headers import Headers
from proxy.lru import BytesLRU
from proxy.state.models.discovery import Windows, discover
from proxy.state.models.records import ModelName

REDISCOVER_SECONDS = 600.0
"""Pause after an answer with windows. Chosen: windows change only when a server is restarted or gains a model."""
FIRST_RETRY_SECONDS = 5.0
"""Pause after the first answer without a window, doubled each time up to REDISCOVER_SECONDS. Chosen: the upstream may
still be starting."""
MAX_ASKING = 16
"""Questions with clients' credentials at the same time. Chosen: bounds the load that many new credentials can cause."""
MAX_TOLD_BYTES = 8 * 1024 * 1024
"""Memory for the answers to single tenants. Chosen: room for some 40,000 windows."""
MODEL_BYTES = 200
"""Estimated memory of one window in an answer: the name, the number, and their entry in a dictionary."""


@dataclass(slots=True)
class _Upstream:
    """The answers of an upstream to one tenant, or to questions without a client's credential.

    failures: answers without a window in a row.
    """

    windows: Windows = field(default_factory=lambda: Windows({}, None))
    has_told: bool = False
    asked_at: float | None = None
    failures: int = 0
    is_being_asked: bool = False


class Told:
    """Asks upstreams for windows and keeps the answers.

    An answer without a credential, or to the operator's own key, counts for all clients. An answer to a client's
    credential counts for that tenant only: another tenant may have other models under the same names.
    """

    def __init__(self, client: UpstreamClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._upstreams: dict[str, _Upstream] = {}
        self._of_tenants: BytesLRU[tuple[str, str], _Upstream] = BytesLRU(MAX_TOLD_BYTES, _weigh)
        self._asking: set[tuple[str, str]] = set()

    def find(self, name: ModelName) -> int | None:
        """The window in tokens that the upstream reported for a model; None if it reported none."""
        known = self._upstreams.get(name.base_url)
        if known is None or not known.has_told:
            known = self._of_tenants.get((name.base_url, name.tenant))
        return known.windows.find(name.model) if known else None

    def list_models(self) -> list[tuple[str, str]]:
        """The base_url and model of each window that counts for all clients."""
        return [(url, model) for url, known in self._upstreams.items() for model in known.windows.by_model]

    def take_turn(self, upstream: UpstreamConfig, tenant: str) -> bool:
        """Whether the caller must ask an upstream now, by `ask`, with the same tenant.

        tenant: whose credential would be sent; empty for none. The credential is used only if the upstream has reported
            no window without one.
        """
        anybody = self._upstreams.setdefault(upstream.base_url, _Upstream())
        known = anybody
        if tenant and not anybody.has_told:
            if len(self._asking) >= MAX_ASKING:
                return False
            known = self._of_tenants.get((upstream.base_url, tenant)) or _Upstream()
        pause_seconds = REDISCOVER_SECONDS
        if not known.has_told:  # it may still be starting
            pause_seconds = min(FIRST_RETRY_SECONDS * 2**known.failures, REDISCOVER_SECONDS)
        is_due = known.asked_at is None or self._clock() - known.asked_at > pause_seconds
        if known.is_being_asked or not is_due:
            return False
        known.is_being_asked = True
        if known is not anybody:
            self._asking.add((upstream.base_url, tenant))
            self._of_tenants[upstream.base_url, tenant] = known
        return True

    async def ask(self, upstream: UpstreamConfig, headers: Headers, tenant: str) -> None:
        """Ask an upstream for which `take_turn` returned True. Raises nothing."""
        anybody = self._upstreams[upstream.base_url]
        known = anybody
        if tenant and not anybody.has_told:
            known = self._of_tenants.get((upstream.base_url, tenant)) or _Upstream()
        try:
            found = await discover(self._client, upstream, headers)
        finally:
            known.is_being_asked = False
            self._asking.discard((upstream.base_url, tenant))
        known.asked_at = self._clock()
        known.failures += 1
        if found.told_any:
            known.windows, known.has_told = found, True
        if known is not anybody:
            self._of_tenants[upstream.base_url, tenant] = known  # set again, because its size has changed


def _weigh(_key: tuple[str, str], known: _Upstream) -> int:
    return MODEL_BYTES * (1 + len(known.windows.by_model))
