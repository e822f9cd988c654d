"""Find the four headings of a handoff note among the lines of a text."""

import pytest

from trimtab.rules.summary.handoff import find_headings


def places(*lines: str) -> list[tuple[int, str]]:
    """The line and the title of each heading found."""
    return [(heading.line, heading.title) for heading in find_headings(lines)]


@pytest.mark.parametrize(
    "form",
    ["{n}. {title}: x", "{n}) {title}", "## {n}. {title}", "### {title}", "**{n}. {title}**", "{n}. **{title}:** x",
     "**{title}:** x", "- **{title}** x", "({n}) {title}: x", "{title}:", "{n}\ufe0f\u20e3 {title}", "## ✅ {title}",
     "## ✅ {n}. {title}", "- {title}: x", "* {title}:", "**Part {n}: {title}**", "Section {n}: {title}",
     "§{n} {title}", "<h2>{n}. {title}</h2>", "| {n}. {title} | x |", "| **{title}** | x |"],
)  # fmt: skip
def test_headings_are_found_in_any_form(form: str) -> None:
    """Marked, bold, numbered or plain, with text on the same line or below it."""
    titles = ("Progress and decisions", "Constraints", "Remaining", "Exact data")
    found = find_headings([form.format(n=number, title=title) for number, title in enumerate(titles, 1)])
    assert [heading.line for heading in found] == [0, 1, 2, 3]
    assert [heading.rank for heading in found] == [1, 2, 3, 4]


def test_lists_within_the_parts_are_not_headings() -> None:
    """One unknown title among known ones counts by its number."""
    steps = ["1. run the tests", "2. mend", "3. commit", "4. tell"]
    lines = ["# 1. Progress", *steps, "# 2. Constraints", "# 3. Remaining", *steps, "# 4. Exact data", *steps]
    assert [line for line, _ in places(*lines)] == [0, 5, 6, 11]
    assert len(places("1. Progress: x", "2. House style: x", "3. Remaining: x")) == 3


@pytest.mark.parametrize(
    "lines",
    [
        ("1. Progress: x", "2. Mend it: x"),
        ("4. Exact data: x", "3. Remaining: x", "2. Constraints: x", "1. Progress: x"),
        ("## ✅ What changed", "## 🧪 Tests", "## 🚀 Usage", "## 📝 Notes"),
        ("## 1. Install", "## 2. Build", "## 3. Start", "## 4. Verify"),
        ("1. Check the status", "2. Review the rules", "3. Finish pending work", "4. Verify the data"),
        ("the work on it is done by now and", "as the rules of the house have it all", "the next step is to do it too"),
        ("Some text.", "", "", "# 1. a", "# 2. b", "# 3. c", "# 4. d"),
    ],
)
def test_too_few_or_other_headings_are_not_found(lines: tuple[str, ...]) -> None:
    """These are not headings of a note.

    Two of them, steps of a plan, the four in reverse, plain words, numbers after much other text.
    """
    assert places(*lines) == []


def test_headings_of_an_unknown_language_share_a_joining_word() -> None:
    """The first two titles each join two things. In a known language, the words of the titles must be known."""
    swahili = ("1. Maendeleo na maamuzi", "2. Vikwazo na mapendeleo", "3. Kilichobaki", "4. Taarifa kamili")
    assert len(places(*swahili)) == 4
    assert places(*(line.replace(" na ", " and ") for line in swahili)) == []
    assert places(swahili[0], swahili[1].replace(" na ", " ya "), *swahili[2:]) == []
