"""Sessions with screenshots through a running proxy, with summaries."""

import base64
import struct
from typing import Any

import orjson
import pytest
from support.client import post
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect, Wire
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES

WINDOW, RESERVE = 16_000, 2_000
LINE = "[trimtab: image/png 1280x800, 1 kB, removed; get it again if needed]"
WORDS = "I have clicked on the next button of this long form and now wait for the page to load. " * 4


def screenshot(number: int) -> dict[str, Any]:
    """A unique image of 1280 by 800 pixels; at least 765 tokens by OpenAI's guide."""
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 1280, 800)
    data = base64.b64encode(head + number.to_bytes(976, "big")).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": "high"}}


def make_step(number: int, *, as_user: bool) -> list[dict[str, Any]]:
    """One action of the model, and the screenshot after it."""
    if as_user:
        text = {"type": "text", "text": f"screen {number}"}
        said = {"role": "assistant", "content": WORDS}
        return [said, {"role": "user", "content": [text, screenshot(number)]}]
    function = {"name": "computer", "arguments": '{"action":"click"}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": WORDS, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": [screenshot(number)]},
    ]


def count_images(dialect: Dialect, body: Wire) -> int:
    """The number of images in a body."""
    contents = [message["content"] for message in dialect.read(body)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return sum(part["type"] == "image_url" for part in parts)


@pytest.mark.parametrize(
    ("dialect", "as_user"), [(CHAT, True), (CHAT, False), (RESPONSES, False), (MESSAGES, True)], ids=str
)
async def test_screenshots_fit_the_window(as_user, dialect, client, upstream, start_proxy):
    """Every third step and every summary is checked. Only images and summarised messages change."""
    proxy = await start_proxy(f"defaults.context_window={WINDOW}", f"defaults.completion_reserve={RESERVE}")
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fill in the form."}]
    seen: set[str] = set()
    for number in range(48):
        messages += make_step(number, as_user=as_user)
        if number % 3:
            continue
        body = dialect.write(messages, model="gpt-4o")
        upstream.requests.clear()
        response, _ = await post(client, proxy.url + dialect.path, body)
        assert response.status == 200
        sent = upstream.chats[-1]
        rules = response.headers.get("x-trimtab-decisions", "")
        seen |= {item.partition(";")[0] for item in rules.split(", ")}
        assert count_images(dialect, body) == number + 1
        for chat in upstream.chats:
            assert count_images(dialect, chat.json) * 1105 <= WINDOW
        received, original = dialect.read(sent.json), dialect.read(body)
        assert received[-1] == original[-1]
        if rules.startswith("images") and "," not in rules:
            assert LINE in sent.body.decode()
            assert len(received) == len(original)
        assert dialect.check_request(orjson.dumps(body), sent.body) == []
    assert {"images", "summarise"} <= seen or {"images", "digest"} <= seen
