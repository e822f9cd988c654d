"""docs/guides/gateways.md: the hook of LiteLLM works with the real package, if that is installed."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.client import SMALL
from support.sessions import make_session

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "gateways.md"


async def test_the_hook_of_litellm(upstream: Any, start_proxy: Any) -> None:
    """It shortens what is too long, and lets pass what trimtab does not take, or if there is no trimtab."""
    pytest.importorskip("litellm.integrations.custom_logger", reason="litellm is not installed")
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own words
    proxy = await start_proxy(*SMALL, "defaults.overflow_strategy=prune", "tenant=header:x-user-id")
    names["TRIMTAB"] = names["TRIMTAB"].replace("http://127.0.0.1:8790", proxy.url)
    key, data = SimpleNamespace(user_id="u1"), {"model": "m", "metadata": {"kept": 1}, **make_session(90)}

    left = await names["trimtab"].async_pre_call_hook(key, None, data, "completion")
    assert len(left["messages"]) < len(data["messages"]) / 2
    assert left["messages"][-1] == data["messages"][-1]
    assert {**left, "messages": data["messages"]} == data
    assert upstream.requests == []
    odd = {"model": "m", "messages": 7}
    assert await names["trimtab"].async_pre_call_hook(key, None, odd, "completion") == odd
    names["TRIMTAB"] = "http://127.0.0.1:9/"
    assert await names["trimtab"].async_pre_call_hook(key, None, data, "completion") == data
