"""A story shows no text by accident."""

from rules.pipeline.story.values import Change, Fate


def test_the_text_of_a_message_is_not_in_its_repr():
    """Tracebacks and logs show the `repr` of values."""
    assert "secret" not in repr(Change(1, "tool", "bash", Fate.PRUNED, ("prune",), 10, 3, "secret", "secret"))


def test_a_change_is_described_without_texts_unless_they_are_asked_for():
    """All values are such as JSON in UTF-8 holds."""
    change = Change(1, "tool", "bash", Fate.PRUNED, ("prune",), 10, 3, "half \ud800 a pair", "after")
    figures = {"at": 1, "role": "tool", "tool": "bash", "fate": "pruned", "rules": ("prune",)}
    described = {**figures, "tokens_before": 10, "tokens_after": 3}
    assert change.describe() == described
    assert change.describe(with_texts=True) == {**described, "before": "half ? a pair", "after": "after"}
