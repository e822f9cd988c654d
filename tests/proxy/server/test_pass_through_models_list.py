"""One list of models from several."""

import asyncio
import gzip
from contextlib import AsyncExitStack

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from upstreams.recording import run_upstream

from trimtab.proxy.server import pass_through
from trimtab.proxy.server.pass_through import UPSTREAM_MEMBER, Listed, merge_lists, read_list


def _read(upstream: str, form: object) -> Listed:
    listed = read_list(upstream, orjson.dumps(form))
    assert listed is not None
    return listed


def _to_main(_model: str) -> str:
    return "main"


OPENAI = {"object": "list", "data": [{"id": "gpt", "object": "model", "created": 1, "owned_by": "openai"}]}
LOCAL = {"object": "list", "data": [{"id": "qwen", "max_model_len": 4096}, {"id": "gpt", "owned_by": "me"}]}
ANTHROPIC = {
    "data": [{"type": "model", "id": "claude", "display_name": "Claude", "created_at": "2026-01-01T00:00:00Z"}],
    "has_more": False,
    "first_id": "claude",
    "last_id": "claude",
}


def test_each_model_has_an_owner_and_its_upstream() -> None:
    """What an upstream says of a model stays. Members that clients of the form expect are added."""
    merged = orjson.loads(merge_lists([_read("main", OPENAI), _read("local", LOCAL)], _to_main))

    assert merged == {
        "object": "list",
        "data": [
            {**OPENAI["data"][0], UPSTREAM_MEMBER: "main"},
            {
                "id": "qwen", "object": "model", "created": 0, "owned_by": "local", "max_model_len": 4096,
                UPSTREAM_MEMBER: "local",
            },
        ],
    }  # fmt: skip


def test_the_list_has_the_form_of_the_first() -> None:
    """Members of the list itself stay, too."""
    merged = orjson.loads(merge_lists([_read("main", ANTHROPIC), _read("local", LOCAL)], _to_main))
    assert {name: value for name, value in merged.items() if name != "data"} == {
        name: value for name, value in ANTHROPIC.items() if name != "data"
    }
    assert [entry["id"] for entry in merged["data"]] == ["claude", "qwen", "gpt"]
    assert all({"type", "display_name", "created_at", "owned_by"} <= entry.keys() for entry in merged["data"])

    bare = orjson.loads(merge_lists([_read("main", OPENAI["data"]), _read("local", ANTHROPIC)], _to_main))
    assert [entry["id"] for entry in bare] == ["gpt", "claude"]


@pytest.mark.parametrize(("goes_to", "owner"), [("main", "openai"), ("local", "me"), ("a third", "openai")])
def test_a_model_that_several_list_is_that_of_the_upstream_that_answers_for_it(goes_to: str, owner: str) -> None:
    """If that upstream does not list it, the first one counts."""
    merged = orjson.loads(merge_lists([_read("main", OPENAI), _read("local", LOCAL)], lambda _: goes_to))
    assert [entry["owned_by"] for entry in merged["data"] if entry["id"] == "gpt"] == [owner]


def test_of_a_model_that_is_listed_twice_the_first_entry_counts() -> None:
    """Within one list, too."""
    twice = _read("main", {"data": [{"id": "m", "owned_by": "a"}, {"id": "n"}, {"id": "m", "owned_by": "b"}]})
    merged = orjson.loads(merge_lists([twice], _to_main))["data"]
    assert [(entry["id"], entry["owned_by"]) for entry in merged] == [("m", "a"), ("n", "main")]


@pytest.mark.parametrize("body", [b"", b"hello", b"{}", b'{"data":5}', b'"data"', b'{"error":{"message":"no"}}'])
def test_any_other_answer_is_no_list(body: bytes) -> None:
    """Such an upstream is left out."""
    assert read_list("main", body) is None


@given(
    st.lists(st.none() | st.text() | st.dictionaries(st.sampled_from(["id", "key", "owned_by"]), st.none() | st.text()))
)
def test_whatever_an_upstream_lists_can_be_merged(entries: list[object]) -> None:
    """Entries without a name are left out."""
    listed = _read("local", {"data": entries})
    merged = orjson.loads(merge_lists([_read("main", OPENAI), listed], _to_main))["data"]
    assert all(isinstance(entry[UPSTREAM_MEMBER], str) and entry["owned_by"] for entry in merged)
    assert {entry["id"] for entry in merged} == {"gpt", *listed.models}


@pytest.mark.parametrize(
    "written", [b"123456789012345678901234567890", b"1.50", b"[" * 300 + b"]" * 300, b'"\\u00e4"', b'{"a": 1, "a": 2}']
)
def test_what_an_upstream_writes_of_a_model_stays_as_it_is(written: bytes) -> None:
    """Numbers of any length, white space and escapes, in a list and in an entry."""
    odd = read_list("odd", b'{"n":%b,"data":[{"id":"m","n":%b}]}' % (written, written))
    assert odd is not None
    merged = merge_lists([odd, _read("main", OPENAI)], _to_main)
    assert merged.count(b'"n":' + written) == 2
    assert b'"gpt"' in merged


@pytest.mark.parametrize(
    "written",
    [b'"\\ud800"', b"NaN", b"1e400", b'"\xff"', b"[" * 5000 + b"]" * 5000, b"01", b'"', b'{"\\ud800":1}', b"Infinity"],
)
def test_a_list_that_others_may_not_read_is_no_list(written: bytes) -> None:
    """The lists of the others are merged without it."""
    for body in (b'{"data":[{"id":"m","n":%b}]}', b'{"n":%b,"data":[]}', b'[{"id":"m","n":%b}]', b'[{"id":%b}]'):
        assert read_list("odd", body % written) is None


HEADERS = {"Authorization": "Bearer sk-client-of-the-main", "X-Client": "1"}


def _lists(*names, status=200, **form):
    async def answer(_recorded, _request):
        data = {"object": "list", "data": [{"id": name} for name in names], **form}
        return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")

    return answer


async def _greet(_recorded, _request):
    return web.Response(body=b"hello")


async def _hang(_recorded, _request):
    await asyncio.Event().wait()


@pytest.fixture
async def others():
    """Two further upstreams, `near` and `far`."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(run_upstream()) for _ in range(2)]


@pytest.fixture
async def proxy(start_proxy, others):
    """A proxy that lists the models of all three. `far` has a key."""
    near, far = others
    for one in others:
        one.answers_questions = True
    return await start_proxy(
        "models_list=merged",
        f"upstreams={{near: {{base_url: '{near.url}'}}, far: {{base_url: '{far.url}', api_key: sk-operator-far}}}}",
        "models=[{match: near-*, upstream: near, context_window: 4096}]",
        "profiles={away: {upstream: far, context_window: 4096}}",
    )


async def _get(client, proxy, path="/v1/models"):
    async with client.get(proxy.url + path, headers=HEADERS) as answer:
        return answer, await answer.read()


async def test_every_upstream_that_requests_reach_is_asked(proxy, client, upstream, others, log):
    """Each with its own credential. Only the main one gets the client's headers."""
    for number, one in enumerate((upstream, *others)):
        one.answer = _lists("shared", f"model-{number}", "near-1")
    answer, body = await _get(client, proxy, "/v1/models?limit=5")

    assert (answer.status, answer.content_type, answer.headers["x-trimtab-outcome"]) == (
        200,
        "application/json",
        "passed",
    )
    main = upstream.url.removeprefix("http://").removesuffix("/v1")
    owners = {entry["id"]: entry["trimtab_upstream"] for entry in orjson.loads(body)["data"]}
    assert owners == {"shared": main, "model-0": main, "near-1": "near", "model-1": "near", "model-2": "far"}
    (own,), (near,), (far,) = (one.requests for one in (upstream, *others))
    assert (own.path, near.path, far.path) == ("/v1/models?limit=5", "/v1/models", "/v1/models")
    assert (own.header("authorization"), own.header("x-client")) == ([HEADERS["Authorization"]], ["1"])
    assert (near.header("authorization"), near.header("x-client")) == ([], [])
    assert far.header("authorization") == ["Bearer sk-operator-far"]
    assert (log.lines[-1]["endpoint"], log.lines[-1]["upstream"], log.lines[-1]["status"]) == ("models", main, 200)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_lists(status=401), "status 401"),
        (_greet, "no list of models"),
        (_hang, "upstream_timeout"),
    ],
)
async def test_an_upstream_that_fails_is_left_out(answer, reason, *, proxy, client, upstream, others, log, monkeypatch):
    """The log says which one, and why. So it is if the main one fails."""
    monkeypatch.setattr(pass_through, "TIMEOUT_SECONDS", 2.0)  # for the one that answers, too, on a busy machine
    upstream.answer, others[0].answer, others[1].answer = answer, answer, _lists("far-1")
    response, body = await _get(client, proxy)

    assert response.status == 200
    assert [entry["id"] for entry in orjson.loads(body)["data"]] == ["far-1"]
    main = upstream.url.removeprefix("http://").removesuffix("/v1")
    told = [(line["upstream"], line["reason"]) for line in log.lines if line["event"] == "models_unlisted"]
    assert told == [(main, reason), ("near", reason)]


async def test_a_compressed_list_is_read(proxy, client, upstream, others):
    """Although it was asked for without."""

    async def compress(_recorded, _request):
        body = gzip.compress(orjson.dumps({"object": "list", "data": [{"id": "far-1"}]}))
        return web.Response(body=body, content_type="application/json", headers={"Content-Encoding": "gzip"})

    upstream.answer, others[0].answer, others[1].answer = _lists("a"), _lists("near-b"), compress
    answer, body = await _get(client, proxy)
    assert [entry["id"] for entry in orjson.loads(body)["data"]] == ["a", "near-b", "far-1"]
    assert "Content-Encoding" not in answer.headers


async def test_if_all_fail_the_client_gets_the_main_upstreams_answer(proxy, client, upstream, others):
    """With its status, its headers and its body."""

    async def refuse(_recorded, _request):
        return web.Response(body=b"go away", status=418, headers={"X-Why": "tea"})

    upstream.answer = refuse
    for one in others:
        one.answer = _lists(status=500)
    answer, body = await _get(client, proxy)

    assert (answer.status, answer.headers["X-Why"], body) == (418, "tea", b"go away")


async def test_an_endless_list_is_left_out(proxy, client, upstream, others, monkeypatch):
    """Its size is bounded."""
    monkeypatch.setattr(pass_through, "MAX_ANSWER_BYTES", 1000)
    upstream.answer, others[0].answer, others[1].answer = _lists("a"), _lists(*map(str, range(1000))), _lists("b")
    _, body = await _get(client, proxy)
    assert [entry["id"] for entry in orjson.loads(body)["data"]] == ["a", "b"]

    upstream.answer, others[1].answer = others[0].answer, _lists(status=500)
    answer, body = await _get(client, proxy)
    assert (answer.status, orjson.loads(body)["error"]["code"]) == (502, "upstream_invalid")


@pytest.mark.parametrize("path", ["/v1/models?after_id=x", "/v1/models/a", "/models"])
async def test_other_questions_are_answered_by_one_upstream(path, proxy, client, upstream, others):
    """A further page belongs to the upstream of the first one."""
    await _get(client, proxy, path)
    assert [request.path for request in upstream.requests] == [path]
    assert not [request for one in others for request in one.requests]


async def test_by_default_the_list_is_that_of_the_main_upstream(start_proxy, client, upstream, others):
    """It passes as it is."""
    upstream.answer = _lists("a")
    near = others[0]
    proxy = await start_proxy(f"upstreams.near.base_url={near.url}", "models=[{match: n, upstream: near}]")
    answer, body = await _get(client, proxy)
    assert orjson.loads(body) == {"object": "list", "data": [{"id": "a"}]}
    assert answer.headers["x-trimtab-outcome"] == "passed"
