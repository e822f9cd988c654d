"""Bodies that try to harm their reader: they reach the upstream unchanged, and nothing fails."""

import hashlib
import io

import orjson
import pytest
from upstreams.recording import completion

from proxy.wire.chat.codec import CHAT
from proxy.wire.codec import UndecodableError
from proxy.wire.transcript.body import MAX_PARTS

DEPTH = 100_000
MANY = MAX_PARTS + 1
FEWER = MANY // 3


def chat(messages: bytes = b'[{"role":"user","content":"hi"}]', rest: bytes = b"") -> bytes:
    """A chat request with these messages, and with more members after them."""
    return b'{"model":"m","messages":%b%b}' % (messages, rest)


def say(content: bytes) -> bytes:
    """A chat request with one message."""
    return chat(b'[{"role":"user","content":%b}]' % content)


def call(arguments: bytes) -> bytes:
    """A chat request with one call, its arguments and its result."""
    function = b'{"id":"c","type":"function","function":{"name":"f","arguments":%b}}' % arguments
    return chat(b'[{"role":"assistant","tool_calls":[%b]},{"role":"tool","tool_call_id":"c","content":"r"}]' % function)


def tool(parameters: bytes) -> bytes:
    """A chat request with one tool and its parameters."""
    return chat(rest=b',"tools":[{"type":"function","function":{"name":"f","parameters":%b}}]' % parameters)


LISTS, OBJECTS = b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
NUMBERS = b"[" + b"1," * MANY + b"1]"
DIGITS = b"9" * 1_000_000
BOMBS = {
    "lists in lists": LISTS,
    "objects in objects": OBJECTS,
    "deep member": chat(rest=b',"x":' + OBJECTS),
    "deep messages": chat(LISTS),
    "deep message": chat(b"[%b]" % OBJECTS),
    "deep content": say(LISTS),
    "deep part": say(b'[{"type":"image_url","image_url":%b}]' % OBJECTS),
    "deep tools": chat(rest=b',"tools":' + LISTS),
    "deep parameters": tool(OBJECTS),
    "deep arguments": call(orjson.dumps(LISTS.decode())),
    "deep arguments that are no text": call(OBJECTS),
    "deep format": chat(rest=b',"response_format":{"type":"json_schema","json_schema":{"schema":%b}}' % OBJECTS),
    "deep without an end": b'{"messages":' + b"[" * DEPTH,
    "deep beside a lone surrogate": chat(b'[{"role":"user","content":"\\ud800","x":%b}]' % LISTS),
    "numbers": NUMBERS,
    "numbers as messages": chat(NUMBERS),
    "numbers as content": say(NUMBERS),
    "numbers as tools": chat(rest=b',"tools":' + NUMBERS),
    "numbers as the model": b'{"messages":[{"role":"user","content":"x"}],"model":%b}' % NUMBERS,
    "numbers in a part": say(b'[{"type":"image_url","z":%b}]' % NUMBERS),
    "numbers in an enumeration": tool(b'{"type":"object","properties":{"a":{"enum":%b}}}' % NUMBERS),
    "numbers beside a lone surrogate": chat(b'[{"role":"user","content":"\\ud800","x":%b}]' % NUMBERS),
    "tiny messages": chat(b"[" + b'{"role":"user","content":"a"},' * FEWER + b'{"role":"user","content":"b"}]'),
    "empty messages": chat(b"[" + b"{}," * MANY + b"{}]"),
    "tiny parts": say(b"[" + b'{"type":"text","text":"a"},' * FEWER + b'{"type":"text","text":"a"}]'),
    "results without calls": chat(b"[%b]" % b",".join([b'{"role":"tool","tool_call_id":"c","content":"x"}'] * FEWER)),
    "huge number": chat(rest=b',"seed":' + DIGITS),
    "huge number in a message": chat(b'[{"role":"user","content":"x","n":%b}]' % DIGITS),
    "huge number in a tool": tool(b'{"default":%b}' % DIGITS),
    "huge number as arguments": call(DIGITS),
    "huge limit": chat(rest=b',"max_tokens":' + DIGITS),
    "huge exponent": chat(rest=b',"temperature":1e' + DIGITS),
    "limit beyond everything": chat(rest=b',"max_tokens":' + b"9" * 30),
    "negative limit": chat(rest=b',"max_tokens":-5'),
    "infinite limit": chat(rest=b',"max_tokens":1e999'),
    "big key": b'{"%b":1,"messages":[{"role":"user","content":"x"}]}' % (b"k" * 5_000_000),
    "many keys": b"{%b}" % b",".join(b'"k%d":1' % number for number in range(FEWER)),
    "the same key": b"{%b}" % b",".join([b'"messages":[]'] * FEWER),
    "spaces": b'{"messages":%b[{"role":"user","content":"x"}]}' % (b" " * 5_000_000),
    "quotation marks": b'{"messages":[{"role":"user","content":"x"}],' + b'"' * 1_000_001,
    "backslashes": b'{"messages":[{"role":"user","content":"' + b"\\" * 1_000_001,
}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_reaches_the_upstream_as_it_came(name, client, upstream, start_proxy, log):
    """There is no fault and no refusal, and not a byte changes. The next request is served as usual."""
    proxy = await start_proxy("defaults.context_window=1000000")
    url = proxy.url + "/v1/chat/completions"

    async def answer(_recorded, _request):
        return completion()

    upstream.answer = answer
    async with client.post(url, data=io.BytesIO(BOMBS[name])) as response:
        assert response.status == 200
    async with client.post(url, data=chat()) as response:
        assert (response.status, "x-trimtab-tokens" in response.headers) == (200, True)
    assert upstream.requests[0].sha256 == hashlib.sha256(BOMBS[name]).hexdigest()
    outcomes = [line["outcome"] for line in log.lines if line["event"] == "request"]
    assert outcomes[0] in {"unchanged", "undecodable"}
    assert outcomes[1] == "unchanged"
    assert not [line for line in log.lines if line["event"] != "request"]


def test_commas_in_texts_are_no_values() -> None:
    """A table in a tool result may have any length."""
    assert len(CHAT.read(say(orjson.dumps("1,2\n" * MANY))).raws) == 1
    with pytest.raises(UndecodableError):
        CHAT.read(say(NUMBERS))
