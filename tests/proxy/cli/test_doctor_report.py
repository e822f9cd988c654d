"""`trimtab doctor`: what it finds, and how it ends."""

import asyncio
import io
import re
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import web
from rich.console import Console
from support.command_line import run_trimtab
from support.golden import check_golden
from support.sessions import OWN_DATA
from upstreams.recording import FakeUpstream

from trimtab.proxy.catalogue.prices import DEFAULT, LOCAL, find_listed
from trimtab.proxy.cli.doctor import (
    ModelPrices,
    Report,
    check_prices,
    examine,
    list_rows,
    make_table,
)
from trimtab.proxy.config.load import load_config
from trimtab.proxy.http.tenancy import Tenancy
from trimtab.proxy.models.model_policy import name_model
from trimtab.proxy.models.records import ModelName, Record, Records
from trimtab.proxy.store.opening import open_store


def _list(*names: str, **fields: object) -> bytes:
    return orjson.dumps({"object": "list", "data": [{"id": name, **fields} for name in names]})


async def _examine(upstream: FakeUpstream, *settings: str, models: tuple[str, ...] = ()) -> Report:
    base = (f"upstream.base_url={upstream.url}", "listen=127.0.0.1:0")
    return await examine(load_config(settings=(*base, *settings), environment={}), models, None)


async def test_what_serve_tells_at_its_start_is_told(
    upstream: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A credential without TLS, a folder that cannot be written, unknown variables: by the same words as in the log.

    Without the folder nothing is recorded, so that is an error.
    """
    monkeypatch.setenv("TRIMTAB_WORKER", "2")
    (tmp_path / "file").touch()
    bare = "upstreams={a: {base_url: 'http://10.0.0.1/v1', api_key: sk-PLANTED, proxy: 'http://127.0.0.1:9'}}"
    report = await _examine(upstream, bare, f"record.dir={tmp_path}/file/here")

    told = {one.found.partition(":")[0]: one.level for one in report.findings if one.subject == "log"}
    assert told == {"credential_without_tls": "warning", "recordings_fail": "error", "unknown_variables": "warning"}
    assert "PLANTED" not in report.write_json().decode()


async def test_a_window_says_where_it_comes_from(upstream, log) -> None:
    """It is configured, learned, discovered, from the store, or the default."""
    store = open_store(load_config(environment={}), lambda _: None, log)
    for model in ("told", "kept"):
        await Records(store).append(ModelName(upstream.url, model, "auto"), 0, Record(1.3, 4096, calibrated=True))
    refuted = Record(1.0, 8192, learned_tokens=5000, refuted=(8192,))
    await Records(store).append(ModelName(upstream.url, "less", "auto"), 0, refuted)
    await store.close()
    upstream.models = _list("told", "mine", "less", max_model_len=8192)
    report = await _examine(
        upstream, "models=[{match: mine, context_window: 9000}, {match: 'x*'}]", models=("kept", "qwen3", "gpt-4")
    )

    found = {model.model: (model.window_tokens, model.window_from) for model in report.models}
    assert found == {
        "kept": (4096, "store"),
        "qwen3": (128_000, "default"),
        "gpt-4": (128_000, "default"),
        "mine": (9000, "configured"),
        "told": (8192, "discovered"),
        "less": (5000, "learned"),
    }
    counted = {model.model: (model.vocabulary, model.token_ratio, model.ratio_from) for model in report.models}
    assert counted["kept"] == ("o200k_base", 1.3, "calibrated")
    assert counted["qwen3"] == ("o200k_base", 0.9928, "expected")
    assert {model.mode for model in report.models} == {"enforce"}
    assert counted["gpt-4"] == ("cl100k_base", 1.0, "exact")
    assert not report.will_fail
    unknown = next(finding for finding in report.findings if finding.subject == "windows")
    assert (unknown.level, unknown.found) == ("warning", "unknown for qwen3, gpt-4")


async def test_each_upstream_is_asked_once(upstream) -> None:
    """A model is looked up at the one that its requests go to."""
    upstream.models = _list("m", max_model_len=8192)
    other = f"upstreams={{o: {{base_url: '{upstream.url}/other/v1', api_key: sk-PLANTED}}}}"
    report = await _examine(upstream, other, "models=[{match: m, upstream: o}]")

    assert [model.upstream for model in report.models] == [f"{upstream.url}/other/v1"]
    asked = [question.header("authorization") for question in upstream.questions if "/other/" in question.path]
    assert asked
    assert all(shown == ["Bearer sk-PLANTED"] for shown in asked)
    assert not any(
        question.header("authorization") for question in upstream.questions if "/other/" not in question.path
    )
    assert b"PLANTED" not in report.write_json()


async def test_an_upstream_is_asked_with_each_of_its_keys(upstream) -> None:
    """One key may be wrong. A model's window is the one reported for the key that its requests use."""

    async def answer(recorded, _request):
        if recorded.header("authorization") != ["Bearer sk-PLANTED"]:
            return web.Response(status=401)
        return web.Response(body=_list("m", max_model_len=8192))

    upstream.answers_questions, upstream.answer = True, answer
    keyed = f"upstreams={{o: {{base_url: '{upstream.url}', api_key: sk-PLANTED}}}}"
    report = await _examine(upstream, keyed, "models=[{match: m, upstream: o}]")

    found = {finding.subject: finding.level for finding in report.findings if "upstream" in finding.subject}
    assert found == {f"upstream {upstream.url}": "warning", f"upstreams.o {upstream.url}": "ok"}
    assert [(model.window_tokens, model.window_from) for model in report.models] == [(8192, "discovered")]


async def test_what_a_server_says_of_itself_is_shown_and_judged(upstream) -> None:
    """With few slots, summaries are written while nobody waits, unless somebody wants it otherwise: then a turn may.

    A window that is larger than the server's is told, and a chat template that leaves out tools.
    """
    told = {}
    model = {"owned_by": "llamacpp", "id": "m", "meta": {"n_ctx": 8000}, "build_info": "b1"}
    slots = ((2, "auto"), (3, "auto"), (1, "background"), (2, "background"), (1, "idle"))
    caps = (
        {"supports_tools": False},
        {"supports_tool_calls": False},
        dict.fromkeys(("supports_tools", "supports_tool_calls"), False),
    )
    cases = [({"total_slots": number}, f"defaults.summary.when={when}") for number, when in slots]
    cases += [({"total_slots": 2}, f"defaults.context_window={window}") for window in (8000, 8001)]
    cases += [({"chat_template_caps": one}, "mode=enforce") for one in (*caps, {"supports_tools": True})]
    for more, setting in cases:
        upstream.models = orjson.dumps(
            model | more | {"data": [model | more], "default_generation_settings": model["meta"]}
        )
        findings = (await _examine(upstream, setting)).findings
        found = [one for one in findings if one.subject in {"slots", "template", "windows", f"upstream {upstream.url}"}]
        lines = [f"{one.subject}: {one.level}: {one.found}; {one.advice}" for one in found]
        told[f"{more}, {setting}"] = "\n".join(lines).replace(upstream.url, "URL")
    check_golden("commands/doctor-servers", told)


async def test_what_an_upstream_says_moves_no_cursor(upstream) -> None:
    """Control characters in a name are replaced, and markup in it has no effect."""
    upstream.models = _list("a\x1b]0;b\x07[red]c", max_model_len=8192)
    report = await _examine(upstream)
    screen = io.StringIO()
    report.print_tables(Console(file=screen, width=200, force_terminal=False))

    assert "a\\x1b]0;b\\x07[red]c" in screen.getvalue()
    assert "8,192" in screen.getvalue()


async def _run(*arguments: str, **environment: str) -> tuple[int, bytes, str]:
    done = await asyncio.to_thread(run_trimtab, "doctor", *arguments, **environment)
    return done.exit_code, done.stdout_bytes, done.stderr


async def test_the_command_ends_with_0_when_nothing_will_fail(upstream) -> None:
    """Warnings are allowed. The key of --key-from-env is sent, and not shown."""
    upstream.models = _list("m", max_model_len=8192)
    arguments = ("--set", f"upstream.base_url={upstream.url}", "--set", "listen=127.0.0.1:0", "--set", "store=memory")
    status, out, said = await _run(*arguments, "--key-from-env", "OWN_KEY", OWN_KEY="sk-PLANTED")

    assert (status, said) == (0, "")
    report = orjson.loads(out)
    assert {finding["level"] for finding in report["findings"]} == {"ok", "warning"}
    assert report["models"][0]["window_tokens"] == 8192
    assert upstream.questions[0].header("authorization") == ["Bearer sk-PLANTED"]
    assert b"PLANTED" not in out


async def test_the_command_ends_with_1_when_something_will_fail(upstream) -> None:
    """Here the address is in use; a table says so."""
    address = upstream.url.removeprefix("http://").removesuffix("/v1")
    settings = (f"upstream.base_url={upstream.url}", f"listen={address}", "store=memory")
    status, out, _ = await _run("--table", *(part for one in settings for part in ("--set", one)), COLUMNS="200")

    assert status == 1
    assert "address already in use" in out.decode()


async def test_no_type_of_error_is_shown(upstream) -> None:
    """A store and an upstream that cannot be reached are described in plain words."""
    nowhere = "http://127.0.0.1:9"
    gone = f"upstreams={{o: {{base_url: '{nowhere}'}}, p: {{base_url: '{upstream.url}', proxy: '{nowhere}'}}}}"
    report = await _examine(upstream, "store=redis://127.0.0.1:9/0", gone)

    stored = [finding for finding in report.findings if "store" in f"{finding.subject} {finding.found}"]
    assert [finding.subject for finding in stored] == ["store redis 127.0.0.1:9/0"]
    assert "the server cannot be reached" in stored[0].found
    assert not re.search(rb"[A-Za-z]+Error", report.write_json())


OPENAI = "https://api.openai.com/v1"
TIERED = ModelPrices.of(find_listed("https://api.anthropic.com/v1", "claude-sonnet-4-5"))


def test_models_without_known_prices_are_named() -> None:
    """The usual ratios are assumed for them."""
    models = [("a", ModelPrices.of(DEFAULT)), ("b", ModelPrices.of(LOCAL)), ("c", TIERED), ("d", None)]
    found = check_prices(models)
    assert (found.level, found.found.rpartition("; ")[2]) == ("warning", "unknown for a")
    many = check_prices([(f"m{number}", models[0][1]) for number in range(6)])
    assert many.found.endswith("m4 and others")


def test_every_tier_has_a_row() -> None:
    """Only the first one names the model and where its prices come from."""
    assert (TIERED.source, TIERED.entry, TIERED.unit) == ("catalogue", "anthropic/claude-sonnet-4-5", "usd")
    first, second = list_rows("m", TIERED)
    assert first[:5] == ("m", "catalogue", "anthropic/claude-sonnet-4-5", "usd", "0")
    assert second[:4] == ("",) * 4
    assert int(second[4].replace(",", "")) > 0
    assert [float(price) for price in first[5:]] == [
        TIERED.tiers[0].input, TIERED.tiers[0].cached_input, TIERED.tiers[0].cache_write, TIERED.tiers[0].output
    ]  # fmt: skip
    table = make_table()
    table.add_row(*first)
    printed = io.StringIO()
    Console(file=printed, width=200).print(table)
    assert "anthropic/claude-sonnet-4-5" in printed.getvalue()


async def test_what_was_learned_from_a_clients_own_requests_is_found_by_its_key(upstream, log) -> None:
    """Another client's is not shown."""
    config = load_config(settings=(f"upstream.base_url={upstream.url}", "listen=127.0.0.1:0"), environment={})
    tenant = Tenancy(config.tenant, b"").identify([("Authorization", "Bearer sk-1")])
    store, name = open_store(config, lambda _: None, log), name_model(config, config.policy_for("m"), "m", tenant)
    await Records(store).append(name, 0, Record(1.4, 4096, calibrated=True))
    await store.close()
    found = [(await examine(config, ("m",), key)).models[0].token_ratio for key in ("sk-1", "sk-2", None)]
    assert found == [1.4, 1.0, 1.0]


def _tokens(body: Any) -> list[int]:
    """A fake vocabulary: a token for each four bytes of a text, and three more for each message."""
    if "messages" in body:
        return [1] * sum(3 + len(_tokens({"content": one["content"]})) for one in body["messages"])
    return [1] * -(-len(body["content"].encode()) // 4)


async def _answer_as(answers: Any, recorded: Any, _: web.BaseRequest) -> web.StreamResponse:
    found = answers.get(recorded.path.partition("?")[0], answers.get(""))
    if found == "prompt":
        found = {"prompt": "".join(f"<|{one['role']}|>{one['content']}" for one in recorded.json["messages"])}
    elif found is not None and "counts" in found:
        tokens, more = _tokens(recorded.json), found["counts"]
        found = {"tokens": tokens, **({"count": len(tokens), **more} if more else {})}
    return web.Response(status=404) if found is None else web.json_response(found)


@pytest.mark.covered
async def test_each_engine_is_known_by_what_it_says(upstream) -> None:
    """Its version, its slots, and whether it counts; each model has the window that the server runs with."""
    texts = {}
    for engine, answers in yaml.safe_load((OWN_DATA / "engines.yaml").read_text("utf-8")).items():
        upstream.answers_questions, upstream.answer = True, partial(_answer_as, answers)
        listed = [one["id"] for one in answers["/v1/models"]["data"]]
        report = await _examine(upstream, models=tuple(listed))
        found = {finding.subject: finding.found for finding in report.findings}
        windows = [f"{one.model}: {one.window_tokens} ({one.window_from})" for one in report.models]
        texts[engine] = "\n".join((found[f"upstream {upstream.url}"], *windows))
    check_golden("commands/doctor", texts)
