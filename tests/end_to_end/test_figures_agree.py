"""One definition a word: every place that shows a figure of a run shows the same one.

The run has failures of the upstream, refusals of both sides, broken answers, rejected summaries, counted prompts, and a
restart. The places are the headers of the answers, the metrics page, the dashboard's totals, minutes, sessions and
week, `trimtab stats`, and the line in which `wrap` and `serve` tell what was saved. The costs are those of the
upstream's own books.
"""

import re
from collections import Counter
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import SMALL, settle
from support.model_learning import ListLog
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream, Recorded, break_off, completion, error, write_note

from trimtab.proxy.cli.stats import read_statistics
from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.app import Proxy
from trimtab.proxy.telemetry.savings import Savings

PRICES = "prices={unit: usd, input: 2.5, cached_input: 2.5, output: 10}"
"""What is cached costs the same, so that the upstream's books need no cache."""
CLIENTS = "client_keys={ann: sk-ann, bob: sk-bob}"
SETTINGS = (*SMALL, PRICES, CLIENTS, "admin_token=boss", "defaults.overflow_strategy=summarize")
TOKENS = re.compile(r"original=(\d+), sent=(\d+)")


class Moods:
    """The upstream: it answers, fails, refuses, breaks off, or writes summaries that are none, by turns.

    dollars: what it charges for all that it has answered whole.
    """

    def __init__(self) -> None:
        self.asked = self.notes = 0
        self.dollars = 0.0

    def write(self, text: str, recorded: Recorded, prompt_tokens: int, completion_tokens: int) -> web.Response:
        """An answer, and its charge. To count a prompt is free."""
        if not recorded.path.endswith("count_tokens"):
            self.dollars += (2.5 * prompt_tokens + 10 * completion_tokens) / 1e6
        used = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        return completion(text, recorded.dialect, **used)

    async def answer(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        if recorded.asks_for_summary:
            self.notes += 1
            text = "No." if self.notes % 3 == 1 else write_note("SUMMARY of the work so far.")
            return self.write(text, recorded, 900, 40)
        self.asked += 1
        match self.asked % 10:
            case 3:
                return error(400, message="no such tool", code="invalid_request")
            case 5:
                return error(500, message="out of order")
            case 7:
                return error(400, message="maximum context length is 9000 tokens", code="context_length_exceeded")
            case 9:
                return await break_off(recorded, request)
        tokens = len(recorded.body) // 5  # which is not what trimtab estimates
        return self.write("All good.", recorded, tokens, 3)


class Run:
    """What the headers of the answers said, and what each place shows of one run of the proxy."""

    def __init__(self) -> None:
        self.headers: Counter[str] = Counter()

    async def ask(self, client: aiohttp.ClientSession, url: str, body: dict[str, Any], client_name: str) -> None:
        """Send a request, and note what the head of its answer says: it comes before an answer breaks off."""
        key = {"Authorization": f"Bearer sk-{client_name}"}
        async with client.post(url, json=body, headers=key) as response:
            tokens = TOKENS.search(response.headers.get("x-trimtab-tokens", ""))
            try:
                await response.read()
                has_failed = response.status >= 400
            except aiohttp.ClientPayloadError:
                has_failed = True
        self.headers["requests"] += 1
        self.headers["failed"] += has_failed
        if response.status == 200 and "count_tokens" not in url:
            assert tokens is not None
            self.headers["answered"] += 1
            self.headers["original_tokens"] += int(tokens[1])
            self.headers["sent_tokens"] += int(tokens[2])


async def send_session(client: aiohttp.ClientSession, proxy: Proxy, transcripts: list[Any], run: Run) -> None:
    """Send requests of a session, two clients in turn; also a prompt that no window can hold, and one to be counted."""
    chat = f"{proxy.url}/v1/chat/completions"
    for index, messages in enumerate(transcripts):
        await run.ask(client, chat, {"model": "m", "messages": messages}, ("ann", "bob")[index % 2])
        await settle(proxy)
    huge = [{"role": "system", "content": "word " * 20_000}, {"role": "user", "content": "hi"}]
    await run.ask(client, chat, {"model": "m", "messages": huge}, "ann")
    counted = {"model": "m", "max_tokens": 5, "messages": transcripts[0][1:2]}
    await run.ask(client, f"{proxy.url}/v1/messages/count_tokens", counted, "bob")
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.past.settle()


def read_page(proxy: Proxy) -> Counter[tuple[str, str]]:
    """The sums of the metrics page, by name and the label that matters."""
    sums: Counter[tuple[str, str]] = Counter()
    page = proxy.services.recorder.metrics.render().decode()
    for name, labels, value in re.findall(r"^trimtab_(\w+)\{(.*)\} (\S+)$", page, re.MULTILINE):
        for part in labels.split(","):
            sums[name, part] += float(value)
        sums[name, ""] += float(value)
    return sums


async def read(client: aiohttp.ClientSession, proxy: Proxy, path: str) -> Any:
    async with client.get(f"{proxy.url}/trimtab/api/{path}", headers={"Authorization": "Bearer boss"}) as response:
        assert response.status == 200
        return orjson.loads(await response.read())


def check_run(run: Run, page: Counter[tuple[str, str]], overview: dict[str, Any], savings: Savings) -> None:
    """Within one run, the headers, the metrics page, the dashboard's totals and the closing line agree."""
    totals, said = overview["totals"], savings.describe()
    for name in ("requests", "failed", "answered", "original_tokens", "sent_tokens"):
        assert totals[name] == run.headers[name], name
    for stage in ("original", "sent"):
        tokens = run.headers[f"{stage}_tokens"]
        assert page["prompt_tokens_total", f'stage="{stage}"'] == tokens
        assert page["section_tokens_total", f'stage="{stage}"'] == tokens
        assert page["client_tokens_total", f'stage="{stage}"'] == tokens
        assert sum(one[f"{stage}_tokens"] for one in overview["by_client"]) == tokens
        assert sum(one[f"{stage}_tokens"] for one in overview["by_model"]) == tokens
        assert f"{tokens:,}" in said
    saved = run.headers["original_tokens"] - run.headers["sent_tokens"]
    assert totals["saved_tokens"] - totals["added_tokens"] == saved > 0
    assert page["tokens_saved_total", ""] - page["tokens_added_total", ""] == saved
    assert f"{run.headers['requests']:,} requests, {run.headers['failed']:,} of them failed" in said
    assert (savings.cost_usd, savings.without_usd) == pytest.approx((totals["cost_usd"], totals["without_usd"]))
    assert page["cost_usd_total", ""] == pytest.approx(totals["cost_usd"])
    kinds = {"prune": "cuts_pruned", "summarise": "cuts_summarised", "digest": "cuts_digested"}
    for kind, name in kinds.items():
        assert totals[name] == page["cuts_total", f'kind="{kind}"'] <= run.headers["answered"]
    assert (savings.pruned, savings.summarised, savings.digested) == tuple(totals[name] for name in kinds.values())
    assert savings.summary_tokens == totals["summary_prompt_tokens"] + totals["summary_completion_tokens"]


@pytest.fixture
async def runs(upstream: FakeUpstream, serve: Any, client: Any, tmp_path: Any) -> Any:
    """Two runs of the proxy on one store, and a restart between: what was said of each, and of both at the end."""
    moods = Moods()
    upstream.answer = moods.answer
    store = f"store=sqlite:///{tmp_path}/a.sqlite3"
    transcripts = list(requests_of(make_session(44)))
    told = []
    for part in (transcripts[:26], transcripts[26:]):
        async with serve(store) as proxy:
            run = Run()
            await send_session(client, proxy, part, run)
            overview, timeline = await read(client, proxy, "overview"), await read(client, proxy, "timeline")
            sessions = (await read(client, proxy, "sessions"))["sessions"]
            told.append((run, read_page(proxy), overview, Savings.read(proxy.services.recorder.metrics)))
    statistics = await read_statistics(load_config(settings=(store,), environment={}), "7d", "client")
    return told, timeline["buckets"], sessions, statistics, moods.dollars


async def test_every_place_shows_the_same_figures(runs: Any, log: ListLog) -> None:
    told, minutes, sessions, statistics, charged_dollars = runs
    for one in told:
        check_run(*one)
    both = Counter[str]()
    for run, _, overview, _ in told:
        both.update(run.headers)
        both.update({f"{name} of pages": overview["totals"][name] for name in ("cost_usd", "without_usd")})
    week, total = told[-1][2]["week"], statistics.total
    assert week["requests"] == total.requests == both["answered"]
    assert sum(one["failed"] for one in minutes) == both["failed"]
    for name in ("original_tokens", "sent_tokens"):
        assert week[name] == getattr(total, name) == both[name]
        assert sum(one[name] for one in minutes) == both[name]
    assert sum(one["saved_tokens"] for one in sessions) == both["original_tokens"] - both["sent_tokens"]
    for name, nanodollars in (("cost_usd", total.cost_nanodollars), ("without_usd", total.without_nanodollars)):
        dollars = pytest.approx(both[f"{name} of pages"])
        assert nanodollars / 1e9 == dollars
        assert week[name] == dollars
        assert sum(one[name] for one in minutes) == dollars
        assert sum(one[name] or 0 for one in sessions) == dollars
    broken = [line for line in log.lines if line.get("outcome") == "broken" and "sent_tokens" in line]
    estimated_dollars = sum(2.5 * line["sent_tokens"] + 10 * line["completion_tokens"] for line in broken) / 1e6
    assert total.cost_nanodollars / 1e9 == pytest.approx(charged_dollars + estimated_dollars)
    answered_calls = sum(
        page["summary_seconds_count", f'result="{result}"']
        for _, page, _, _ in told
        for result in ("written", "rejected", "empty")
    )
    assert total.summaries == answered_calls > 0
    assert sum(page["summaries_total", 'result="rejected"'] for _, page, _, _ in told) > 0
    assert sum(overview["totals"]["summaries"] for _, _, overview, _ in told) > 0
