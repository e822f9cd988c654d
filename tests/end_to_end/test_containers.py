"""What a container's runtime relies on: the image's file, the health check, readiness before the end."""

import asyncio
import re
import shlex
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import orjson
import pytest
import yaml
from programs.serving import own_environment, read_log, serving
from support.client import CHAT, post

from proxy.config.load import load_address, load_config
from proxy.config.schema import Config
from proxy.server.admin.pages import PAGES
from proxy.server.app import run_proxy
from proxy.state.stores import data_directory

ROOT = Path(__file__).parents[2]
DOCKER_GUIDE = ROOT / "docs" / "guides" / "docker.md"
KUBERNETES_GUIDE = ROOT / "docs" / "guides" / "kubernetes.md"
KUBERNETES_GRACE_SECONDS = 30
"""Source: Kubernetes, `terminationGracePeriodSeconds` by default."""


def read_image() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile's last stage, each with what follows it."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    last = max(index for index, line in enumerate(lines) if line.startswith("FROM "))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines[last:])]


def find(name: str) -> str:
    """What the image says of this, the last word of several."""
    return [rest for instruction, rest in read_image() if instruction == name][-1]


def image_environment() -> dict[str, str]:
    """The variables that the image sets."""
    words = [word for name, rest in read_image() if name == "ENV" for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


def health_command() -> list[str]:
    """What the image runs to see whether it is well, by this Python."""
    program, *arguments = orjson.loads(find("HEALTHCHECK").partition("CMD ")[2])
    return [sys.executable, *arguments] if program == "python" else [sys.executable, "-m", "proxy", *arguments]


async def run(command: list[str], **environment: str) -> tuple[int, str]:
    """Status and output of a program."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, env=own_environment() | environment, cwd=ROOT
    )
    out, said = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, (out + said).decode()


async def check(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run `trimtab healthcheck`."""
    return await run([sys.executable, "-m", "proxy", "healthcheck", *arguments], **environment)


def test_the_user_has_a_number() -> None:
    """`runAsNonRoot` cannot tell that a name is not root; and it is not."""
    user, _, group = find("USER").partition(":")
    assert (user.isdecimal(), group.isdecimal(), int(user) > 0) == (True, True, True)


def test_the_volume_is_where_the_store_is(monkeypatch) -> None:
    """Whatever home the user of the container has, and whoever that is."""
    for name, value in image_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", "/")
    assert find("VOLUME") == str(data_directory())
    made = [rest for name, rest in read_image() if name == "RUN"][-1]
    assert find("VOLUME") in made
    assert "mkdir" in made


@pytest.mark.parametrize("listen", ["127.0.0.1:{}", "0.0.0.0:{}", "localhost:{}"])
async def test_the_images_health_check_follows_the_configured_port(listen, upstream) -> None:
    """It asks the port that TRIMTAB_LISTEN names, on this machine, and no proxy of the network."""
    async with serving("--upstream", upstream.url) as (_, url):
        port = url.removesuffix("/v1").rpartition(":")[2]
        nowhere = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
        status, said = await run(health_command(), TRIMTAB_LISTEN=listen.format(port), **nowhere)
    assert (status, said) == (0, "ready\n")


async def test_the_health_check_reads_the_same_configuration(upstream, tmp_path) -> None:
    """File, environment and options as `serve` does; of the file only the address is looked at."""
    file = tmp_path / "trimtab.yaml"
    async with serving("--upstream", upstream.url) as (_, url):
        port = url.removesuffix("/v1").rpartition(":")[2]
        file.write_text("listen: 127.0.0.1:${PORT}\nupstream: {api_key: '${NOT_SET}', ca_file: /nowhere}\nnope: 1")
        assert await check("--config", str(file), PORT=port) == (0, "ready\n")
        assert await check(TRIMTAB_CONFIG=str(file), PORT=port) == (0, "ready\n")
        assert await check("--config", str(file), PORT="9", TRIMTAB_LISTEN=f"127.0.0.1:{port}") == (0, "ready\n")
        assert (await check("--set", f"listen=127.0.0.1:{port}", TRIMTAB_LISTEN="127.0.0.1:9"))[0] == 0
        assert (await check("--listen", f"127.0.0.1:{port}", "--set", "listen=127.0.0.1:9"))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--listen", "127.0.0.1:9"), "http://127.0.0.1:9/trimtab/ready does not answer: connection refused; "),
        (("--listen", "127.0.0.1:0"), "port 0"),
        (("--listen", "nonsense"), "listen: 'nonsense' must be HOST:PORT"),
        (("--config", "/no-such-file"), "cannot be read"),
    ],
)
async def test_who_is_not_well_ends_with_1(arguments, sentence) -> None:
    """A sentence says why. Docker keeps 2 for itself."""
    status, said = await check(*arguments)
    assert status == 1
    assert said.startswith("trimtab: ")
    assert sentence in said


async def test_another_program_is_not_taken_for_trimtab(upstream) -> None:
    """One that answers everything with success."""
    status, said = await check("--listen", upstream.url.removeprefix("http://").removesuffix("/v1"))
    assert status == 1
    assert "is not answered by trimtab" in said


def test_the_health_command_of_the_docker_guide_is_valid() -> None:
    """It names an address; whether anything listens there is another matter."""
    said = DOCKER_GUIDE.read_text(encoding="utf-8")
    commands = re.findall(r'--health-cmd "trimtab healthcheck ([^"]*)"', said)
    assert commands
    for command in commands:
        _, listen = shlex.split(command)
        assert load_address(None, (f"listen={listen}",), environment={}) == listen


def test_the_images_address_wins_over_the_files(tmp_path) -> None:
    """Unless it is empty; the Docker guide says so."""
    file = tmp_path / "trimtab.yaml"
    file.write_text("listen: 0.0.0.0:9000")
    assert load_address(file, environment=image_environment()) == image_environment()["TRIMTAB_LISTEN"]
    assert load_address(file, environment=image_environment() | {"TRIMTAB_LISTEN": ""}) == "0.0.0.0:9000"
    assert "-e TRIMTAB_LISTEN=`" in DOCKER_GUIDE.read_text(encoding="utf-8")


def read_manifest() -> dict:
    """The pod of the Kubernetes guide's Deployment."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", KUBERNETES_GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    manifest = next(block for block in blocks if "kind: Deployment" in block)
    return next(yaml.safe_load_all(manifest))["spec"]["template"]["spec"]


def test_the_manifest_of_the_kubernetes_guide_fits_the_image() -> None:
    """Group, volume, port and probes; and the grace is longer than the shutdown that it configures."""
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


def test_the_defaults_end_before_kubernetes_loses_patience() -> None:
    """What a shutdown takes, with some seconds to spare for the rest of it."""
    limits = Config().limits
    assert limits.shutdown_delay_seconds == 0
    assert limits.drain_seconds <= KUBERNETES_GRACE_SECONDS - 5


async def _wait_until_not_ready(client: aiohttp.ClientSession, url: str) -> bytes:
    async with asyncio.timeout(10):
        while True:
            async with client.get(url + "/trimtab/ready") as response:
                if response.status == 503:
                    return await response.read()


async def test_readiness_ends_before_the_listener_does(client, upstream) -> None:
    """For shutdown_delay_seconds after SIGTERM new connections are still served; health stays."""
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
        status, said = await check("--listen", url.removeprefix("http://").removesuffix("/v1"))
        assert (status, "draining" in said) == (1, True)


async def test_the_delay_ends_at_once_if_it_is_cancelled(client, upstream, log, compactors) -> None:
    """As by a second signal: then the listener is closed, and nothing is left running."""
    settings = ("listen=127.0.0.1:0", f"upstream.base_url={upstream.url}", "store=memory")
    config = load_config(settings=(*settings, "limits.shutdown_delay_seconds=3600"), environment={})
    started: asyncio.Future[str] = asyncio.Future()
    stop = asyncio.Event()

    async def serve() -> None:
        async with run_proxy(config, log, compactors) as proxy:
            started.set_result(proxy.url)
            await stop.wait()

    serving_it = asyncio.ensure_future(serve())
    url = await started
    stop.set()
    await _wait_until_not_ready(client, url)
    serving_it.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving_it, 10)
    with pytest.raises(aiohttp.ClientConnectorError):
        await client.get(url + "/trimtab/health")


async def test_after_the_delay_the_listener_closes(client, upstream, log, compactors) -> None:
    """And what is in flight is waited for as ever."""
    settings = ("listen=127.0.0.1:0", f"upstream.base_url={upstream.url}", "store=memory")
    config = load_config(settings=(*settings, "limits.shutdown_delay_seconds=0.01"), environment={})
    async with run_proxy(config, log, compactors) as proxy:
        assert (await post(client, proxy.url + "/v1/chat/completions", CHAT))[0].status == 200
    with pytest.raises(aiohttp.ClientConnectorError):
        await client.get(proxy.url + "/trimtab/health")
