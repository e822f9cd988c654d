"""A client's paid summaries stay its own, in whatever form it sends its key; and a key goes only where it belongs.

Two tenants send the same long session. The second one's prompt must not contain the summary that the first one paid
for.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import orjson
import pytest
from support.client import CHAT, SMALL, settle
from support.config import find_problems
from support.sessions import make_session
from upstreams.recording import FakeUpstream, completion, run_upstream, write_note
from yarl import URL

from trimtab.proxy.server.app import Proxy

PATH = "/v1/chat/completions"
SESSION = orjson.dumps({"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]})
SUMMARISED = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
PLACEHOLDER = {"Authorization": "Bearer not-needed"}
KEY = "sk-CLIENT-PLANTED"

Way = tuple[dict[str, str], str]
"""How a client sends its key: headers, and the request target."""

PLACES = {
    "a header of Google's": ({"x-goog-api-key": "{}"}, PATH),
    "a header of Azure's, beside a placeholder": ({**PLACEHOLDER, "Ocp-Apim-Subscription-Key": "{}"}, PATH),
    "a header with underscores": ({"x_api_key": "{}"}, PATH),
    "a header that no table has": ({**PLACEHOLDER, "X-Acme-Token": "{}"}, PATH),
    "a gateway's header beside the provider's key": ({**PLACEHOLDER, "cf-aig-authorization": "Bearer {}"}, PATH),
    "a cookie": ({"Cookie": "theme=dark; sid={}"}, PATH),
    "a cookie beside a load balancer's": ({**PLACEHOLDER, "Cookie": "AWSALB=same; sid={}"}, PATH),
    "for the proxy, in vain": ({"Proxy-Authorization": "Basic {}"}, PATH),
    "a header that ends on this hop": ({"Connection": "x-auth-token", "X-Auth-Token": "{}"}, PATH),
    "the query": ({}, f"{PATH}?key={{}}"),
    "the query, encoded": (PLACEHOLDER, f"{PATH}?api-version=1&a%50i-k%65y={{}}"),
    "the query, behind a semicolon": ({}, f"{PATH}?a=1;subscription-key={{}}"),
    "who pays": ({**PLACEHOLDER, "OpenAI-Organization": "org-{}"}, PATH),
    "a project": ({**PLACEHOLDER, "openai_project": "{}"}, PATH),
    "said by a proxy between": ({"X-Forwarded-User": "{}"}, PATH),
}


def _fill(way: Way, name: str) -> Way:
    headers, target = way
    return {key: value.replace("{}", name) for key, value in headers.items()}, target.replace("{}", name)


@contextmanager
def _numbering(upstream: FakeUpstream) -> Iterator[None]:
    """The upstream numbers the summaries that it writes."""
    plain = upstream.answer

    async def answer(recorded, request):
        if recorded.asks_for_summary:
            return completion(write_note(f"NOTE-{len(upstream.summaries)}."))
        return await plain(recorded, request)

    upstream.answer = answer
    yield
    upstream.answer = plain


async def _ask(client: aiohttp.ClientSession, proxy: Proxy, way: Way, body: bytes = SESSION) -> int:
    headers, target = way
    url = URL(proxy.url + target, encoded=True)
    async with client.post(url, data=body, headers={"Content-Type": "application/json"} | headers) as answer:
        await answer.read()
    await settle(proxy)
    return answer.status


def _notes(upstream: FakeUpstream) -> list[str]:
    """The number of the summary in each request of the clients."""
    found = [recorded.body.partition(b"NOTE-")[2].partition(b".")[0].decode() for recorded in upstream.chats]
    assert all(found)
    return found


@pytest.mark.parametrize("place", PLACES)
async def test_no_client_gets_what_another_has_paid_for(place, client, upstream, start_proxy):
    """The clients differ in one of many ways to send a key. Each finds its own summary again."""
    proxy = await start_proxy(*SUMMARISED)
    alice, bob = (_fill(PLACES[place], name) for name in ("alice", "bobby"))
    with _numbering(upstream):
        for way in (alice, bob, alice, bob):
            assert await _ask(client, proxy, way) == 200
    assert _notes(upstream) == ["1", "2", "1", "2"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"Cookie": "sid=a; AWSALB=1"}, {"Cookie": "sid=a; AWSALB=2"}),
        ({**PLACEHOLDER, "Idempotency-Key": "1"}, {**PLACEHOLDER, "Idempotency-Key": "2"}),
        ({"api-key": "a", "X-Goog-Api-Key": "b"}, {"x-goog-api-key": "b", "API-Key": "a"}),
    ],
)
async def test_a_client_finds_what_it_has_paid_for(first, second, client, upstream, start_proxy):
    """Values that give no access may change between requests, in a server on the way or in the client's library."""
    proxy = await start_proxy(*SUMMARISED)
    with _numbering(upstream):
        for headers in (first, second):
            await _ask(client, proxy, (headers, PATH))
    assert _notes(upstream) == ["1", "1"]


@pytest.mark.parametrize("place", [name for name in PLACES if name != "for the proxy, in vain"])
async def test_a_summary_is_paid_for_as_its_request_is(place, client, upstream, start_proxy):
    """The summary request carries the credential of its request, except for the hop-by-hop headers."""
    proxy = await start_proxy(*SUMMARISED)
    way = _fill(PLACES[place], KEY)
    await _ask(client, proxy, way)
    asked, plain = upstream.summaries[0], upstream.chats[0]
    assert asked.path == plain.path
    for name in way[0].keys() - {"Connection", "X-Auth-Token", "X-Forwarded-User"}:
        assert asked.header(name) == plain.header(name) == [way[0][name]]


WAYS = {
    "the classic header": ({"Authorization": f"Bearer {KEY}"}, PATH),
    "another provider's": ({"x-goog-api-key": KEY, "Cookie": f"sid={KEY}"}, PATH),
    "one that no table has": ({"X-Acme-Token": KEY, "acme_secret": KEY}, PATH),
    "the query": ({}, f"{PATH}?a=1&k%65y={KEY}&access_token={KEY}"),
    "all at once": ({"api-key": KEY, "OpenAI-Project": KEY}, f"{PATH}?sig={KEY};token={KEY}"),
}


def _find_planted(upstream: FakeUpstream) -> list[str]:
    """Requests of any kind that show a key of the client, including those for context windows."""
    said = [*upstream.requests, *upstream.questions]
    return [item.path for item in said if KEY in item.path or KEY in str(item.headers) or KEY.encode() in item.body]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("own", ["", "api_key: sk-operator"])
async def test_a_clients_key_stays_away_from_upstreams_that_it_is_not_for(way, own, client, upstream, start_proxy):
    """No key is sent with routed requests, with summaries, or with requests for context windows."""
    async with run_upstream() as other:
        named = f"upstreams={{other: {{base_url: '{other.url}', {own}}}}}"
        routed = await start_proxy(*SUMMARISED[1:], named, "models=[{match: m, upstream: other}]")
        asked = await start_proxy(*SUMMARISED, named, "defaults.summary.upstream=other")
        for proxy, body in ((routed, orjson.dumps(CHAT)), (routed, SESSION), (asked, SESSION)):
            assert await _ask(client, proxy, WAYS[way], body) == 200
            await proxy.services.models.settle()
        assert len(other.chats) == 2
        assert other.summaries
        assert other.questions
        assert _find_planted(other) == []
        shown = {tuple(item.header("authorization")) for item in (*other.requests, *other.questions)}
        assert shown == {("Bearer sk-operator",) if own else ()}
    assert _find_planted(upstream) != []


@pytest.mark.parametrize("way", WAYS)
async def test_a_key_goes_where_the_operator_says(way, client, upstream, start_proxy):
    """`client` passes every key unchanged. `none` also keeps keys from the main upstream, on every path."""
    shown = await start_proxy()
    await _ask(client, shown, WAYS[way], orjson.dumps(CHAT))
    assert upstream.chats[0].path == WAYS[way][1]
    for name, value in WAYS[way][0].items():
        assert upstream.chats[0].header(name) == [value]
    await shown.services.models.settle()
    upstream.requests.clear()
    upstream.questions.clear()
    hidden = await start_proxy("upstream.credential=none")
    headers, target = WAYS[way]
    for path in (target, target.replace("chat/completions", "files")):
        await _ask(client, hidden, (headers, path), orjson.dumps(CHAT))
    assert len(upstream.requests) == 2
    assert _find_planted(upstream) == []


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("upstream: {api_key: '${V}'}", "upstream.api_key"),
        ("upstream: {api_key: '${UNSET:-}'}", "upstream.api_key"),
        ("upstreams: {other: {base_url: 'http://h', api_key: '${V}'}}", "upstreams.other.api_key"),
        ("client_keys: [sk-PLANTED, '${V}']", "client_keys[1]"),
        ("admin_token: '${V}'", "admin_token"),
        ("store: 'redis://:${V}@h:1/0'", "store"),
        ("upstream: {proxy: 'http://user:${V}@h:1'}", "upstream.proxy"),
    ],
)
def test_a_secret_that_is_empty_is_a_mistake(text, key):
    """Otherwise another credential would be sent, or none would be required. To set no secret, write null."""
    (problem,) = find_problems(text, V="")
    assert problem.startswith(f"{key} (line 1): must not ")
    assert "PLANTED" not in problem
    assert "user" not in problem


async def test_no_key_of_any_kind_is_told(client, upstream, start_proxy, log):
    """A key is not logged even if it was sent as the model's name or in the path, and our errors do not show it."""
    proxy = await start_proxy("limits.max_body_bytes=2048")
    for headers, target in WAYS.values():
        for named in (KEY, f"a/{KEY}:b"):
            await _ask(client, proxy, (headers, target), orjson.dumps(CHAT | {"model": named}))
        await _ask(client, proxy, (headers, target.replace("/v1", f"/{KEY}")), b"{")
    async with client.get(f"{proxy.url}/metrics?token={KEY}") as metrics:
        told = await metrics.text()
    assert len(log.lines) >= 3 * len(WAYS)
    assert KEY not in f"{told} {log.lines}"
