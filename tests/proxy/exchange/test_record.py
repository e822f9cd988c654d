"""The text of a request: only if it is wanted, whole, bounded, and after the answer."""

from functools import partial

import orjson
import pytest
from support.client import CHAT, SMALL, post
from support.sessions import make_session

from trimtab.proxy.account.history.table import find_request
from trimtab.proxy.account.history.texts import find_text, unpack_text
from trimtab.proxy.account.redact import find_hidden
from trimtab.proxy.config.schema import Config
from trimtab.proxy.exchange import record as record_module
from trimtab.proxy.exchange.record import MAX_MESSAGE_CHARS, TITLE_CHARS, clean, crop, find_title
from trimtab.rules.conversation import Message, Role
from trimtab.rules.pipeline.changes import Change, Fate

PLANTED = "PLANTED-TEXT"
KEY = "sk-planted-0123456789abcdef"
KEEP = "dashboard.keep_text=true"


def make_body(planted=PLANTED):
    session = make_session(40)
    session["messages"][3]["content"] += f"\n{planted}"
    return {"model": "m", **session}


async def send(client, proxy, body, query="", **headers):
    response, _ = await post(client, f"{proxy.url}/v1/chat/completions{query}", body, **headers)
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.past.settle()
    return response


async def find(proxy, request_id):
    """A request, and its packed text."""
    past = proxy.services.past
    return [await past.read(partial(one, request_id=request_id)) for one in (find_request, find_text)]


async def test_the_text_of_changed_messages_is_kept(client, start_proxy):
    proxy = await start_proxy(*SMALL, KEEP, "defaults.overflow_strategy=summarize")
    response = await send(client, proxy, make_body())
    listed, pack = await find(proxy, response.headers["x-trimtab-request-id"])
    text = unpack_text(pack)
    assert list(text.sentences) == listed.sentences != []
    assert any(PLANTED in change.before and PLANTED not in change.after for change in text.changes)
    assert "SUMMARY of the work so far" in text.summary or "harbour" in text.summary


@pytest.mark.parametrize(("settings", "body"), [((), make_body()), ((KEEP,), CHAT)], ids=["not wanted", "unchanged"])
async def test_else_no_text_is_kept(settings, body, client, start_proxy):
    proxy = await start_proxy(*SMALL, *settings)
    response = await send(client, proxy, body)
    assert (await find(proxy, response.headers["x-trimtab-request-id"]))[1] is None


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"authorization": f"Bearer {KEY}"}, ""),
        ({"x-api-key": KEY}, ""),
        ({"cookie": f"session={KEY}"}, ""),
        ({}, f"?api_key={KEY}"),
    ],
)
async def test_no_kept_text_holds_the_key_of_its_request(headers, query, client, start_proxy):
    proxy = await start_proxy(*SMALL, KEEP)
    body = make_body(f"{KEY} {PLANTED}")
    body["messages"][1]["content"] += "x" * (MAX_MESSAGE_CHARS - 80) + KEY
    named = orjson.loads(orjson.dumps(body).replace(b'"read_file"', f'"t_{KEY}"'.encode()))
    response = await send(client, proxy, named, query, **headers)
    request_id = response.headers["x-trimtab-request-id"]
    listed, pack = await find(proxy, request_id)
    text = unpack_text(pack)
    assert "sk-planted" not in repr(text)
    assert not any("sk-planted" in sentence for sentence in listed.sentences)
    assert any(f"*** {PLANTED}" in change.before for change in text.changes)
    assert {change.tool for change in text.changes} >= {"t_***"}
    async with client.get(f"{proxy.url}/trimtab/api/requests/{request_id}") as shown:
        assert b"sk-planted" not in await shown.read()


async def test_a_fault_in_the_story_costs_nothing_else(client, start_proxy, monkeypatch, log):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(record_module, "_redact", fail)
    proxy = await start_proxy(*SMALL, KEEP)
    response = await send(client, proxy, make_body())
    request_id = response.headers["x-trimtab-request-id"]
    listed, pack = await find(proxy, request_id)
    assert listed is not None
    assert pack is None
    (fault,) = [line for line in log.lines if line["event"] == "fail_open"]
    assert (fault["phase"], fault["error"], fault["request_id"]) == ("tell", "ZeroDivisionError", request_id)


def test_a_long_text_is_cropped_and_says_so():
    assert crop("x" * (MAX_MESSAGE_CHARS + 5), MAX_MESSAGE_CHARS).endswith("x\n[5 more characters are not kept]")
    assert crop("short", MAX_MESSAGE_CHARS) == "short"
    assert clean("a\ud800é") == "a?é"


def test_the_newest_changes_get_their_texts_first(monkeypatch):
    monkeypatch.setattr(record_module, "MAX_TEXT_CHARS", 1000)
    changes = [Change(at, "tool", "read", Fate.REMOVED, (), 9, 0, before="x" * 400) for at in range(5)]
    kept = list(record_module._crop(changes))
    assert [change.at for change in kept] == list(range(5))
    assert [change.before.count("x") for change in kept] == [0, 0, 200, 400, 400]


def say(*texts: str, role: Role = Role.USER) -> Message:
    return Message(role, texts)


REMINDER = "<system-reminder>Today is Monday.</system-reminder>"


@pytest.mark.parametrize(
    ("messages", "title"),
    [
        ([], ""),
        ([say("Be brief.", role=Role.SYSTEM), say("Mend\n the   parser.")], "Mend the parser."),
        ([say(REMINDER, "Mend the parser.")], "Mend the parser."),
        ([say("<environment_context>linux</environment_context>"), say("Mend it.")], "Mend it."),
        ([say(REMINDER)] * 9 + [say("Mend it.")], ""),
        ([say("x" * 500)], "x" * TITLE_CHARS + "…"),
        ([say(f"Use {KEY} for it.")], "Use *** for it."),
        ([say("a\x1b[31mb\ud800")], "ab?"),
    ],
)
def test_a_title_is_the_first_words_of_the_user(messages, title):
    assert find_title(messages, find_hidden(Config(), [KEY])) == title
