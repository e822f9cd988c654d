"""What `trimtab doctor` says about variables."""

import pytest

from trimtab.proxy.cli.doctor_checks import find_unknown_names


def test_unknown_variables_are_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names each of them, with a likely right name. Known and foreign variables are not named."""
    assert find_unknown_names() == []
    for name in ("TRIMTAB_SERVICE_HOST", "TRIMTAB_WORKER", "TRIMTAB_MODE", "OTHER"):
        monkeypatch.setenv(name, "off")

    (finding,) = find_unknown_names()
    assert finding.level == "warning"
    assert finding.found == (
        "these variables set no key: TRIMTAB_SERVICE_HOST, TRIMTAB_WORKER (did you mean TRIMTAB_WORKERS?)"
    )
