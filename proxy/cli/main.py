"""The command line: `trimtab serve`, `check`, `doctor`, `compact`, `evaluate` and others.

Wrong arguments and wrong configuration end with status 2 and sentences that say what is allowed.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click
import orjson
import uvloop

from proxy.cli.compact import compact
from proxy.cli.count import count
from proxy.cli.forget import forget
from proxy.cli.healthcheck import healthcheck
from proxy.cli.json_schema import make_schema
from proxy.cli.options import config_option, file_argument, set_option, table_option, wrong_use
from proxy.cli.serve import serve
from proxy.config.load import find_route_fault, load_file

if TYPE_CHECKING:
    from typing import Unpack

    from proxy.cli.evaluate.command import Given


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="trimtab", prog_name="trimtab")
def main() -> None:
    """A proxy that keeps long LLM sessions inside the context window.

    Point OPENAI_BASE_URL at it; what it need not touch passes through byte for byte.
    """


for command in (serve, healthcheck, compact, count, forget):
    main.add_command(command)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@set_option
def check(file: Path, settings: tuple[str, ...]) -> None:
    """Validate a configuration FILE; every mistake is named."""
    with wrong_use():
        config = load_file(file, settings, is_online=False)
    if (fault := find_route_fault(config)) is not None:  # of the machine that checks, not of the file
        click.echo(f"trimtab: warning: {fault}", err=True)
    click.echo(f"{file}: valid; {len(config.models)} model entries, upstream {config.upstream.base_url}")


@main.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    click.echo(orjson.dumps(make_schema(), option=orjson.OPT_INDENT_2))


@main.command()
@click.option("--model", "models", multiple=True, metavar="NAME", help="A model to look at; may be given again.")
@click.option(
    "--key-from-env",
    metavar="NAME",
    help="Show the key in this environment variable to the main upstream, where the configuration has none for it.",
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
    """Look whether the proxy will work here: upstreams, windows, counting, store, address. What to do is said."""
    from rich.console import Console  # noqa: PLC0415 - of no use to `serve`

    from proxy.cli.doctor.report import examine  # noqa: PLC0415 - the same

    key = os.environ.get(key_from_env, "") if key_from_env is not None else None
    if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
        message = "there is no key in this variable of the environment"
        raise click.BadParameter(message, param_hint="--key-from-env")
    with wrong_use(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        config = load_file(config_path, settings)
        report = runner.run(examine(config, models, key))
    if as_table if as_table is not None else sys.stdout.isatty():
        report.print_tables(Console())
    else:
        click.echo(report.write_json())
    sys.exit(1 if report.will_fail else 0)


@main.command()
@click.option("--keep", is_flag=True, help="Leave the proxy and the simulated upstream running.")
def demo(*, keep: bool) -> None:
    """Replay a long agent session through the proxy, against a simulated upstream. No key, no network."""
    from proxy.cli.demo.command import run_demo  # noqa: PLC0415 - rich and the session are of no use to `serve`

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_demo(keep=keep))


@main.command()
@file_argument
@click.option("--questions", type=click.IntRange(1, 200), default=15, show_default=True, help="How many are asked.")
@click.option(
    "--arms",
    default="none,trimtab,digest,truncate",
    show_default=True,
    help="Which ways are compared: none (all of it, if that fits), trimtab (with its summaries), digest (without a"
    " model), truncate (the newest messages, in as many tokens).",
)
@click.option("--model", metavar="NAME", help="Instead of the one that the session names.")
@click.option("--judge", metavar="NAME", help="The model that grades the answers; the same one if not given.")
@click.option("--upstream", metavar="URL", help="Who is asked; short for --set upstream.base_url=URL.")
@click.option("--api-key-env", metavar="NAME", help="The variable with the key; OPENAI_API_KEY if not given.")
@click.option("--window", type=click.IntRange(min=1024), metavar="TOKENS", help="Compact for this context window.")
@click.option("--line", type=click.IntRange(min=1), help="The line of the session; the longest if not given.")
@click.option(
    "--cache", type=click.Path(path_type=Path, dir_okay=False), help="A file that keeps the questions for other runs."
)
@click.option("--concurrency", type=click.IntRange(1, 64), default=4, show_default=True, help="Calls at once.")
@click.option("--timeout", type=click.FloatRange(1, 3600), default=300.0, show_default=True, help="Seconds an answer.")
@click.option("--yes", is_flag=True, help="Do not ask whether the price is agreed to.")
@click.option("--details", is_flag=True, help="Show each question with its answers: words of the session.")
@table_option
@config_option
@set_option
def evaluate(file: IO[bytes], **given: "Unpack[Given]") -> None:
    """Measure what a model still knows of the session in FILE once it was compacted. Asks the upstream.

    Questions are made of what was removed, answered from what is forwarded alone, and graded. FILE is a request body,
    or has a session in each line. The price is told before anything is asked.
    """
    from proxy.cli.evaluate.command import run_command  # noqa: PLC0415 - of no use to `serve`

    run_command(file, **given)
