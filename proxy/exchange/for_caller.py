"""Compacts a request for a caller who sends it to a model itself: POST /trimtab/api/compact.

Law: nothing is sent to an upstream but the question for a summary. A request is compacted as it would be on its way
there, within the same bounds. It is not known whether the caller sends the result, so nothing counts as saved, and no
lesson is tested.

Also by the contract of LiteLLM (POST /v1/compress, GET /v1/retrieve/HASH): as many messages come back as were sent, the
same ones get the same answer, and a marker names a text that is kept before the answer goes out. Source:
BerriAI/litellm 1.108, guardrail_hooks/headroom.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, NamedTuple, TypeVar

import msgspec
import orjson
from msgspec import structs

from trimtab.proxy.compaction.offload import INLINE_BYTES, BusyError, Lane, weigh_known
from trimtab.proxy.exchange.arrival import Arrival, Caller
from trimtab.proxy.exchange.attempt import Attempt, Passed, Prepared
from trimtab.proxy.exchange.compact import compact
from trimtab.proxy.exchange.route import choose_route
from trimtab.proxy.exchange.services import Services, receive, translate, working
from trimtab.proxy.exchange.summary import write_ahead
from trimtab.proxy.exchange.tell import Finished, Note, write_headers
from trimtab.proxy.http.errors import BodyTooLargeError, InvalidQueryError, NoSuchPageError, UndecodableBodyError
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.http.request_body import ReceivedBody
from trimtab.proxy.summaries.kept_texts import HASH_CHARS, name_original
from trimtab.proxy.summaries.summariser import Summariser
from trimtab.proxy.wire.answering import Question
from trimtab.proxy.wire.codec import Request, UndecodableError
from trimtab.proxy.wire.dialects import DIALECTS, read_request
from trimtab.proxy.wire.json import (
    BYTE_ORDER_MARK,
    DECODE_ERRORS,
    decode_any,
    decode_members,
    describe_fault,
    describe_no_json,
)
from trimtab.proxy.wire.routing import Endpoint
from trimtab.rules.summary.prompts import write_prompt

T = TypeVar("T")
PATH = "/trimtab/api/compact"
ENDPOINT = Endpoint("compact", is_inference=False)
COMPRESS, RETRIEVE = "/v1/compress", "/v1/retrieve/"
LEAST_SAVED_CHARS = 400  # For a marker. Chosen: the marker and its tool cost about a quarter of that.
MOST_KEPT_CHARS = 10 * 1024 * 1024  # Of one request, the oldest first. Source: as Compresr keeps of a call in LiteLLM.
_MARKER = "\n[trimtab: shortened; the whole text has hash={}]"
_HASH = re.compile(rf"[0-9a-f]{{{HASH_CHARS}}}")
SUMMARIES = ("ask", "return", "digest")
"""Who writes a summary: the configured model; the caller, who gets the question; nobody, so that there is a digest."""
MAX_TEXT_CHARS = 256 * 1024  # A longer text is no summary. Chosen: far above the largest note.
NOT_A_REQUEST = (
    "the body is no request of a known dialect: send the JSON that you would send to the model, with `messages` or"
    ' `input`, or {"body": that JSON, "summaries": {"ID": "TEXT"}}'
)
TOO_LARGE = "this body is too large (limits.max_body_bytes, limits.max_memory_bytes); send it to its model as it is"


class Wishes(NamedTuple):
    """What the query of a request asks for.

    dialect: of the body; None to guess it. summary: one of SUMMARIES.
    keeps_messages: the number of messages stays, and nothing is paired.
    only_body: the answer is the body alone, with the figures in its headers.
    """

    dialect: str | None = None
    summary: str = "ask"
    keeps_messages: bool = False
    explains: bool = False
    only_body: bool = False


class Compacted(NamedTuple):
    """A request that was compacted for its caller. request: unchanged."""

    lane: Lane
    request: Request
    attempt: Attempt

    @property
    def body(self) -> bytes:
        return self.request.body if self.attempt.body is None else b"".join(self.attempt.body)


async def compact_for_caller(services: Services, arrival: Arrival, reply: Reply, note: Note) -> tuple[bytes, Headers]:
    """The answer to a request: JSON, and headers beside it. Raises ProxyError."""
    wishes = read_wishes(reply.request.query)
    done = await prepare_for_caller(services, arrival, reply, note, wishes)
    if wishes.only_body:
        return done.body, write_headers(arrival, done.attempt, time.monotonic())
    told = await _describe(services, done, wishes)
    return await asyncio.to_thread(orjson.dumps, told), write_headers(arrival, Passed(done.attempt.outcome), 0.0)


async def prepare_for_caller(
    services: Services, arrival: Arrival, reply: Reply, note: Note, wishes: Wishes
) -> Compacted:
    """Receive and compact a request. Raises ProxyError."""
    attempt: Attempt = Passed("aborted")
    try:
        lane = services.lane(arrival.tenant)
        received = await _receive(services, arrival, reply, lane)
        async with working(services, reply.request, received):
            request, caller = await _read(services, lane, received.json or b"", wishes)
            codec = request.codec
            head = structs.replace(arrival.head, forwarded=[], routes={})  # what is kept is of another path
            arrival_there = structs.replace(
                arrival, endpoint=codec.name, passed=None, target=codec.path, head=head, caller=caller
            )
            headers = reply.request.headers
            route = choose_route(services.config, arrival_there, headers, request.model, codec, request)
            attempt = await compact(services, arrival_there, replace(route, adds=frozenset()), request, reply, lane)
            if isinstance(attempt, Prepared) and attempt.body is not None and wishes.summary == "ask":
                write_ahead(services, attempt.call, attempt.chosen, attempt.compacted)
        if attempt.refusal is not None:
            raise attempt.refusal
        if isinstance(attempt, Passed) and attempt.fault:
            raise _refuse_body(attempt.fault)
        reply.status = 200
        return Compacted(lane, request, attempt)
    finally:
        # Without figures: nobody knows what is sent.
        note(Finished(arrival, reply, attempt=Passed(attempt.outcome, attempt.seconds)))


def read_wishes(query: Mapping[str, str]) -> Wishes:
    """What a query asks for. Raises InvalidQueryError."""
    dialect, summary = query.get("dialect"), query.get("summary", "ask")
    for name, value, allowed in (("dialect", dialect, DIALECTS), ("summary", summary, SUMMARIES)):
        if value is not None and value not in allowed:
            raise InvalidQueryError(f"{name} must be one of: {', '.join(allowed)}", name)
    flags = [query.get(name, "0") not in {"0", "false"} for name in ("results_only", "explain", "only_body")]
    return Wishes(dialect, summary, *flags)


async def _receive(services: Services, arrival: Arrival, reply: Reply, lane: Lane) -> ReceivedBody:
    """Receive the body, and estimate the memory for the work on it. Raises ProxyError."""
    received, _ = await receive(services, reply, arrival, lane)
    if received.json is None:
        raise BodyTooLargeError(TOO_LARGE) if received.is_too_large else UndecodableBodyError(NOT_A_REQUEST)
    return received


async def _run(services: Services, lane: Lane, work: Callable[[], T], size_bytes: int) -> T:
    """Work in a thread if it is large. Raises OverloadedError."""
    try:
        return await services.workers.run(lane, work, size_bytes=size_bytes)
    except (BusyError, MemoryError) as error:
        raise translate(error) from error


async def _read(services: Services, lane: Lane, body: bytes, wishes: Wishes) -> tuple[Request, Caller]:
    """The request in a body, and what its caller asks for. Raises UndecodableBodyError and OverloadedError."""
    size_bytes = len(body) if len(body) > INLINE_BYTES else 0
    try:
        return await _run(services, lane, partial(_split, body, wishes), size_bytes)
    except DECODE_ERRORS as error:
        raise _refuse_body(describe_fault(error)) from error
    except UndecodableError as error:
        raise _refuse_body(str(error)) from error


def _refuse_body(fault: str) -> UndecodableBodyError:
    return UndecodableBodyError(f"{NOT_A_REQUEST}; {fault}")


def _split(body: bytes, wishes: Wishes) -> tuple[Request, Caller]:
    """The request in a body, or in its member `body`, which must be JSON. Raises UndecodableError, DECODE_ERRORS."""
    texts: Mapping[str, str] = {}
    body = body.removeprefix(BYTE_ORDER_MARK)
    if fault := describe_no_json(body):
        raise UndecodableError(fault)
    members = decode_members(body) if b'"body"' in body else {}
    if "body" in members and not members.keys() & {"messages", "input"}:
        body = bytes(members["body"])
        texts = _read_summaries(members.get("summaries", msgspec.Raw(b"{}")))
    request = read_request(body, wishes.dialect)
    # Not as a stream: a client that waits for one gets comments, and this answer is none.
    request = replace(request, stream=False, keeps_messages=wishes.keeps_messages)
    texts = {name: text for name, text in texts.items() if len(text) <= MAX_TEXT_CHARS}
    return request, Caller("digest" if wishes.keeps_messages else wishes.summary, texts)


def _read_summaries(given: msgspec.Raw) -> dict[str, str]:
    try:
        return msgspec.json.decode(given, type=dict[str, str])
    except DECODE_ERRORS as error:
        raise UndecodableError("summaries must be an object that has a text for each id") from error


async def _describe(services: Services, done: Compacted, wishes: Wishes) -> dict[str, Any]:
    attempt = done.attempt
    told: dict[str, Any] = {
        "body": orjson.Fragment(done.body),
        "outcome": attempt.outcome,
        "tokens": None,
        "decisions": [],
        "headers": {},
        "summary": None,
        "summary_request": None,
    }
    if not isinstance(attempt, Prepared):
        return told
    compacted, used = attempt.compacted, attempt.summary
    told["tokens"] = {
        "original": compacted.original_tokens,
        "sent": compacted.original_tokens if attempt.body is None else compacted.sent_tokens,
        "limit": compacted.limit_tokens,
    }
    told["decisions"] = [entry.explain() for entry in attempt.call.ledger.entries]
    told["headers"] = dict(compacted.headers) if attempt.body is not None else {}
    if used is not None:
        told["summary"] = {"id": used.id, "kind": used.kind, "messages": used.messages}
    told["summary_request"] = await _ask_caller(services, done.lane, attempt) if wishes.summary == "return" else None
    if wishes.explains:
        story = partial(attempt.chosen.planned.tell, compacted)
        size_bytes = weigh_known(len(done.request.body))
        sentences = (await _run(services, done.lane, story, size_bytes)).sentences
        told["explain"] = [sentence.text for sentence in sentences]
    return told


async def _ask_caller(services: Services, lane: Lane, attempt: Prepared) -> dict[str, Any] | None:
    """The question for a summary that the caller is to ask a model; None if the cut has one, or gets none."""
    chosen, call = attempt.chosen, attempt.call
    wanted, summariser = chosen.planned.plan.request, chosen.summariser
    if wanted is None or summariser is None or chosen.text is not None or chosen.later is not wanted:
        return None
    base = await services.summaries.find_base(wanted, summariser)
    before = base.text or None if base is not None and base.by_model else None
    count, most = call.compactor.count, summariser.window_tokens
    work = partial(write_prompt, wanted, base_text=before, max_tokens=most, count=count)
    prompt = await _run(services, lane, work, weigh_known(len(call.request.body)))
    body = summariser.codec.ask(_make_question(summariser, wanted.max_tokens), prompt)
    return {"id": summariser.name_summary(wanted.key), "body": orjson.Fragment(body)}


def _make_question(summariser: Summariser, max_tokens: int) -> Question:
    answer_tokens = ceil(max_tokens * summariser.token_ratio)
    return Question(summariser.model, answer_tokens, summariser.settings.temperature, summariser.is_reasoning)


class Marked(NamedTuple):
    """Messages with markers, and the whole texts by their hashes."""

    messages: list[Any]
    texts: dict[str, str]


async def compress_messages(services: Services, arrival: Arrival, reply: Reply, note: Note) -> tuple[bytes, Headers]:
    """Shorten the messages of a chat. Raises ProxyError."""
    done = await prepare_for_caller(services, arrival, reply, note, Wishes("chat", keeps_messages=True))
    work = partial(mark, done, arrival.tenant.secret)
    marked = await _run(services, done.lane, work, weigh_known(len(done.request.body)))
    await services.originals.keep(arrival.tenant.secret, marked.texts)
    before = after = 0
    if isinstance(done.attempt, Prepared):
        before, after = done.attempt.compacted.original_tokens, done.attempt.compacted.sent_tokens
    told = {
        "messages": marked.messages,
        "tokens_before": before,
        "tokens_after": after,
        "compression_ratio": after / max(before, 1),
        "ccr_hashes": [*marked.texts],
    }
    return await asyncio.to_thread(orjson.dumps, told), write_headers(arrival, Passed(done.attempt.outcome), 0.0)


async def retrieve_text(services: Services, arrival: Arrival, reply: Reply, note: Note) -> tuple[bytes, Headers]:
    """The whole text that a marker names. Raises NoSuchPageError."""
    name = reply.request.path.removeprefix(RETRIEVE).lower()
    text = await services.originals.find(arrival.tenant.secret, name) if _HASH.fullmatch(name) else None
    if text is None:
        raise NoSuchPageError("no text of this client has that hash, or none any more (store_ttl_seconds)")
    reply.status = 200
    note(Finished(arrival, reply, attempt=Passed("passed")))
    return await asyncio.to_thread(_write_original, name, text), write_headers(arrival, Passed("passed"), 0.0)


def _write_original(name: str, text: str) -> bytes:
    return orjson.dumps({"hash": name, "original_content": text.encode("utf-8", "replace").decode()})


def mark(done: Compacted, secret: bytes) -> Marked:
    """The messages of a compacted chat; those that were shortened name their whole text."""
    texts, messages, kept = dict[str, str](), list[Any](), 0
    for before, after in zip(done.request.raws, done.request.codec.read(done.body).raws, strict=True):
        message: Any = orjson.Fragment(after)
        if before != after:
            whole, short = read_text(decode_any(before)), read_text(changed := decode_any(after))
            if len(whole) - len(short) >= LEAST_SAVED_CHARS and kept + len(whole) <= MOST_KEPT_CHARS:
                name = name_original(secret, whole)
                texts[name], kept, message = whole, kept + len(whole), _append(changed, _MARKER.format(name))
        messages.append(message)
    return Marked(messages, texts)


def read_text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    parts: Sequence[Any] = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _append(message: dict[str, Any], marker: str) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, list):
        return {**message, "content": [*content, {"type": "text", "text": marker.strip()}]}
    return {**message, "content": content + marker}
