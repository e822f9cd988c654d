"""The soak's clients: each sends one request after the other, of many kinds, and records the outcomes.

Law: every request has an id and exactly one outcome. Random choices depend only on the seed.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
import orjson

from bench.soak.faults import BROKEN, ID_HEADER, LEAVE_HEADER, LEFT

KINDS = {
    "plain": 14, "stream": 18, "session": 32, "narrow session": 12, "big": 4, "too large": 1, "slow reader": 3,
    "leaver": 6, "quitter": 2, "garbage": 3, "other path": 4, "socket": 1,
}  # fmt: skip
"""Approximate shares of the requests, in per cent."""
WORDS = 4000
SESSION_STEPS = 60
"""Chosen: after this many steps a session starts again, so that what is kept of it is bounded."""
STEPS_AT_ONCE = 3
STEP_WORDS = 130
ROUNDS = 8
"""Chosen: each start of a session uses another credential, so that its summaries are written again."""
QUESTIONS = 40
"""Of one client. Chosen: they repeat, so that what is kept of them is bounded."""
BIGS = 250
"""Chosen: 100 MB in all, more than the proxy keeps of messages, so that each is forgotten before it is repeated."""
BIG_BYTES = 400_000
TOO_LARGE_BYTES = 1_500_000
THINK_SECONDS = 0.08
PATIENCE_SECONDS = 60.0
GARBAGE = (
    b"not json",
    b'{"model":"m","messages":7}',
    b"[" * 50_000,
    b'{"model":"m","messages":[{"role":"user"',
    b"\xff\xfe",
)


@dataclass
class Books:
    """The clients' ledger: outcomes by id, the number of each kind, and wrong answers."""

    outcomes: dict[str, str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    big: int = 0


@dataclass
class Session:
    """An agent at work: its transcript so far."""

    number: int
    step: int = 0
    round: int = 0

    def write(self, texts: "Texts", model: str) -> dict[str, Any]:
        """The request of the next step."""
        self.step += STEPS_AT_ONCE
        if self.step > SESSION_STEPS:
            self.step, self.round = STEPS_AT_ONCE, (self.round + 1) % ROUNDS
        return {"model": model, "messages": texts.write_session(self.number, self.step), "tools": [TOOL]}


TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}


class Texts:
    """Meaningless words; the same arguments give the same words."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = random.Random(seed)  # noqa: S311 - no secret
        letters = "abcdefghijklmnoprstuvw"
        self._words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(WORDS)]

    def write(self, name: str, words: int) -> str:
        """Words; the same name gives the same words."""
        rng = random.Random(f"{self._seed} {name}")  # noqa: S311 - no secret
        return " ".join(rng.choices(self._words, k=words))

    def write_session(self, number: int, steps: int) -> list[dict[str, Any]]:
        """A transcript of this many steps."""
        task = f"Session {number}: find out why {self.write(f'task {number}', 12)} fails, and mend it."
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You are a coding agent."},
            {"role": "user", "content": task},
        ]
        for step in range(steps):
            call = {
                "id": f"c{step}",
                "type": "function",
                "function": {"name": "read_file", "arguments": f'{{"part":{step}}}'},
            }
            messages.append({"role": "assistant", "content": f"Part {step}.", "tool_calls": [call]})
            said = self.write(f"{number} {step}", STEP_WORDS)
            messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": said})
        return messages


class Client:
    """One client."""

    def __init__(self, name: int, port: int, books: Books, texts: Texts, seed: int) -> None:
        self._name = name
        self._port = port
        self._url = f"http://127.0.0.1:{port}"
        self._books = books
        self._texts = texts
        self._rng = random.Random(f"{seed} {name}")  # noqa: S311 - no secret
        self._asked = 0
        self._sessions = {model: Session(name) for model in ("m", "narrow")}
        self._acts: dict[str, Callable[[str], Awaitable[str]]] = {
            "session": partial(self._go_on, "m"),
            "narrow session": partial(self._go_on, "narrow"), "plain": self._ask_plainly,
            "stream": self._ask_for_stream, "big": self._ask_much, "too large": self._ask_too_much,
            "slow reader": self._read_slowly, "leaver": self._leave, "quitter": self._quit,
            "garbage": self._talk_nonsense, "other path": self._ask_elsewhere, "socket": self._talk,
        }  # fmt: skip

    async def run(self, until: float) -> None:
        """Send requests until then, on kept connections."""
        timeout = aiohttp.ClientTimeout(PATIENCE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as self._http:
            while time.monotonic() < until:
                await self.ask(self._rng.choices([*KINDS], [*KINDS.values()])[0])
                await asyncio.sleep(self._rng.expovariate(1 / THINK_SECONDS))

    async def fill(self, times: int) -> None:
        """Send only large requests, so that the proxy's caches reach their bounds."""
        timeout = aiohttp.ClientTimeout(PATIENCE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as self._http:
            for _ in range(times):
                await self.ask("big")

    async def ask(self, kind: str) -> None:
        """Send one request, and record its outcome."""
        self._asked += 1
        number = f"{self._name}-{self._asked}"
        self._books.kinds[kind] += 1
        try:
            self._books.outcomes[number] = await self._acts[kind](number)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._books.outcomes[number] = f"surprised by {type(error).__name__}"

    async def _post(self, number: str, body: Any, path: str = "/v1/chat/completions", **headers: str) -> str:
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer sk-{self._name}",
            ID_HEADER: number,
        } | headers
        async with self._http.post(self._url + path, data=data, headers=headers) as response:
            received = bytearray()
            try:
                async for chunk in response.content.iter_any():
                    received += chunk
            except aiohttp.ClientPayloadError:
                return BROKEN
            return self._judge(number, response.status, bytes(received))

    def _judge(self, number: str, status: int, received: bytes) -> str:
        """The outcome of a complete answer, which must be the right one."""
        if status != 200:
            return f"refused {status}" if b'"trimtab_error"' in received else f"answered {status}"
        if f'"id":"{number}"'.encode() not in received or not received.endswith((b"}", b"data: [DONE]\n\n")):
            self._books.wrong.append(f"{number}: {len(received)} bytes that are not its answer")
        return "answered 200"

    async def _go_on(self, model: str, number: str) -> str:
        session = self._sessions[model]
        body = session.write(self._texts, f"{model}-{self._name % 4}-{session.round}")
        credential = f"Bearer sk-{self._name}-{session.round}"
        return await self._post(number, {"stream": True, **body} if self._asked % 2 else body, Authorization=credential)

    def _question(self, words: int, **more: Any) -> dict[str, Any]:
        content = self._texts.write(f"{self._name} {self._asked % QUESTIONS}", words)
        return {**more, "model": "wide", "messages": [{"role": "user", "content": content}]}

    async def _ask_plainly(self, number: str) -> str:
        return await self._post(number, self._question(20))

    async def _ask_for_stream(self, number: str) -> str:
        return await self._post(number, self._question(20, stream=True))

    async def _ask_much(self, number: str) -> str:
        which = self._books.big = (self._books.big + 1) % BIGS
        texts = (self._texts.write(f"big {which} {row}", BIG_BYTES // 300) for row in range(50))
        return await self._post(
            number, {"model": "wide", "messages": [{"role": "user", "content": text} for text in texts]}
        )

    async def _ask_too_much(self, number: str) -> str:
        return await self._post(number, {"model": "wide", "messages": [], "x": "y" * TOO_LARGE_BYTES})

    async def _talk_nonsense(self, number: str) -> str:
        return await self._post(number, self._rng.choice(GARBAGE))

    async def _ask_elsewhere(self, number: str) -> str:
        return await self._post(number, {"input": self._texts.write(number, 30)}, "/v1/embeddings")

    async def _read_slowly(self, number: str) -> str:
        """Read a stream in small pieces, with pauses."""
        headers = {ID_HEADER: number}
        body = orjson.dumps(self._question(20, stream=True))
        async with self._http.post(self._url + "/v1/chat/completions", data=body, headers=headers) as response:
            received = bytearray()
            try:
                while bite := await response.content.read(100):
                    received += bite
                    await asyncio.sleep(0.02)
            except aiohttp.ClientPayloadError:
                return BROKEN
            return self._judge(number, response.status, bytes(received))

    async def _leave(self, number: str) -> str:
        """Leave before the first byte of the answer, or in the middle of it."""
        when = self._rng.choice(("before", "mid"))
        headers = {ID_HEADER: number, LEAVE_HEADER: when}
        body = orjson.dumps(self._question(20, stream=True))
        asking = self._http.post(self._url + "/v1/chat/completions", data=body, headers=headers)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rng.uniform(0.05, 0.3) if when == "before" else None), asking as response:
                await response.content.readany()
                response.close()
        return LEFT

    async def _quit(self, number: str) -> str:
        """Leave in the middle of the request."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{ID_HEADER}: {number}\r\n"
            "Content-Length: 1000\r\n\r\n"
        )
        writer.write(head.encode() + b'{"model":')
        await writer.drain()
        await asyncio.sleep(self._rng.uniform(0.05, 0.2))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return LEFT

    async def _talk(self, number: str) -> str:
        """Exchange a few words by WebSocket."""
        async with self._http.ws_connect(self._url + "/v1/realtime", headers={ID_HEADER: number}) as socket:
            for word in range(5):
                await socket.send_str(f"{number} {word}")
                if await socket.receive_str(timeout=PATIENCE_SECONDS) != f"{number} {word}":
                    self._books.wrong.append(f"{number}: another's word")
        return "answered 101"
