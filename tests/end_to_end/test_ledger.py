"""The ledger of a request, in headers, log line, metrics and errors, in each dialect.

Law: the sections add up to the tokens, and each decision is told with its attempt and its limit.
"""

import asyncio
import re
from itertools import pairwise
from typing import Any

import orjson
from aiohttp import web
from support.client import SMALL, post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect
from support.model_learning import ListLog
from support.sessions import make_session
from upstreams.recording import Recorded

from trimtab.rules.tokens.sections import Sections

MEMORY = f"<relevant_context>{'The harbour is closed on Sundays. ' * 40}</relevant_context>"
DIGEST = "defaults.summary.wait_seconds=0"


def read_items(value: str) -> list[tuple[str, dict[str, int]]]:
    """The items of a header that is a list of tokens with numbers as parameters."""
    items = []
    for item in value.split(", ") if value else ():
        name, *parameters = item.split(";")
        items.append((name, {key: int(number) for key, _, number in (each.partition("=") for each in parameters)}))
    return items


def read_tokens(headers: Any) -> tuple[int, int, int]:
    """The numbers in `x-trimtab-tokens`."""
    told = dict(re.findall(r"(\w+)=(\d+)", headers["x-trimtab-tokens"]))
    return int(told["original"]), int(told["sent"]), int(told["limit"])


async def find_line(log: ListLog, answer: Any) -> dict[str, Any]:
    """The log line of an answer's request. It is written after the client has the answer."""
    request_id = answer.headers["x-trimtab-request-id"]
    async with asyncio.timeout(30):
        while True:
            for line in reversed(log.lines):
                if line["event"] == "request" and line["request_id"] == request_id:
                    return line
            await asyncio.sleep(0)


def check_ledger(headers: Any, line: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Check that header and log line agree, and that the sections add up. Returns the sections."""
    sections = dict(read_items(headers["x-trimtab-sections"]))
    original, sent, limit = read_tokens(headers)

    assert tuple(sections) == Sections._fields
    assert sum(one["original"] for one in sections.values()) == original
    assert sum(one["sent"] for one in sections.values()) == sent
    assert line["sections"] == sections
    assert (line["original_tokens"], line["sent_tokens"], line["limit_tokens"]) == (original, sent, limit)
    logged = [
        (
            one["rule"],
            {
                "saved": one["saved_tokens"],
                "before": one["before_tokens"],
                "after": one["after_tokens"],
                "limit": one["limit_tokens"],
                "attempt": one["attempt"],
            },
        )
        for one in line["decisions"]
    ]
    assert read_items(headers.get("x-trimtab-decisions", "")) == logged
    assert all(one["saved"] == one["before"] - one["after"] for _, one in logged)
    return sections


def count_metric(proxy: Any, name: str, **labels: str) -> float:
    """The sum of a metric over all series with these labels."""
    families = proxy.services.recorder.metrics.registry.collect()
    samples = [sample for family in families for sample in family.samples if sample.name == f"trimtab_{name}"]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def make_transcript(steps: int = 60) -> list[dict[str, Any]]:
    """A session that is several windows of SMALL long, with memory in its first and its last user message."""
    messages = make_session(steps)["messages"][:-1]
    messages[1]["content"] += MEMORY
    return [*messages, {"role": "user", "content": f"{MEMORY} And now?"}]


@each_dialect
async def test_a_cut_is_told_with_its_summary(dialect: Dialect, client, start_proxy, log) -> None:
    """The id is that of the stored text, and the decisions lead from the original size to the size that was sent."""
    proxy = await start_proxy(*SMALL, DIGEST)
    answer, _ = await post(client, proxy.url + dialect.path, dialect.write(make_transcript()))
    sections = check_ledger(answer.headers, await find_line(log, answer))
    decisions = read_items(answer.headers["x-trimtab-decisions"])

    assert sections["memory"]["original"] > 0
    assert sections["current"]["original"] > 0
    assert sections["summary"]["original"] == 0 < sections["summary"]["sent"]
    original, sent, limit = read_tokens(answer.headers)
    assert (decisions[0][1]["before"], decisions[-1][1]["after"]) == (original, sent)
    assert all(before["after"] == after["before"] for (_, before), (_, after) in pairwise(decisions))
    assert {(one["attempt"], one["limit"]) for _, one in decisions} == {(1, limit)}
    told = r'"([0-9a-f]{64})";kind=digest;messages=(\d+);instead=not_ready'
    found = re.fullmatch(told, answer.headers["x-trimtab-summary"])
    used = {"id": found[1], "kind": "digest", "messages": int(found[2]), "instead": "not_ready"}
    assert (await find_line(log, answer))["summary"] == used
    assert await proxy.services.summaries._store.get(found[1]) is not None


@each_dialect
async def test_the_metric_adds_up_to_the_prompt_tokens(dialect: Dialect, client, start_proxy, log) -> None:
    """In mode `observe`, too, in which the original is sent."""
    proxy = await start_proxy(*SMALL, DIGEST)
    for mode in ("enforce", "observe"):
        body = dialect.write(make_transcript())
        answer, _ = await post(client, proxy.url + dialect.path, body, **{"x-trimtab-mode": mode})
        check_ledger(answer.headers, await find_line(log, answer))
        assert ("x-trimtab-summary" in answer.headers) is (mode == "enforce")
    for stage in ("original", "sent"):
        added = count_metric(proxy, "section_tokens_total", stage=stage)
        assert added == count_metric(proxy, "prompt_tokens_total", stage=stage) > 0


class Small:
    """An upstream that refuses long bodies in a dialect, and says that its window is `window`."""

    def __init__(self, dialect: Dialect, window: int, most_bytes: int) -> None:
        self.dialect, self.window, self.most_bytes = dialect, window, most_bytes
        self.refusal = next(one for one in dialect.refusals if one.told and not one.is_stream)

    async def __call__(self, recorded: Recorded, _request: web.BaseRequest) -> web.StreamResponse:
        if len(recorded.body) > self.most_bytes:
            body = self.refusal.write(len(recorded.body) // 4, self.window)
            return web.Response(body=body, status=self.refusal.status, content_type="application/json")
        return web.Response(body=self.dialect.write_answer("Done."), content_type="application/json")


@each_dialect
async def test_the_decisions_of_a_refused_attempt_are_told(
    dialect: Dialect, client, upstream, start_proxy, log
) -> None:
    """Each attempt has its own limit. The metrics count only what the answered prompt saved."""
    upstream.answer = Small(dialect, 16_000, 60_000)
    proxy = await start_proxy("defaults.context_window=128000", "defaults.max_tool_result_tokens=200", DIGEST)
    answer, _ = await post(client, proxy.url + dialect.path, dialect.write(make_transcript(140)))
    check_ledger(answer.headers, await find_line(log, answer))
    decisions = read_items(answer.headers["x-trimtab-decisions"])
    first, second = ([one for one in decisions if one[1]["attempt"] == number] for number in (1, 2))

    assert answer.status == 200
    assert [*first, *second] == decisions
    assert first[0][0] == second[0][0] == "truncate"
    assert first[0][1]["limit"] > 100_000 > second[0][1]["limit"]
    assert second[-1][1]["after"] == read_tokens(answer.headers)[1]
    for rule in {name for name, _ in second}:
        saved = sum(one["saved"] for name, one in second if name == rule)
        counted = count_metric(proxy, "tokens_saved_total", rule=rule)
        assert counted - count_metric(proxy, "tokens_added_total", rule=rule) == saved


@each_dialect
async def test_a_refused_request_explains_itself(dialect: Dialect, client, upstream, start_proxy, log) -> None:
    """Its figures agree with each other, with the message and with the log, and hold no word of the conversation."""
    proxy = await start_proxy(
        "defaults.context_window=4000", "defaults.max_tool_result_tokens=200", "defaults.on_exceeded=error"
    )
    messages = [*make_transcript(3)[:-1], {"role": "user", "content": "PLANTED words " * 4000}]
    answer, body = await post(client, proxy.url + dialect.path, dialect.write(messages))
    check_ledger(answer.headers, await find_line(log, answer))
    error = orjson.loads(body)["error"]
    cost = error["context_cost"]

    assert (answer.status, error["code"], upstream.requests) == (400, "context_length_exceeded", [])
    assert b"PLANTED" not in body
    assert cost == (await find_line(log, answer))["context_cost"]
    assert cost["limit_tokens"] == cost["window_tokens"] - cost["reserved_tokens"] == read_tokens(answer.headers)[2]
    assert cost["irreducible_tokens"] - cost["refused_above_tokens"] == cost["excess_tokens"] > 0
    assert cost["tokens"] >= cost["irreducible_tokens"]
    assert sum(one["original"] for one in cost["sections"].values()) == cost["original_tokens"]
    assert sum(one["compacted"] for one in cost["sections"].values()) == cost["tokens"]
    assert [one["rule"] for one in cost["decisions"]] == [
        name for name, _ in read_items(answer.headers["x-trimtab-decisions"])
    ]
    assert (cost["decisions"][0]["before_tokens"], cost["decisions"][-1]["after_tokens"]) == (
        cost["original_tokens"],
        cost["tokens"],
    )
    (shrink,) = cost["shrink"]
    assert (shrink["what"], shrink["section"], shrink["by_tokens"]) == (
        "the last user message",
        "current",
        cost["excess_tokens"],
    )
    assert f"the last user message by {shrink['by_tokens']} of {shrink['tokens']} tokens" in error["message"]
    assert read_tokens(answer.headers)[1] == 0
