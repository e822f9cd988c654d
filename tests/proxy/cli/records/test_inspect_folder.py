"""The folder of recordings is found without being named."""

from pathlib import Path

from trimtab.proxy.cli.options import usual_recordings
from trimtab.proxy.cli.records.inspect import find_folder


def test_the_named_folder_comes_first_then_the_configured_then_the_usual(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    configured = ("record.dir=~/configured",)
    assert find_folder(Path("~/named"), None, configured) == tmp_path / "named"
    assert find_folder(None, None, configured) == tmp_path / "configured"
    assert find_folder(None, None, ()) == usual_recordings()
