"""The page of the real program: its numbers are those of the API, of the metrics, and of the upstream's books."""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field, replace

import aiohttp
import orjson
import pytest
from aiohttp import web
from playwright.async_api import Error, expect
from programs.front_proxies import run_configured
from programs.serving import serving
from support.client import SMALL, post
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream, run_upstream, write_note
from yarl import URL

pytestmark = pytest.mark.asyncio(loop_scope="session")

PRICES = {"input": 2.5, "cached_input": 0.25, "output": 10}
"""Dollars for a million tokens."""
SETTINGS = (
    *SMALL,
    "prices={unit: usd, " + ", ".join(f"{key}: {value}" for key, value in PRICES.items()) + "}",
    "store=memory",
    "dashboard.keep_text=true",
    "mode=enforce",
)
SUB_PATH = """
  server {{{{
    listen 127.0.0.1:{{port}};
    location /tools/llm/ {{{{
      proxy_pass {server}/;
      proxy_http_version 1.1;
      proxy_request_buffering off;
      proxy_buffering off;
      proxy_set_header Host $http_host;
    }}}}
  }}}}
}}}}
"""


@dataclass
class Books:
    """What the upstream has counted and charged. `summaries`: answered calls."""

    requests: int = 0
    summaries: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    summary_tokens: Counter[str] = field(default_factory=Counter)
    dollars: float = 0.0

    def keep(self, upstream: FakeUpstream) -> None:
        """Answer each request with a usage, and write it down."""

        async def answer(recorded, _request) -> web.Response:
            text, is_summary = "All good.", recorded.asks_for_summary
            if is_summary:
                text = write_note("The build was mended in part.")
            prompt = len(recorded.body) // 4
            cached, completion = prompt // 3, 5 + self.requests % 7
            self.dollars += (
                (prompt - cached) * PRICES["input"] + cached * PRICES["cached_input"] + completion * PRICES["output"]
            ) / 1e6
            if is_summary:
                self.summaries += 1
                self.summary_tokens.update(prompt=prompt, completion=completion)
            else:
                self.requests += 1
                self.prompt_tokens += prompt
                self.cached_tokens += cached
                self.completion_tokens += completion
            return web.json_response(body=orjson.dumps(_write(text, prompt, cached, completion)))

        upstream.answer = answer


def _write(text: str, prompt: int, cached: int, completion: int) -> dict:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def settings(*more: str) -> list[str]:
    return [part for setting in (*SETTINGS, *more) for part in ("--set", setting)]


async def send_session(url: str, every: int = 4) -> int:
    """Send a session, each request on its own connection. Returns the number of requests."""
    session = make_session(40)
    transcripts = list(requests_of(session))[::every]
    for messages in transcripts:
        async with aiohttp.ClientSession() as client:
            body = {"model": "m", "messages": messages, "tools": session["tools"]}
            response, _ = await post(client, url + "/chat/completions", body)
            assert response.status == 200
    return len(transcripts)


async def read(url: str) -> bytes:
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        assert response.status == 200
        return await response.read()


def sum_series(page: str, name: str, label: str = "") -> float:
    """The sum over the series of a metric that have a label."""
    rows = re.findall(rf"^trimtab_{name}(?:\{{(.*)\}})? (\S+)$", page, re.MULTILINE)
    return sum(float(value) for labels, value in rows if label in labels)


async def test_the_numbers_are_those_of_the_api_the_metrics_and_the_upstream(open_tab) -> None:
    """The page is open from the start, and is not loaded again."""
    kept_books = Books()
    async with (
        run_upstream() as upstream,
        serving("--upstream", upstream.url, *settings("workers=2")) as (_, url),
    ):
        kept_books.keep(upstream)
        root = str(URL(url).with_path("/trimtab/"))
        tab = await open_tab(root)
        page = await tab.visit(wait="div.empty")
        await expect(page.locator("#live")).to_have_text("Live")
        number = await send_session(url)
        await expect(page.locator("data[data-name=answered]")).to_have_attribute("value", str(number))
        await expect(page.locator("data[data-name=in_flight]")).to_have_attribute("value", "0")

        shown, totals, metrics, books = await settle(tab, root, kept_books)

        assert {name: totals[name] for name in shown if name != "saved_share"} == pytest.approx(
            {name: value for name, value in shown.items() if name != "saved_share"}
        )
        assert shown["saved_share"] == pytest.approx(1 - shown["sent_tokens"] / shown["original_tokens"])
        assert shown["requests"] == sum_series(metrics, "requests_total") == books.requests == number
        assert shown["completion_tokens"] == sum_series(metrics, "completion_tokens_total") == books.completion_tokens
        assert shown["cached_tokens"] == sum_series(metrics, "cached_prompt_tokens_total") == books.cached_tokens
        assert shown["cost_usd"] == pytest.approx(sum_series(metrics, "cost_usd_total"))
        assert shown["cost_usd"] == pytest.approx(books.dollars)
        assert shown["net_usd"] == pytest.approx(sum_series(metrics, "cost_without_usd_total") - books.dollars)
        for stage in ("original", "sent"):
            of_stage = sum_series(metrics, "prompt_tokens_total", f'stage="{stage}"')
            assert shown[f"{stage}_tokens"] == of_stage
        written = [sum_series(metrics, "summaries_total", f'result="{result}"') for result in ("made", "prefetched")]
        assert shown["summaries"] == sum(written) > 0
        # A transcript that is longer than a question may be takes several calls for one summary.
        assert shown["summary_calls"] == sum_series(metrics, "summary_seconds_count") == books.summaries
        assert sum_series(metrics, "summary_seconds_count", 'result="written"') == books.summaries
        for kind, tokens in books.summary_tokens.items():
            of_kind = sum_series(metrics, "summary_tokens_total", f'kind="{kind}"')
            assert shown[f"summary_{kind}_tokens"] == of_kind == tokens
        assert shown["summaries_reused"] == sum_series(metrics, "summaries_total", 'result="hit"')
        for name, kind in (("cuts_pruned", "prune"), ("cuts_summarised", "summarise"), ("cuts_digested", "digest")):
            assert shown[name] == sum_series(metrics, "cuts_total", f'kind="{kind}"')
        assert shown["fail_opens"] == sum_series(metrics, "fail_open_total") == 0
        assert shown["cached_share"] == pytest.approx(books.cached_tokens / books.prompt_tokens)

        await check_money(page, root)
        await check_session(page, number)
        await tab.leave()


async def check_money(page, root: str) -> None:
    """The money over time is that of the totals, to half a unit of what is shown, for the one model, too."""
    for choice in ("", "models m"):
        for _ in range(30):  # a summary written ahead may be charged between two looks; a picture waits for a reload
            await page.reload()
            await page.locator("select[data-key='time of']").select_option(choice)
            label = await page.locator("svg[aria-label^='Money over time']").get_attribute("aria-label")
            totals = await read_totals(root)
            shown = [float(f"{sign and '-'}{amount}") for sign, amount in re.findall(r"(\u2212?)\$([\d.]+)", label)]
            if shown == pytest.approx([totals["cost_usd"], totals["net_usd"]], abs=0.00005 + 1e-9):
                break
        assert shown == pytest.approx([totals["cost_usd"], totals["net_usd"]], abs=0.00005 + 1e-9)


async def read_totals(root: str) -> dict:
    return orjson.loads(await read(root + "api/overview"))["totals"]


SETTLING = ("cost_usd", "summaries", "summary_calls", "summary_prompt_tokens", "summary_completion_tokens")


async def settle(tab, root: str, kept: Books) -> tuple[dict, dict, str, Books]:
    """The page's named numbers, the API's totals, the metrics and the books, of one moment if there is one.

    A summary written ahead is charged when it comes, so it may be in the books and not in the page yet.
    """
    for _ in range(300):
        books = replace(kept, summary_tokens=kept.summary_tokens.copy())
        totals = await read_totals(root)
        metrics = (await read(str(URL(root).with_path("/metrics")))).decode()
        shown = await tab.read_named()
        is_charged = shown["summary_calls"] == books.summaries and shown["cost_usd"] == pytest.approx(books.dollars)
        if books == kept and is_charged and all(shown[name] == totals[name] for name in shown if name in SETTLING):
            break
        await asyncio.sleep(0.1)
    return shown, totals, metrics, books


async def check_session(page, number: int) -> None:
    """One click to the session's window and its cuts, one more to why."""
    await page.get_by_role("link", name="Sessions").click()
    # By their address: until the page has changed, the links are those of the overview's requests.
    await page.locator("tbody th a[href^='#/sessions/']").click()
    await expect(page.locator("data[data-name=requests]")).to_have_attribute("value", str(number))
    await expect(page.locator("main")).to_contain_text("What the model sees now")
    await page.locator("a.mark .ring").last.click()
    await page.wait_for_selector("section:has(> h2:text-is('Decisions')) tbody tr")
    await page.wait_for_selector("details.change")


async def test_all_of_it_works_below_a_path(open_tab, tmp_path) -> None:
    """Nginx strips the path."""
    async with run_upstream() as upstream, serving("--upstream", upstream.url, *settings()) as (_, url):
        server = str(URL(url).with_path("")).removesuffix("/")
        with run_configured("nginx", SUB_PATH.format(server=server), tmp_path) as port:
            tab = await open_tab(f"http://127.0.0.1:{port}/tools/llm/trimtab/")
            page = await tab.visit(wait="div.empty")
            await expect(page.locator("main")).to_contain_text(f"http://127.0.0.1:{port}/tools/llm/v1")
            await expect(page.locator("#live")).to_have_text("Live")

            number = await send_session(f"http://127.0.0.1:{port}/tools/llm/v1", every=12)

            await expect(page.locator("data[data-name=requests]")).to_have_attribute("value", str(number))
            await check_session(page, number)
            await page.get_by_role("link", name=re.compile("^Session ")).click()
            await page.get_by_role("button", name="Erase the session").click()
            await page.get_by_role("button", name="Erase", exact=True).click()
            await page.wait_for_selector("div.empty")
            await tab.leave()


async def test_with_a_token_the_browser_asks_once(open_tab) -> None:
    """The token is the password; each file and the stream of events get it, too."""
    async with (
        run_upstream() as upstream,
        serving("--upstream", upstream.url, *settings("admin_token=planted-token")) as (_, url),
    ):
        root = str(URL(url).with_path("/trimtab/"))
        tab = await open_tab(root, http_credentials={"username": "me", "password": "planted-token"})
        page = await tab.visit(wait="div.empty")
        await expect(page.locator("#live")).to_have_text("Live")

        stranger = await open_tab(root, is_polite=False)
        with pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):
            await stranger.page.goto(root)
        await tab.leave()
