"""`trimtab compact`: compacts request bodies without any network."""

from pathlib import Path

import click

from proxy.cli.options import Requests, config_option, for_each_request, set_option, takes_requests, wrong_use
from proxy.compaction.compactor import Compacted
from proxy.compaction.pool import Compactors
from proxy.compaction.refusal import scale_cleaned
from proxy.config.load import load_file
from proxy.state.models.model_policy import ModelView
from proxy.telemetry.logs import configure_log, get_log
from proxy.wire.codec import Request


@click.command()
@takes_requests("one body per line")
@click.option("--explain", is_flag=True, help="Print on standard error what each rule did.")
@config_option
@set_option
def compact(requests: Requests, *, explain: bool, config_path: Path | None, settings: tuple[str, ...]) -> None:
    """Compact the request body in FILE (or standard input). No network is used.

    The compacted body goes to standard output. If the proxy would ask a model for a summary, the body has a digest
    instead, which is made without a model. With --jsonl, a line that cannot be compacted is written unchanged; the
    status is then 1.
    """
    with wrong_use():
        config = load_file(config_path, settings, is_online=False)
    configure_log()
    compactors = Compactors(get_log())

    def work(request: Request, place: str) -> None:
        view = ModelView.of_unmet(config, request.model)
        compactor = compactors.choose(view.settings, request.model)
        left, dropped = compactor.drop_tools(request, view.settings.drop_tools)
        planned = compactor.plan(left, view.policy)
        cleaned = scale_cleaned(dropped, planned.original.tokens, view.policy.token_ratio)
        compacted = compactor.apply(planned, None).add_cleaned(cleaned)
        click.echo(compacted.body, nl=requests.jsonl)
        if explain:
            _explain(place, compacted)

    for_each_request(requests, work, bytes)


def _explain(place: str, compacted: Compacted) -> None:
    tokens = f"{compacted.original_tokens} tokens, {compacted.sent_tokens} sent, limit {compacted.limit_tokens}"
    click.echo(f"{place}{tokens}", err=True)
    for item in compacted.decisions:
        what = f"{item.rule}: {item.reason}; saved {item.saved_tokens} tokens"
        click.echo(f"{place}{what}, first changed message {item.first_changed}", err=True)
