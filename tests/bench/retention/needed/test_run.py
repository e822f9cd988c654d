"""Which sessions the command measures."""

import sys
from pathlib import Path

import orjson
import pytest

from bench.retention.needed import run


def write_sessions(file: Path, *, task_words: tuple[int, ...]) -> None:
    """A file of sessions with one answer each, to a task of so many words."""
    answer = {"role": "assistant", "content": "done"}
    rows = ([{"role": "user", "content": "word " * words}, answer] for words in task_words)
    file.write_bytes(b"\n".join(orjson.dumps({"messages": messages}) for messages in rows))


@pytest.mark.parametrize(("options", "larger"), [([], 4), (["--held-back"], 2), (["--held-back", "--limit", "1"], 1)])
def test_sessions_held_back_are_every_third_and_a_limit_counts_only_these(
    options: list[str], larger: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, found = tmp_path / "sessions.jsonl", tmp_path / "rows.json"
    write_sessions(file, task_words=(4000, 4000, 4000, 9, 9, 4000, 9))
    given = [str(file), "--only", "nothing", "--windows", "2000:250", "--processes", "1", "--json", str(found)]
    monkeypatch.setattr(run, "_SESSIONS", [])
    monkeypatch.setattr(sys, "argv", ["needed", *given, *options])
    run.main()
    (row,) = orjson.loads(found.read_bytes())
    assert row["larger_sessions"] == larger
