"""A fixed set of requests, each of which is told in another way, and the upstream that answers them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from support.sessions import make_session
from upstreams.recording import Recorded, answer_plainly, break_off, completion, error, write_note
from upstreams.scripted import refuse

Wire = dict[str, Any]
KEY, ADMIN_TOKEN = "a-key-of-the-client-alice", "a-token-of-the-operator"
SHARE = 4.3
"""Bytes of a body for each token that the upstream reports. Chosen: as trimtab counts, so that it learns no ratio."""
MISSED = 0.7
"""The temperature of requests of which nothing was in the prompt cache."""
SMALL_WINDOW = 2500
"""The window of the model `small`, which the configuration does not know: it has 8000 tokens there."""
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
SESSION = make_session(50)
HELLO = [{"role": "user", "content": "hello"}]


@dataclass(frozen=True, slots=True)
class Scene:
    """A request: its path, body and headers, and the status of its answer."""

    name: str
    path: str
    body: Wire
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def steps(number: int, model: str = "plain", **more: Any) -> Wire:
    """The first steps of a session, as the body of a chat completion."""
    return {"model": model, "messages": SESSION["messages"][: 2 + 2 * number], "tools": SESSION["tools"], **more}


# None but the refused one comes near the next cut: else its summary would be written ahead, at its own time.
SCENES = (
    Scene("unchanged", CHAT, {"model": "plain", "messages": HELLO}),
    Scene("unchanged, streamed", CHAT, {"model": "plain", "messages": HELLO, "stream": True}),
    Scene("responses", RESPONSES, {"model": "plain", "input": "hello"}),
    Scene("messages", MESSAGES, {"model": "plain", "max_tokens": 9, "messages": HELLO}),
    Scene("messages, only counted", f"{MESSAGES}/count_tokens", {"model": "plain", "messages": HELLO}),
    Scene("another path", "/v1/embeddings", {"model": "plain", "input": "hello"}),
    Scene("not decoded", CHAT, {"model": "plain", "messages": "hello"}),
    Scene("off", CHAT, steps(44, "off"), headers={"x-trimtab-mode": "off"}),
    Scene("observed", CHAT, steps(44, "observed"), headers={"x-trimtab-mode": "observe"}),
    Scene("cut with a summary", CHAT, steps(29)),
    Scene("the cut moves", CHAT, steps(44)),
    Scene("the cut stands", CHAT, steps(45)),
    Scene("the prompt cache is missed", CHAT, steps(46, temperature=MISSED)),
    Scene("cut with a digest", CHAT, steps(44, "terse")),
    Scene("responses, cut", RESPONSES, {**to_responses(steps(44)), "model": "of responses"}),
    Scene("messages, cut", MESSAGES, {**to_messages(steps(44)), "model": "of messages", "max_tokens": 9}),
    Scene("refused by the upstream, then shorter", CHAT, steps(12, "small")),
    Scene("refused by the upstream", CHAT, {"model": "tiny", "messages": HELLO}, 400),
    Scene(
        "refused by trimtab",
        CHAT,
        {"model": "plain", "messages": [{"role": "system", "content": "a word " * 20_000}, *HELLO]},
        400,
    ),
    Scene("an error of the upstream", CHAT, {"model": "busy", "messages": HELLO}, 429),
    Scene("no upstream", CHAT, {"model": "gone", "messages": HELLO}, 502),
    Scene("broken off", CHAT, {"model": "broken", "messages": HELLO, "stream": True}),
    Scene("a wrong mode", CHAT, {"model": "plain", "messages": HELLO}, 400, {"x-trimtab-mode": "wrong"}),
    Scene("a wrong key", CHAT, {"model": "plain", "messages": HELLO}, 401, {"authorization": "Bearer wrong"}),
    Scene("a list of models", "/v1/models", {}),
    Scene("compacted for a caller", "/trimtab/api/compact?summary=digest", steps(44, "for a caller")),
)
SETTINGS = (
    f"client_keys={{alice: {{key: {KEY}}}}}",
    f"admin_token={ADMIN_TOKEN}",
    "prices={input: 2, cached_input: 0.2, output: 8, unit: usd}",
    "dashboard.keep_text=true",
    "defaults.count=heuristic",
    "defaults.context_window=8000",
    "defaults.completion_reserve=1000",
    "defaults.max_tool_result_tokens=2000",
    "defaults.high_water=0.8",
    "defaults.low_water=0.4",
    "defaults.overflow_strategy=summarize",
    "upstreams={gone: {base_url: 'http://127.0.0.1:9/v1'}}",
    "models=[{match: gone, upstream: gone}, {match: terse, overflow_strategy: auto_compact, summary: {min_steps: 90}}]",
)


async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
    """Answer as the model does that the request names."""
    body = recorded.json if recorded.method == "POST" else {}
    tokens, model = round(len(recorded.body) / SHARE), body.get("model")
    if recorded.asks_for_summary:
        response: web.StreamResponse = completion(
            write_note("SUMMARY"), recorded.dialect, prompt_tokens=tokens, completion_tokens=90
        )
    elif model == "tiny" or (model == "small" and tokens > SMALL_WINDOW):
        response = refuse(tokens, 1 if model == "tiny" else SMALL_WINDOW)
    elif model == "busy":
        response = error(429, message="slow down")
    elif model == "broken":
        response = await break_off(recorded, request)
    elif body.get("stream") or recorded.path != CHAT:
        response = await answer_plainly(recorded, request)
    else:
        plain = orjson.loads(completion(prompt_tokens=tokens, completion_tokens=9, total_tokens=tokens + 9).body)
        cached = 0 if body.get("temperature") == MISSED else tokens * 9 // 10
        plain["usage"]["prompt_tokens_details"] = {"cached_tokens": cached}
        response = web.json_response(plain)
    return response
