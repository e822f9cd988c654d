"""Statistics are beside the summaries."""

from pathlib import Path

import pytest

from trimtab.proxy.account.statistics.store import find_file, open_statistics
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.store.opening import data_directory, find_key_file


def _config(store: str):
    return load_config(settings=(f"store={store}",), environment={})


def test_the_file_is_in_the_same_folder() -> None:
    assert find_file(_config("sqlite")) == data_directory() / "statistics.sqlite3"
    named = _config("sqlite:////srv/trimtab.db")
    assert find_file(named) == Path("/srv/trimtab.db.statistics")
    assert find_key_file(named).parent == find_file(named).parent


@pytest.mark.parametrize(
    ("store", "name"), [("memory", "memory"), ("sqlite", "sqlite"), ("redis://127.0.0.1:9/0", "redis")]
)
async def test_the_store_decides(store, name, log) -> None:
    opened = open_statistics(_config(store), log)
    assert opened.name == name
    await opened.close()


def test_an_unusable_url_is_not_quoted(log) -> None:
    config = _config("redis://127.0.0.1:9/0").model_copy(update={"store": "redis://:secret@h:9/0?nonsense=1"})
    with pytest.raises(ConfigError) as raised:
        open_statistics(config, log)
    assert "secret" not in str(raised.value)
