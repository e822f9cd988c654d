"""Streams a request that no codec claims to the upstream of the model that it names, and the answer back.

Law: nothing of the answer is held or changed, and an answer of a known API says that the request was passed. If no
policy names another upstream, nothing of the body is read or held. A request without a model goes to the main upstream.

`GET /v1/models` may be answered with the models of all upstreams that requests can reach, merged into one list. The
client's credential goes only to upstreams that are configured to get it. Time and size are bounded. An upstream that
fails is left out; if all fail, the client gets the main upstream's answer. What an upstream says of a model stays as it
was written; members are only added.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from trimtab.proxy.compaction.offload import LARGE_BODY_BYTES, THREAD_BYTES, BusyError
from trimtab.proxy.config.schema import Config, UpstreamConfig
from trimtab.proxy.exchange.arrival import Arrival, tell_upstream
from trimtab.proxy.exchange.attempt import Passed
from trimtab.proxy.exchange.route import NO_TARGET, Target, describe_target, find_credentials_for
from trimtab.proxy.exchange.services import Services, hold
from trimtab.proxy.exchange.tell import Finished, Note
from trimtab.proxy.http.aiohttp_fixes.server import PlainResponse
from trimtab.proxy.http.client import Body, UpstreamClient, read_bounded, target_url
from trimtab.proxy.http.errors import ProxyError, UpstreamInvalidError, UpstreamTimeoutError
from trimtab.proxy.http.headers import OUTCOME_HEADER, Headers, request_headers
from trimtab.proxy.http.relay import Reply, make_response, relay_answer, send_whole
from trimtab.proxy.http.request_body import ReceivedBody, receive_beginning
from trimtab.proxy.http.websocket import is_upgrade, relay_websocket
from trimtab.proxy.models.discovery import MAX_ANSWER_BYTES, MAX_MODELS, ask_for_models, find_name
from trimtab.proxy.wire.json import DECODE_ERRORS, decode_items, decode_members
from trimtab.proxy.wire.routing import FORM_BYTES, find_deployment, find_listed, peek_model, read_form_model, read_model

Goal = tuple[UpstreamConfig, Target, ReceivedBody | None]
"""Where a request goes, and what was read of its body; None if nothing was."""


async def find_destination(services: Services, arrival: Arrival, request: web.BaseRequest) -> Goal:
    """Choose the upstream; read as much of the body as that needs. Raises SlowRequestError and OverloadedError."""
    config = services.config
    if not config.routes_by_model:
        return go_to(config, arrival)
    if request.method == "GET":
        return go_to(config, arrival, find_listed(request.path))
    if request.method != "POST" or not request.body_exists:
        return go_to(config, arrival)
    content_type = request.headers.get("Content-Type", "")
    received: ReceivedBody | None = None
    model = ""
    if content_type.lower().startswith("multipart/form-data"):
        received = await receive_beginning(request, FORM_BYTES, services.uploads)
        model = read_form_model(received.beginning, content_type)
    elif _may_be_json(content_type):
        received = await hold(services, request, services.lane(arrival.tenant))
        model = await _read_model(services, arrival, received)
    return go_to(config, arrival, model or find_deployment(arrival.target), received)


def _may_be_json(content_type: str) -> bool:
    """Whether a body of this type may be JSON; clients that name no type send it as a form or as text."""
    media_type = content_type.partition(";")[0].strip().lower()
    return "json" in media_type or media_type in {"", "text/plain", "application/x-www-form-urlencoded"}


def go_to(config: Config, arrival: Arrival, model: str = "", received: ReceivedBody | None = None) -> Goal:
    name = config.policy_for(model).upstream if model else None
    upstream = config.upstream_for(name)
    matched = config.match_for(model) if model else None
    shown = tell_upstream(name, upstream.base_url)
    return upstream, describe_target(config, arrival, model, matched, shown), received


async def _read_model(services: Services, arrival: Arrival, received: ReceivedBody) -> str:
    body = received.json
    if body is not None:
        size_bytes = THREAD_BYTES if len(body) > LARGE_BODY_BYTES else 0
        with suppress(BusyError):
            work = partial(read_model, body)
            return await services.workers.run(services.lane(arrival.tenant), work, size_bytes=size_bytes)
    return peek_model(received.beginning)


PASSED = "passed"
_PASSED = Passed(PASSED)


async def pass_through(services: Services, arrival: Arrival, reply: Reply, note: Note) -> web.StreamResponse:
    request, target, sent_at = reply.request, NO_TARGET, 0.0
    is_known = arrival.passed is not None and arrival.passed.is_inference
    added: Headers = [(OUTCOME_HEADER, PASSED)] if is_known else ()
    try:
        if wants_all(services.config, request):
            target, sent_at = name_main(services.config), time.monotonic()
            return await list_models(services, arrival, reply, added)
        to_open = is_upgrade(request)
        goal = go_to(services.config, arrival) if to_open else await find_destination(services, arrival, request)
        upstream, target, received = goal
        url = target_url(upstream, arrival.target)
        headers = request_headers(arrival.end_to_end, upstream, identity=False, is_messages=arrival.is_messages)
        if to_open:
            sent_at = time.monotonic()
            return await relay_websocket(reply, services.client, url, headers, upstream, added)
        body: Body | None = services.uploads.read(request) if request.body_exists else None
        if received is not None:
            body = received.write(None, headers)
        sent_at = time.monotonic()
        async with services.client.send(request.method, url, headers, body, upstream) as answer:
            return await relay_answer(reply, answer, added)
    finally:
        note(Finished(arrival, reply, target, _PASSED, sent_at=sent_at))


UPSTREAM_MEMBER = "trimtab_upstream"  # The member of an entry that names the upstream which lists the model
_OF_OPENAI: Mapping[str, Any] = {"object": "model", "created": 0}
_OF_ANTHROPIC: Mapping[str, Any] = {"type": "model", "created_at": "1970-01-01T00:00:00Z"}
"""Members that clients of each form expect, and that an entry of another form may lack."""


class Model(msgspec.Struct, frozen=True):
    members: Mapping[str, msgspec.Raw]
    owned_by: Any


class Listed(msgspec.Struct, frozen=True):
    """An upstream's list. form: the answer's other members as written; None for a bare list. models: by their names."""

    upstream: str
    form: Mapping[str, msgspec.Raw] | None
    models: Mapping[str, Model]


def read_list(upstream: str, body: bytes) -> Listed | None:
    """Read an upstream's answer; None if it holds no list of models, or JSON that others may not read."""
    try:
        whole = msgspec.json.decode(body)  # all of it is valid, also what is only passed on
        form = decode_members(body) if isinstance(whole, dict) else None
        listed = whole["data"] if isinstance(whole, dict) else whole
        raws = decode_items(body if form is None else form["data"])
        models: dict[str, Model] = {}
        for entry, raw in zip(listed[:MAX_MODELS], raws, strict=False):
            name = find_name(entry) if isinstance(entry, dict) else None
            if name is not None and name not in models:
                models[name] = Model(decode_members(raw), entry.get("owned_by"))
    except (*DECODE_ERRORS, KeyError, TypeError):
        return None
    return Listed(upstream, form, models)


def merge_lists(lists: Sequence[Listed], find_upstream: Callable[[str], str]) -> bytes:
    """One list, in the form of the first. A model of several is that of `find_upstream`, else of the first of them."""
    merged: dict[str, Listed] = {}
    for listed in lists:
        for name in listed.models:
            if name not in merged or find_upstream(name) == listed.upstream:
                merged[name] = listed
    form = lists[0].form
    expected = _OF_ANTHROPIC if form is not None and "object" not in form and "has_more" in form else _OF_OPENAI
    entries = [_show(name, listed, expected) for name, listed in merged.items()]
    return msgspec.json.encode(entries if form is None else {**form, "data": entries})


def _show(name: str, listed: Listed, expected: Mapping[str, Any]) -> dict[str, Any]:
    model = listed.models[name]
    entry = {**expected, "id": name, **model.members} | {"id": name}
    if "created_at" in expected:
        entry.setdefault("display_name", name)
    if not model.owned_by:
        entry["owned_by"] = listed.upstream
    return {**entry, UPSTREAM_MEMBER: listed.upstream}


PATH = "/v1/models"
TIMEOUT_SECONDS = 10.0  # Of each upstream. Chosen: hosted servers take a second; clients wait for the slowest.
_OF_A_PAGE = frozenset({"after_id", "before_id"})
"""Query parameters of a further page, which only the upstream of the first page has. Source: Anthropic's API."""
_BROKE_OFF = "the upstream broke off its list of models"


class _Asked(msgspec.Struct, frozen=True):
    """An upstream's answer. response: status and headers; None without a whole answer. error: why there was none."""

    name: str
    response: PlainResponse | None = None
    body: bytes = b""
    listed: Listed | None = None
    error: ProxyError | None = None

    @property
    def reason(self) -> str:
        if self.error is not None:
            return self.error.code
        status = 0 if self.response is None else self.response.status
        return f"status {status}" if status != 200 else "no list of models"


def wants_all(config: Config, request: web.BaseRequest) -> bool:
    is_list = request.method == "GET" and request.path.removesuffix("/") == PATH
    if not is_list or config.models_list == "main":
        return False
    return len(config.list_reachable()) > 1 and _OF_A_PAGE.isdisjoint(request.query)


def name_main(config: Config) -> Target:
    return Target(tell_upstream(None, config.upstream.base_url))


async def list_models(services: Services, arrival: Arrival, reply: Reply, added: Headers) -> web.StreamResponse:
    """Ask all upstreams at once, and answer with one list. Raises ProxyError."""
    config = services.config
    main = config.upstream
    url = target_url(main, arrival.target)
    headers = request_headers(arrival.end_to_end, main, identity=True)
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(_ask(services.client, main, name_main(config).upstream, (url, headers), added))]
        for name in config.list_reachable()[1:]:
            upstream = config.upstream_for(name)
            question = ask_for_models(upstream, find_credentials_for(upstream, arrival.end_to_end))
            asking.append(tasks.create_task(_ask(services.client, upstream, str(name), question, added)))
    asked = [task.result() for task in asking]
    for one in asked:
        if one.listed is None:
            services.recorder.log.warning("models_unlisted", upstream=one.name, reason=one.reason)
    body = await asyncio.to_thread(_merge, config, asked)
    if body is not None:
        response = PlainResponse(headers=CIMultiDict([("Content-Type", "application/json"), *added]))
        return await send_whole(reply, response, body)
    own = asked[0]
    if own.response is None:
        raise own.error or UpstreamInvalidError(_BROKE_OFF)
    return await send_whole(reply, own.response, own.body)


async def _ask(
    client: UpstreamClient, upstream: UpstreamConfig, name: str, question: tuple[URL, CIMultiDict[str]], added: Headers
) -> _Asked:
    """Ask one upstream. Raises nothing."""
    url, headers = question
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), client.send("GET", url, headers, None, upstream) as answer:
            body = await read_bounded(answer, MAX_ANSWER_BYTES)
            if body is None:
                return _Asked(name, error=UpstreamInvalidError("the upstream's list of models is too long"))
            listed = await asyncio.to_thread(read_list, name, body) if answer.status == 200 else None
            response = make_response(answer, added)
            response.headers.popall("Content-Encoding", None)  # the body was decoded
            return _Asked(name, response, body, listed)
    except ProxyError as error:
        return _Asked(name, error=error)
    except TimeoutError:
        return _Asked(name, error=UpstreamTimeoutError("the upstream did not list its models in time"))
    except (aiohttp.ClientError, OSError):
        return _Asked(name, error=UpstreamInvalidError(_BROKE_OFF))


def _merge(config: Config, asked: Sequence[_Asked]) -> bytes | None:
    lists = [one.listed for one in asked if one.listed is not None]

    def find_upstream(model: str) -> str:
        name = config.policy_for(model).upstream
        return asked[0].name if name is None else name

    return merge_lists(lists, find_upstream) if lists else None
