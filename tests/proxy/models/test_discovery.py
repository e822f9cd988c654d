"""Discovery reads the windows of an upstream's models from every known form of answer, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from upstreams.recording import FakeUpstream, Handler
from upstreams.sockets import listen
from yarl import URL

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.models import discovery
from trimtab.proxy.models.discovery import (
    MAX_ALIASES,
    MAX_MODELS,
    MAX_WINDOW_TOKENS,
    MIN_WINDOW_TOKENS,
    Windows,
    ask_for_models,
    discover,
    read_models,
    read_props,
)
from trimtab.rules.tokens.families import Reading

NOTHING = Windows({}, None)
CREDENTIAL = [("Authorization", "Bearer sk-client")]


def _model(name: str = "m", **fields: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", **fields}


def _list(*models: Any) -> dict[str, Any]:
    return {"object": "list", "data": models}


def _llama(**meta: Any) -> dict[str, Any]:
    """The list of a llama.cpp server with one model."""
    return {"models": [{"name": "m", "model": "m"}]} | _list(_model(owned_by="llamacpp", meta={"n_vocab": 9000} | meta))


def _props(n_ctx: Any) -> dict[str, Any]:
    return {"default_generation_settings": {"n_ctx": n_ctx, "params": {}}, "total_slots": 2}


def _tgi(**fields: Any) -> dict[str, Any]:
    return {"model_id": "org/m", "max_concurrent_requests": 128, "max_best_of": 2, "version": "3.3.4", **fields}


def _lm_studio(**fields: Any) -> dict[str, Any]:
    return {"models": [{"type": "llm", "key": "m", "max_context_length": 131_072, **fields}]}


def _ollama(name: str, window_tokens: int) -> dict[str, Any]:
    return {"name": name, "model": name, "size": 9000, "details": {"family": "x"}, "context_length": window_tokens}


def _loaded(*windows: Any) -> list[dict[str, Any]]:
    return [{"id": f"m:{number}", "config": {"context_length": window}} for number, window in enumerate(windows)]


PLACES = """
    meta.n_ctx n_ctx num_ctx loaded_context_length loaded_instances.config.context_length meta.n_ctx_train
    max_model_len context_window context_length top_provider.context_length providers.context_length max_context_length
    context_size contextWindow contextLength max_context_window max_context_tokens max_input_tokens max_prompt_tokens
    maxInputTokens inputTokenLimit input_token_limit limit.context limit.input limits.max_context_length
    limits.max_input_tokens limits.max_prompt_tokens metadata.context_length model_info.max_input_tokens
    model_spec.availableContextTokens max_total_tokens parameters.max_seq_len model_limits.max_sequence_length
    context_window.context_length limits.context_window limits.context_length capabilities.context_window
    capabilities.context_length max_seq_len max_sequence_length max_context_window_tokens maxContextLength context_len
    ctx_len capabilities.limits.max_context_window_tokens capabilities.limits.max_prompt_tokens
"""
"""Where servers write the window of a model."""


def test_the_window_is_found_wherever_servers_write_it() -> None:
    for place in PLACES.split():
        entry: Any = 8192
        for key in reversed(place.split(".")):
            entry = {key: entry}
        assert read_models(orjson.dumps(_list(_model() | entry))).find("m") == 8192, place


@pytest.mark.parametrize(
    ("answer", "window_tokens"),
    [
        ([_model(context_length=131_072)], 131_072),  # Together: the list is the whole body
        (_list(_model(context_length=200_000, top_provider={"context_length": 64_000})), 64_000),
        (_list(_model(context_length=64_000, top_provider={"context_length": 200_000})), 64_000),
        (_list(_model(context_length=64_000, top_provider={"context_length": None})), 64_000),
        (_list(_model(max_context_length=131_072, loaded_context_length=8192)), 8192),  # LM Studio v0
        (_lm_studio(loaded_instances=_loaded(32_768, 4096, None)), 4096),  # LM Studio v1
        (_lm_studio(loaded_instances=[]), 131_072),
        (_list(_model(meta={"n_ctx": 65_536, "n_ctx_train": 32_768})), 65_536),  # llama.cpp, stretched
        (_list(_model(meta={"n_ctx_train": 32_768}, max_model_len=65_536)), 65_536),
        (_list(_model(providers=[{"context_length": 131_072}, {"context_length": 32_768}, {}])), 32_768),
        (_list(_model(capabilities=["completion"], limits=[8192], parameters="num_ctx 4096", ctx_len=9000)), 9000),
        (_list({"model_name": "m", "model_info": {"key": "x", "max_input_tokens": 272_000}}), 272_000),  # LiteLLM
        ({"models": [{"slug": "m", "context_window": 272_000, "max_context_window": 1_000_000}]}, 272_000),  # Codex
        ({"models": [{"name": "models/m", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536}]}, 1_048_576),
        (_list(_model(context_length=8192), _model(context_length=4096)), 4096),  # listed twice
        (_list(None, 5, "m", [], {}, _model(context_length=8192, max_model_len=True)), 8192),  # among junk
    ],
)
def test_of_several_windows_the_one_that_serves_counts(answer: Any, window_tokens: int) -> None:
    """The window of a running server comes before the trained one; of several stated ones the smallest counts."""
    windows = read_models(orjson.dumps(answer))

    assert windows.find("m") == window_tokens
    assert windows.every in {None, window_tokens}


@pytest.mark.parametrize(
    ("answer", "windows"),
    [
        (_llama(n_ctx=16_384, n_ctx_train=65_536), Windows({"m": 16_384}, 16_384)),
        (_llama(n_ctx_train=65_536), Windows({"m": 65_536}, 65_536)),
        (_list(_model(meta={"n_ctx": 16_384})), Windows({"m": 16_384}, 16_384)),
        (_list(_model(max_model_len=16_384)), Windows({"m": 16_384}, None)),
        (
            _list(_model(owned_by="llamacpp", meta={"n_ctx": 16_384}), _model("other", owned_by="llamacpp")),
            Windows({"m": 16_384}, None),
        ),
        (_list(_model(owned_by="llamacpp")), NOTHING),
    ],
)
def test_a_llama_server_with_one_model_answers_to_any_name(answer: Any, windows: Windows) -> None:
    """Its window holds for every name. With several models it is a router; other servers select by name anyway."""
    found = read_models(orjson.dumps(answer))

    assert found == windows
    assert found.find("a name that is not listed") == windows.every


def test_an_adapter_has_the_window_of_its_model() -> None:
    """VLLM lists LoRA adapters after their model, without a window."""
    adapter, lost, odd = _model("lora", parent="m", max_model_len=None), _model("l", parent="x"), _model("o", parent=[])

    windows = read_models(orjson.dumps(_list(_model(parent=None, max_model_len=8192), adapter, lost, odd)))
    assert windows == Windows({"m": 8192, "lora": 8192}, None)


@pytest.mark.parametrize(
    "answer",
    [
        _list(_model()), _list(), _list({"context_length": 8192}), _list({"id": 7, "context_length": 8192}), [], None,
        _list(_model(meta=None, top_provider=5, loaded_instances="x")), {"data": {"m": {"context_length": 8192}}},
        {"error": "Unexpected endpoint or method. (GET /props). Returning 200 anyway"}, {"error": {"message": "no"}},
        "x", 8192, b"", b"Internal Server Error", b"[" * 100_000, b"\xff", b'{"data":"\xff"}', b"9" * 9000,
    ],
)  # fmt: skip
def test_an_answer_that_says_nothing_gives_nothing(answer: Any) -> None:
    """There is neither a window nor an error, also for /props. Bytes in the table are the raw body."""
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)

    assert read_models(body) == NOTHING
    assert read_props(body) == NOTHING


@pytest.mark.parametrize(
    ("value", "window_tokens"),
    [
        (MIN_WINDOW_TOKENS, MIN_WINDOW_TOKENS), (MAX_WINDOW_TOKENS, MAX_WINDOW_TOKENS), (MIN_WINDOW_TOKENS - 1, None),
        (MAX_WINDOW_TOKENS + 1, None), (0, None), (-8192, None), (True, None), (None, None), ([8192], None),
        ({"tokens": 8192}, None), (8192.0, 8192), (8192.5, None), (1e300, None), (-8192.0, None), ("8192", 8192),
        (str(MAX_WINDOW_TOKENS), MAX_WINDOW_TOKENS), (str(MAX_WINDOW_TOKENS + 1), None), ("512", None), ("", None),
        ("-8192", None), (" 8192", None), ("8_192", None), ("8192.0", None), ("8192 tokens", None), ("٨١٩٢", None),
        ("8192²", None), ("9" * 100_000, None),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_only_a_whole_number_in_bounds_is_a_window(value: Any, window_tokens: int | None) -> None:
    """It may be written as a text or with a point. Any other value is ignored."""
    assert read_models(orjson.dumps(_list(_model(context_length=value)))).find("m") == window_tokens
    assert read_props(orjson.dumps(_props(value))).every == window_tokens


@pytest.mark.parametrize(
    ("answer", "windows"),
    [
        (_list(_model(aliases=["a", "b"], meta={"n_ctx": 8192}), _model("n")), {"m": 8192, "a": 8192, "b": 8192}),
        (_list(_model(aliases=["n"], max_model_len=8192), _model("n", max_model_len=4096)), {"m": 8192, "n": 4096}),
        (_list(_model(aliases=[5, None, ["a"]], max_model_len=8192)), {"m": 8192}),
        (_list(_model(aliases="a", max_model_len=8192)), {"m": 8192, "a": 8192}),
        (_lm_studio(loaded_instances=_loaded(8192)), {"m": 8192, "m:0": 8192}),
    ],
)
def test_a_model_is_known_by_its_other_names(answer: Any, windows: dict[str, int]) -> None:
    """The exception is an alias that is another model's own name."""
    assert read_models(orjson.dumps(answer)).by_model == windows


def test_lists_and_other_names_are_read_up_to_their_bound() -> None:
    numbers = [str(number) for number in range(5000)]
    windows = read_models(orjson.dumps(_list(_model(aliases=numbers, max_model_len=8192))))
    assert list(windows.by_model) == [*numbers[:MAX_ALIASES], "m"]
    windows = read_models(orjson.dumps(_list(*(_model(number, max_model_len=8192) for number in numbers))))
    assert list(windows.by_model) == numbers[:MAX_MODELS]


KEYS = [
    "data", "models", "id", "key", "parent", "owned_by", "meta", "n_ctx", "n_ctx_train", "max_model_len",
    "context_length", "top_provider", "loaded_instances", "config", "aliases", "model", "default_generation_settings",
]  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=5)
JSON = st.recursive(
    LEAVES | st.integers(1000, 9000) | st.just("llamacpp"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner),
    max_leaves=30,
)


@given(st.binary() | JSON.map(orjson.dumps))
def test_whatever_comes_back_never_raises(body: bytes) -> None:
    windows = read_models(body)
    found = [*windows.by_model.values(), windows.every, read_props(body).every]

    assert all(MIN_WINDOW_TOKENS <= value <= MAX_WINDOW_TOKENS for value in found if value is not None)


@pytest.fixture(autouse=True)
def _answers_questions(upstream: FakeUpstream) -> None:
    """The upstream answers questions for its models in these tests."""
    upstream.answers_questions = True


@pytest.fixture
async def asking() -> AsyncIterator[UpstreamClient]:
    made = UpstreamClient()
    yield made
    await made.close()


PATHS = ("/v1/models", "/props", "/api/v1/models", "/api/v0/models", "/api/ps", "/info", "/model/info")


def _answer(**answers: Any) -> Handler:
    """The answers to the PATHS, as `models`, `props`, `lm_studio` and so on: JSON, a body, a status; else 404."""
    names = dict(zip(PATHS, ("models", "props", "lm_studio_1", "lm_studio", "ollama", "info", "litellm"), strict=True))

    async def answer(recorded: Any, _: web.BaseRequest) -> web.StreamResponse:
        told = answers.get(names.get(recorded.path, ""), 404)
        if isinstance(told, int):
            return web.Response(status=told, body=orjson.dumps(_llama(n_ctx=4096) | _props(4096)))
        return web.Response(body=told if isinstance(told, bytes) else orjson.dumps(told))

    return answer


OLLAMA = {"models": [_ollama("m:latest", 4096), _ollama("n:8b", 8192), {"name": "o", "model": "o"}]}
LITELLM = _list(
    {"model_name": "m", "litellm_params": {"model": "x"}, "model_info": {"id": "7", "max_input_tokens": 16_384}},
    {"model_name": "m", "litellm_params": {"model": "y"}, "model_info": {"id": "8", "max_input_tokens": 8192}},
    {"model_name": "unknown", "model_info": {"id": "9", "max_input_tokens": None}},
)
"""Two deployments of one name."""
SHIFTS = Reading(shifts=True)
LM_STUDIO = _list(_model(max_context_length=131_072, loaded_context_length=8192))


@pytest.mark.parametrize(
    ("answers", "windows", "questions"),
    [
        ({"models": _list(_model(max_model_len=32_768))}, Windows({"m": 32_768}, None), 1),
        ({"models": _llama(n_ctx=16_384)}, Windows({"m": 16_384}, 16_384), 2),
        *(
            ({"models": _llama(n_ctx=4096), "props": {"total_slots": told}}, Windows({"m": 4096}, 4096, slots), 2)
            for told, slots in [(1, 1), (0, None), (True, None), ("1", None)]
        ),
        ({"models": 500, "props": _props(16_384)}, Windows({}, 16_384, 2, SHIFTS), 2),
        ({"models": _llama(n_ctx_train=65_536), "props": _props(16_384)}, Windows({}, 16_384, 2, SHIFTS), 2),
        ({"models": _list(_model()), "props": {"error": "no"}, "lm_studio": LM_STUDIO}, Windows({"m": 8192}, None), 4),
        ({"lm_studio_1": _lm_studio(loaded_instances=_loaded(4096))}, Windows({"m": 4096, "m:0": 4096}, None), 3),
        ({"models": _list(_model()), "ollama": OLLAMA}, Windows({"m:latest": 4096, "m": 4096, "n:8b": 8192}, None), 5),
        ({"models": _list(_model()), "info": _tgi(max_total_tokens=4096)}, Windows({}, 4096), 6),
        ({"models": _list(_model()), "info": _tgi(max_input_tokens=3000, max_total_tokens=4096)}, Windows({}, 3000), 6),
        ({"models": _list(_model()), "litellm": LITELLM}, Windows({"m": 8192}, None), 7),
        ({"models": _llama(n_ctx_train=65_536)}, Windows({"m": 65_536}, 65_536), 7),
        ({"models": _list(_model())}, NOTHING, 7),
        ({"models": b"{", "props": b"\xff", "lm_studio": b"[" * 9000, "lm_studio_1": b"", "ollama": b"1"}, NOTHING, 7),
        ({"models": 401, "props": 302, "lm_studio": 206, "lm_studio_1": 500, "ollama": 204}, NOTHING, 7),
    ],
)
async def test_the_upstream_is_asked_until_it_tells(
    asking: UpstreamClient, upstream: FakeUpstream, answers: dict[str, Any], windows: Windows, questions: int
) -> None:
    """The list is asked first, then the other servers' own paths. The body of an error is not read."""
    upstream.answer = _answer(**answers)

    assert await discover(asking, UpstreamConfig(base_url=upstream.url), CREDENTIAL) == windows
    asked = [recorded.path for recorded in upstream.requests if recorded.method == "GET"]
    assert [path for path in asked if path != "/api/version"] == list(PATHS[:questions])


SGLANG = {"model_path": "m", "internal_states": [{"effective_max_running_requests_per_dp": 24}], "version": "0.5.18"}
VLLM = {"vllm_config": {"scheduler_config": {"max_num_seqs": 1}}}


@pytest.mark.parametrize(
    ("owner", "answers", "slots", "engine"),
    [
        ("llamacpp", {"/props": _props(8192) | {"build_info": "b6123-9fc"}}, 2, "llama.cpp b6123-9fc"),
        ("vllm", {}, None, "vLLM"),
        ("vllm", {"/version": {"version": "0.11.0"}}, None, "vLLM 0.11.0"),
        ("vllm", {"/version": {"version": "0.11.0"}, "/server_info": VLLM}, 1, "vLLM 0.11.0"),
        ("sglang", {"/get_server_info": SGLANG}, 24, "SGLang 0.5.18"),
        ("sglang", {"/server_info": SGLANG}, 24, "SGLang 0.5.18"),
        ("sglang", {"/server_info": {"version": 5, "internal_states": [{}]}}, None, "SGLang"),
        ("sglang", {"/server_info": {"version": "v" * 99}}, None, "SGLang " + "v" * 40),
        ("other", {"/version": {"version": "1"}, "/server_info": SGLANG}, None, ""),
        (["vllm"], {}, None, ""),
        ({}, {}, None, ""),
    ],
)
async def test_a_server_says_what_it_is(
    asking: UpstreamClient, upstream: FakeUpstream, owner: Any, answers: Any, slots: int | None, engine: str
) -> None:
    """Each engine is asked at its own paths, until it has said its slots."""

    async def answer(recorded: Any, _: web.BaseRequest) -> web.StreamResponse:
        listed = _list(_model(owned_by=owner, max_model_len=8192), _model("lora", parent="m"))
        told = listed if recorded.path == "/v1/models" else answers.get(recorded.path.partition("?")[0])
        return web.Response(status=404) if told is None else web.Response(body=orjson.dumps(told))

    upstream.answer = answer
    found = await discover(asking, UpstreamConfig(base_url=upstream.url), [])
    assert (found.by_model, found.slots, found.engine) == ({"m": 8192, "lora": 8192}, slots, engine)


def test_an_info_names_its_engine() -> None:
    told = read_props(orjson.dumps(_tgi(max_total_tokens=4096)))
    assert (told.engine, told.slots, told.reading) == ("TGI 3.3.4", None, Reading())


@pytest.mark.parametrize("caps", [{"supports_tools": False}, {"supports_tool_calls": False}, {}, None])
def test_what_a_chat_template_leaves_out_is_told(caps: Any) -> None:
    reading = read_props(orjson.dumps({"chat_template_caps": caps})).reading
    assert reading.drops_tools is (caps == {"supports_tools": False})
    assert reading.drops_calls is (caps == {"supports_tool_calls": False})


@pytest.mark.parametrize("is_written", [True, False])
async def test_calls_that_the_template_was_seen_to_write_stay_counted(
    asking: UpstreamClient, upstream: FakeUpstream, *, is_written: bool
) -> None:
    """Also by the discoveries that do not ask the tokenizer again."""
    known = Windows({"m": 4096}, 4096, 2, Reading(samples=(1, 2), shifts=True, drops_calls=not is_written))
    props = _props(4096) | {"chat_template_caps": {"supports_tool_calls": False}}
    upstream.answer = _answer(models=_llama(n_ctx=4096), props=props)
    assert await discover(asking, UpstreamConfig(base_url=upstream.url), [], known) == known


@pytest.mark.parametrize("samples", [(), (1, 2)])
@pytest.mark.parametrize("props", [500, b"{}"])
async def test_what_props_said_counts_until_they_say_otherwise(
    asking: UpstreamClient, upstream: FakeUpstream, props: Any, samples: tuple[int, ...]
) -> None:
    reading = Reading(drops_tools=True, samples=samples, shifts=True, drops_calls=True)
    known = Windows({"m": 4096}, 4096, 1, reading)
    upstream.answer = _answer(models=_llama(n_ctx=4096), props=props)
    assert await discover(asking, UpstreamConfig(base_url=upstream.url), [], known) == known

    upstream.answer = _answer(models=_llama(n_ctx=4096), props=_props(4096))
    found = await discover(asking, UpstreamConfig(base_url=upstream.url), [], known)
    assert found == Windows({"m": 4096}, 4096, 2, Reading(samples=samples, shifts=True))


@pytest.mark.parametrize(
    ("base", "paths"),
    [
        ("", ["/models", *PATHS[1:]]),
        ("/llama/v1", [f"/llama{path}" for path in PATHS]),
        ("/a%2Fb", ["/a%2Fb/models", *(f"/a%2Fb{path}" for path in PATHS[1:])]),
    ],
)
async def test_the_questions_go_where_the_server_is(
    asking: UpstreamClient, upstream: FakeUpstream, base: str, paths: list[str]
) -> None:
    """They go to paths under base_url; paths that are not OpenAI's go without its /v1."""
    upstream.answer = _answer()
    base_url = upstream.url.removesuffix("/v1") + base

    assert await discover(asking, UpstreamConfig(base_url=base_url), []) == NOTHING
    assert [recorded.path for recorded in upstream.requests] == paths


@pytest.mark.parametrize(
    ("api_key", "headers", "expected"),
    [
        (None, CREDENTIAL, {"authorization": ["Bearer sk-client"], "x-api-key": []}),
        (None, [("X-API-Key", "sk-client")], {"authorization": [], "x-api-key": ["sk-client"]}),
        (None, [], {"authorization": [], "x-api-key": []}),
        ("sk-own", [*CREDENTIAL, ("X-API-Key", "a")], {"authorization": ["Bearer sk-own"], "x-api-key": []}),
    ],
)
async def test_each_question_carries_one_credential(
    asking: UpstreamClient, upstream: FakeUpstream, api_key: str | None, headers: Any, expected: dict[str, list[str]]
) -> None:
    """It is the upstream's configured key, else the client's. The question asks for uncompressed JSON."""
    upstream.answer = _answer()
    await discover(asking, UpstreamConfig(base_url=upstream.url, api_key=api_key), headers)

    assert len(upstream.requests) == len(PATHS)
    for recorded in upstream.requests:
        assert {name: recorded.header(name) for name in expected} == expected
        assert recorded.header("accept") == ["application/json"]
        assert recorded.header("accept-encoding") == ["identity"]
        assert recorded.body == b""


def test_a_provider_is_asked_in_its_own_way() -> None:
    """Anthropic requires a version, and lists 20 models unless more are asked for. Each has its header for the key."""
    url, headers = ask_for_models(UpstreamConfig(base_url="https://api.anthropic.com/v1", api_key="k"), [])
    assert str(url) == "https://api.anthropic.com/v1/models?limit=1000"
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("k", "2023-06-01")
    assert "Authorization" not in headers

    url, headers = ask_for_models(UpstreamConfig(base_url="https://name.openai.azure.com/openai/v1", api_key="k"), [])
    assert str(url) == "https://name.openai.azure.com/openai/v1/models"
    assert headers["api-key"] == "k"
    assert {"Authorization", "anthropic-version"}.isdisjoint(headers)


async def test_a_known_provider_is_asked_at_one_path_only(asking: UpstreamClient, monkeypatch: Any) -> None:
    """It is not a local server, so its key is not sent to paths of local servers."""
    asked: list[URL] = []

    async def get(_client: Any, _upstream: Any, url: URL, _headers: Any) -> bytes:
        asked.append(url)
        return b""

    monkeypatch.setattr(discovery, "_ask", get)
    await discover(asking, UpstreamConfig(base_url="https://api.anthropic.com/v1"), [])
    assert [str(url) for url in asked] == ["https://api.anthropic.com/v1/models?limit=1000"]


@pytest.mark.parametrize(
    ("path", "timeout_seconds", "windows"),
    [("/v1/models", 0.05, NOTHING), ("/props", 0.5, Windows({"m": 65_536}, 65_536))],
)
async def test_an_upstream_that_hangs_is_left(
    asking, upstream, path: str, timeout_seconds: float, windows: Windows
) -> None:
    """One time limit covers all questions, and earlier answers count. Here it hangs in the middle of a body."""
    plain = _answer(models=_llama(n_ctx_train=65_536))

    async def hang(recorded: Any, request: web.BaseRequest) -> web.StreamResponse:
        if recorded.path != path:
            return await plain(recorded, request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        return await asyncio.Event().wait()

    upstream.answer = hang
    config = UpstreamConfig(base_url=upstream.url)

    assert await discover(asking, config, CREDENTIAL, timeout_seconds=timeout_seconds) == windows


async def test_an_endless_answer_is_given_up(asking: UpstreamClient, upstream: FakeUpstream) -> None:
    """It is read up to its bound; then the next question is asked."""
    plain, given_up = _answer(props=_props(16_384)), asyncio.Event()

    async def pour(recorded: Any, request: web.BaseRequest) -> web.StreamResponse:
        if recorded.path != "/v1/models":
            return await plain(recorded, request)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b" " * 65_536)
        except (ConnectionError, asyncio.CancelledError):
            given_up.set()
            raise

    upstream.answer = pour

    found = await discover(asking, UpstreamConfig(base_url=upstream.url), CREDENTIAL)
    assert found == Windows({}, 16_384, 2, SHIFTS)
    await asyncio.wait_for(given_up.wait(), 30)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 307 Moved\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_an_upstream_that_breaks_off_or_points_elsewhere_tells_nothing(
    asking: UpstreamClient, answer: bytes
) -> None:
    """There is no error, whatever it sends. A redirect is not followed."""
    asked = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
        writer.write(answer)

    async with listen(speak) as address:
        config = UpstreamConfig(base_url=f"http://{address}/v1")
        assert await discover(asking, config, CREDENTIAL) == NOTHING
    assert {path.decode() for path in asked} == set(PATHS)  # aiohttp asks once more where nothing came
