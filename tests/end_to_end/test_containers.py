"""The parts that a container runtime relies on: the Dockerfile, the health check, and readiness during a shutdown."""

import asyncio
import re
import shlex
import signal
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import orjson
import yaml
from programs.serving import own_environment, read_log, serving
from support.client import CHAT, post
from support.command_line import run_trimtab

from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.admin.pages import PAGES
from trimtab.proxy.store.opening import data_directory

ROOT = Path(__file__).parents[2]
KUBERNETES_GUIDE = ROOT / "docs" / "guides" / "kubernetes.md"


def read_image() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile's last stage, each with its arguments."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    last = max(index for index, line in enumerate(lines) if line.startswith("FROM "))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines[last:])]


def find(name: str) -> str:
    """The arguments of the last instruction with this name."""
    return [rest for instruction, rest in read_image() if instruction == name][-1]


def image_environment() -> dict[str, str]:
    """The environment variables that the image sets."""
    words = [word for name, rest in read_image() if name == "ENV" for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


def health_command() -> list[str]:
    """The image's health check. Its shell starts no Python."""
    command: list[str] = orjson.loads(find("HEALTHCHECK").partition("CMD ")[2])
    assert command[0] == "bash"
    return command


async def run(command: list[str], **environment: str) -> tuple[int, str]:
    """Run a program. Returns its exit status and its output."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, env=own_environment() | environment, cwd=ROOT
    )
    out, said = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, (out + said).decode()


def test_the_user_has_a_number() -> None:
    """Kubernetes' `runAsNonRoot` does not accept a user name. The number is not that of root."""
    user, _, group = find("USER").partition(":")
    assert (user.isdecimal(), group.isdecimal(), int(user) > 0) == (True, True, True)


def test_the_volume_is_where_the_store_is(monkeypatch) -> None:
    """The place does not depend on the container's user or home directory."""
    for name, value in image_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", "/")
    assert find("VOLUME") == str(data_directory())
    made = [rest for name, rest in read_image() if name == "RUN"][-1]
    assert find("VOLUME") in made
    assert "mkdir" in made


async def test_the_images_health_check_follows_the_configured_port(start_proxy) -> None:
    """It asks the port in TRIMTAB_LISTEN on this machine, and uses no HTTP proxy."""
    port = (await start_proxy()).url.rpartition(":")[2]
    nowhere = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    for host in ("127.0.0.1", "0.0.0.0", "localhost"):
        assert await run(health_command(), TRIMTAB_LISTEN=f"{host}:{port}", **nowhere) == (0, "ready\n")


def read_manifest() -> dict:
    """The pod template of the Deployment in the Kubernetes guide."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", KUBERNETES_GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    manifest = next(block for block in blocks if "kind: Deployment" in block)
    return next(yaml.safe_load_all(manifest))["spec"]["template"]["spec"]


def test_the_manifest_of_the_kubernetes_guide_fits_the_image() -> None:
    """Group, volume, port and probes match. The grace period is longer than the configured shutdown."""
    pod = read_manifest()
    container = pod["containers"][0]
    assert find("USER").endswith(f":{pod['securityContext']['fsGroup']}")
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [find("VOLUME")]
    assert {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} <= set(PAGES)
    assert [str(port["containerPort"]) for port in container["ports"]] == [find("EXPOSE")]
    assert image_environment()["TRIMTAB_LISTEN"].endswith(f":{find('EXPOSE')}")
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert container["args"][:2] == ["serve", "--set"]
    limits = load_config(settings=container["args"][2:], environment=environment).limits
    assert limits.shutdown_delay_seconds + limits.drain_seconds <= pod["terminationGracePeriodSeconds"] - 5


async def _wait_until_not_ready(client: aiohttp.ClientSession, url: str) -> bytes:
    async with asyncio.timeout(30):
        while True:
            async with client.get(url + "/trimtab/ready") as response:
                if response.status == 503:
                    return await response.read()


async def test_readiness_ends_before_the_listener_does(client, upstream) -> None:
    """For shutdown_delay_seconds after SIGTERM, new connections are served and the health page answers 200."""
    settings = ("--set", "limits.shutdown_delay_seconds=3600", "--set", "store=memory")
    async with serving("--upstream", upstream.url, *settings) as (process, url):
        process.send_signal(signal.SIGTERM)
        line = (await read_log(process, "draining"))[-1]
        assert (line["delay_seconds"], line["seconds"]) == (3600, 20)
        assert await _wait_until_not_ready(client, url.removesuffix("/v1")) == b'{"status":"draining"}'
        async with aiohttp.ClientSession() as newcomer:
            assert (await post(newcomer, url + "/chat/completions", CHAT))[0].status == 200
        async with client.get(url.removesuffix("/v1") + "/trimtab/health") as response:
            assert response.status == 200
        listen = ("--listen", url.removeprefix("http://").removesuffix("/v1"))
        ended = await asyncio.to_thread(run_trimtab, "healthcheck", *listen)
        assert (ended.exit_code, "draining" in ended.output) == (1, True)
