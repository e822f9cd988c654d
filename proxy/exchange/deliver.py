"""A chat request on its way: to the upstream, once more if it was refused for its length, and the answer back.

Law: the client sees one answer. It is asked for a second time only where the first attempt was refused unread.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from proxy.config.schema import PolicyConfig
from proxy.exchange.body import ReceivedBody
from proxy.exchange.early_answer import read_opening
from proxy.exchange.fail_open import fail_open
from proxy.exchange.observe import count_answer, observe
from proxy.exchange.record import Exchange
from proxy.exchange.recover import Again, confirm, learn, plan_again
from proxy.exchange.services import Services
from proxy.exchange.summary import Call, Carried, write_ahead
from proxy.http.client import target_url
from proxy.http.errors import ProxyError
from proxy.http.headers import read_headers, request_headers
from proxy.http.relay import relay_answer, relay_into_stream, replace_answer
from proxy.wire.chat.answer import ResponseTap
from proxy.wire.overflow.classify import Kind, Overflow

REWRITTEN_KINDS = frozenset({Kind.PROMPT, Kind.SIZE, Kind.GENERATION})
"""Of the others a client that compacts would do so in vain."""


@dataclass(frozen=True, slots=True)
class Done:
    """A request that was planned and carried out."""

    call: Call
    carried: Carried


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request, and what it is served with."""

    services: Services
    request: web.BaseRequest
    received: ReceivedBody
    settings: PolicyConfig
    exchange: Exchange

    async def run(self, body: bytes | None, done: Done | None) -> web.StreamResponse:
        """Send the body, and pass the answer on; `done` is None where nothing is known of the request.

        The client's own bytes go out where `body` is None, or what they say.

        Raises UpstreamUnreachableError, UpstreamTimeoutError.
        """
        self.exchange.sent_at = time.monotonic()
        async with self._send(body) as answer:
            if done is None or self.exchange.mode != "enforce":
                return await self._finish(answer, done)
            held, overflow = await read_opening(self.request, answer, self.exchange)
            again = None if overflow is None else await self._recover(done.call, done.carried, overflow)
            if overflow is None or again is None:
                return await self._finish(answer, done, held, overflow)
            answer.close()
            return await self._run_again(again, overflow)

    @asynccontextmanager
    async def _send(self, body: bytes | None) -> AsyncIterator[aiohttp.ClientResponse]:
        """The upstream's answer, its body not read yet."""
        upstream = self.services.config.upstream_for(self.settings.upstream)
        url = target_url(upstream, self.request.raw_path, is_api=True)
        headers = request_headers(read_headers(self.request.raw_headers), upstream, identity=True)
        outgoing = self.received.write(body, headers)
        async with self.services.client.send("POST", url, headers, outgoing, upstream) as answer:
            yield answer

    async def _recover(self, call: Call, carried: Carried, overflow: Overflow) -> Again | None:
        """The second attempt; None where the refusal stands."""
        again = None
        with fail_open(self.services, self.exchange, "recover"):
            again = await plan_again(call, carried, overflow)
        if again is None:
            self._record_retry("hopeless")
        else:
            self.exchange.compacted, self.exchange.outcome = again.carried.compacted, "compacted"
        return again

    async def _run_again(self, again: Again, refused: Overflow) -> web.StreamResponse:
        result = "aborted"
        try:
            async with self._send(again.carried.compacted.body) as answer:
                held, overflow = await read_opening(self.request, answer, self.exchange)
                result = "refused" if overflow is not None else "recovered" if answer.status == 200 else "failed"
                with fail_open(self.services, self.exchange, "recover"):
                    if overflow is not None:
                        await learn(again.call, again.carried, overflow)
                    elif answer.status == 200:
                        confirm(again, refused)
                return await self._finish(answer, Done(again.call, again.carried), held, overflow)
        except ProxyError:
            result = "failed"
            raise
        finally:
            self._record_retry(result)

    def _record_retry(self, result: str) -> None:
        recorder = self.services.recorder
        recorder.metrics.overflow_retries.labels(recorder.label(self.exchange), result).inc()

    async def _finish(
        self, answer: aiohttp.ClientResponse, done: Done | None, held: bytes = b"", overflow: Overflow | None = None
    ) -> web.StreamResponse:
        """Pass the answer on, whose first bytes are `held`, and learn from it."""
        if done is None or answer.status != 200 or overflow is not None:
            return await self._relay(answer, held, overflow)
        if self.exchange.mode == "enforce":
            with fail_open(self.services, self.exchange, "write_ahead"):
                # The upstream has read the prompt by now: a question behind it finds it in the cache.
                write_ahead(done.call, done.carried)
        response = await self._relay(answer, held, None)
        with fail_open(self.services, self.exchange, "observe"):
            if not self.exchange.is_secret:
                self.services.models.vouch_for(done.call.model)
            await observe(done.call, done.carried)
        return response

    async def _relay(
        self, answer: aiohttp.ClientResponse, held: bytes, overflow: Overflow | None
    ) -> web.StreamResponse:
        """Pass the answer on, and count what the model wrote."""
        exchange, relayed = self.exchange, self.exchange.relayed
        is_stream = answer.content_type == "text/event-stream"
        tap = ResponseTap(is_stream=is_stream) if answer.status == 200 else None
        exchange.is_refused = overflow is not None
        if overflow is not None and overflow.is_flat and answer.status != 200 and overflow.kind in REWRITTEN_KINDS:
            held = overflow.write_error()
            if exchange.stream is None:
                return await replace_answer(self.request, answer, exchange.response_headers(), relayed, held)
        if exchange.stream is not None:
            response = await relay_into_stream(self.request, answer, exchange.stream, tap, relayed, held)
        else:
            response = await relay_answer(self.request, answer, exchange.response_headers(), tap, relayed, held)
        if tap is not None:
            await count_answer(self.services, self.settings, tap, exchange)
        return response
