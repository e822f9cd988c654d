"""Source files: their definitions."""

from trimtab.rules.results.scores import is_numbered, score_source, strip_gutter

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


def test_a_definition_comes_before_any_statement() -> None:
    """In any language, within a class or not, after a line number or not."""
    for line in DEFINITIONS:
        for text in (line, f"   120\t{line}", f"120: {line}"):
            scores = score_source(["x = 1\n"] * 20 + [text])
            assert max(scores, key=scores.__getitem__) == 20
    for line in STATEMENTS:
        assert set(score_source([line, "def f():"])) == {1}


def test_a_gutter_is_no_code() -> None:
    """With each sign that viewers print after a line number. Numbers that do not rise are data."""
    for gutter in ("   12\t", "12: ", "12| ", "12\u2192", "12  "):
        assert strip_gutter(f"{gutter}x = 1") == "x = 1"
    assert strip_gutter("x = 12") == "x = 12"
    assert is_numbered([f"{number}\tx" for number in range(50)])
    assert not is_numbered([f"{number * 7 % 5}\tx" for number in range(50)])
    assert not is_numbered(["x"] * 5)
