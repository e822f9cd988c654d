"""`trimtab compact-session`: a session is cut at its next request."""

from pathlib import Path

import pytest
from support.command_line import run_trimtab
from support.events import make_event

from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.stored import wish
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.admin.opening import open_history
from trimtab.proxy.store.opening import open_store
from trimtab.proxy.summaries.cold_cuts import Wishes


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


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        ((), 1, "no session is named name"),
        (("--set", "dashboard.enabled=false"), 0, "name: its next request is cut"),
        (("--words", "x" * 501), 2, "at most 500 characters"),
        (("--set", "store=memory"), 1, "store: memory is in the running proxy only"),
        (("--set", "store=redis://127.0.0.1:9/0"), 1, "the store cannot be opened"),
    ],
)
def test_the_command_says_what_it_did(arguments, status, sentence, tmp_path: Path) -> None:
    done = run_trimtab("compact-session", "name", *arguments, HOME=str(tmp_path))

    assert (done.exit_code, sentence in done.output) == (status, True), done.output
