"""The targets: no gateway, nginx, the bare aiohttp proxy, other gateways, and trimtab.

Law: each is one process on one core that does not log requests; each is started again in every round.
"""

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.gateways.configurations import LITELLM, NGINX, TENSORZERO, write_configuration
from bench.harness.servers import HOST, PRICES, TRIMTAB, find_free_port
from bench.peers.environments import OFFLINE, MissingPeerError, find_program

CHAT = "/v1/chat/completions"
MODEL = "gpt-4o"
YARDSTICK = "aiohttp"
_TENSORZERO_STARTER = Path(__file__).parents[1] / "peers" / "tensorzero_gateway.py"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a target needs to start: its upstream, a folder to write to, and the folder of the peers."""

    upstream_port: int
    folder: Path
    peers: Path

    @property
    def upstream(self) -> str:
        """The upstream's URL, without /v1."""
        return f"http://{HOST}:{self.upstream_port}"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a process is started. If it has no `port`, it prints its URL in a line that `prints` matches."""

    command: tuple[str, ...]
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)
    prints: re.Pattern[str] | None = None


Prepare = Callable[[Surroundings], Launch]


@dataclass(frozen=True, slots=True)
class Target:
    """One target.

    `prepare` is None for the upstream itself. It raises MissingPeerError if the program is not installed. `decides` are
    the rules that trimtab must have applied to the large body before anything is measured.
    """

    name: str
    label: str
    prepare: Prepare | None
    path: str = CHAT
    model: str = MODEL
    decides: str | None = None
    skips: tuple[str, ...] = ()


def _prepare_nginx(place: Surroundings) -> Launch:
    # Debian has nginx in a folder that is not in the PATH of users.
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        name = "nginx"
        raise MissingPeerError(name)
    port = find_free_port()
    file = write_configuration(NGINX, place.folder / "nginx.conf", upstream_port=place.upstream_port, port=port)
    return Launch((program, "-p", str(place.folder), "-c", str(file)), port)


def _make_yardstick(*options: str) -> Prepare:
    def prepare(place: Surroundings) -> Launch:
        port = find_free_port()
        program = (sys.executable, "-m", "bench.harness.bare_proxy", "--port", str(port), "--upstream", place.upstream)
        return Launch((*program, *options), port)

    return prepare


def _prepare_sglang(place: Surroundings) -> Launch:
    program = find_program(place.peers, "sglang", "smg")
    port, metrics_port = find_free_port(), find_free_port()
    options = (
        "launch", "--host", HOST, "--port", str(port), "--worker-urls", place.upstream, "--policy", "round_robin",
        "--prometheus-host", HOST, "--prometheus-port", str(metrics_port), "--log-level", "warn",
        "--max-concurrent-requests", "4096",
    )  # fmt: skip
    return Launch((str(program), *options), port, {"TOKIO_WORKER_THREADS": "1"})


def _prepare_tensorzero(place: Surroundings) -> Launch:
    python = find_program(place.peers, "tensorzero", "python")
    file = write_configuration(TENSORZERO, place.folder / "tensorzero.toml", upstream_port=place.upstream_port, port=0)
    prints = re.compile(r"BASE http://127\.0\.0\.1:(\d+)")
    return Launch((str(python), "-u", str(_TENSORZERO_STARTER), str(file)), 0, prints=prints)


def _prepare_litellm(place: Surroundings) -> Launch:
    program = find_program(place.peers, "litellm-proxy", "litellm")
    port = find_free_port()
    file = write_configuration(LITELLM, place.folder / "litellm.yaml", upstream_port=place.upstream_port, port=port)
    own = {
        **OFFLINE,
        "HOME": str(place.folder),
        "LITELLM_TELEMETRY": "False",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOG": "ERROR",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    options = ("--config", str(file), "--host", HOST, "--port", str(port), "--num_workers", "1")
    return Launch((str(program), *options), port, own)


def _make_trimtab(*settings: str) -> Prepare:
    def prepare(place: Surroundings) -> Launch:
        port = find_free_port()
        where = ("serve", "--listen", f"{HOST}:{port}", "--upstream", f"{place.upstream}/v1")
        options = (part for setting in ("store=memory", PRICES, *settings) for part in ("--set", setting))
        return Launch((*TRIMTAB, *where, *options), port, {"XDG_DATA_HOME": str(place.folder)})

    return prepare


TARGETS = (
    Target("direct", "the upstream itself", None),
    Target("nginx", "nginx", _prepare_nginx),
    Target(YARDSTICK, "bare aiohttp + uvloop", _make_yardstick()),
    Target("aiohttp_json", "bare aiohttp, JSON decoded and encoded", _make_yardstick("--json")),
    Target("sglang", "SGLang gateway (Rust)", _prepare_sglang),
    Target(
        "tensorzero",
        "TensorZero (Rust)",
        _prepare_tensorzero,
        path="/openai/v1/chat/completions",
        model=f"tensorzero::model_name::{MODEL}",
    ),
    Target("litellm", "LiteLLM", _prepare_litellm),
    Target("trimtab_off", "trimtab, mode off", _make_trimtab("mode=off")),
    Target("trimtab", "trimtab, nothing to cut", _make_trimtab("defaults.context_window=1000000"), decides=""),
    Target(
        "trimtab_cut",
        "trimtab, with a cut",
        _make_trimtab("defaults.context_window=32768"),
        decides="summarise",
        skips=("first", "events", "events_usage"),
    ),
)


def find_targets(names: str) -> list[Target]:
    """Targets by a comma-separated list of names, in the table's order. Raises SystemExit if a name is unknown."""
    wanted = set(names.split(","))
    if unknown := wanted - {target.name for target in TARGETS}:
        known = ", ".join(target.name for target in TARGETS)
        message = f"no such target: {', '.join(sorted(unknown))}; known: {known}"
        raise SystemExit(message)
    return [target for target in TARGETS if target.name in wanted]
