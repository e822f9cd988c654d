"""What doctor says of the keys of clients."""

from pathlib import Path

import pytest

from trimtab.proxy.cli.doctor_checks import find_readable_keys
from trimtab.proxy.config.load import load_config


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o640, False), (0o644, True), (0o444, True)])
def test_a_key_file_that_everybody_can_read_is_told(tmp_path: Path, mode: int, *, is_told: bool) -> None:
    """The finding names the client, and shows neither the key nor the file."""
    open_file, closed_file = tmp_path / "PLANTED-file", tmp_path / "closed"
    for file, key in ((open_file, "PLANTED-key"), (closed_file, "other")):
        file.write_text(key)
        file.chmod(0o600)
    open_file.chmod(mode)
    text = f"client_keys: {{alice: {{key_file: {open_file}}}, bob: {{key_file: {closed_file}}}, carl: key}}"
    found = find_readable_keys(load_config(text, environment={}))

    assert len(found) == is_told
    assert not is_told or ("alice" in found[0].found and "bob" not in found[0].found)
    assert "PLANTED" not in str(found)


@pytest.mark.parametrize("text", ["", "client_keys: [a, b]", "client_keys: {a: b}"])
def test_without_key_files_nothing_is_told(text: str) -> None:
    assert find_readable_keys(load_config(text, environment={})) == []


def test_a_key_file_that_is_gone_is_not_told(tmp_path: Path) -> None:
    """It was there when the configuration was read; the next reading says what is wrong."""
    file = tmp_path / "key"
    file.write_text("k")
    config = load_config(f"client_keys: {{a: {{key_file: {file}}}}}", environment={})
    file.unlink()
    assert find_readable_keys(config) == []
