"""`trimtab evaluate` on the terminal: from the file to the table.

Law: no model is asked before the user has seen the price and agreed. A key is never shown. After an error or Ctrl-C,
the command still prints what was spent. The result shows what was measured, and computes only sums and shares of that.
Text of the session or of a model is shown only on request, and without control characters.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import IO, Any

import click
import msgspec
import orjson
import uvloop
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from trimtab.proxy.cli.bodies import choose_variant
from trimtab.proxy.cli.evaluate.asking import ArmResult, Calls, Examiner
from trimtab.proxy.cli.evaluate.rehearsal import (
    NAMES,
    STAGE,
    NoSessionError,
    StageLog,
    Tokens,
    compact_session,
    read_session,
)
from trimtab.proxy.cli.evaluate.setup import Options, Setup, add_up, find_view, prepare, tell_price
from trimtab.proxy.cli.options import (
    WRONG_USE,
    StoppedError,
    file_argument,
    give_up,
    prints_table,
    read_key,
    table_option,
    takes_config,
    wrong_use,
)
from trimtab.proxy.cli.tables import print_fitting, safe
from trimtab.proxy.compaction import UndecodableError
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.telemetry.logs import configure_log, get_log
from trimtab.rules.pipeline.exceeded import LimitExceededError


class Result(msgspec.Struct, frozen=True):
    """The result, in the model's own tokens as far as its ratio is known.

    wanted, questions: how many were requested, and how many each arm was asked. failures: why summaries are digests.
    """

    model: str
    judge: str
    window_tokens: int
    original_tokens: int
    removed_messages: int
    wanted: int
    questions: int
    summaries: int
    failures: tuple[str, ...]
    arms: tuple[ArmResult, ...]
    spent: Tokens

    def write_json(self, *, details: bool) -> bytes:
        told = {**msgspec.to_builtins(self), "arms": [_describe(arm, details=details) for arm in self.arms]}
        return orjson.dumps(told)

    def print_table(self, console: Console) -> None:
        title = (
            f"{self.questions} questions about {self.removed_messages} removed messages, window {self.window_tokens:,}"
        )
        table = Table("arm", title=title, title_justify="left")
        for name in ("recall", "tokens", "of all", "right", "partly", "missed", "no grade"):
            table.add_column(name, justify="right")
        for arm in self.arms:
            table.add_row(arm.name, *self._count(arm))
        print_fitting(console, table, ("no grade", "of all", "partly", "missed"))
        for arm in self.arms:
            for problem in arm.problems:
                console.print(safe(f"{arm.name}: {problem}"))
        if self.questions < self.wanted:
            console.print(f"{self.wanted - self.questions} of {self.wanted} questions could not be used.")
        if self.failures:
            reasons = ", ".join(dict.fromkeys(self.failures))
            console.print(safe(f"{len(self.failures)} calls for summaries gave none: {reasons}"))
        console.print(f"Spent: {self.spent.describe()}.")

    def _count(self, arm: ArmResult) -> list[str]:
        share = f"{arm.tokens / self.original_tokens:.1%}" if self.original_tokens else ""
        if arm.recall is None:
            return ["", f"{arm.tokens:,}", share, "", "", "", f"{len(arm.answered) or ''}"]
        counted = [str(arm.grades.count(grade)) for grade in (2, 1, 0)]
        return [f"{arm.recall:.1%}", f"{arm.tokens:,}", share, *counted, str(len(arm.answered) - len(arm.grades))]


def _describe(arm: ArmResult, *, details: bool) -> dict[str, object]:
    described: dict[str, object] = {
        "name": arm.name,
        "tokens": arm.tokens,
        "recall": arm.recall,
        "right": arm.grades.count(2),
        "partly": arm.grades.count(1),
        "missed": arm.grades.count(0),
        "without_grade": len(arm.answered) - len(arm.grades),
        "problems": arm.problems,
    }
    return {**described, "answers": [msgspec.to_builtins(one) for one in arm.answered]} if details else described


INTERRUPTED = 128 + signal.SIGINT  # exit status after Ctrl-C, as in shells


def _read_arms(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    arms = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not arms or not set(arms) <= set(NAMES):
        raise click.BadParameter(f"it must be one or more of {','.join(NAMES)}, separated by commas")
    return arms


@click.command()
@file_argument
@click.option("--questions", type=click.IntRange(1, 200), default=15, show_default=True, help="Number of questions.")
@click.option(
    "--arms",
    default="none,trimtab,digest,truncate",
    show_default=True,
    callback=_read_arms,
    help="Prompts to compare, separated by commas: none (the whole session, if it fits the window), trimtab (with a"
    " model's summaries), digest (without a model), truncate (the task and the newest messages, in as many tokens).",
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
@click.option("--yes", is_flag=True, help="Go on without asking whether the price is acceptable.")
@click.option("--details", is_flag=True, help="Print JSON, with each question and its answers. They quote the session.")
@table_option
@takes_config
def evaluate(
    file: IO[bytes],
    *,
    config_path: Path | None,
    settings: tuple[str, ...],
    upstream: str | None,
    api_key_env: str | None,
    **given: Any,
) -> None:
    """Measure what a model still knows after compaction.

    FILE (or standard input) holds a session: a request body. Of several lines, the longest is taken. A model writes
    questions about what compaction removes from it. The model answers them from what would be forwarded, and a judge
    grades the answers. This calls the upstream. Before that, the command prints the price and asks whether to go on.
    """
    short = () if upstream is None else (f"upstream.base_url={upstream}",)
    with wrong_use():
        config = load_file(config_path, (*settings, *short, *STAGE))
    configure_log("warning")
    spent = Tokens()
    try:
        options = Options(key=_find_key(config, api_key_env), **given)
        result = _evaluate(config, options, file.read(), spent)
    except NoSessionError as error:
        give_up(f"{file.name}: {error}", WRONG_USE)
    except UndecodableError:
        give_up(f"{file.name}: a message of the session is not an object with a role", WRONG_USE)
    except (StoppedError, LimitExceededError) as error:
        give_up(f"{error}{_tell_spent(spent)}")
    except (asyncio.CancelledError, KeyboardInterrupt):
        give_up(f"stopped{_tell_spent(spent)}", INTERRUPTED)
    if prints_table(as_table=options.as_table) and not options.details:  # a table has no room for them
        result.print_table(Console(highlight=False))
    else:
        click.echo(result.write_json(details=options.details))
    sys.exit(0 if any(arm.recall is not None for arm in result.arms) else 1)


def _find_key(config: Config, variable: str | None) -> str | None:
    if variable is not None:
        return read_key(variable, "--api-key-env")
    return read_key("OPENAI_API_KEY") if config.upstream.api_key is None else None


def _evaluate(config: Config, options: Options, data: bytes, spent: Tokens) -> Result:
    console = Console(stderr=True, highlight=False)
    session = read_session(data, options.model)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        view = runner.run(find_view(config, session.model, options.window, options.key))
        setup = prepare(config, options, view, session, choose_variant(config, view, Compactors(get_log())))
        items = setup.estimate(setup.make_arms())
        if not setup.parts:
            raise StoppedError(
                f"compaction removes nothing from this session: it has {setup.original_tokens:,} tokens, and the window"
                f" is {view.policy.context_window:,} ({view.window_from}); use a longer session, or a smaller --window"
            )
        for line in tell_price(items, view.price_list):
            console.print(safe(line))
        if not options.yes and not sys.stdin.isatty():
            message = "no model was asked, because there is no terminal to confirm on; to go on without, use --yes"
            raise StoppedError(message)
        if not options.yes and not click.confirm("Go on?", default=False, err=True):
            raise StoppedError("stopped at your request; no model was asked")
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task("asking", total=add_up(items))
            return runner.run(_until_interrupted(_run(setup, spent, lambda: progress.advance(bar))))


async def _until_interrupted(work: Coroutine[object, object, Result]) -> Result:
    """The work's result. Ctrl-C cancels the work; a process that ends at once would leave its bar on the terminal."""
    is_main = threading.current_thread() is threading.main_thread()
    task = asyncio.current_task()
    if is_main and signal.getsignal(signal.SIGINT) != signal.SIG_IGN and task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    return await work


async def _run(setup: Setup, spent: Tokens, on_step: Callable[[], None]) -> Result:
    client = UpstreamClient()
    calls = Calls(client, setup.rehearsal.variant.compactor.count, spent)
    asker = setup.make_asker(setup.model, calls)
    judge = asker if setup.judge == setup.model else setup.make_asker(setup.judge, calls)
    examiner = Examiner(asker, judge, on_step)
    try:
        questions = await examiner.make_questions(setup.parts)
        if not questions:
            raise StoppedError(
                f"{setup.model} wrote no usable question: one that has the requested form and quotes the session; try"
                " another --model"
            )
        log, compacted = StageLog(spent, on_step), None
        if setup.summaries:
            window_tokens = setup.view.policy.context_window
            session, key = setup.rehearsal.request, setup.options.key
            compacted = await compact_session(setup.config, window_tokens, session, key, log)
        arms = await asyncio.to_thread(setup.make_arms, compacted)
        results = [await examiner.examine(arm, questions) for arm in arms]
    finally:
        await client.close()
    return Result(
        model=setup.model,
        judge=setup.judge,
        window_tokens=setup.view.policy.context_window,
        original_tokens=setup.original_tokens,
        removed_messages=setup.removed,
        wanted=setup.options.questions,
        questions=len(questions),
        summaries=len(setup.summaries),
        failures=tuple(log.failures),
        arms=tuple(results),
        spent=spent,
    )


def _tell_spent(spent: Tokens) -> str:
    return f"\ntrimtab: spent so far: {spent.describe()}" if spent.calls else ""
