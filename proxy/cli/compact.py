"""`trimtab compact`: compacts request bodies without any network."""

from pathlib import Path

import click

from trimtab.proxy.cli.explain import Shown, show
from trimtab.proxy.cli.options import (
    Requests,
    choose_variant,
    config_option,
    for_each_request,
    set_option,
    takes_requests,
    wrong_use,
)
from trimtab.proxy.compaction import engine
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_file
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.telemetry.logs import configure_log, get_log
from trimtab.proxy.wire.codec import Request


@click.command()
@takes_requests("one body per line")
@click.option("--explain", is_flag=True, help="Print on standard error, in sentences, what was done and why.")
@click.option(
    "--explain-json", is_flag=True, help="The same as one line of JSON per request, with each changed message."
)
@click.option("--diff", is_flag=True, help="Print on standard error what was changed in each message, as a diff.")
@config_option
@set_option
def compact(
    requests: Requests,
    *,
    explain: bool,
    explain_json: bool,
    diff: bool,
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Compact the request body in FILE (or standard input). No network is used.

    The compacted body goes to standard output. If the proxy would ask a model for a summary, the body has a digest
    instead, which is made without a model. With --jsonl, a line that cannot be compacted is written unchanged; the
    status is then 1.

    Messages have the numbers of the request's own list, `messages` or `input`, from 0, without items of the client
    alone. Only --diff prints text of the conversation.
    """
    with wrong_use():
        config = load_file(config_path, settings, is_online=False)
    configure_log()
    compactors = Compactors(get_log())
    shown = Shown(explain, explain_json, diff)

    def work(request: Request, place: str) -> None:
        view = ModelView.of_unmet(config, request.model)
        compaction = engine.compact(request, choose_variant(config, view, compactors))
        if compaction.refusal is not None:
            raise compaction.refusal
        click.echo(compaction.compacted.body, nl=requests.jsonl)
        if shown:
            show(compaction, shown, place, view)

    for_each_request(requests, work, bytes)
