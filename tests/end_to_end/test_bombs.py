"""Bodies that try to harm their reader: they reach the upstream unchanged, and nothing fails."""

import hashlib
import io
from dataclasses import dataclass

import orjson
import pytest
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES
from upstreams.recording import completion

from trimtab.proxy.wire.codec import UndecodableError
from trimtab.proxy.wire.transcript import body

DEPTH = 100_000
MOST = 15_000
"""In place of a request's most parts, which are counted by one: a fortieth, and all bombs take as much less time."""
MANY = MOST + 1
FEWER = MANY // 6


@dataclass(frozen=True, slots=True)
class Forms:
    """What the dialects write in different ways. `%b` stands for what a bomb puts there.

    call: elements with one call, its arguments and its result.
    result: an element with a result that has no call.
    image: a part with an image.
    tool: a tool with its parameters.
    rest: more members of a body, by the name of what they hold.
    """

    call: bytes
    result: bytes
    image: bytes
    tool: bytes
    rest: dict[str, bytes]


FORMS = {
    CHAT: Forms(
        b'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":%b}}]},'
        b'{"role":"tool","tool_call_id":"c","content":"r"}',
        b'{"role":"tool","tool_call_id":"c","content":"x"}',
        b'{"type":"image_url","image_url":%b}',
        b'{"type":"function","function":{"name":"f","parameters":%b}}',
        {"format": b'"response_format":{"type":"json_schema","json_schema":{"schema":%b}}'},
    ),
    RESPONSES: Forms(
        b'{"type":"function_call","call_id":"c","name":"f","arguments":%b},'
        b'{"type":"function_call_output","call_id":"c","output":"r"}',
        b'{"type":"function_call_output","call_id":"c","output":"x"}',
        b'{"type":"input_image","image_url":%b}',
        b'{"type":"function","name":"f","parameters":%b}',
        {
            "format": b'"text":{"format":{"type":"json_schema","name":"f","schema":%b}}',
            "instructions": b'"instructions":%b',
            "reasoning": b'"reasoning":%b',
            "earlier response": b'"previous_response_id":%b',
        },
    ),
    MESSAGES: Forms(
        b'{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":%b}]},'
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"r"}]}',
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}',
        b'{"type":"image","source":%b}',
        b'{"name":"f","input_schema":%b}',
        {
            "format": b'"output_format":{"type":"json_schema","schema":%b}',
            "system": b'"system":%b',
            "thinking": b'"thinking":%b',
            "cache marker": b'"system":[{"type":"text","text":"s","cache_control":%b}]',
        },
    ),
}
LISTS, OBJECTS = b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
NUMBERS, FEWER_NUMBERS = (b"[" + b"1," * number + b"1]" for number in (MANY, FEWER))
DIGITS = b"9" * 1_000_000
HELLO = b'[{"role":"user","content":"hi"}]'


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes bodies of one dialect from JSON that no encoder would write."""

    dialect: Dialect

    def body(self, elements: bytes = HELLO, rest: bytes = b"") -> bytes:
        """A request with this transcript, and with more members after it."""
        return b'{"model":"m","%b":%b%b}' % (self.dialect.transcript.encode(), elements, rest and b"," + rest)

    def say(self, content: bytes) -> bytes:
        """A request with one message."""
        return self.body(b'[{"role":"user","content":%b}]' % content)

    def call(self, arguments: bytes) -> bytes:
        """A request with one call, its arguments and its result."""
        return self.body(b"[%b]" % (FORMS[self.dialect].call % arguments))

    def tool(self, parameters: bytes) -> bytes:
        """A request with one tool and its parameters."""
        return self.body(rest=b'"tools":[%b]' % (FORMS[self.dialect].tool % parameters))

    def limit(self, tokens: bytes) -> bytes:
        """A request for a completion of so many tokens."""
        return self.body(rest=b'"%b":%b' % (self.dialect.completion_limit.encode(), tokens))


def write_shared_bombs() -> dict[str, bytes]:
    """Bodies that are refused, or harmless, before a dialect reads its own members. They are written as chat."""
    chat, transcript = Writer(CHAT), CHAT.transcript.encode()
    return {
        "numbers as messages": chat.body(NUMBERS),
        "numbers as content": chat.say(NUMBERS),
        "numbers as tools": chat.body(rest=b'"tools":' + NUMBERS),
        "numbers as the model": b'{"%b":%b,"model":%b}' % (transcript, HELLO, NUMBERS),
        "numbers in a part": chat.say(b'[{"type":"image_url","z":%b}]' % NUMBERS),
        "numbers in an enumeration": chat.tool(b'{"type":"object","properties":{"a":{"enum":%b}}}' % NUMBERS),
        "numbers beside a lone surrogate": chat.body(b'[{"role":"user","content":"\\ud800","x":%b}]' % NUMBERS),
        "empty messages": chat.body(b"[" + b"{}," * MANY + b"{}]"),
        "the same key": b"{%b}" % b",".join([b'"%b":[]' % transcript] * FEWER),
        "deep messages": chat.body(LISTS),
        "deep tools": chat.body(rest=b'"tools":' + LISTS),
        "deep member": chat.body(rest=b'"x":' + OBJECTS),
        "deep without an end": b'{"%b":' % transcript + b"[" * DEPTH,
        "lists in lists": LISTS,
        "objects in objects": OBJECTS,
        "numbers": NUMBERS,
        "huge number": chat.body(rest=b'"seed":' + DIGITS),
        "huge exponent": chat.body(rest=b'"temperature":1e' + DIGITS),
        "big key": b'{"%b":1,"messages":[{"role":"user","content":"x"}]}' % (b"k" * 5_000_000),
        "many keys": b"{%b}" % b",".join(b'"k%d":1' % number for number in range(FEWER)),
        "spaces": b'{"messages":%b[{"role":"user","content":"x"}]}' % (b" " * 5_000_000),
        "quotation marks": b'{"messages":[{"role":"user","content":"x"}],' + b'"' * 1_000_001,
        "backslashes": b'{"messages":[{"role":"user","content":"' + b"\\" * 1_000_001,
    }


def write_bombs(dialect: Dialect) -> dict[str, bytes]:
    """Bodies that are bombs for the reader of this dialect."""
    write, forms = Writer(dialect), FORMS[dialect]
    return {
        "deep message": write.body(b"[%b]" % OBJECTS),
        "deep content": write.say(LISTS),
        "deep part": write.say(b"[%b]" % (forms.image % OBJECTS)),
        "deep parameters": write.tool(OBJECTS),
        "deep arguments": write.call(orjson.dumps(LISTS.decode())),
        "deep arguments that are no text": write.call(OBJECTS),
        "deep beside a lone surrogate": write.body(b'[{"role":"user","content":"\\ud800","x":%b}]' % LISTS),
        "tiny messages": write.body(b"[" + b'{"role":"user","content":"a"},' * FEWER + HELLO[1:]),
        "tiny parts": write.say(b"[%b]" % b",".join([b'{"type":"text","text":"a"}'] * FEWER)),
        "results without calls": write.body(b"[%b]" % b",".join([forms.result] * FEWER)),
        "huge number in a message": write.body(b'[{"role":"user","content":"x","n":%b}]' % DIGITS),
        "huge number in a tool": write.tool(b'{"default":%b}' % DIGITS),
        "huge number as arguments": write.call(DIGITS),
        "huge limit": write.limit(DIGITS),
        "limit beyond everything": write.limit(b"9" * 30),
        "negative limit": write.limit(b"-5"),
        "infinite limit": write.limit(b"1e999"),
        **{f"deep {name}": write.body(rest=rest % OBJECTS) for name, rest in forms.rest.items()},
        **{f"numbers as {name}": write.body(rest=rest % FEWER_NUMBERS) for name, rest in forms.rest.items()},
    }


BOMBS = {dialect: write_bombs(dialect) for dialect in DIALECTS}
BOMBS[CHAT] |= write_shared_bombs()


@pytest.fixture(autouse=True)
def _most(monkeypatch):
    monkeypatch.setattr(body, "MAX_PARTS", MOST)


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
async def test_a_bomb_reaches_the_upstream_as_it_came(dialect, client, upstream, start_proxy, log):
    """There is no fault and no refusal, and not a byte changes. The next request is served as usual."""
    proxy = await start_proxy("defaults.context_window=1000000")

    async def answer(_recorded, _request):
        return completion(dialect=dialect)

    upstream.answer = answer
    for name, bomb in BOMBS[dialect].items():
        upstream.requests.clear()
        log.lines.clear()
        async with client.post(proxy.url + dialect.path, data=io.BytesIO(bomb)) as response:
            assert (name, response.status) == (name, 200)
        async with client.post(proxy.url + dialect.path, data=Writer(dialect).body()) as response:
            assert (name, response.status, "x-trimtab-tokens" in response.headers) == (name, 200, True)
        assert (name, upstream.requests[0].sha256) == (name, hashlib.sha256(bomb).hexdigest())
        outcomes = [line["outcome"] for line in log.lines if line["event"] == "request"]
        assert (name, outcomes) in [(name, [first, "unchanged"]) for first in ("unchanged", "undecodable")]
        # half of the window is the most that a limit takes
        told = {"window_halved"} if name == "limit beyond everything" else set()
        assert (name, {line["event"] for line in log.lines} - {"request"}) == (name, told)


def test_commas_in_texts_are_no_values() -> None:
    """A table in a tool result may have any length."""
    assert len(CHAT.codec.read(Writer(CHAT).say(orjson.dumps("1,2\n" * MANY))).raws) == 1
    with pytest.raises(UndecodableError):
        CHAT.codec.read(Writer(CHAT).say(NUMBERS))
