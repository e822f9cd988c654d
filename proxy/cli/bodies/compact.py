"""`trimtab compact`: compacts request bodies without any network."""

from pathlib import Path

import click

from proxy.cli.options import Requests, config_option, for_each_request, set_option, takes_requests, wrong_use
from proxy.compaction.pool import Compactors
from proxy.config.load import load_file
from proxy.state.models.model_policy import ModelView
from proxy.telemetry.logs import configure_log, get_log
from proxy.wire.codec import Request, Unsent
from rules.conversation import Outcome
from rules.pipeline.story import tell_story


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
    from proxy.cli.bodies.explain import Shown, show  # noqa: PLC0415 - rich is needed for nothing else here

    with wrong_use():
        config = load_file(config_path, settings, is_online=False)
    configure_log()
    compactors = Compactors(get_log())
    shown = Shown(explain, explain_json, diff)

    def work(request: Request, place: str) -> None:
        view = ModelView.of_unmet(config, request.model)
        compactor = compactors.choose(view.settings, request.model)
        nonces = config.upstream_for(view.settings.upstream).strips_nonces
        unsent = Unsent(view.settings.local_items, view.settings.drop_tools, nonces=nonces)
        planned = compactor.plan(compactor.clean(request, unsent), view.policy)
        compacted = compactor.apply(planned, None)
        click.echo(compacted.body, nl=requests.jsonl)
        if shown:
            outcome = Outcome(compacted.forwarded, compacted.decisions)
            show(tell_story(planned.plan, outcome, ratio=view.policy.token_ratio), compacted, shown, place, view)

    for_each_request(requests, work, bytes)
