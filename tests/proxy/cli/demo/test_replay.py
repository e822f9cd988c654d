"""The demo's replay: a session through the real proxy, over real sockets."""

import pytest

from proxy.cli.demo.replay import WINDOW_TOKENS, Cost, replay_session, run_stage
from proxy.cli.demo.session import make_session

MODULES = 10
"""As many as make the session more than twice as large as the window."""


async def test_replay_keeps_a_long_session_inside_the_window() -> None:
    """No request is refused, no prompt exceeds the limit, the prefix stays warm, and all of it costs less."""
    progress: list[tuple[int, int]] = []
    async with run_stage(make_session(MODULES)) as stage:
        report = await replay_session(stage, lambda tally, served: progress.append((len(tally.sizes), len(served))))
    assert (report.refused, report.faults) == (0, ())
    assert report.requests == report.intact == len(stage.session.turns) == len(progress)
    assert report.refused_originals > 0
    assert report.largest_original_tokens > WINDOW_TOKENS > report.limit_tokens >= report.largest_prompt_tokens > 0
    assert report.sent.prompt_tokens < report.original.prompt_tokens
    assert report.sent.cached_share > 0.8
    assert 0 < report.cost_ratio < 1
    assert report.summary_requests > 0
    assert report.summaries.completion_tokens > 0
    rules = {rule for rule, _ in report.decisions}
    assert {"truncate", "dedupe", "prune", "summarise"} >= rules >= {"truncate", "summarise"}


async def test_report_counts_what_the_client_was_refused() -> None:
    """Where the upstream refuses everything, each request counts as refused and none as paid for."""
    async with run_stage(make_session(1)) as stage:
        stage.upstream._window_tokens = 100
        report = await replay_session(stage, lambda *_: None)
    assert report.requests == report.refused == len(stage.session.turns)
    assert (report.sent, report.refused_originals) == (Cost(), 0)


async def test_replay_notes_faults_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the proxy logs as an error is in the report, by its name, though the log itself is dropped."""

    def fail(*_: object, **__: object) -> None:
        message = "planted"
        raise RuntimeError(message)

    async with run_stage(make_session(1)) as stage:
        monkeypatch.setattr("proxy.compaction.compactor.plan", fail)
        report = await replay_session(stage, lambda *_: None)
    assert (report.faults, report.refused, report.limit_tokens) == (("fail_open",), 0, 0)


def test_cost_weighs_cached_input_and_output() -> None:
    """Cached input costs a tenth of input, output four times as much."""
    assert Cost(100, 40, 5) + Cost(10, 10, 1) == Cost(110, 50, 6)
    assert Cost(100, 40, 5).price == 60 + 4 + 20
    assert Cost().cached_share == 0
