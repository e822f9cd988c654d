"""What was recorded or logged of some traffic, replayed, equals /metrics to the token."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from support.client import CHAT, SMALL, post, settle
from support.command_line import run_trimtab
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.dialect import Dialect
from support.sessions import make_session, requests_of
from upstreams.recording import Recorded, completion, stream, write_note

from trimtab.proxy.server.app import Proxy

STEPS = 24
LIMIT_BYTES = 20_000
"""Prompts of the model `strict` that are longer are refused."""
REFUSAL = orjson.dumps({"error": {"message": "This model's maximum context length is 6000 tokens."}})
COMPARED = (
    ("prompt_tokens", "stage"), ("tokens_saved", "rule"), ("tokens_added", "rule"), ("cuts", "kind"),
    ("completion_tokens", "source"), ("summary_tokens", "kind"),
)  # fmt: skip
"""Metrics and the label of each that is no model."""
NAMES = {"tokens_saved": "saved_tokens", "tokens_added": "added_tokens"}
"""Names of these metrics in the replay's JSON, where they differ."""


async def _answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
    """An upstream that writes summaries, reports usage, and refuses long prompts of one model."""
    dialect = recorded.dialect
    if not recorded.body.startswith(b"{"):
        return web.Response(status=400)
    if recorded.asks_for_summary:
        return completion(write_note("Parts were read."), dialect, prompt_tokens=900, completion_tokens=60)
    if recorded.json["model"] == "strict" and len(recorded.body) > LIMIT_BYTES:
        return web.Response(status=400, body=REFUSAL, content_type="application/json")
    if recorded.json.get("stream"):
        return await stream(request, "All good.", dialect=dialect)
    return completion(dialect=dialect, prompt_tokens=len(recorded.body) // 4, completion_tokens=7)


async def _send(
    client: aiohttp.ClientSession, url: str, dialect: Dialect, model: str, *, session: dict[str, Any], **headers: str
) -> None:
    """Send every other request of a session."""
    for number, messages in enumerate(list(requests_of(session))[::2]):
        body = dialect.write(messages, session["tools"], model=model, **({"stream": True} if number % 3 == 2 else {}))
        _ = await post(client, url + dialect.path, body, **headers)


async def _send_traffic(client: aiohttp.ClientSession, proxy: Proxy) -> None:
    """Sessions in each dialect: one that is cut, one that is observed, one that the upstream refuses on its way."""
    url = proxy.url
    for dialect in DIALECTS:
        for model in ("m", "gpt-4o", "strict"):
            session = make_session(STEPS, system=f"You are {model} in {dialect.name}.")
            await _send(client, url, dialect, model, session=session)
            await settle(proxy)
        session = make_session(STEPS, system=f"You are watched in {dialect.name}.")
        await _send(client, url, dialect, "m", session=session, **{"x-trimtab-mode": "observe"})
    _ = await post(client, url + "/v1/chat/completions", b"no JSON")
    _ = await post(client, url + "/v1/messages/count_tokens", CHAT)


async def _read_metrics(client: aiohttp.ClientSession, url: str) -> dict[tuple[str, ...], float]:
    """The metrics' values by name and labels, once no request is in flight."""
    text = ""  # a request is counted a little after its answer
    while not re.search(r"^trimtab_requests_in_flight 0", text, re.MULTILINE):
        text = await (await client.get(url + "/metrics")).text()
    return {
        (
            family.name.removeprefix("trimtab_"),
            *(f"{name}={value}" for name, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith("_total")
    }


def _replay(path: Path, *more: str) -> dict[str, Any]:
    result = run_trimtab("replay", path, "--json", *more)
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout_bytes)


def _read_report(models: Sequence[dict[str, Any]]) -> dict[tuple[str, ...], float]:
    """The same values as `_read_metrics`, from a replay."""
    found: dict[tuple[str, ...], float] = {}
    for model in models:
        label = f"model={model['name']}"
        found |= {
            (metric, *sorted((label, f"{other}={value}"))): tokens
            for metric, other in COMPARED[1:]
            for value, tokens in model[NAMES.get(metric, metric)].items()
        }
        for stage in ("original", "sent"):
            found["prompt_tokens", label, f"stage={stage}"] = model[f"{stage}_tokens"]
            for section, tokens in model["sections"][stage].items():
                found["section_tokens", label, f"section={section}", f"stage={stage}"] = tokens
        found["cached_prompt_tokens", label] = model["cached_tokens"]
        found["repairs", label] = model["repairs"]
    return {key: value for key, value in found.items() if value}


Figures = dict[tuple[str, ...], float]


def _keep_compared(metrics: Figures, *, sums_completions: bool = False) -> Figures:
    """The metrics that a replay tells, without zeros. A log does not say who counted a completion."""
    names = {name for name, _ in COMPARED} | {"section_tokens", "cached_prompt_tokens", "repairs"}
    kept: Counter[tuple[str, ...]] = Counter()
    for key, value in metrics.items():
        if key[0] in names and value:
            kept[key[:2] if sums_completions and key[0] == "completion_tokens" else key] += value
    return dict(kept)


async def test_a_recorded_hour_and_its_log_equal_the_metrics(client, upstream, start_proxy, log, tmp_path):
    """In each dialect, with summaries, recoveries and observed sessions; and no request differs from its recording."""
    upstream.answer = _answer
    folder = tmp_path / "records"
    proxy = await start_proxy(*SMALL, f"record.dir={folder}")
    await _send_traffic(client, proxy)
    await settle(proxy)
    metrics = await _read_metrics(client, proxy.url)
    await proxy.services.recordings.settle()

    report = await asyncio.to_thread(_replay, folder, "--check")
    lines = [orjson.dumps({**line, "level": "info", "timestamp": "2026-11-23T04:56:46Z"}) for line in log.lines]
    (tmp_path / "serve.log").write_bytes(b"\n".join(lines))
    logged = await asyncio.to_thread(_replay, tmp_path / "serve.log")

    (side,) = report["sides"]
    assert report["differing"]["number"] == report["unreadable"]["number"] == report["not_replayed"] == 0
    assert _read_report(side["models"]) == _keep_compared(metrics)
    requests = sum(value for key, value in metrics.items() if key[0] == "requests")
    assert sum(model["requests"] for model in side["models"]) == requests == report["input"]["requests"]
    kinds = {kind for model in side["models"] for kind in model["cuts"]}
    assert kinds >= {"summarise", "prune"}
    assert sum(model["retried"] for model in side["models"]) > 0
    assert sum(model["outcomes"].get("observe", 0) for model in side["models"]) > STEPS
    told = _keep_compared(_read_report(logged["sides"][0]["models"]), sums_completions=True)
    assert told == _keep_compared(metrics, sums_completions=True)
    assert logged["unreadable"]["number"] == 0
