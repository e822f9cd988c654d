"""`trimtab record` is `trimtab serve` with recordings; what it records is tested end to end."""

from typing import Any

import pytest
from support.command_line import run_trimtab

from trimtab.proxy.cli.options import usual_recordings
from trimtab.proxy.cli.serving import serve as serving
from trimtab.proxy.cli.serving.serve import record

pytestmark = pytest.mark.usefixtures("restored_log")


@pytest.fixture
def started(monkeypatch) -> list[Any]:
    """The configurations with which a proxy would have started."""
    configs: list[Any] = []

    async def start(config: Any, *_: Any) -> None:
        configs.append(config)

    monkeypatch.setattr(serving, "_serve", start)
    return configs


def test_it_has_all_options_of_serve() -> None:
    assert {option.name for option in serving.serve.params} < {option.name for option in record.params}


@pytest.mark.parametrize("name", ["plain", "with: colon", "null", "{braces}", "#hash"])
def test_its_options_set_the_keys_of_record(name, started, tmp_path) -> None:
    """Also if the name of the folder looks like another value of YAML."""
    done = run_trimtab(
        "record", "--dir", tmp_path / name, "--keep", "7", "--max-bytes", "2000000", "--listen", "[::1]:0"
    )
    assert done.exit_code == 0, done.output
    assert started[0].record.model_dump() == {"dir": str(tmp_path / name), "keep": 7, "max_bytes": 2_000_000}
    assert started[0].listen == "[::1]:0"


def test_without_options_it_records_where_inspect_looks(started) -> None:
    assert run_trimtab("record", "--set", "mode=observe").exit_code == 0
    assert started[0].record.dir == str(usual_recordings())
    assert started[0].record.keep == 10_000
    assert started[0].mode == "observe"
    assert "trimtab record" in run_trimtab("inspect").stderr


def test_the_folder_of_the_configuration_counts(started, tmp_path) -> None:
    """Unless an option names another one. A configuration that names none may still have the other keys."""
    config = tmp_path / "trimtab.yaml"
    config.write_text(f"record: {{dir: {tmp_path / 'own'}, keep: 5}}\n")
    assert run_trimtab("record", "--config", config).exit_code == 0
    assert run_trimtab("record", "--set", f"record.dir={tmp_path / 'set'}").exit_code == 0
    assert run_trimtab("record", "--config", config, "--dir", tmp_path / "other").exit_code == 0
    config.write_text("record: {keep: 6}\n")
    assert run_trimtab("record", "--config", config).exit_code == 0
    folders = [config.record.dir for config in started]
    assert folders == [str(tmp_path / "own"), str(tmp_path / "set"), str(tmp_path / "other"), str(usual_recordings())]
    assert [config.record.keep for config in started] == [5, 10_000, 5, 6]


@pytest.mark.parametrize("arguments", [("--keep", "0"), ("--max-bytes", "5")])
def test_bounds_that_no_recording_fits_are_wrong_use(arguments, started, tmp_path) -> None:
    assert run_trimtab("record", "--dir", tmp_path, *arguments).exit_code == 2
    assert not started
