"""`trimtab check`: whether a configuration is valid here, and what it means."""

from collections.abc import Iterator
from pathlib import Path

import click

from trimtab.proxy.cli.options import set_option, wrong_use
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import find_route_fault, find_unknown_variables, load_file
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import Config
from trimtab.proxy.store.opening import require_store
from trimtab.proxy.telemetry.tracing import require_exporter


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@set_option
def check(file: Path, settings: tuple[str, ...]) -> None:
    """Validate the configuration in FILE and report every error.

    A package that the configuration needs and that is not installed here is an error, too. No server is asked.
    """
    with wrong_use():
        config = load_file(file, settings, is_online=False)
        _require_packages(config)
    if (fault := find_route_fault(config)) is not None:  # concerns the machine that checks, not the file
        click.echo(f"trimtab: warning: {fault}", err=True)
    for name, similar in find_unknown_variables().items():
        near = f"; did you mean {similar}?" if similar else ""
        click.echo(f"trimtab: warning: the variable {name} sets no key{near}", err=True)
    click.echo(f"{file}: valid; entries in models: {len(config.models)}; upstream {config.upstream.base_url}")
    for line in _describe_cuts(config):
        click.echo(line)


def _describe_cuts(config: Config) -> Iterator[str]:
    general = config.defaults.describe_cut()
    yield general
    named: list[tuple[str, PolicyConfig]] = [(f"models: {model.match}", model) for model in config.models]
    named += [(f"profiles: {name}", profile) for name, profile in config.profiles.items()]
    for name, settings in named:
        told = config.over_defaults(settings).describe_cut()
        if told != general:
            yield f"{name}: {told}"


def _require_packages(config: Config) -> None:
    """Raise ConfigError with every part of the configuration that `serve` could not open on this machine."""
    faults = []
    for require in (require_store, require_exporter):
        try:
            require(config)
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
