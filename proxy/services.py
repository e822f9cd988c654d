"""What requests are served with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.compaction import Compactor
from proxy.config import Config, PolicyConfig
from proxy.exchange import Recorder
from proxy.summaries import Summaries
from proxy.upstream import UpstreamClient


@dataclass(slots=True)
class Lifecycle:
    """Whether the proxy takes requests, and how many it serves."""

    ready: bool = False
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Services:
    """What a request is served with; one set per proxy."""

    config: Config
    client: UpstreamClient
    summaries: Summaries
    recorder: Recorder
    compactor_for: Callable[[PolicyConfig], Compactor]
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
