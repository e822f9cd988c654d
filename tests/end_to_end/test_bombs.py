"""Bodies that try to harm their reader: they reach the upstream unchanged, and nothing fails."""

import hashlib
import io
from collections.abc import Iterator

import orjson
import pytest
from support.dialects.spoken.all_dialects import CHAT, each_dialect
from support.dialects.spoken.dialect import Dialect, Wire
from upstreams.recording import completion

from trimtab.proxy.wire.codec import UndecodableError
from trimtab.proxy.wire.transcript import body

DEPTH = 20_000
MOST = 3000
"""In place of a request's most parts: all bombs take as much less time."""
LISTS, OBJECTS = b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
NUMBERS = b"[" + b"1," * (MOST + 1) + b"1]"
BOMBS = {"lists": LISTS, "objects": OBJECTS, "no end": b"[" * DEPTH, "numbers": NUMBERS, "digits": b"9" * 100_000}
HELLO = {"role": "user", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":"@"}'}}
STEP = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "r"},
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": "@"}}
MEMBERS = (
    *(
        "model",
        "tools",
        "tool_choice",
        "system",
        "instructions",
        "response_format",
        "text",
        "output_format",
        "thinking",
    ),
    *("reasoning", "previous_response_id", "metadata", "stream_options", "seed", "temperature", "cache_control"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "x"),
)


def list_places(dialect: Dialect) -> Iterator[tuple[str, Wire | str]]:
    """Bodies of a dialect with an "@" at the place of a bomb."""
    plain, member = dialect.write([HELLO]), dialect.transcript
    yield "nothing else", "@"
    yield "the transcript", plain | {member: "@"}
    yield "an element", plain | {member: [*plain[member], "@"]}
    yield "a member of an element", plain | {member: [{**plain[member][0], "x": "@"}]}
    yield "a content", dialect.write([{"role": "user", "content": "@"}])
    yield (
        "a part",
        plain | {member: [{"role": "user", "content": [{"type": "image_url", "image_url": "@", "source": "@"}]}]},
    )
    yield "a call", dialect.write([HELLO, *STEP])
    yield "a tool", dialect.write([HELLO], [TOOL])
    yield from ((name, plain | {name: "@"}) for name in MEMBERS)


def plant(place: Wire | str, bomb: bytes) -> bytes:
    """The body with the bomb. In arguments of a call, it is text."""
    whole = orjson.dumps(place).replace(b'\\"@\\"', orjson.dumps(bomb.decode())[1:-1])
    return whole.replace(b'"@"', bomb)


def write_odd_bodies() -> Iterator[bytes]:
    """Bombs that are no value at one place."""
    say = b'{"messages":[{"role":"user","content":"%b"}]%b}'
    yield b'{"%b":1,"messages":[{"role":"user","content":"x"}]}' % (b"k" * 5_000_000)
    yield b'{"messages":%b[{"role":"user","content":"x"}]}' % (b" " * 5_000_000)
    yield b"{%b}" % b",".join(b'"k%d":1' % number for number in range(MOST))
    yield b"{%b}" % b",".join([b'"messages":[]'] * MOST)
    yield b'{"messages":[' + b"{}," * MOST + b"{}]}"
    yield b'{"messages":[' + b'{"role":"tool","tool_call_id":"c","content":"x"},' * (MOST // 6) + b"{}]}"
    yield say % (b"x", b"," + b'"' * 1_000_001)
    yield say % (b"\\" * 1_000_001, b"")
    yield say % (b'\\ud800","x":%b,"y":"' % LISTS, b"")
    yield say % (b"x", b',"max_tokens":-5')
    yield say % (b"x", b',"temperature":1e' + b"9" * 1_000_000)


@pytest.fixture(autouse=True)
def _most(monkeypatch):
    monkeypatch.setattr(body, "MAX_PARTS", MOST)


@each_dialect
async def test_a_bomb_reaches_the_upstream_as_it_came(dialect, client, upstream, start_proxy, log):
    """There is no fault and no refusal, and not a byte changes. The next request is served as usual."""
    proxy = await start_proxy("defaults.context_window=1000000")

    async def answer(_recorded, _request):
        return completion(dialect=dialect)

    async def check(name: object, bomb: bytes) -> None:
        upstream.requests.clear()
        log.lines.clear()
        for sent in (bomb, orjson.dumps(dialect.write([HELLO]))):
            async with client.post(proxy.url + dialect.path, data=io.BytesIO(sent)) as response:
                assert (name, response.status) == (name, 200)
        assert "x-trimtab-tokens" in response.headers
        assert (name, upstream.requests[0].sha256) == (name, hashlib.sha256(bomb).hexdigest())
        outcomes = [line["outcome"] for line in log.lines if line["event"] == "request"]
        assert (name, outcomes) in [(name, [first, "unchanged"]) for first in ("unchanged", "undecodable")]
        assert (name, {line["event"] for line in log.lines}) == (name, {"request"})

    upstream.answer = answer
    for place, written in list_places(dialect):
        for kind, bomb in BOMBS.items():
            await check((place, kind), plant(written, bomb))
    for number, odd in enumerate(write_odd_bodies() if dialect is CHAT else ()):
        await check(number, odd)


def test_commas_in_texts_are_no_values() -> None:
    """A table in a tool result may have any length."""
    said = orjson.dumps(CHAT.write([HELLO | {"content": "1,2\n" * MOST}]))
    assert len(CHAT.codec.read(said).raws) == 1
    with pytest.raises(UndecodableError):
        CHAT.codec.read(plant(CHAT.write([HELLO | {"content": "@"}]), NUMBERS))
