"""Answers a model's calls of the tool of recall within the exchange: search, send again, go on with the same answer.

Law: the client gets one answer, without the calls and their results. Calls beside the client's own end the answer. What
they find is kept before the client gets that end, and stands behind the result of the client's call when that comes.
All rounds are in the bill, also one whose client has left. A round that fails ends the answer as any failed one does.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import aiohttp
import msgspec
from aiohttp import web
from msgspec import structs

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.account.recorder import fail_open
from trimtab.proxy.catalogue.prices import Cost, PriceList, Tokens, price
from trimtab.proxy.compaction.offload import INLINE_BYTES
from trimtab.proxy.exchange.answer import NOTHING_LEARNED, Keep, Learned, SafeTap, count_answer, learn, listen
from trimtab.proxy.exchange.attempt import Attempt, Prepared, Ready
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.http.client import Sending
from trimtab.proxy.http.content_coding import can_decode, decode_body, read_along, read_codings
from trimtab.proxy.http.errors import ProxyError
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.http.relay import make_response, relay_answer, replace_answer
from trimtab.proxy.recall import Lookup, Place, append, find_head
from trimtab.proxy.tasks import shield_to_end
from trimtab.proxy.wire.answers.recall import MAX_ASKED, MAX_ROUND_BYTES, NAME, RecallCall, Round
from trimtab.proxy.wire.json import try_decode

MAX_ROUNDS = 4  # With answered calls. Chosen: a model that has not found it by then asks for what is not there.
MAX_CALLS = 8  # Answered in one answer. Chosen: it bounds the work and the tokens of a round.
MAX_TOKENS = 2000  # Returned by one call. Chosen: half of the default limit of a tool result.
ROOM_SHARE = 0.5  # Of the window's rest, for the calls of a round. Chosen: the next round must fit, too.
STEP_BYTES = 16 * 1024  # Kept answers grow by such steps. Chosen: most answers take one.
TOO_MANY = "[trimtab: too many calls at once; this one was not answered]"
_NAME = NAME.encode()
T = TypeVar("T")
P = TypeVar("P", Tokens, Cost)
_FAULTS = (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError)


def takes_calls(attempt: Attempt) -> bool:
    if not isinstance(attempt, Prepared) or attempt.body is None or attempt.is_own:
        return False
    return attempt.call.route.settings.recall == "tool" and not attempt.call.request.codec.is_count


class Talk:
    def __init__(
        self, services: Services, ready: Ready, attempt: Prepared, keep: Keep, write_headers: Callable[[], Headers]
    ) -> None:
        self._write_headers = write_headers
        self._services = services
        self._ready = ready
        self._attempt = attempt
        self._keep = keep
        self._sifter = ready.codec.sifter()
        self._pieces = attempt.body or ()
        planned, self._compactor = attempt.chosen.planned, attempt.call.compactor
        self._lookup = Lookup(planned.original, attempt.compacted.forwarded, self._compactor.count)
        ratio = planned.policy.token_ratio
        self._left = max(int((attempt.compacted.limit_tokens - attempt.compacted.sent_tokens) / ratio), 0)
        self._learned = NOTHING_LEARNED
        self._rounds = 0
        self._is_kept = False  # what was found beside the client's calls
        self._account = services.uploads.find_account(ready.reply.request)
        self._taken_bytes = 0

    async def converse(
        self, answer: aiohttp.ClientResponse, held: bytes, send: Callable[[Attempt], Sending]
    ) -> web.StreamResponse:
        """Pass the answer on; as long as the model asks, send what was found, and go on with its next answer."""
        response, said = await self._pass_on(answer, held)
        while said is not None:
            sending = send(await self._write_next(said))
            try:
                async with sending as following:
                    response, said = await self._pass_on(following, b"")
            except (asyncio.CancelledError, ConnectionError):  # the client has left
                if sending.is_unanswered:
                    self._add(Answered(completion_tokens=0, is_estimated=True))
                raise
            except ProxyError as error:
                error.is_unsent = False  # the rounds before were sent
                raise
        return response

    async def _pass_on(self, answer: aiohttp.ClientResponse, held: bytes) -> tuple[web.StreamResponse, Round | None]:
        """Pass an answer on without our calls; they are returned if another round must answer them."""
        ready, is_sifted = self._ready, answer.status == 200 and can_decode(_find_codings(answer))
        tap = listen(self._services, ready, answer)
        self._sifter.is_last = self._rounds == MAX_ROUNDS
        try:
            if is_sifted and answer.content_type in ready.reply.event_kinds:
                return await self._pass_stream(answer, held, tap)
            if is_sifted and answer.content_type == "application/json":
                return await self._pass_whole(answer, held, tap)
            return await self._relay(answer, held, tap), None
        finally:  # whenever the client leaves
            if tap is not None and answer.status == 200:
                await self._learn(tap)
            self._rounds += 1
            if self._account is not None:
                self._account.shrink(self._account.held_bytes - self._taken_bytes)
                self._taken_bytes = 0

    def _has_room(self, size_bytes: int) -> bool:
        """Whether there is memory for so many bytes of an answer; it is taken until the answer was passed on."""
        missing_bytes = size_bytes - self._taken_bytes
        if self._account is None or missing_bytes <= 0:
            return True
        step_bytes = max(missing_bytes, STEP_BYTES)
        is_there = self._account.take(step_bytes)
        self._taken_bytes += step_bytes if is_there else 0
        return is_there

    async def _relay(self, answer: aiohttp.ClientResponse, held: bytes, tap: SafeTap | None) -> web.StreamResponse:
        ready = self._ready
        added = () if ready.reply.response is not None else self._write_headers()
        return await relay_answer(ready.reply, answer, added, held=held, tap=tap, write_event=ready.codec.write_event)

    def _adopt(self, events: bytes) -> bytes:
        with fail_open(self._services.recorder, self._ready.arrival.request_id, "recall"):
            return self._sifter.adopt(events)
        return events

    async def _begin(self, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        reply = self._ready.reply
        reply.status, reply.adopt = answer.status, self._adopt
        if reply.response is None:
            response = make_response(answer, self._write_headers())
            for name in ("Content-Length", "Content-Encoding"):  # what the client gets has another length
                response.headers.popall(name, None)
            await reply.begin(response)
        return reply.response or web.StreamResponse()

    async def _pass_stream(
        self, answer: aiohttp.ClientResponse, held: bytes, tap: SafeTap | None
    ) -> tuple[web.StreamResponse, Round | None]:
        reply, is_whole = self._ready.reply, False
        response = await self._begin(answer)
        try:
            said = await self._sift(answer, held, tap)
            is_whole = True
        except _FAULTS:
            reply.broken = not reply.client_left
            reply.reset()
            return response, None
        finally:
            if tap is not None:
                tap.finish(is_cut=not is_whole)
                reply.pace = reply.pace if reply.pace.chars else tap.tell_pace()
        if not self._is_over(said):
            return response, said
        reply.last_byte_at = time.monotonic()
        with suppress(ConnectionError):  # the client has left
            await response.write_eof()
        return response, None

    async def _sift(self, answer: aiohttp.ClientResponse, held: bytes, tap: SafeTap | None) -> Round | None:
        """Pass a stream on without our calls. After a fault of ours, the rest of it passes as it is."""
        guard = fail_open(self._services.recorder, self._ready.arrival.request_id, "recall")
        async for chunk in _read_text(answer, held):
            if tap is not None:
                tap.feed(chunk, time.monotonic())
            passed, is_read = self._sifter.held + chunk, False
            if not self._has_room(self._sifter.kept_bytes + len(chunk)):
                self._sifter.is_full = True
            with guard:
                size = self._sifter.weigh(chunk)
                feed = partial(self._sifter.feed, chunk)
                passed = await self._run(feed, size) if size > INLINE_BYTES else feed()
                is_read = True
                if self._sifter.is_beside and not self._is_kept:
                    await self._keep_found(await self._run(self._sifter.finish_round, self._sifter.said_bytes))
            if not is_read:
                _ = self._sifter.go_blind()
            if passed:
                await self._ready.reply.write(passed)
        left, said = self._sifter.held, None
        with guard:
            left, said = await self._run(self._sifter.end, self._sifter.said_bytes)
            await self._keep_found(said)
        if left:
            await self._ready.reply.write(left)
        return said

    async def _pass_whole(
        self, answer: aiohttp.ClientResponse, held: bytes, tap: SafeTap | None
    ) -> tuple[web.StreamResponse, Round | None]:
        try:
            body, is_whole = await _read_whole(answer, held, self._has_room)
        except asyncio.CancelledError:  # the client has left
            if tap is not None:
                tap.finish(is_cut=True)
            raise
        sifted, said, codings = None, None, _find_codings(answer)
        if is_whole and (codings or _NAME in body or self._rounds):
            with fail_open(self._services.recorder, self._ready.arrival.request_id, "recall"):
                sifted, said = await self._run(partial(self._sift_whole, body, codings), len(body))
                await self._keep_found(said)
        if sifted is None:
            return await self._relay(answer, body, tap), None
        is_over = self._is_over(said)
        if is_over and self._ready.reply.response is not None:
            return await self._relay(answer, sifted, tap), None
        if tap is not None:
            tap.feed(sifted, time.monotonic())
            tap.finish(is_cut=not is_whole)
        if not is_over:
            return web.StreamResponse(), said
        added = self._write_headers()
        return await replace_answer(self._ready.reply, answer, added, sifted), None

    def _sift_whole(self, body: bytes, codings: Sequence[str]) -> tuple[bytes | None, Round | None]:
        """The answer without our calls, and what the model said; no answer if it stays as it is."""
        decoded = try_decode(decode_body(body, codings, MAX_ROUND_BYTES).body)
        if not isinstance(decoded, dict):
            return None, None
        said = self._sifter.sift_body(decoded)
        if said is None and not self._rounds:
            return None, None
        self._sifter.rounds += 1
        return msgspec.json.encode(decoded), said

    def _is_over(self, said: Round | None) -> bool:
        return said is None or bool(said.own) or self._rounds == MAX_ROUNDS or len(said.asked) > MAX_ASKED

    async def _keep_found(self, said: Round | None) -> None:
        """Keep what is found for calls beside the client's own: it belongs to its next request."""
        if said is None or not said.own or self._is_kept:
            return
        self._is_kept = True
        texts = zip(said.asked[:MAX_CALLS], await self._find(said), strict=False)
        found = "\n".join(f"[trimtab: {NAME}({asked.query!r:.200}) found:]\n{text}" for asked, text in texts)
        tenant, plan = self._ready.arrival.tenant, self._attempt.chosen.planned.plan
        place = Place(plan.here, said.own[-1])
        await self._services.found_texts.keep(tenant.id, tenant.secret, find_head(plan), place, found)

    async def _write_next(self, said: Round) -> Prepared:
        """The attempt of the next round: the same with what the model said and what was found."""
        texts = await self._find(said)
        elements = (*said.elements, *self._sifter.write_results(said, texts))
        work = partial(append, self._ready.codec, self._pieces, elements)
        self._pieces = (await self._run(work, self._size),)
        return structs.replace(self._attempt, body=self._pieces)

    async def _find(self, said: Round) -> list[str]:
        most = min(MAX_TOKENS, int(ROOM_SHARE * self._left) // max(min(len(said.asked), MAX_CALLS), 1))
        texts, tokens = [TOO_MANY] * len(said.asked), 0
        with fail_open(self._services.recorder, self._ready.arrival.request_id, "recall"):  # also of a busy lane
            texts, tokens = await self._run(partial(self._find_all, said.asked, most), self._size)
        self._left -= tokens + sum(map(len, said.elements)) // 4
        return texts

    def _find_all(self, asked: tuple[RecallCall, ...], most: int) -> tuple[list[str], int]:
        found = [self._lookup.find(one.query, one.first, one.last, most) for one in asked[:MAX_CALLS]]
        texts = [*found, *[TOO_MANY] * (len(asked) - len(found))]
        return texts, sum(map(self._compactor.count, texts))

    @property
    def _size(self) -> int:
        """The client's transcript, as a measure of the work."""
        return len(self._attempt.call.request.body)

    async def _run(self, work: Callable[[], T], size: int) -> T:
        return await self._services.workers.run(self._attempt.call.lane, work, size_bytes=size)

    async def _learn(self, tap: SafeTap) -> None:
        """The first round teaches what any answer teaches; the others are added to the bill."""
        if not self._rounds:
            await learn(self._services, self._ready, self._attempt, tap, self._note)
            return
        # A client may close its connection as soon as it has the answer, which cancels whatever waits.
        await shield_to_end(self._learn_more(tap))

    async def _learn_more(self, tap: SafeTap) -> None:
        arrival, window_tokens = self._ready.arrival, self._attempt.call.view.believed_tokens
        with fail_open(self._services.recorder, arrival.request_id, "bill"):
            if tap.tap is not None:
                self._add(await count_answer(self._services, arrival.tenant, self._ready.route, tap.tap, window_tokens))

    def _add(self, answered: Answered) -> None:
        sent_tokens, prices = self._attempt.compacted.sent_tokens, self._attempt.call.view.price_list
        self._note(add_round(self._learned, answered, sent_tokens, prices))

    def _note(self, learned: Learned) -> None:
        self._learned = learned
        self._keep(learned)


def _find_codings(answer: aiohttp.ClientResponse) -> tuple[str, ...]:
    return read_codings(answer.headers.getall("Content-Encoding", ()))


async def _read(answer: aiohttp.ClientResponse, held: bytes) -> AsyncIterator[bytes]:
    if held:
        yield held
    async for chunk in answer.content.iter_any():
        yield chunk


async def _read_text(answer: aiohttp.ClientResponse, held: bytes) -> AsyncIterator[bytes]:
    """The pieces of a stream, decoded: some upstreams compress although they are asked not to."""
    reader = read_along(answer.headers) if "Content-Encoding" in answer.headers else None
    async for chunk in _read(answer, held):
        for text in (chunk,) if reader is None else reader.read_in_steps(chunk):
            yield text
    if reader is not None and reader.is_lost:
        raise aiohttp.ClientPayloadError


async def _read_whole(
    answer: aiohttp.ClientResponse, held: bytes, has_room: Callable[[int], bool]
) -> tuple[bytes, bool]:
    """The body, and whether it is whole. The next read of one that is not goes on, or raises its error again."""
    body = bytearray()
    try:
        async for chunk in _read(answer, held):
            body += chunk
            if len(body) > MAX_ROUND_BYTES or not has_room(len(body)):
                return bytes(body), False
    except _FAULTS:
        return bytes(body), False
    return bytes(body), True


def add_round(learned: Learned, answered: Answered, sent_tokens: int, prices: PriceList) -> Learned:
    """What was learned, with the tokens and the cost of one more round. The prompt's figures stay the first round's.

    sent_tokens: of the prompt, if the upstream does not tell.
    """
    first, bill = learned.answered, learned.bill
    prompt_tokens = sent_tokens if answered.prompt_tokens is None else answered.prompt_tokens
    tokens = Tokens.of(prompt_tokens, answered.cached_tokens, answered.written_tokens, answered.completion_tokens)
    if bill is not None:
        cost = price(tokens, prices)
        is_estimated = bill.is_estimated or answered.is_estimated or answered.prompt_tokens is None
        bill = structs.replace(
            bill,
            tokens=_add(bill.tokens, tokens),
            cost=bill.cost and cost and _add(bill.cost, cost),
            is_estimated=is_estimated,
        )
    more = structs.replace(
        first,
        completion_tokens=(first.completion_tokens or 0) + (answered.completion_tokens or 0),
        streamed_tokens=(first.streamed_tokens or 0) + (answered.streamed_tokens or 0),
        is_estimated=first.is_estimated or answered.is_estimated,
        ends_turn=answered.ends_turn,
    )
    return structs.replace(
        learned,
        answered=more,
        bill=bill,
        recall_rounds=(learned.recall_rounds or 0) + 1,
        recall_prompt_tokens=(learned.recall_prompt_tokens or 0) + prompt_tokens,
    )


def _add(one: P, other: P) -> P:
    return type(one)(*(mine + more for mine, more in zip(structs.astuple(one), structs.astuple(other), strict=True)))
