"""`trimtab healthcheck`: whether the proxy on this machine takes requests, for the runtimes of containers.

It imports no more than it needs, as it runs again and again: `python -m proxy.cli.healthcheck` takes a third of the
time of the same command behind `trimtab`.
"""

import http.client
import sys
from pathlib import Path

import click

from proxy.config.errors import ConfigError
from proxy.config.load import load_address
from proxy.config.values import own_host, site_url, split_address

PATH = "/trimtab/ready"
TIMEOUT_SECONDS = 2.0
READY = b'{"status":"ready"}'
DRAINING = b'{"status":"draining"}'


class UnwellError(Exception):
    """The proxy takes no requests, or is not there; the message says why."""


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Where `serve` listens, if it was told so by --listen.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="TRIMTAB_CONFIG",
    help="The YAML file of `serve`; also TRIMTAB_CONFIG.",
)
@click.option("--set", "settings", multiple=True, metavar="DOTTED.KEY=VALUE", help="The settings of `serve`.")
def healthcheck(listen: str | None, config_path: Path | None, settings: tuple[str, ...]) -> None:
    """Ask the proxy that runs on this machine whether it takes requests. Status 0 if so, else 1.

    It asks at the address that `serve` takes from the same configuration and environment.
    """
    try:
        ask_readiness(load_address(config_path, (*settings, *([f"listen={listen}"] if listen else ()))))
    except (ConfigError, UnwellError) as error:
        for line in str(error).splitlines():
            click.echo(f"trimtab: {line}", err=True)
        sys.exit(1)
    click.echo("ready")


def ask_readiness(listen: str) -> None:
    """Ask the proxy that listens there, past any proxy of the network. Raises UnwellError unless it is ready."""
    host, port = split_address(listen)
    if port == 0:
        message = "listen has port 0, which stands for any; say which one was taken: --listen HOST:PORT"
        raise UnwellError(message)
    url = f"{site_url(own_host(host), port)}{PATH}"
    try:
        said = read_page(listen, PATH)
    except (OSError, http.client.HTTPException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "no answer in time, or none that is HTTP"
        advice = "if serve listens elsewhere by --listen or --set, say the same here; TRIMTAB_LISTEN is read by both"
        message = f"{url} does not answer: {reason.lower()}; {advice}"
        raise UnwellError(message) from error
    if said != READY:
        message = f"{url} is draining" if said == DRAINING else f"{url} is not answered by trimtab; check listen"
        raise UnwellError(message)


def read_page(listen: str, path: str) -> bytes:
    """The beginning of a page of whatever listens there. Blocks for a few seconds at most.

    Raises OSError, or HTTPException for what is no HTTP.
    """
    host, port = split_address(listen)
    connection = http.client.HTTPConnection(own_host(host), port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().read(64)
    finally:
        connection.close()


if __name__ == "__main__":
    healthcheck(prog_name="trimtab healthcheck")
