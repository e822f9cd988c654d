"""A client asks for a summary of its own conversation, in each dialect."""

import orjson
import pytest
from support.client import SMALL, post, settle
from support.client_words import IN_USER
from support.dialects.spoken.all_dialects import DIALECTS
from support.sessions import make_session


@pytest.mark.parametrize(
    ("form", "dialect"), list(zip(IN_USER, DIALECTS, strict=False)), ids=("Claude Code", "Codex", "old Codex")
)
async def test_its_request_passes_byte_for_byte(form, dialect, client, upstream, start_proxy) -> None:
    """It is over high water and within the window, where any other is cut. The outcome says why."""
    proxy, talk = await start_proxy(*SMALL), make_session(12)
    talk["messages"][-2]["content"] += " more words" * 500  # the last result reaches high water

    async def ask(words: str) -> bytes:
        messages = [*talk["messages"][:-1], {"role": "user", "content": words}]
        body = orjson.dumps(dialect.write(messages, talk["tools"]), option=orjson.OPT_INDENT_2)
        response, _ = await post(client, proxy.url + dialect.path, body)
        await settle(proxy)
        outcomes.append(response.headers["x-trimtab-outcome"])
        return body

    outcomes = list[str]()
    body = await ask(form.sample)
    assert [recorded.body for recorded in upstream.requests] == [body]
    await ask("Go on.")
    assert outcomes == ["unchanged;compaction=client", "compacted"]
