"""Source files: their definitions."""

import pytest

from trimtab.rules.results.scores import is_numbered, is_source, score_source, strip_gutter

DEFINITIONS = [
    "def read(self):",
    "    async def read(self):",
    "class Reader:",
    "export default function read() {",
    "pub(crate) fn read(&self) -> u8 {",
    "func (r *Reader) Read() error {",
    "impl Reader {",
    "interface Reader {",
    "    public static final int read(String name) {",
    "static int read(const char *name)",
    "unsigned long read_all(void)",
    "const read = async (name) => {",
    "CREATE TABLE readers (",
    "template<typename T>",
]
STATEMENTS = [
    "    total = read(name)",
    "    return total",
    "# read the file",
    "    if total:",
    "int total = 3;",
    "}",
    "x(y);",
]


@pytest.mark.parametrize("line", DEFINITIONS)
def test_a_definition_comes_before_any_statement(line: str) -> None:
    """In any language, within a class or not, after a line number or not."""
    for text in (line, f"   120\t{line}", f"120: {line}"):
        scores = score_source(["x = 1\n"] * 20 + [text])
        assert max(scores, key=scores.__getitem__) == 20


@pytest.mark.parametrize("line", STATEMENTS)
def test_a_statement_is_no_definition(line: str) -> None:
    assert set(score_source([line, "def f():"])) == {1}


def test_a_gutter_is_no_code() -> None:
    """With each sign that viewers print after a line number."""
    for gutter in ("   12\t", "12: ", "12| ", "12\u2192", "12  "):
        assert strip_gutter(f"{gutter}x = 1") == "x = 1"
    assert strip_gutter("x = 12") == "x = 12"


def test_numbers_have_to_rise() -> None:
    """Numbers that do not rise are data."""
    assert is_numbered([f"{number}\tx" for number in range(50)])
    assert not is_numbered([f"{number * 7 % 5}\tx" for number in range(50)])
    assert not is_numbered(["x"] * 5)


@pytest.mark.parametrize(
    "line", ["public " * 57, "a b c " * 66, "a f( " * 80, "    " * 100, ", " * 200, "static " + "a" * 390, "(" * 400]
)
def test_hostile_lines_are_read(line: str) -> None:
    """Without an error."""
    for end in ("", ";", "x", "("):
        lines = [line[: 400 - len(end)] + end] * 50
        assert set(score_source(lines)) <= set(range(50))
        assert not is_source(["word " + one for one in lines]) or end in "(;"
