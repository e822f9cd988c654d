"""`trimtab forget`: what was learned about a model is forgotten."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from support.client import SMALL, post
from support.command_line import run_trimtab
from support.events import make_event
from support.sessions import make_session

from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.stored import forget_model, list_names, wish
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.models.records import ModelName, Record, Records
from trimtab.proxy.server.admin.opening import open_history
from trimtab.proxy.store.opening import open_store
from trimtab.proxy.summaries.cold_cuts import Wishes

URL = "http://127.0.0.1:9/v1"


def _config(*settings: str):
    return load_config(settings=(f"upstream.base_url={URL}", *settings), environment={})


async def test_what_was_learned_for_all_is_gone_and_what_clients_learned_is_older(log) -> None:
    """The record counts how often it was forgotten, so a client's older record no longer counts."""
    config, name = _config(), ModelName(URL, "qwen3", "auto")
    for times in (1, 2):
        store = open_store(config, lambda _: None, log)
        learned = Record(2.0, learned_tokens=4096, refuted=(8192,), forgotten=times - 1)
        await Records(store).append(name, 2 * times - 2, learned)
        await store.close()
        assert await forget_model(config, "qwen3") == {name: True}
        store = open_store(config, lambda _: None, log)
        assert await Records(store).read(name) == (2 * times, Record(0.9928, forgotten=times))
        await store.close()


def test_a_model_is_forgotten_at_every_upstream_by_each_way_of_counting() -> None:
    """A request may be for any of them."""
    config = _config("upstreams={other: {base_url: 'http://127.0.0.1:8/v1'}}", "models=[{match: x, count: heuristic}]")

    assert list_names(config, "m") == [
        ModelName(url, "m", count) for url in (URL, "http://127.0.0.1:8/v1") for count in ("auto", "heuristic")
    ]


# `trimtab summary`: those who paid for a summary can read it, and nobody else learns that it exists.

KEY = "sk-planted-0123456789abcdef"
PATH = "/v1/chat/completions"
NONE: dict[str, str] = {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "", "AZURE_OPENAI_API_KEY": ""}


@pytest.fixture
def store(tmp_path) -> str:
    return f"store=sqlite:///{tmp_path}/summaries.sqlite3"


@pytest.fixture
def cause(start_proxy, client, store) -> Any:
    """A function that has a summary written for a client with these headers; returns its id."""

    async def ask(*settings: str, query: str = "", **headers: str) -> str:
        proxy = await start_proxy(*SMALL, store, "upstream.credential=client", *settings)
        body = {"model": "m", **make_session(40)}
        sent = {name: value for name, value in headers.items() if value}
        if "authorization" in headers:
            answer, _ = await post(client, f"{proxy.url}{PATH}{query}", body, **{"Authorization": ""} | sent)
        else:
            async with client.post(f"{proxy.url}{PATH}{query}", json=body, headers=sent) as answer:
                await answer.read()
        assert answer.status == 200
        return re.findall(r'"([0-9a-f]{64})"', answer.headers["x-trimtab-summary"])[0]

    return ask


async def show(store: str, *arguments: str, **environment: str) -> Any:
    run = lambda: run_trimtab("summary", *arguments, "--set", store, **NONE | environment)  # noqa: E731 - for a thread
    return await asyncio.to_thread(run)


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"authorization": f"Bearer {KEY}"}, ""),
        ({"x-api-key": KEY}, ""),
        ({"api-key": KEY}, ""),
        ({"x-goog-api-key": KEY}, ""),
        ({"x-api-key": KEY, "authorization": f"Bearer {KEY}"}, ""),
        ({}, f"?key={KEY}"),
    ],
    ids=["bearer", "x-api-key", "api-key", "google", "both", "query"],
)
async def test_the_key_opens_it_however_the_client_sends_it(headers, query, cause, store) -> None:
    name = await cause(query=query, **headers)
    for variable, option in (("OPENAI_API_KEY", ()), ("MY_KEY", ("--key-from-env", "MY_KEY"))):
        shown = await show(store, name, *option, **{variable: KEY})
        assert shown.exit_code == 0, shown.stderr
        assert "SUMMARY" in shown.stdout
        assert "a model has written it" in shown.stderr
        assert KEY not in shown.output


async def test_other_headers_that_tell_clients_apart_are_needed_too(cause, store) -> None:
    headers = {"authorization": f"Bearer {KEY}", "openai-organization": "org-1", "x-acme-token": "t-0123456789"}
    name = await cause(**headers)
    assert (await show(store, name, OPENAI_API_KEY=KEY)).exit_code == 1
    more = ("--header", "openai-organization=org-1", "--header-from-env", "x-acme-token=ACME")
    shown = await show(store, name, *more, OPENAI_API_KEY=KEY, ACME="t-0123456789")
    assert shown.exit_code == 0, shown.stderr
    assert "t-0123456789" not in shown.output


async def test_a_tenant_by_header_is_enough(cause, store) -> None:
    """It is no secret, so the proxy's own key counts, which is beside the store."""
    name = await cause("tenant=header:x-team", **{"x-team": "red", "authorization": f"Bearer {KEY}"})
    tenant = ("--set", "tenant=header:x-team")
    assert (await show(store, name, *tenant, "--header", "X-Team=red")).exit_code == 0
    assert (await show(store, name, *tenant, "--header", "X-Team=blue")).exit_code == 1
    assert (await show(store, name, *tenant, OPENAI_API_KEY=KEY)).exit_code == 1


async def test_a_client_without_a_credential_is_known_by_the_proxys_own_key(cause, store, tmp_path) -> None:
    name = await cause()
    assert (await show(store, name)).exit_code == 0
    (key_file,) = tmp_path.glob("*.key")
    key_file.unlink()
    assert (await show(store, name)).exit_code == 1
    assert not key_file.exists()


async def test_a_wrong_key_and_an_unknown_id_look_the_same(cause, store) -> None:
    name = await cause(authorization=f"Bearer {KEY}")
    wrong = await show(store, name, OPENAI_API_KEY="sk-wrong-0123456789")
    unknown = await show(store, "0" * 64, OPENAI_API_KEY=KEY)
    assert (wrong.exit_code, wrong.output) == (unknown.exit_code, unknown.output)
    assert wrong.exit_code == 1
    assert "no summary with this id can be read with this credential" in wrong.stderr
    assert "sk-wrong" not in wrong.output


@pytest.mark.parametrize("header", [(), ("--header", "x-team=red")])
async def test_without_a_key_it_says_how_to_give_one(header, cause, store) -> None:
    """Whether there is such a summary is not told."""
    name = await cause(authorization=f"Bearer {KEY}")
    shown, unknown = await show(store, name, *header), await show(store, "0" * 64, *header)
    assert (shown.exit_code, shown.output) == (unknown.exit_code, unknown.output)
    assert shown.exit_code == 1
    assert shown.stderr.startswith("trimtab: no key was given, and without one no summary with this id can be read:")
    for way in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "--key-from-env"):
        assert way in shown.stderr


async def test_a_digest_is_told_as_one(cause, store) -> None:
    """The id may be copied with what stands around it."""
    name = await cause("defaults.summary.wait_seconds=0", authorization=f"Bearer {KEY}")
    shown = await show(store, f'"{name}";kind=summarise;messages=3', OPENAI_API_KEY=KEY)
    assert "a digest, written without a model" in shown.stderr


# `trimtab compact-session`: a session is cut at its next request.


async def _serve(config: Config, session: str) -> None:
    """Have had a request of a session."""
    history = open_history(config)
    history.add(make_event(session=session))
    await history.close()


async def test_the_proxies_that_share_the_store_find_the_wish(log, tmp_path: Path) -> None:
    config = load_config(settings=(f"store=sqlite:///{tmp_path}/s.sqlite3",), environment={})
    await _serve(config, "name")
    await wish(config, "name", "keep the tables")
    store = open_store(config, lambda _: None, log)
    wishes = Wishes(store)
    await wishes.refresh()
    found = wishes.find("name")
    await store.close()

    assert found.read_words("name") == "keep the tables"


async def test_a_session_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    """With the dashboard off, nobody knows which ones there are."""
    store = f"store=sqlite:///{tmp_path}/s.sqlite3"
    config = load_config(settings=(store,), environment={})
    await _serve(config, "name")
    with pytest.raises(StoppedError, match="no session is named nmae"):
        await wish(config, "nmae", "")
    await wish(load_config(settings=(store, "dashboard.enabled=false"), environment={}), "nmae", "")
