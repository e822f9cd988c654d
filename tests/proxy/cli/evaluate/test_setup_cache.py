"""The file of questions."""

from pathlib import Path

import pytest

from trimtab.proxy.cli.evaluate.exam import ExamQuestion
from trimtab.proxy.cli.evaluate.setup import keep_questions, name_set, read_questions
from trimtab.proxy.cli.options import StoppedError

QUESTIONS = [ExamQuestion("Which port?", "8443", "port 8443", 0.5), ExamQuestion("你好?", "é", "é 1234", 0.75)]


def test_questions_are_found_again_beside_others(tmp_path: Path) -> None:
    """Each set has its own name. A set that is written again replaces the old one."""
    path = tmp_path / "questions.json"
    assert read_questions(path, "a") == []
    keep_questions(path, "a", QUESTIONS[:1])
    keep_questions(path, "b", QUESTIONS)
    keep_questions(path, "a", QUESTIONS[1:])
    assert (read_questions(path, "a"), read_questions(path, "b")) == (QUESTIONS[1:], QUESTIONS)
    assert read_questions(path, "c") == []


def test_nobody_but_the_owner_may_read_the_file(tmp_path: Path) -> None:
    """It holds text of the session. No other file is left in its folder."""
    path = tmp_path / "questions.json"
    keep_questions(path, "a", QUESTIONS)
    path.chmod(0o644)
    keep_questions(path, "b", QUESTIONS)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"hello", b"[]", b'{"messages": []}', b'{"kind": "other", "sets": {}}'])
def test_a_file_of_something_else_is_never_written_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "session.json"
    path.write_bytes(content)
    for use in (lambda: read_questions(path, "a"), lambda: keep_questions(path, "a", QUESTIONS)):
        with pytest.raises(StoppedError, match="left unchanged"):
            use()
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoppedError, match="cannot be written"):
        keep_questions(tmp_path / "no" / "questions.json", "a", QUESTIONS)
    with pytest.raises(StoppedError, match="cannot be read"):
        read_questions(tmp_path, "a")


def test_another_session_model_or_number_has_other_questions() -> None:
    names = {name_set("1", "m", 15), name_set("2", "m", 15), name_set("1", "n", 15), name_set("1", "m", 5)}
    assert len(names) == 4
    assert name_set("1", "m", 15) in names
