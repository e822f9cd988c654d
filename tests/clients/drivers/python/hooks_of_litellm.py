"""Runs LiteLLM's own code on a request: the hook of docs/guides/gateways.md, and its guardrail `headroom`.

Reads JSON from standard input: `hook` (the page's code), `url` of trimtab, and `requests`. Writes what became of each:
by the hook, and by the guardrail with the texts that it has fetched back; null if this LiteLLM has no such guardrail.
"""

import asyncio
import json  # noqa: TID251 - what the clients' environment has
import re
import sys
from copy import deepcopy
from types import SimpleNamespace
from typing import Any


async def hook(asked: dict[str, Any]) -> list[Any]:
    names: dict[str, Any] = {}
    exec(asked["hook"], names)  # noqa: S102 - our own words
    names["TRIMTAB"] = names["TRIMTAB"].replace("http://127.0.0.1:8790", asked["url"])
    key = SimpleNamespace(user_id="u1")
    return [await names["trimtab"].async_pre_call_hook(key, None, data, "completion") for data in asked["requests"]]


async def guard(asked: dict[str, Any]) -> list[Any] | None:
    try:
        from litellm.proxy.guardrails.guardrail_hooks.headroom.headroom import HeadroomGuardrail  # noqa: PLC0415
    except ImportError:
        return None
    # The parameters of the page's config.yaml.
    guardrail = HeadroomGuardrail(
        api_base=asked["url"],
        api_key="sk-guardrail",
        guardrail_name="trimtab",
        event_hook="pre_call",
        default_on=True,
        unreachable_fallback="fail_open",
    )
    answers = []
    for data in asked["requests"]:
        inputs = {"structured_messages": data["messages"], "model": data["model"]}
        left = await guardrail.apply_guardrail(inputs, deepcopy(data), "request")
        messages = left["structured_messages"]
        named = re.findall(r"hash=([0-9a-f]{24})", str(messages))
        fetched = [await guardrail._call_retrieve(name, None) for name in named[:3]]
        tools = [tool["function"]["name"] for tool in left.get("tools", ())]
        answers.append({"messages": messages, "named": named, "fetched": fetched, "tools": tools})
    return answers


async def main() -> None:
    asked = json.load(sys.stdin)
    print(json.dumps({"hook": await hook(asked), "guardrail": await guard(asked)}))  # noqa: T201 - its answer


asyncio.run(main())
