"""The states of one model: what may reach other processes, and what stays in this one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.models.calibration import Calibration
from trimtab.proxy.models.keeping import Model
from trimtab.proxy.models.lessons import Lesson, find_changes
from trimtab.proxy.models.records import ModelName, Record

LESSON = Lesson(window_tokens=8192, ratio=1.5)
BELIEVED_TOKENS = 128_000
NAME = ModelName("http://upstream", "m", "auto")


def _teach(model: Model, lesson: Lesson = LESSON) -> None:
    model.teach(find_changes(BELIEVED_TOKENS, lesson, model.known, now=1.0))


@given(st.lists(st.booleans()))
def test_what_was_taught_waits_to_be_written_until_a_record_is_gone_by(lessons: list[bool]) -> None:
    """Neither lessons nor records make a model vouched."""
    model = Model(NAME, Record(1.0))
    for generation, is_lesson in enumerate(lessons, start=1):
        if is_lesson:
            _teach(model, Lesson(window_tokens=8192 + generation))
        else:
            model.adopt(generation, Record(1.0))
        assert (model.is_taught, model.is_vouched) == (is_lesson, False)


def test_a_lesson_is_learned_once() -> None:
    """A lesson that is already known changes nothing."""
    model = Model(NAME, Record(1.0, calibrated=True))
    _teach(model)
    assert (model.known.learned_tokens, model.known.ratio, model.known.calibrated) == (8192, 1.5, False)
    model.adopt(1, model.known)
    _teach(model)

    assert not model.is_taught


def test_what_is_forgotten_leaves_no_trace() -> None:
    """Neither a lesson that waits to be written, nor samples, nor requests that count towards a test."""
    model = Model(NAME, Record(1.0))
    _teach(model)
    model.cut_requests = 1
    model.calibration = None
    model.forget(Record(1.2))

    assert (model.known, model.is_taught, model.cut_requests) == (Record(1.2), False, 0)
    assert isinstance(model.calibration, Calibration)


@pytest.mark.parametrize(
    ("generation", "ratio", "is_taught", "adopts"),
    [
        (1, 1.0, False, False),
        (1, 1.3, False, True),
        (1, 1.3, True, False),
        (2, 1.0, True, True),
        (0, 1.0, False, False),
    ],
)
def test_a_newer_record_is_adopted_and_another_one_unless_a_lesson_is_fresher(
    generation, ratio, is_taught, adopts
) -> None:
    model = Model(NAME, Record(1.0), generation=1)
    if is_taught:
        _teach(model, Lesson(added_tokens=500))

    assert model.adopts(generation, Record(ratio)) is adopts


def test_adopting_tells_what_changed_and_keeps_a_window_that_a_record_lacks() -> None:
    model = Model(NAME, Record(1.0, 8192))
    assert model.adopt(1, Record(1.3, learned_tokens=4096)) == [
        ("calibration", 1.0, 1.3),
        ("window", None, 4096),
    ]
    assert (model.known.window_tokens, model.generation) == (8192, 1)
    assert model.adopt(2, Record(1.3, learned_tokens=4096)) == []
