"""A story shows no text by accident."""

from rules.pipeline.story.values import Change, Fate


def test_the_text_of_a_message_is_not_in_its_repr():
    """Tracebacks and logs show the `repr` of values."""
    assert "secret" not in repr(Change(1, "tool", "bash", Fate.PRUNED, ("prune",), 10, 3, "secret", "secret"))
