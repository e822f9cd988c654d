"""The exit after wrong use."""

import pytest

from trimtab.proxy.cli.options import WRONG_USE, wrong_use
from trimtab.proxy.config.document import ConfigError


def test_each_mistake_of_a_configuration_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The status is that of wrong use."""
    message = "a: wrong\nb: wrong, too"
    with pytest.raises(SystemExit) as ended, wrong_use():
        raise ConfigError(message)

    assert ended.value.code == WRONG_USE == 2
    assert capsys.readouterr().err == "trimtab: a: wrong\ntrimtab: b: wrong, too\n"
