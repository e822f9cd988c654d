"""LiteLLM calls trimtab: the hook of docs/guides/gateways.md, and its guardrail, each by the installed package."""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from clients.installed_clients import DRIVERS, PYTHON, skip_without
from support.client import SMALL
from support.sessions import make_session

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "gateways.md"
MOST_LINES = 15
SETTINGS = (
    *SMALL,
    "defaults.overflow_strategy=prune",
    "defaults.max_tool_result_tokens=200",
    "tenant=header:x-user-id",
    "compaction.compress=true",
)
DATA = {"model": "m", "metadata": {"kept": 1}, **make_session(40, result_words=400)}
ODD = {"model": "m", "messages": []}
installed = skip_without("litellm", PYTHON / "bin" / "python")


def _read_hook() -> str:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]


async def _run(url: str) -> dict[str, Any]:
    """What LiteLLM makes of the requests."""
    asked = orjson.dumps({"hook": _read_hook(), "url": url, "requests": [DATA, ODD]})
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    driver = await asyncio.create_subprocess_exec(
        PYTHON / "bin" / "python",
        DRIVERS / "python" / "hooks_of_litellm.py",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ) | quiet,
    )
    out, errors = await asyncio.wait_for(driver.communicate(asked), 120)
    assert driver.returncode == 0, errors.decode()
    return orjson.loads(out)


def test_the_hook_is_short() -> None:
    lines = [line for line in _read_hook().splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES


@installed
async def test_the_hook_and_the_guardrail_send_what_fits(upstream: Any, start_proxy: Any) -> None:
    """What trimtab does not take passes as it is."""
    proxy = await start_proxy(*SETTINGS)
    answers = await _run(proxy.url)
    left, odd = answers["hook"]

    assert len(orjson.dumps(left["messages"])) < len(orjson.dumps(DATA["messages"])) / 2
    assert left["messages"][-1] == DATA["messages"][-1]
    assert {**left, "messages": DATA["messages"]} == DATA
    assert odd == ODD
    assert upstream.requests == []
    if answers["guardrail"] is None:
        pytest.skip("this LiteLLM has no guardrail headroom (1.92 or later has)")
    guarded, _ = answers["guardrail"]
    whole = {message["content"] for message in DATA["messages"] if message["role"] == "tool"}
    assert [message["role"] for message in guarded["messages"]] == [message["role"] for message in DATA["messages"]]
    assert len(orjson.dumps(guarded["messages"])) < len(orjson.dumps(DATA["messages"]))
    assert len(guarded["named"]) > len(guarded["fetched"]) > 0
    assert set(guarded["fetched"]) <= whole
    assert guarded["tools"] == ["headroom_retrieve"]


@installed
async def test_without_trimtab_requests_pass_as_they_are() -> None:
    answers = await _run("http://127.0.0.1:9")

    assert answers["hook"] == [DATA, ODD]
    if answers["guardrail"] is not None:
        assert answers["guardrail"][0]["messages"] == DATA["messages"]
