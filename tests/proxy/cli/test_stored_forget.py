"""`trimtab forget`: what was learned about a model is forgotten."""

from pathlib import Path

import pytest
from support.command_line import run_trimtab

from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.stored import forget_model, list_names
from trimtab.proxy.config.load import load_config
from trimtab.proxy.models.records import ModelName, Record, Records
from trimtab.proxy.store.opening import open_store

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
        assert await Records(store).read(name) == (2 * times, Record(1.12, forgotten=times))
        await store.close()


def test_a_model_is_forgotten_at_every_upstream_by_each_way_of_counting() -> None:
    """A request may be for any of them."""
    config = _config("upstreams={other: {base_url: 'http://127.0.0.1:8/v1'}}", "models=[{match: x, count: heuristic}]")

    assert list_names(config, "m") == [
        ModelName(url, "m", count) for url in (URL, "http://127.0.0.1:8/v1") for count in ("auto", "heuristic")
    ]


async def test_a_store_in_memory_has_nothing_to_forget() -> None:
    with pytest.raises(StoppedError, match="restart the proxy"):
        await forget_model(_config("store=memory"), "m")


@pytest.mark.parametrize(
    ("settings", "status", "sentence"),
    [
        ((), 0, "m at 127.0.0.1:9: nothing was known for all clients (is this the name in requests?)"),
        ((), 0, "running proxies notice within 10 seconds"),
        (("--set", "store=memory"), 1, "trimtab: store: memory keeps nothing"),
        (("--set", "store=redis://127.0.0.1:9/0"), 1, "trimtab: the store cannot be opened, read or written"),
        (("--set", "mode=maybe"), 2, "mode: 'maybe' must be"),
    ],
)
def test_the_command_says_what_it_did(settings, status, sentence, tmp_path: Path) -> None:
    """If it did nothing, it says why."""
    done = run_trimtab("forget", "m", "--set", f"upstream.base_url={URL}", *settings, HOME=str(tmp_path))

    assert done.exit_code == status
    assert sentence in done.output
