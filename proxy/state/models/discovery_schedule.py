"""What upstreams have told of their models' windows, and when each is to be asked again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.config.schema import UpstreamConfig
from proxy.http.client import UpstreamClient
from proxy.http.headers import Headers
from proxy.state.models.discovery import Windows, discover
from proxy.state.models.records import ModelName

REDISCOVER_SECONDS = 600.0
FIRST_RETRY_SECONDS = 5.0
"""Where nothing was learned; doubled each time."""
MAX_TRIED = 16
"""Credentials with which an upstream is asked in that time, until one of them teaches something."""


@dataclass(slots=True)
class _Upstream:
    windows: Windows = field(default_factory=lambda: Windows({}, None))
    has_told: bool = False
    asked_at: float | None = None
    failures: int = 0
    tried: set[int] = field(default_factory=set)
    is_being_asked: bool = False


class Told:
    """Asks, and remembers the answers."""

    def __init__(self, client: UpstreamClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._upstreams: dict[str, _Upstream] = {}

    def find(self, name: ModelName) -> int | None:
        """The window in tokens that a model's upstream has told; None where it has not."""
        known = self._upstreams.get(name.base_url)
        return known.windows.find(name.model) if known else None

    def list_models(self) -> list[tuple[str, str]]:
        """Upstreams' base_url and model, of each whose window has been told."""
        return [(url, model) for url, known in self._upstreams.items() for model in known.windows.by_model]

    def take_turn(self, upstream: UpstreamConfig, headers: Headers) -> bool:
        """Whether an upstream is to be asked now, with a credential's headers; if so, the caller does."""
        known = self._upstreams.setdefault(upstream.base_url, _Upstream())
        if known.is_being_asked:
            return False
        pause_seconds = REDISCOVER_SECONDS
        if not known.has_told:  # it may be starting still
            pause_seconds = min(FIRST_RETRY_SECONDS * 2**known.failures, REDISCOVER_SECONDS)
        is_due = known.asked_at is None or self._clock() - known.asked_at > pause_seconds
        if pause_seconds >= REDISCOVER_SECONDS and is_due:
            known.tried.clear()
        # A credential that was not tried may open what others did not.
        shown = hash(tuple(headers))
        is_let_in = bool(headers) and not known.has_told and shown not in known.tried and len(known.tried) < MAX_TRIED
        if is_due or is_let_in:
            known.tried.add(shown)
            known.is_being_asked = True
        return known.is_being_asked

    async def ask(self, upstream: UpstreamConfig, headers: Headers) -> None:
        """Ask an upstream whose turn it is; raises nothing."""
        known = self._upstreams[upstream.base_url]
        try:
            found = await discover(self._client, upstream, headers)
        finally:
            known.is_being_asked = False
        known.asked_at = self._clock()
        known.failures += 1
        if found.told_any:
            known.windows, known.failures, known.has_told = found, 0, True
