"""The dashboard's data: each path below /trimtab/api/ and its answer, and what is known about models.

Law: a parameter with a value that it cannot have is an error that says what is allowed. Only DELETE and POST change
anything, and only with a header that a page of another site cannot send. A client's key shows that client's own
sessions and requests, and erases nothing. Only model names that an upstream has confirmed are shown, of an upstream the
host only, and of a client only that it exists.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import orjson
from aiohttp import web
from msgspec.structs import replace

from trimtab.proxy.account.alarms import RECENT_SECONDS, find_alarms, read_recent
from trimtab.proxy.account.books import KEPT_DAYS, go_back, name_day
from trimtab.proxy.account.history.sessions import ORDERS, SessionQuery, find_named, list_choices, list_sessions
from trimtab.proxy.account.history.table import KEPT_STEPS, Query, find_request, list_requests, sum_steps
from trimtab.proxy.account.history.texts import find_text, read_notes
from trimtab.proxy.catalogue.prices import PriceSource, to_dollars
from trimtab.proxy.exchange.route import MAX_WORDS_CHARS
from trimtab.proxy.exchange.services import Lifecycle, Services
from trimtab.proxy.http.errors import (
    InvalidQueryError,
    MethodNotAllowedError,
    NoSuchPageError,
    PagesClosedError,
    SiteNotAllowedError,
    WorkerSilentError,
)
from trimtab.proxy.models.model_policy import ModelView
from trimtab.proxy.models.records import Known, ModelName
from trimtab.proxy.server.admin.sending import UNSTORED, read_samples, stream_events
from trimtab.proxy.server.admin.shapes import (
    Curve,
    Json,
    choose_step,
    read_clients,
    read_models,
    read_totals,
    shape_days,
    shape_request,
    shape_session,
    shape_text,
    shape_timeline,
)
from trimtab.proxy.store.store import StoreError
from trimtab.proxy.telemetry.metrics import read_version

MAX_LISTED = 500  # requests, or sessions, of one answer. Chosen: half a megabyte of JSON.
WEEK_DAYS = 7  # source: a week has seven days
MAX_PAGES = 1_000_000  # chosen: more than there can be
OWN = frozenset({"sessions", "requests", "events"})  # What a client's key shows, as far as it is that client's
WEEK_SECONDS = 1.0  # longest wait for the store. Chosen: a person waits so long for a page.
REQUEST, SESSION = "request", "session"
OTHERS_CLOSED = (
    "a client's key shows that client's own sessions and requests (/trimtab/#/sessions), and erases nothing;"
    " all else needs admin_token"
)
OWN_HEADER = "x-trimtab-dashboard"
"""A page of another site cannot send it without being asked about it first (CORS), which is never answered."""


async def answer_api(
    services: Services, request: web.BaseRequest, path: str, client: str | None = None
) -> web.StreamResponse | None:
    """The answer of a path below /trimtab/api/; None if there is no such page. Raises ProxyError.

    client: whose key it is; None for who may see and erase everything.
    """
    try:
        return await _answer(services, request, path, client)
    except StoreError as error:
        raise WorkerSilentError(f"the dashboard's events cannot be read or erased now; {error}; try again") from error


async def _answer(
    services: Services, request: web.BaseRequest, path: str, client: str | None
) -> web.StreamResponse | None:
    name, _, one = path.partition("/")
    if client is not None and (name not in OWN or request.method == "DELETE"):
        raise PagesClosedError(OTHERS_CLOSED)
    if request.method == "DELETE" and name == "sessions" and one:
        return await _erase(services, request, one)
    if request.method == "POST" and name == "sessions" and one.endswith("/compact"):
        return await _compact(services, request, one.removesuffix("/compact"), client)
    if request.method not in {"GET", "HEAD"}:
        raise MethodNotAllowedError("this page takes GET; only a session can be deleted (DELETE) or compacted (POST)")
    if name == "events" and not one and request.method == "GET":
        return await stream_events(services, request, client)
    query = request.query if client is None else {**request.query, "client": client}
    if one and name in SINGLES:
        return await _write(await SINGLES[name](services, one, query))
    if not one and name in LISTS:
        return await _write(await LISTS[name](services, query))
    return None


async def _write(answer: Json) -> web.Response:
    body = await asyncio.to_thread(orjson.dumps, answer)
    return web.Response(body=body, content_type="application/json", headers=UNSTORED)


def _name_unknown(what: str) -> NoSuchPageError:
    message = f"the dashboard knows no such {what}; it may have been dropped or erased, or be from before a restart"
    return NoSuchPageError(message)


def _read_number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A number from 1 to `most`. Raises InvalidQueryError."""
    text = query.get(name, str(default))
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most:
        return int(text)
    raise InvalidQueryError(f"{name} must be a whole number from 1 to {most}", name)


async def _show_overview(services: Services, _: Mapping[str, str]) -> Json:
    config, metrics, past = services.config, services.recorder.metrics, services.past
    noted = await past.read(partial(read_notes, but=past.places.worker))
    recent = await past.read(partial(read_recent, since=time.time() - RECENT_SECONDS))
    notes = [*note_worker(services), *(note for written in noted for note in orjson.loads(written))]
    samples = await read_samples(services)
    return {
        "version": read_version(),
        "started_at": metrics.started_at,
        "now": time.time(),
        "workers": past.places.workers,
        "mode": config.tell_modes(),
        "upstreams": list(dict.fromkeys(urlsplit(url).netloc for url in config.list_base_urls())),
        "keeps_text": config.dashboard.keep_text,
        "alarms": [alarm._asdict() for alarm in find_alarms(recent, samples)],
        "notes": [
            *([_TEXT_NOTE] if config.dashboard.keep_text else []),
            *{note["text"]: note for note in notes}.values(),
        ],
        "week": await _read_week(services),
        "totals": await asyncio.to_thread(read_totals, samples),
        "by_model": await asyncio.to_thread(read_models, samples),
        "by_client": await asyncio.to_thread(read_clients, samples),
    }


async def _read_week(services: Services) -> Json | None:
    """The sums of the last seven days, as `trimtab stats` reads them; None if the store cannot tell now."""
    if services.past.places.workers > 1 and services.config.store == "memory":
        return None  # each worker knows its own requests only
    try:
        async with asyncio.timeout(WEEK_SECONDS):
            sums = await services.recorder.books.read(WEEK_DAYS)
    except (StoreError, TimeoutError):
        return None
    counts = ("requests", "unpriced_requests", "original_tokens", "sent_tokens", "completion_tokens")
    amounts = {"cost": "cost_usd", "without": "without_usd", "summary": "summary_usd", "saved": "net_usd"}
    return {
        "days": WEEK_DAYS,
        **{name: getattr(sums, name) for name in counts},
        **{
            shown: None if sums.is_unpriced else to_dollars(getattr(sums, f"{name}_nanodollars"))
            for name, shown in amounts.items()
        },
    }


_TEXT_NOTE = {
    "kind": "text",
    "text": "The text of changed messages is kept in memory and shown here; see dashboard.keep_text.",
}
_NOTES: Mapping[str, str] = {
    "counting": "Tokens of {} are estimated by characters.",
    "window": "The context window of {} is not known; the default is assumed. See context_window.",
    "prices": "No price of {} is known, so its money is missing, and cuts assume usual prices. See prices.",
}
"""What people should know about some models, by kind."""


def note_worker(services: Services) -> list[Json]:
    models = defaultdict[str, dict[str, None]](dict)
    for known in services.models.list_known()[:MAX_SHOWN]:
        model = known.name.model
        view = ModelView.of(services.config, services.config.policy_for(model), known.name, known.facts)
        holds = {
            "counting": services.compactors.name_vocabulary(view.settings, model) == "heuristic",
            "window": view.window_from == "default",
            "prices": view.price_list.source is PriceSource.DEFAULT,
        }
        for kind in filter(holds.get, holds):
            models[kind][model] = None
    notes: list[Json] = [
        {"kind": kind, "text": text.format(", ".join(models[kind]))} for kind, text in _NOTES.items() if models[kind]
    ]
    fallen = services.summaries.fallen.count()
    if fallen:
        reasons = ", ".join(f"{reason} {number}" for reason, number in sorted(fallen.items()))
        text = f"Sessions with digests instead of summaries on worker {services.past.places.worker}: {reasons}."
        notes.append({"kind": "summaries", "text": text})
    return notes


def write_notes(services: Services) -> bytes:
    return orjson.dumps(note_worker(services))


async def _show_timeline(services: Services, query: Mapping[str, str]) -> Json:
    if "days" in query:  # in UTC, from the books; no buckets if no process knows them all
        books, days = services.recorder.books, _read_number(query, "days", 30, KEPT_DAYS)
        today = name_day(books.clock())
        first_day = go_back(today, days - 1)
        if services.past.places.workers > 1 and services.config.store == "memory":
            return shape_days([], today, first_day)
        try:
            async with asyncio.timeout(WEEK_SECONDS):
                rows = await books.read_rows(first_day)
        except TimeoutError:
            raise StoreError(books.store.name, "it does not answer") from None
        return await asyncio.to_thread(shape_days, rows, first_day, today)
    minutes = _read_number(query, "minutes", 60, KEPT_STEPS)
    step_seconds = choose_step(minutes)
    stop = (int(time.time()) // step_seconds + 1) * step_seconds
    start = stop - -(-minutes * 60 // step_seconds) * step_seconds
    sums = await services.past.read(partial(sum_steps, start=start, stop=stop, step_seconds=step_seconds))
    return await asyncio.to_thread(shape_timeline, sums, start, stop, step_seconds)


async def _list_requests(services: Services, query: Mapping[str, str]) -> Json:
    names = ("before", "session", "outcome", "model", "client")
    wanted = Query(_read_number(query, "limit", 50, MAX_LISTED), *(query.get(name) or None for name in names))
    found = await services.past.read(partial(list_requests, query=wanted))
    if found is None:
        raise _name_unknown(REQUEST)
    listed, more = found
    return {"requests": await asyncio.to_thread(lambda: [*map(shape_request, listed)]), "more": more}


async def _show_request(services: Services, request_id: str, query: Mapping[str, str]) -> Json:
    found = await services.past.read(partial(find_request, request_id=request_id))
    if found is None or query.get("client", found.event.client) != found.event.client:
        raise _name_unknown(REQUEST)
    pack = await services.past.read(partial(find_text, request_id=request_id))
    text = None if pack is None else await asyncio.to_thread(shape_text, pack)
    return {"event": shape_request(found), "text": text}


async def _list_sessions(services: Services, query: Mapping[str, str]) -> Json:
    wanted, past = read_session_query(query), services.past
    sessions, total = await past.read(partial(list_sessions, query=wanted))
    choices = await past.read(partial(list_choices, client=query.get("client") or None))
    shaped = await asyncio.to_thread(lambda: [*map(shape_session, sessions)])
    return {"sessions": shaped, "total": total, "choices": choices}


def read_session_query(query: Mapping[str, str]) -> SessionQuery:
    """Which sessions a reader wants. Raises InvalidQueryError."""
    limit = _read_number(query, "limit", 50, MAX_LISTED)
    for name, allowed in (("sort", tuple(ORDERS)), ("order", ("asc", "desc"))):
        if query.get(name, allowed[0]) not in allowed:
            raise InvalidQueryError(f"{name} must be one of {', '.join(allowed)}", name)
    return SessionQuery(
        limit,
        limit * (_read_number(query, "page", 1, MAX_PAGES) - 1),
        words=query.get("words", ""),
        model=query.get("model") or None,
        client=query.get("client") or None,
        outcome=query.get("outcome") or None,
        order=query.get("sort", "last"),
        ascends=query.get("order") == "asc",
    )


async def _show_session(services: Services, name: str, query: Mapping[str, str]) -> Json:
    limit, client = _read_number(query, "limit", MAX_LISTED, MAX_LISTED), query.get("client")
    session = await services.past.read(partial(find_named, name=name, client=client))
    found = await services.past.read(partial(list_requests, query=Query(limit, session=name, client=client)))
    if session is None or found is None:
        raise _name_unknown(SESSION)
    listed, more = found
    turns = await asyncio.to_thread(lambda: [shape_request(one) for one in reversed(listed)])
    return {"session": shape_session(session), "turns": turns, "more": more}


async def _erase(services: Services, request: web.BaseRequest, name: str) -> web.Response:
    _require_own(request)
    if request.query.get("text", "only") != "only":
        raise InvalidQueryError("text must be only; without it, the whole session is deleted", "text")
    text_only = "text" in request.query
    if not await services.past.erase(name, text_only=text_only):
        raise _name_unknown(SESSION)
    services.recorder.log.info("session_erased", session=name, text_only=text_only)
    return web.Response(status=204, headers=UNSTORED)


async def _compact(services: Services, request: web.BaseRequest, name: str, client: str | None) -> web.Response:
    _require_own(request)
    words = request.query.get("words", "")
    if len(words) > MAX_WORDS_CHARS:
        raise InvalidQueryError(f"words may have {MAX_WORDS_CHARS} characters", "words")
    if await services.past.read(partial(find_named, name=name, client=client)) is None:
        raise _name_unknown(SESSION)
    if not await services.cold_cuts.wishes.make(name, words):
        raise WorkerSilentError("too many sessions are to be compacted; try again in an hour")
    return web.Response(status=204, headers=UNSTORED)


def _require_own(request: web.BaseRequest) -> None:
    if request.headers.get(OWN_HEADER) != "1":
        message = f"send the header {OWN_HEADER}: 1, so that no page of another site can change anything"
        raise SiteNotAllowedError(message)


async def _show_curve(services: Services, _: Mapping[str, str]) -> Json:
    return _CURVES.setdefault(services.lifecycle, Curve()).show(services.config, services.lifecycle.background)


_CURVES: WeakKeyDictionary[Lifecycle, Curve] = WeakKeyDictionary()  # The curve of each proxy in this process
LISTS: Mapping[str, Callable[[Services, Mapping[str, str]], Awaitable[Json]]] = {
    "overview": _show_overview,
    "curve": _show_curve,
    "timeline": _show_timeline,
    "requests": _list_requests,
    "sessions": _list_sessions,
}
"""Answers by name; each takes the query."""
SINGLES: Mapping[str, Callable[[Services, str, Mapping[str, str]], Awaitable[Json]]] = {
    "requests": _show_request,
    "sessions": _show_session,
}
"""Answers by name; each takes the id of one thing, and the query."""


MAX_SHOWN = 500  # chosen: bounds the page; the rest is counted as `unlisted`


def write_models(services: Services, max_shown: int = MAX_SHOWN) -> bytes:
    """JSON: models that an upstream has answered for or listed with a window, and how many more there are."""
    met: defaultdict[tuple[str, str], list[Known]] = defaultdict(list)
    for one in reversed(services.models.list_known()):
        met[one.name.base_url, one.name.model].append(one)
    told = [place for place in services.models.list_told() if place not in met]
    every = [_agree(known) for known in met.values()]
    for base_url, model in told[:max_shown]:
        name = ModelName(base_url, model, services.config.policy_for(model).count)
        every.append(Known(name, services.models.recall(name)))
    shown = [_show(services, one) for one in every[:max_shown]]
    return orjson.dumps({"models": shown, "unlisted": len(met) + len(told) - len(shown)})


def _agree(known: Sequence[Known]) -> Known:
    """The figures of a model for all clients, and all that was learned of it; where clients differ, without lessons."""
    of_all = next((one for one in known if not one.name.tenant), known[0])
    of_clients = [one for one in known if one.name.tenant] or [of_all]
    learned = tuple(dict.fromkeys(item for one in known for item in one.learned))
    is_one = all(one.facts == of_clients[0].facts for one in of_clients)
    return replace(of_clients[0] if is_one else of_all, learned=learned)


def _show(services: Services, known: Known) -> dict[str, object]:
    """One model; `window_tokens` is the window that its requests are compacted to."""
    model = known.name.model
    view = ModelView.of(services.config, services.config.policy_for(model), known.name, known.facts)
    return {
        "model": model,
        "upstream": urlsplit(known.name.base_url).netloc,
        "mode": services.config.tell_mode(view.settings),
        "window_tokens": view.policy.context_window,
        "window_from": view.window_from,
        "vocabulary": services.compactors.name_vocabulary(view.settings, model),
        "token_ratio": known.facts.ratio,
        "calibrated": known.is_calibrated,
        "samples": known.samples,
        "mean_error": round(known.mean_error, 4),
        "learned": [item.describe(time.time()) for item in known.learned],
    }
