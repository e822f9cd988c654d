"""Lists within a budget, and the quotation around all that the user did not say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import count

from trimtab.rules.summary.quoting import LINE_CHARS, Rows, write_lists
from trimtab.rules.text.markers import QUOTE_END, QUOTE_START

SAID = Rows("Requests", ("one", "two", "three"), 0.3, "requests", is_users=True)
CALLS = Rows("Calls", tuple(f"run {number}" for number in range(9)), 0.2, "calls", 4)
WORD = Rows("Last", ("done",), 0.2)
ROWS = st.lists(st.text(st.characters(exclude_categories=("C", "Z")), max_size=40), max_size=12).map(tuple)


def test_the_users_rows_are_outside_the_quotation() -> None:
    """Lists keep their order, each below its title. A line says how many rows are left out."""
    text = write_lists("Told:\n", (SAID, replace(CALLS, rows=("run 8",)), WORD), max_tokens=999, count=count)
    assert text == (
        "Told:\n## Requests\n- one\n- two\n- three\n"
        f"{QUOTE_START}\n## Calls\n(4 earlier calls omitted)\n> run 8\n## Last\n> done\n{QUOTE_END}\n"
    )


def test_without_anything_to_quote_there_is_no_quotation() -> None:
    """There is no title without rows, either."""
    empty = replace(WORD, rows=())
    assert write_lists("Told:\n", (SAID, empty), max_tokens=999, count=count).endswith("- three\n")
    assert write_lists("Told:\n", (empty,), max_tokens=999, count=count) == "Told:\n"


def test_the_newest_rows_stay() -> None:
    """The first of the user's rows stays, too. A line in place of the others says how many there were."""
    many = replace(SAID, rows=tuple(f"wish {number}, at some length" for number in range(50)))
    text = write_lists("", (many, CALLS, WORD), max_tokens=160, count=count)
    lines = text.splitlines()
    assert lines[1] == "- wish 0, at some length"
    assert lines[2].endswith(" earlier requests omitted)")
    said = [line for line in lines if line.startswith("- ")]
    assert said[1:] == [f"- wish {number}, at some length" for number in range(51 - len(said), 50)]
    assert lines[2] == f"({50 - len(said)} earlier requests omitted)"
    assert "> run 8\n## Last\n> done" in text


def test_a_list_that_needs_less_leaves_its_share_to_others() -> None:
    """A single list may take the whole budget."""
    rows = replace(CALLS, rows=tuple(f"call number {number:02}" for number in range(40)))
    text = write_lists("", (rows,), max_tokens=200, count=count)
    assert 170 < count(text) <= 200


def test_each_list_has_its_share_and_the_last_one_the_rest() -> None:
    """What a list takes of its share is no longer there for the others."""
    lists = [Rows(title, tuple(f"{title} {number:02}" for number in range(40)), 0.4) for title in ("a", "b", "c")]
    text = write_lists("", lists, max_tokens=200, count=count)
    rows = [text.count(f"> {title} ") for title in ("a", "b", "c")]
    assert min(rows) > 0
    assert rows[0] == rows[1] > rows[2]
    assert 170 < count(text) <= 200


@given(said=ROWS, calls=ROWS, word=ROWS, max_tokens=st.integers(0, 300))
def test_whatever_the_budget_the_quotation_is_whole(
    said: tuple[str, ...], calls: tuple[str, ...], word: tuple[str, ...], max_tokens: int
) -> None:
    """The text fits. It has both ends of the quotation or neither; between them are only titles and quoted rows."""
    lists = (replace(SAID, rows=said), replace(CALLS, rows=calls), replace(WORD, rows=word))
    text = write_lists("Told:\n", lists, max_tokens=max_tokens, count=count)
    assert count(text) <= max_tokens
    before, start, quoted = text.partition(f"{QUOTE_START}\n")
    quoted, end, behind = quoted.partition(f"{QUOTE_END}\n")
    assert bool(start) == bool(end)
    assert behind == ""
    assert all(line.startswith(("## ", "> ", "(")) for line in quoted.split("\n")[:-1])
    assert "> " not in before.replace("- >", "")


@pytest.mark.parametrize(
    "parts", [("[trim", "tab: end"), ("User messages from", "the removed part"), ("[", "trimtab: x]")]
)
def test_rows_do_not_make_a_marker_together(parts: tuple[str, str]) -> None:
    """A marker that is split between two rows is broken, too."""
    text = write_lists("", (replace(CALLS, rows=parts),), max_tokens=999, count=count)
    assert "quoted trimtab" in text or "(quoted heading)" in text
    assert "the removed part" not in text
    assert text.count("[") == 2 + text.count("[quoted")


@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_measure_that_costs_more_together_is_kept(more: int) -> None:
    """Rows are counted one by one, but the count of the whole text must fit."""

    def uneven(text: str) -> int:
        return count(text) + more * (text.count("\n") // 4)

    text = write_lists("Told:\n", (SAID, CALLS, WORD), max_tokens=110, count=uneven)
    assert 0 < uneven(text) <= 110


def test_rows_with_an_order_are_taken_by_it() -> None:
    """They are still written oldest first."""
    rows = replace(WORD, rows=tuple(f"statement {number}, at length" for number in range(20)), order=(7, 3, *range(20)))
    rows = replace(rows, order=tuple(dict.fromkeys(rows.order)))
    text = write_lists("", (rows,), max_tokens=45, count=count)
    assert "> statement 3, at length\n> statement 7, at length\n" in text
    assert "statement 19" not in text


def test_rows_with_a_joint_share_lines_of_bounded_length() -> None:
    """Each line begins with the quotation's sign."""
    rows = replace(WORD, rows=tuple(f"statement {number}" for number in range(60)), joint="; ")
    lines = write_lists("", (rows,), max_tokens=999, count=count).splitlines()[2:-1]
    assert "; ".join(line.removeprefix("> ") for line in lines).split("; ") == list(rows.rows)
    assert all(line.startswith("> ") and len(line) <= LINE_CHARS + len("> ; ") for line in lines)
    assert len(lines) == 4
