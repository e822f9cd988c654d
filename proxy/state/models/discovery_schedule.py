"""What upstreams have told of their models' windows, and when each is to be asked again."""

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
FIRST_RETRY_SECONDS = 5.0
"""Where nothing was learned; doubled each time."""
MAX_ASKING = 16
"""Clients with whose credentials an upstream is asked at the same time."""
MAX_TOLD_BYTES = 8 * 1024 * 1024
"""Of what upstreams have told single clients."""
MODEL_BYTES = 200


@dataclass(slots=True)
class _Upstream:
    """What an upstream has told one client, or anybody."""

    windows: Windows = field(default_factory=lambda: Windows({}, None))
    has_told: bool = False
    asked_at: float | None = None
    failures: int = 0
    is_being_asked: bool = False


class Told:
    """Asks, and remembers the answers.

    What an upstream tells anybody, or to the operator's own key, counts for all. What it tells only to a client's
    credential counts for that tenant: another may see other models under the same names.
    """

    def __init__(self, client: UpstreamClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._upstreams: dict[str, _Upstream] = {}
        self._of_tenants: BytesLRU[tuple[str, str], _Upstream] = BytesLRU(MAX_TOLD_BYTES, _weigh)
        self._asking: set[tuple[str, str]] = set()

    def find(self, name: ModelName) -> int | None:
        """The window in tokens that a model's upstream has told; None where it has not."""
        known = self._upstreams.get(name.base_url)
        if known is None or not known.has_told:
            known = self._of_tenants.get((name.base_url, name.tenant))
        return known.windows.find(name.model) if known else None

    def list_models(self) -> list[tuple[str, str]]:
        """Upstreams' base_url and model, of each whose window has been told to anybody."""
        return [(url, model) for url, known in self._upstreams.items() for model in known.windows.by_model]

    def take_turn(self, upstream: UpstreamConfig, tenant: str) -> bool:
        """Whether an upstream is to be asked now, with a tenant's credential or with none; if so, the caller does.

        With a credential only if it tells nothing without one.
        """
        anybody = self._upstreams.setdefault(upstream.base_url, _Upstream())
        known = anybody
        if tenant and not anybody.has_told:
            if len(self._asking) >= MAX_ASKING:
                return False
            known = self._of_tenants.get((upstream.base_url, tenant)) or _Upstream()
        pause_seconds = REDISCOVER_SECONDS
        if not known.has_told:  # it may be starting still
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
        """Ask an upstream whose turn it is; raises nothing."""
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
            known.windows, known.failures, known.has_told = found, 0, True
        if known is not anybody:
            self._of_tenants[upstream.base_url, tenant] = known  # what it weighs has changed


def _weigh(_key: tuple[str, str], known: _Upstream) -> int:
    return MODEL_BYTES * (1 + len(known.windows.by_model))
