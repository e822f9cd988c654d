"""Blocks of retrieved memory: what is one, and what only looks like one."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.text.client_summaries import find_memory

TAGS = ("rule", "note")


def quote(text: str, tags: tuple[str, ...] = TAGS) -> list[str]:
    """The text of each block."""
    return [text[start:stop] for start, stop in find_memory(text, tags)]


def test_a_block_goes_from_its_tag_to_the_closing_tag() -> None:
    """Attributes and line breaks may follow a name, but letters may not."""
    assert quote("a<rule>b</rule>c <rules>d</rules> <ruler/>") == ["<rule>b</rule>"]
    blocks = ['<rule a="1">b</rule>', "<rule\n>c</rule>", "<note>d</note>"]
    assert quote("".join(blocks)) == blocks


def test_blocks_of_several_tags_do_not_overlap() -> None:
    """A block ends at the first closing tag of its name, and what is inside it is a part of it."""
    assert quote("<rule><note>a</rule></note>") == ["<rule><note>a</rule>"]
    assert quote("<rule><rule>a</rule>b</rule>") == ["<rule><rule>a</rule>"]
    assert quote("<rule>open <note>a</note>") == ["<note>a</note>"]


def test_without_tags_there_is_no_memory() -> None:
    """An empty list of tags switches memory off. A tag of another case is another tag."""
    assert quote("<rule>a</rule>", ()) == []
    assert quote("<RULE>a</RULE>") == []


def test_tags_that_are_never_closed_are_read_in_one_pass() -> None:
    """A hundred thousand opening tags have no block without a closing tag, and a single block with one."""
    opened = "<rule>" * 100_000
    assert quote(opened) == []
    assert quote(opened + "<note></note>") == ["<note></note>"]
    assert quote(opened + "</rule> x") == [opened + "</rule>"]
    assert len(quote("<rule></rule>" * 1000 + opened)) == 1000


@given(st.lists(st.sampled_from(["<rule>", "<rule x>", "</rule>", "<note>", "</note>", "text", "<", "\n"])))
def test_spans_are_apart_and_each_is_a_block(parts: list[str]) -> None:
    """They are in order, each begins with a tag and ends with its only closing tag, and none is left between them."""
    text = "".join(parts)
    spans = find_memory(text, TAGS)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    for start, stop in spans:
        tag = text[start + 1 : start + 5]
        assert tag in TAGS
        assert text.index(f"</{tag}>", start) + len(f"</{tag}>") == stop
    borders = [0, *(border for span in spans for border in span), len(text)]
    for start, stop in zip(borders[::2], borders[1::2], strict=True):
        assert find_memory(text[start:stop], TAGS) == []
