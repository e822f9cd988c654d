"""A request that no codec claims goes to the upstream of the model that it names."""

import asyncio
import gzip
from contextlib import AsyncExitStack

import aiohttp
import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from support.client import post
from upstreams.recording import run_upstream

from trimtab.proxy.server import pass_through
from trimtab.proxy.server.pass_through import UPSTREAM_MEMBER, Listed, merge_lists, read_list

EMBED = {"input": ["a"], "model": "local-embed"}
LOCAL = ("models=[{match: local-*, upstream: local}]",)


@pytest.fixture
async def local():
    """The upstream of the models `local-*`."""
    async with run_upstream() as running:
        yield running


@pytest.fixture
async def proxy(start_proxy, local):
    return await start_proxy(f"upstreams.local.base_url={local.url}", *LOCAL)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses/compact", "/api/embed?x=1"])
async def test_a_json_body_goes_to_the_upstream_of_its_model(path, proxy, client, upstream, local, log):
    """Byte for byte, whatever the path. The log names model, match and upstream."""
    body = b' {"input" : ["a"],  "x": 1E5, "model":"local-embed"}'
    await post(client, proxy.url + path, body)
    await post(client, proxy.url + path, EMBED | {"model": "other"})

    assert [(request.path, request.body) for request in local.requests] == [(path, body)]
    assert [request.json["model"] for request in upstream.requests] == ["other"]
    lines = [line for line in log.lines if line["event"] == "request"]
    assert [(line.get("model"), line.get("match"), line["upstream"]) for line in lines] == [
        ("local-embed", "local-*", "local"),
        ("other", None, upstream.url.removeprefix("http://").removesuffix("/v1")),
    ]


async def test_a_model_at_the_end_of_a_body_is_found(proxy, client, upstream, local):
    """Also behind what is peeked at of a body that is too large to be read whole."""
    await post(client, proxy.url + "/v1/embeddings", {"input": "a" * 70_000, "model": "local-embed"})
    assert (len(local.requests), upstream.requests) == (1, [])


async def test_the_path_names_the_model_if_the_body_names_none(proxy, client, upstream, local):
    await post(client, proxy.url + "/openai/deployments/local-embed/embeddings?api-version=1", {"input": "a"})
    for model in ("local-a/b", "other"):
        async with client.get(f"{proxy.url}/v1/models/{model}") as answer:
            assert answer.status == 200

    assert [request.path for request in local.requests] == [
        "/openai/deployments/local-embed/embeddings?api-version=1",
        "/v1/models/local-a/b",
    ]
    assert [request.path for request in upstream.requests] == ["/v1/models/other"]


async def test_what_names_no_model_goes_to_the_main_upstream(proxy, client, upstream, local):
    bodies = [b'{"input":"a"}', b"no JSON", b"", b'{"model":"local-embed"}']
    for body, kind in zip(bodies, [*["application/json"] * 3, "application/octet-stream"], strict=True):
        await post(client, proxy.url + "/v1/files", body, **{"Content-Type": kind})
    assert [request.body for request in upstream.requests] == bodies
    assert not local.requests


@pytest.mark.parametrize("name", ["local-embed", "other"])
async def test_a_body_that_is_too_large_goes_where_its_beginning_says(name, start_proxy, client, upstream, local):
    proxy = await start_proxy(f"upstreams.local.base_url={local.url}", *LOCAL, "limits.max_body_bytes=1024")
    body = orjson.dumps({"model": name, "input": "x" * 300_000})
    await post(client, proxy.url + "/v1/embeddings", body)

    received = local if name == "local-embed" else upstream
    assert [request.body for request in received.requests] == [body]
    assert len(local.requests) + len(upstream.requests) == 1


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_form_goes_to_the_upstream_of_its_model(is_first, *, proxy, client, upstream, local):
    """If the field comes before a large file; else to the main upstream. The bytes are the same."""
    form = aiohttp.FormData()
    fields = [("file", b"\x00" * 200_000), ("model", "local-whisper")]
    for name, value in reversed(fields) if is_first else fields:
        form.add_field(name, value, **({"filename": "a.wav"} if name == "file" else {}))
    async with client.post(proxy.url + "/v1/audio/transcriptions", data=form) as answer:
        assert answer.status == 200

    received = local if is_first else upstream
    assert len(local.requests) + len(upstream.requests) == 1
    assert received.requests[0].body.count(b"\x00") == 200_000
    assert received.requests[0].header("Content-Type")[0].startswith("multipart/form-data; boundary=")


async def test_without_another_upstream_nothing_is_held(start_proxy, client, upstream):
    proxy = await start_proxy("models=[{match: local-*, context_window: 4096}]", "limits.max_held_bytes=1024")
    body = orjson.dumps(EMBED | {"input": "x" * 100_000})
    answer, _ = await post(client, proxy.url + "/v1/embeddings", body)

    assert (answer.status, upstream.requests[0].body) == (200, body)


async def test_what_is_held_is_bounded(start_proxy, client, local, upstream):
    proxy = await start_proxy(f"upstreams.local.base_url={local.url}", *LOCAL, "limits.max_held_bytes=1024")
    answer, text = await post(client, proxy.url + "/v1/embeddings", EMBED | {"input": "x" * 100_000})

    assert (answer.status, orjson.loads(text)["error"]["code"]) == (503, "overloaded")
    assert not [*local.requests, *upstream.requests]
    assert (await post(client, proxy.url + "/v1/embeddings", EMBED))[0].status == 200


async def test_a_compressed_body_goes_where_its_model_says(proxy, client, upstream, local):
    body = gzip.compress(orjson.dumps(EMBED))
    await post(client, proxy.url + "/v1/embeddings", body, **{"Content-Encoding": "gzip"})

    assert [request.body for request in local.requests] == [body]
    assert local.requests[0].header("Content-Encoding") == ["gzip"]
    assert not upstream.requests


PROMPT = {"model": "m", "prompt": "Once"}
OUTCOME = "x-trimtab-outcome"


async def test_an_answer_of_a_known_api_says_that_it_was_passed(client, start_proxy, log):
    """The log line and the metrics have the API's name. Elsewhere there was no prompt that somebody could miss."""
    proxy = await start_proxy()
    for method, path, label, outcome in (
        ("POST", "/v1/completions", "completions", "passed"),
        ("POST", "/v1/embeddings", "embeddings", "passed"),
        ("GET", "/v1/models", "models", "passed"),
        ("GET", "/v1/responses/resp_1", "responses", "passed"),
        ("POST", "/v1/messages/batches", "messages", "passed"),
        ("POST", "/v1beta/models/gemini:generateContent", "other", "passed"),
        ("POST", "/v1/audio/speech", "other", "passed"),
        ("POST", "/v1/files", "other", None),
        ("POST", "/", "other", None),
        ("POST", "/v1/threads/t/messages", "other", None),
    ):
        async with client.request(method, proxy.url + path, json=PROMPT if method == "POST" else None) as answer:
            assert (answer.status, answer.headers.get(OUTCOME)) == (200, outcome)
        line = [line for line in log.lines if line["event"] == "request"][-1]
        assert (path, line["endpoint"], line["outcome"]) == (path, label, "passed")
        assert f'endpoint="{label}"' in proxy.services.recorder.metrics.render().decode()


async def test_a_websocket_of_a_known_api_says_it_too(upstream, start_proxy, log):
    async def refuse(_recorded, _request):
        return web.Response(status=403)

    upstream.answer = refuse
    proxy = await start_proxy()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(proxy.url + "/v1/responses")
    assert refused.value.headers[OUTCOME] == "passed"
    assert [line["path"] for line in log.lines if line["event"] == "not_compacted"] == ["/v1/responses"]


async def test_prompts_that_pass_are_warned_of_once_a_path(client, upstream, start_proxy, log):
    """Identifiers in the path do not count, and neither does the upstream's answer."""

    async def refuse(_recorded, _request):
        return web.Response(status=400)

    upstream.answer = refuse
    proxy = await start_proxy()
    for path in ("/v1/completions", "/v1beta/models/a-1:generateContent", "/v1beta/models/b-2:generateContent"):
        for _ in range(2):
            await post(client, proxy.url + path, PROMPT)
    await post(client, proxy.url + "/v1/embeddings", PROMPT)

    told = [line for line in log.lines if line["event"] == "not_compacted"]
    assert [(line["path"], line["endpoint"]) for line in told] == [
        ("/v1/completions", "completions"),
        ("/v1beta/models/*", "other"),
    ]


async def test_our_own_error_has_the_form_of_the_paths_dialect(client, start_proxy):
    """Also at a path of the dialect that is not compacted. Everywhere else it is that of chat completions."""
    proxy = await start_proxy("client_keys=[a-key-of-our-own]")
    for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches", "/anthropic/v1/messages"):
        answer, text = await post(client, proxy.url + path, PROMPT)
        assert (answer.status, orjson.loads(text)["type"]) == (401, "error")
        assert answer.headers[OUTCOME] == "refused"
    for path in ("/v1/chat/completions", "/v1/embeddings", "/v1/files", "/v1/threads/t/messages"):
        _, text = await post(client, proxy.url + path, PROMPT)
        assert orjson.loads(text).keys() == {"error"}


# One list of models from several.


def _read(upstream: str, form: object) -> Listed:
    listed = read_list(upstream, orjson.dumps(form))
    assert listed is not None
    return listed


def _to_main(_model: str) -> str:
    return "main"


OPENAI = {"object": "list", "data": [{"id": "gpt", "object": "model", "created": 1, "owned_by": "openai"}]}
NEAR = {"object": "list", "data": [{"id": "qwen", "max_model_len": 4096}, {"id": "gpt", "owned_by": "me"}]}
ANTHROPIC = {
    "data": [{"type": "model", "id": "claude", "display_name": "Claude", "created_at": "2026-01-01T00:00:00Z"}],
    "has_more": False,
    "first_id": "claude",
    "last_id": "claude",
}


def test_each_model_has_an_owner_and_its_upstream() -> None:
    """What an upstream says of a model stays. Members that clients of the form expect are added."""
    merged = orjson.loads(merge_lists([_read("main", OPENAI), _read("local", NEAR)], _to_main))

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
    merged = orjson.loads(merge_lists([_read("main", ANTHROPIC), _read("local", NEAR)], _to_main))
    assert {name: value for name, value in merged.items() if name != "data"} == {
        name: value for name, value in ANTHROPIC.items() if name != "data"
    }
    assert [entry["id"] for entry in merged["data"]] == ["claude", "qwen", "gpt"]
    assert all({"type", "display_name", "created_at", "owned_by"} <= entry.keys() for entry in merged["data"])

    bare = orjson.loads(merge_lists([_read("main", OPENAI["data"]), _read("local", ANTHROPIC)], _to_main))
    assert [entry["id"] for entry in bare] == ["gpt", "claude"]


@pytest.mark.parametrize(("goes_to", "owner"), [("main", "openai"), ("local", "me"), ("a third", "openai")])
def test_a_model_that_several_list_is_that_of_the_upstream_that_answers_for_it(goes_to: str, owner: str) -> None:
    merged = orjson.loads(merge_lists([_read("main", OPENAI), _read("local", NEAR)], lambda _: goes_to))
    assert [entry["owned_by"] for entry in merged["data"] if entry["id"] == "gpt"] == [owner]


def test_of_a_model_that_is_listed_twice_the_first_entry_counts() -> None:
    twice = _read("main", {"data": [{"id": "m", "owned_by": "a"}, {"id": "n"}, {"id": "m", "owned_by": "b"}]})
    merged = orjson.loads(merge_lists([twice], _to_main))["data"]
    assert [(entry["id"], entry["owned_by"]) for entry in merged] == [("m", "a"), ("n", "main")]


@pytest.mark.parametrize("body", [b"", b"hello", b"{}", b'{"data":5}', b'"data"', b'{"error":{"message":"no"}}'])
def test_any_other_answer_is_no_list(body: bytes) -> None:
    assert read_list("main", body) is None


@given(
    st.lists(st.none() | st.text() | st.dictionaries(st.sampled_from(["id", "key", "owned_by"]), st.none() | st.text()))
)
def test_whatever_an_upstream_lists_can_be_merged(entries: list[object]) -> None:
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
    [
        b'"\\ud800"',
        b"NaN",
        b"1e400",
        b'"\xff"',
        b"[" * 100_000 + b"]" * 100_000,
        b"01",
        b'"',
        b'{"\\ud800":1}',
        b"Infinity",
    ],
)
def test_a_list_that_others_may_not_read_is_no_list(written: bytes) -> None:
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
async def listing(start_proxy, others):
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


async def _get(client, listing, path="/v1/models"):
    async with client.get(listing.url + path, headers=HEADERS) as answer:
        return answer, await answer.read()


async def test_every_upstream_that_requests_reach_is_asked(listing, client, upstream, others, log):
    """Each with its own credential. Only the main one gets the client's headers."""
    for number, one in enumerate((upstream, *others)):
        one.answer = _lists("shared", f"model-{number}", "near-1")
    answer, body = await _get(client, listing, "/v1/models?limit=5")

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
async def test_an_upstream_that_fails_is_left_out(
    answer, reason, *, listing, client, upstream, others, log, monkeypatch
):
    """The log says which one, and why. So it is if the main one fails."""
    seconds = 2.0 if answer is _hang else 30.0  # for the one that answers, too, on a busy machine
    monkeypatch.setattr(pass_through, "TIMEOUT_SECONDS", seconds)
    upstream.answer, others[0].answer, others[1].answer = answer, answer, _lists("far-1")
    response, body = await _get(client, listing)

    assert response.status == 200
    assert [entry["id"] for entry in orjson.loads(body)["data"]] == ["far-1"]
    main = upstream.url.removeprefix("http://").removesuffix("/v1")
    told = [(line["upstream"], line["reason"]) for line in log.lines if line["event"] == "models_unlisted"]
    assert told == [(main, reason), ("near", reason)]


async def test_a_compressed_list_is_read(listing, client, upstream, others):
    async def compress(_recorded, _request):
        body = gzip.compress(orjson.dumps({"object": "list", "data": [{"id": "far-1"}]}))
        return web.Response(body=body, content_type="application/json", headers={"Content-Encoding": "gzip"})

    upstream.answer, others[0].answer, others[1].answer = _lists("a"), _lists("near-b"), compress
    answer, body = await _get(client, listing)
    assert [entry["id"] for entry in orjson.loads(body)["data"]] == ["a", "near-b", "far-1"]
    assert "Content-Encoding" not in answer.headers


async def test_if_all_fail_the_client_gets_the_main_upstreams_answer(listing, client, upstream, others):
    async def refuse(_recorded, _request):
        return web.Response(body=b"go away", status=418, headers={"X-Why": "tea"})

    upstream.answer = refuse
    for one in others:
        one.answer = _lists(status=500)
    answer, body = await _get(client, listing)

    assert (answer.status, answer.headers["X-Why"], body) == (418, "tea", b"go away")


async def test_an_endless_list_is_left_out(listing, client, upstream, others, monkeypatch):
    monkeypatch.setattr(pass_through, "MAX_ANSWER_BYTES", 1000)
    upstream.answer, others[0].answer, others[1].answer = _lists("a"), _lists(*map(str, range(1000))), _lists("b")
    _, body = await _get(client, listing)
    assert [entry["id"] for entry in orjson.loads(body)["data"]] == ["a", "b"]

    upstream.answer, others[1].answer = others[0].answer, _lists(status=500)
    answer, body = await _get(client, listing)
    assert (answer.status, orjson.loads(body)["error"]["code"]) == (502, "upstream_invalid")


@pytest.mark.parametrize("path", ["/v1/models?after_id=x", "/v1/models/a", "/models"])
async def test_other_questions_are_answered_by_one_upstream(path, listing, client, upstream, others):
    await _get(client, listing, path)
    assert [request.path for request in upstream.requests] == [path]
    assert not [request for one in others for request in one.requests]
