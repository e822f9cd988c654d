"""Every request that is over is told to the history."""

from unittest.mock import Mock

import pytest
from msgspec import structs
from msgspec.structs import replace
from support.client import CHAT, SMALL, ask_raw, post
from support.events import read_events
from support.journeys import ARRIVAL, DECISIONS, TARGET, MakeStages, read, read_session
from support.sessions import make_session

from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.exchange.attempt import Attempt, Chosen, Passed, Prepared, Refused
from trimtab.proxy.exchange.tell import MAX_TOLD_ENTRIES, _price_cache, write_headers, write_ledger_headers
from trimtab.proxy.http.errors import UpstreamUnreachableError
from trimtab.proxy.telemetry.ledger import Ledger, UsedSummary
from trimtab.rules.conversation import Conversation, Decision
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.sections import Sections


async def test_each_request_is_told_once(client, start_proxy, log):
    """Its figures are those of its log line."""
    proxy = await start_proxy(*SMALL)
    for body in (CHAT, {"model": "m", **make_session(40)}):
        await post(client, f"{proxy.url}/v1/chat/completions", body)
    await proxy.services.lifecycle.idle.wait()

    events = await read_events(proxy.services.past)
    lines = [line for line in log.lines if line["event"] == "request"]
    assert [event.request_id for event in events] == [line["request_id"] for line in lines]
    for event, line in zip(events, lines, strict=True):
        assert (event.original_tokens, event.sent_tokens) == (line["original_tokens"], line["sent_tokens"])
        assert [one.rule for one in event.decisions] == [one["rule"] for one in line["decisions"]]


@pytest.mark.parametrize("enabled", [True, False])
async def test_without_a_dashboard_nothing_is_told(enabled, client, start_proxy):
    proxy = await start_proxy(f"dashboard.enabled={str(enabled).lower()}")
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    assert (proxy.services.history is not None) is enabled


@pytest.mark.parametrize("target", [b"/v1/chat/completions?x=%ff", b"/v1/%ff%ed%a0%80/chat/completions"])
async def test_a_path_or_a_model_that_is_no_text_is_told_too(target, client, start_proxy, log):
    """JSON cannot hold its bytes, but the dashboard shows the request."""
    proxy = await start_proxy()
    body = b'{"model": "a\\ud800", "messages": [{"role": "user", "content": "\\ud800"}]}'
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    assert await ask_raw(proxy.url, head % (target, len(body)) + body)
    await proxy.services.lifecycle.idle.wait()
    assert len(await read_events(proxy.services.past)) == 1
    assert not [line for line in log.lines if line["event"] == "fail_open"]
    async with client.get(f"{proxy.url}/trimtab/api/requests") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("written", "unit", "price"), [(5, "usd", 1150), (0, "usd", 900), (None, "usd", 900), (5, "ratio", None)]
)
async def test_what_a_miss_costs_is_priced_as_the_upstream_charges_it(
    written: int | None, unit: str, price: float | None, make_stages: MakeStages
) -> None:
    """Where it charges for writing into its cache, by that price; in nanodollars. Relative prices are no dollars."""
    prices = f"prices={{unit: {unit}, input: 1, cached_input: 0.1, cache_write: 1.25, output: 4}}"
    stages = await make_stages(prices)
    attempt = await stages.attempt(read_session(2))
    assert _price_cache(attempt.call, 100, written) == (None if price is None else pytest.approx(price))


# The headers of an answer.

BEFORE, AFTER = Sections(100, 0, 50, 800, 50), Sections(100, 30, 0, 328, 50)
SECTIONS_TOLD = (
    "system;original=100;sent=100",
    "summary;original=0;sent=30",
    "memory;original=50;sent=0",
    "recent;original=800;sent=328",
    "current;original=50;sent=50",
)
DECISIONS_TOLD = (
    "truncate;saved=500;before=900;after=400;limit=4000;attempt=1",
    "truncate;saved=500;before=900;after=400;limit=2000;attempt=2",
    "pairing;saved=-8;before=400;after=408;limit=2000;attempt=2",
)
COMPACTED = Compacted(
    (b'{"messages":["PLANTED TEXT"]}',), Conversation((), 0, ()), DECISIONS, 1000, 508, 2000, BEFORE, AFTER
)
PLANNED = Compactor(count_by_heuristic).plan(read([{"role": "user", "content": "hi"}]), Policy())


def make_attempt(mode: str = "enforce", number: int = 1, ledger: Ledger | None = None) -> Prepared:
    """The first or second attempt of a request whose plan was carried out."""
    route = Mock(target=replace(TARGET, mode=mode))
    call = Mock(idle_seconds=None, attempt=number, ledger=ledger or Ledger(), route=route)
    return Prepared("compacted", call, Chosen(PLANNED), COMPACTED, seconds=(("plan", 0.1),))


def _write(attempt: Attempt) -> list[tuple[str, str]]:
    """The headers of a request that arrived at 100 s and left at 100.5 s."""
    return list(write_headers(ARRIVAL, attempt, 100.5))


def test_the_answers_headers_say_what_was_done() -> None:
    """Structured fields give the tokens, the decisions, and the time that the proxy took."""
    ledger = Ledger()
    ledger.note(1, 4000, DECISIONS[:1])
    ledger.note(2, 2000, DECISIONS)
    attempt = structs.replace(make_attempt(ledger=ledger), summary=UsedSummary("3f9a", "summarise", 34))

    assert _write(attempt) == [
        ("x-trimtab-request-id", "id"),
        ("Server-Timing", "trimtab;dur=500.0"),
        ("x-trimtab-outcome", "compacted"),
        ("x-trimtab-tokens", "original=1000, sent=508, limit=2000"),
        ("x-trimtab-sections", ", ".join(SECTIONS_TOLD)),
        ("x-trimtab-decisions", ", ".join(DECISIONS_TOLD)),
        ("x-trimtab-summary", '"3f9a";kind=summarise;messages=34'),
    ]


def test_a_request_only_observed_says_that_the_original_went_out() -> None:
    """The decisions are shown. The tokens sent are those of the original."""
    headers = dict(_write(make_attempt("observe")))

    assert headers["x-trimtab-tokens"] == "original=1000, sent=1000, limit=2000"
    assert "memory;original=50;sent=50, recent;original=800;sent=800" in headers["x-trimtab-sections"]


@pytest.mark.parametrize(("head", "told"), [(999, ""), (1000, ", head=50"), (1560, ", head=78")])
def test_a_head_of_half_of_the_limit_is_told(head: int, told: str) -> None:
    compacted = replace(COMPACTED, original_sections=Sections(system=head))
    headers = dict(_write(structs.replace(make_attempt(), compacted=compacted)))
    assert headers["x-trimtab-tokens"] == "original=1000, sent=508, limit=2000" + told


@pytest.mark.parametrize(("is_unsent", "sent"), [(True, 0), (False, 508)])
def test_what_had_no_connection_was_not_sent(*, is_unsent: bool, sent: int) -> None:
    """An upstream that cannot be reached got nothing; one that hangs up may have got all."""
    error = UpstreamUnreachableError("hung up")
    error.is_unsent = is_unsent
    headers = dict(write_headers(ARRIVAL, make_attempt(), 100.5, error))
    assert headers["x-trimtab-tokens"] == f"original=1000, sent={sent}, limit=2000"


@pytest.mark.parametrize(("original_tokens", "told"), [(2000, ""), (2001, ", high_water=?1")])
def test_a_refused_request_is_over_its_limit_or_not(original_tokens: int, told: str) -> None:
    compacted = replace(COMPACTED, original_tokens=original_tokens)
    headers = dict(_write(Refused("too_large", None, make_attempt().call, compacted)))
    assert headers["x-trimtab-tokens"] == f"original={original_tokens}, sent=508, limit=2000{told}"


def test_without_a_decision_there_is_no_header_of_them() -> None:
    """There is no empty header, and there are no tokens without a transcript."""
    assert "x-trimtab-decisions" not in dict(_write(make_attempt()))
    assert [name for name, _ in _write(Passed("undecodable"))] == [
        "x-trimtab-request-id",
        "Server-Timing",
        "x-trimtab-outcome",
    ]


@pytest.mark.parametrize(
    ("summary", "told"),
    [
        (None, None),
        (UsedSummary("abc", "summarise", 12), '"abc";kind=summarise;messages=12'),
        (UsedSummary("abc", "digest", 3, "busy"), '"abc";kind=digest;messages=3;instead=busy'),
    ],
)
def test_the_headers_of_the_ledger_tell_sections_decisions_and_the_summary(
    summary: UsedSummary | None, told: str | None
) -> None:
    """What there is not is not told. Of very many decisions, the last ones are."""
    first, second = Sections(100, 0, 50, 800, 50), Sections(100, 30, 0, 328, 50)
    ledger = Ledger()
    headers = dict(write_ledger_headers(first, second, ledger.entries, summary))
    sections = zip(Sections._fields, first, second, strict=True)
    assert headers.pop("x-trimtab-sections") == ", ".join(f"{name};original={a};sent={b}" for name, a, b in sections)
    assert headers == ({} if told is None else {"x-trimtab-summary": told})

    ledger.note(1, 2000, [Decision("truncate", f"{number}", 900, 400, 2, 3) for number in range(MAX_TOLD_ENTRIES + 1)])
    headers = dict(write_ledger_headers(first, second, ledger.entries, summary))
    assert headers["x-trimtab-decisions"].count("truncate;saved=500;") == MAX_TOLD_ENTRIES
