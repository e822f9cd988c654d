"""Names in a text: whole ones, found in linear time whatever the text is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.steps import count_steps

from rules.summary.anchors.names import MAX_NAME_CHARS, MIN_NAME_CHARS, Kind, find_kind, find_labels, find_names

PATHS = (
    "src/app.py",
    "/usr/local/bin/tool",
    "~/.config/app.toml",
    "./a/b.c",
    "$HOME/work/x.py",
    "C:\\Users\\me\\a.txt",
)
ADDRESSES = ("https://host.example/a?b=c&d=%20e", "http://[::1", "me+you@mail.example.org", "1234+me@users.example.org")
SYMBOLS = (
    "os.path.join", "snake_case_name", "__init__.py", "camelCase", "CapitalWords", "kebab-case.component.ts",
    "package-4.2.1", "package-3.11.1-py3-none-any.whl", "Übersicht.txt", "row_3-67890", "4g_only",
    "0001_initial.py", "4F.txt",
)  # fmt: skip
NUMBERS = ("12345", "2024-01-15", "#12345", "ORD-99812", "a1b2c3d4", "550e8400-e29b-41d4-a716-446655440000")
NAMES = (*PATHS, *ADDRESSES, *SYMBOLS, *NUMBERS, "45.123456", "4.0.dev20250910")
AROUND = (
    ("", ""),
    (" ", " "),
    ("(", ")"),
    ('"', '"'),
    ("`", "`"),
    ("see ", "."),
    ("x=", ","),
    ("[", "]"),
    ("\n", "\n"),
)
TEXTS = st.text() | st.text("ab1_-./@~#:\\ +$%[(\u4e2d", max_size=80)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("before", "after"), AROUND)
def test_a_name_is_found_whole(name: str, before: str, after: str) -> None:
    """Alone, and none of its parts, whatever signs stand around it."""
    assert find_names(f"{before}{name}{after}") == {name}


@pytest.mark.parametrize(
    "text",
    [
        "Every word of this sentence is a plain one, and so is the LAST.",
        "1.5 12.75 3.10 0.25s 1.5GB 1234 v1 a-b",
        "the well-known half-open one",
        "a/b _x_ a.b",
        "",
    ],
)
def test_words_and_small_numbers_are_no_names(text: str) -> None:
    """Nor is anything of less than five characters."""
    assert find_names(text) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "https://host.example/" + "a_b/" * 200,
        "C:\\" + "a_b\\" * 200,
        "a_b/" * 200,
        "a_b.c" * 200,
        "x" * 300 + "@mail.example.org",
    ],
)
def test_of_a_name_that_cannot_be_told_whole_no_part_is_told(text: str) -> None:
    """What is too long is no name, and neither is its end."""
    assert find_names(text) == frozenset()


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("app/[id]/page.tsx", "]/page.tsx"),
        ("${ROOT}/lib/a_b.py", "}/lib/a_b.py"),
        ("f(x)/lib/a_b.py", ")/lib/a_b.py"),
        ("find -path '*/lib/a_b.py'", "*/lib/a_b.py"),
    ],
)
def test_the_rest_of_a_path_stands_with_the_sign_before_it(text: str, rest: str) -> None:
    """Without it, it would be another path, from the root."""
    assert find_names(text) == {rest}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1.first_step 2.src/app.py", {"first_step", "2.src/app.py"}),
        ("+src/app.py\n-src/old.py", {"src/app.py", "src/old.py"}),
        ("src/dir/ then.", {"src/dir"}),
        ("git@host.example:group/project.git", {"git@host.example", "group/project.git"}),
        ("pkg_a@one_b", {"pkg_a", "one_b"}),
        ("价格100-150元", {"100-150"}),
        ("//comment/line http://", set()),
    ],
)
def test_what_stands_around_a_name_is_no_part_of_it(text: str, names: set[str]) -> None:
    """The number of a list, the sign of a diff, the slash behind a folder, the sentence in a script without blanks."""
    assert find_names(text) == names


@given(text=TEXTS)
def test_each_name_stands_in_the_text(text: str) -> None:
    """As it is, in any text, and of a bounded length; nothing in it ends a line or is half of a character."""
    for name in find_names(text):
        assert name in text
        assert MIN_NAME_CHARS <= len(name) <= MAX_NAME_CHARS
        assert name.isprintable()
        assert name.encode()
        assert find_kind(name) in Kind
    assert all(len(label) <= 24 and len(number) <= 64 for number, label in find_labels(text).items())
    assert all(number in text and label in text for number, label in find_labels(text).items())


@given(texts=st.lists(TEXTS, max_size=5))
def test_texts_in_lines_have_the_names_of_each(texts: list[str]) -> None:
    """A name ends with its line."""
    lines = [line for text in texts for line in text.splitlines()]
    assert find_names("\n".join(lines)) == frozenset().union(*map(find_names, lines))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_of_one_kind(name: str) -> None:
    """By what it looks like."""
    kinds = ((PATHS, Kind.PATH), (ADDRESSES, Kind.URL), (NUMBERS, Kind.NUMBER))
    expected = next((kind for names, kind in kinds if name in names), Kind.SYMBOL)
    assert find_kind(name) is expected


def test_a_number_has_the_word_before_it_as_label() -> None:
    """The last one counts; a number that is a part of something else has none."""
    said = 'order ORD-77: order_id: "12345", pid=67890, port is 18080, then pid 67890; x/99999 version 1.23456'
    assert find_labels(said) == {"12345": "order_id", "67890": "pid", "18080": "port", "ORD-77": "order"}
    assert find_labels("order 12345, invoice 12345") == {"12345": "invoice"}


HOSTILE = (
    "a", "1", "_", "-", ".", "/", "@", "~", "#", "\\",
    "a_", "a-", "a.", "a@", "aA", "Aa", "a1", "1.", "-1", "_1",
    "http://", "https://a", "a@a.", "a: ", "a='", "a-b_", "C:\\a",
    "中", "中a_", "x" * 509 + "1 ", "a_" * 254 + "! ",
    "a-" * 255 + " ", "a." * 255 + ".", "@a" * 255 + " ", "1." * 255 + "a ", "[", ")", ")/a", "\ud800",
    "a" * 23 + " = ",
)  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_hostile_text_takes_linear_work(unit: str) -> None:
    """Names and labels in it are bounded in number and length, and twice the text takes at most twice the work."""
    short, long = (unit * (size // len(unit)) for size in (20_000, 40_000))
    few, more = (count_steps(lambda text=text: (find_names(text), find_labels(text))) for text in (short, long))
    assert more <= 2 * few + 40
    assert all(len(name) <= MAX_NAME_CHARS for name in find_names(long))
