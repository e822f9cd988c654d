"""The exit after wrong use."""

import resource
from pathlib import Path

import pytest

from trimtab.proxy.cli.options import WRONG_USE, replace_file, wrong_use
from trimtab.proxy.config.document import ConfigError


def test_each_mistake_of_a_configuration_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The status is that of wrong use."""
    message = "a: wrong\nb: wrong, too"
    with pytest.raises(SystemExit) as ended, wrong_use():
        raise ConfigError(message)

    assert ended.value.code == WRONG_USE == 2
    assert capsys.readouterr().err == "trimtab: a: wrong\ntrimtab: b: wrong, too\n"


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    """And no part of the new one is left beside it."""
    file = tmp_path / "file"
    file.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            replace_file(file, b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]
