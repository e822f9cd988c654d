"""Indexes of whole sessions, as they are: what still runs, errors, deeds, echoes and names."""

import pytest
from support.builders import count
from support.golden import check_golden
from support.told_sessions import told_sessions

from trimtab.rules.summary.anchors.names import read_mentions
from trimtab.rules.summary.anchors.write import Removed, write_anchors


@pytest.mark.parametrize("name", told_sessions())
def test_an_index_is_as_it_was(name: str) -> None:
    """Of all but the newest messages: with little room and with more, and beside a digest."""
    messages = told_sessions()[name]
    head, tail = messages[:-4], messages[-4:]
    alone = Removed(head, [read_mentions(each) for each in head], frozenset({"src/quay/tides.py"}), tail=tail)
    beside = Removed(head, alone.mentions, frozenset(), is_told=True, tail=tail)
    check_golden(
        f"anchors/{name}",
        {
            "100 tokens": write_anchors(alone, max_tokens=100, count=count),
            "300 tokens": write_anchors(alone, max_tokens=300, count=count),
            "900 tokens": write_anchors(alone, max_tokens=900, count=count),
            "300 tokens, beside a digest": write_anchors(beside, max_tokens=300, count=count),
        },
    )
