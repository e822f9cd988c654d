"""The command line: `trimtab serve`, `check`, `doctor`, `compact`, `evaluate` and others.

Wrong arguments and a wrong configuration end a command with status 2 and with messages that say what is allowed.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click
import orjson
import uvloop

from trimtab.proxy.cli.compact import compact
from trimtab.proxy.cli.count import count
from trimtab.proxy.cli.forget import forget
from trimtab.proxy.cli.healthcheck import healthcheck
from trimtab.proxy.cli.init import init
from trimtab.proxy.cli.json_schema import make_schema
from trimtab.proxy.cli.options import config_option, file_argument, prints_table, set_option, table_option, wrong_use
from trimtab.proxy.cli.records.inspect import inspect
from trimtab.proxy.cli.records.replay import replay
from trimtab.proxy.cli.serving.record import record
from trimtab.proxy.cli.serving.serve import serve
from trimtab.proxy.cli.serving.wrap import wrap
from trimtab.proxy.cli.stats import stats
from trimtab.proxy.cli.summary import summary
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import find_route_fault, find_unknown_variables, load_file
from trimtab.proxy.config.policies.policy import PolicyConfig
from trimtab.proxy.config.schema import Config
from trimtab.proxy.store import require_store
from trimtab.proxy.telemetry.tracing import require_exporter


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="trimtab", prog_name="trimtab")
def main() -> None:
    """A proxy that keeps long LLM sessions inside the context window.

    Start it with `trimtab serve` and point OPENAI_BASE_URL at it. If a request need not be shortened, it passes
    unchanged, byte for byte.
    """


for command in (serve, wrap, record, init, healthcheck, compact, count, inspect, replay, summary, forget, stats):
    main.add_command(command)


@main.command()
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
    """Which rule of cuts holds: in general, and for the models and profiles for which another one does."""
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


@main.command()
def schema() -> None:
    """Print the JSON Schema of the configuration. Editors use it to complete and check YAML."""
    click.echo(orjson.dumps(make_schema(), option=orjson.OPT_INDENT_2))


@main.command()
@click.option("--model", "models", multiple=True, metavar="NAME", help="Also report this model. Repeatable.")
@click.option(
    "--key-from-env",
    metavar="NAME",
    help="Environment variable with a key for the main upstream, if clients bring their own keys.",
)
@table_option
@config_option
@set_option
def doctor(
    *,
    models: tuple[str, ...],
    key_from_env: str | None,
    as_table: bool | None,
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Check whether the proxy will work here. For each problem, say what to do.

    It checks the upstreams, the models' context windows and prices, how tokens are counted, the listen address, the
    store, the number of processes and the limit of open files. The status is 1 if something will fail, else 0.
    """
    from rich.console import Console  # noqa: PLC0415 - `serve` does not need it

    from trimtab.proxy.cli.doctor.report import examine  # noqa: PLC0415 - the same

    key = os.environ.get(key_from_env, "") if key_from_env is not None else None
    if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
        message = "this environment variable holds no key"
        raise click.BadParameter(message, param_hint="--key-from-env")
    with wrong_use(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        config = load_file(config_path, settings)
        report = runner.run(examine(config, models, key))
    if prints_table(as_table=as_table):
        report.print_tables(Console())
    else:
        click.echo(report.write_json())
    sys.exit(1 if report.will_fail else 0)


@main.command()
@click.option("--keep", is_flag=True, help="Keep the proxy, with the session on its dashboard, running until Ctrl-C.")
def demo(*, keep: bool) -> None:
    """Replay a long agent session to a simulated upstream. It needs no key and no network.

    The session goes through a real proxy. The command prints the tokens, the refused requests and the cost, each with
    and without trimtab.
    """
    from trimtab.proxy.cli.demo.command import run_demo  # noqa: PLC0415 - `serve` needs neither rich nor the session

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_demo(keep=keep))


@main.command()
@file_argument
@click.option("--questions", type=click.IntRange(1, 200), default=15, show_default=True, help="Number of questions.")
@click.option(
    "--arms",
    default="none,trimtab,digest,truncate",
    show_default=True,
    help="Prompts to compare, separated by commas: none (the whole session, if it fits the window), trimtab (with a"
    " model's summaries), digest (without a model), truncate (only the newest messages, in as many tokens).",
)
@click.option("--model", metavar="NAME", help="Evaluate this model instead of the one in the session.")
@click.option("--judge", metavar="NAME", help="Model that grades the answers. Default: the evaluated model.")
@click.option("--upstream", metavar="URL", help="Upstream to ask; short for --set upstream.base_url=URL.")
@click.option(
    "--api-key-env",
    metavar="NAME",
    help="Environment variable with the API key. Default: OPENAI_API_KEY, unless the configuration has a key.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1024),
    metavar="TOKENS",
    help="Compact for a context window of this size instead of the model's own.",
)
@click.option("--line", type=click.IntRange(min=1), help="Line of FILE to evaluate. Default: the longest line.")
@click.option(
    "--cache",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that keeps the questions for later runs. It contains text of the session.",
)
@click.option("--concurrency", type=click.IntRange(1, 64), default=4, show_default=True, help="Calls at the same time.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    default=300.0,
    show_default=True,
    help="Longest time for one answer in seconds, including waits for a busy server.",
)
@click.option("--yes", is_flag=True, help="Go on without asking whether the price is acceptable.")
@click.option("--details", is_flag=True, help="Also print each question with its answers. They quote the session.")
@table_option
@config_option
@set_option
def evaluate(file: IO[bytes], **given: Any) -> None:
    """Measure what a model still knows after compaction.

    FILE (or standard input) holds a session: one request body, or one in each line. A model writes questions about what
    compaction removes from it. The model answers them from what would be forwarded, and a judge grades the answers.
    This calls the upstream. Before that, the command prints the price and asks whether to go on.
    """
    from trimtab.proxy.cli.evaluate.command import run_command  # noqa: PLC0415 - `serve` does not need it

    run_command(file, **given)
