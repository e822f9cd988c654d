"""Names in a text: whole ones, found in linear time in any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, result, system, user
from support.steps import count_steps

from trimtab.rules.summary.names import (
    LINE_CHARS,
    MAX_NAME_CHARS,
    MIN_NAME_CHARS,
    MOST_LINES,
    Kind,
    find_echoes,
    find_kind,
    find_labels,
    find_names,
)

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
    "0001_initial.py", "4F.txt", "h2Database",
)  # fmt: skip
NUMBERS = (
    "12345", "2024-01-15", "#12345", "ORD-99812", "a1b2c3d4", "3fA9c0D1", "550e8400-e29b-41d4-a716-446655440000",
)  # fmt: skip
NAMES = (*PATHS, *ADDRESSES, *SYMBOLS, *NUMBERS, "45.123456", "4.0.dev20250910")
AROUND = (("", ""), (" ", " "), ('"', '"'), ("see ", "."), ("x=", ","))
TEXTS = st.text() | st.text("ab1_-./@~#:\\ +$%[(\u4e2d", max_size=80)


def test_a_name_is_found_whole() -> None:
    """Only the name, and none of its parts, whatever signs surround it. Its form decides its kind."""
    for name in NAMES:
        found = {(before, after): find_names(f"{before}{name}{after}") for before, after in AROUND}
        assert found == {around: {name} for around in AROUND}
    for name in NAMES:
        kinds = ((PATHS, Kind.PATH), (ADDRESSES, Kind.URL), (NUMBERS, Kind.NUMBER))
        expected = next((kind for names, kind in kinds if name in names), Kind.SYMBOL)
        assert find_kind(name) is expected


def test_what_is_no_name_is_not_found() -> None:
    """Words and small numbers, and what is too short or too long, nor a part of it. Both bounds are inclusive."""
    for text in [
        "Every word of this sentence is a plain one, and so is the LAST.",
        "the well-known half-open one",
        "a/b _x_ a.b",
        "",
    ]:
        assert find_names(text) == frozenset()
    for text in ["a_b/" * 200, "a_b.c" * 200, "x" * 300 + "@mail.example.org"]:
        assert find_names(text) == frozenset()
    for chars, is_name in [
        (MIN_NAME_CHARS - 1, False),
        (MIN_NAME_CHARS, True),
        (MAX_NAME_CHARS, True),
        (MAX_NAME_CHARS + 1, False),
    ]:
        name = "a/" + "b" * (chars - 2)
        assert find_names(f"see {name} there") == ({name} if is_name else set())


def test_text_around_a_name_is_not_part_of_it() -> None:
    """A list's number, a diff's sign, a sentence without spaces. The rest of a path keeps the sign before it."""
    for text, names in [
        ("1.first_step 2.src/app.py", {"first_step", "2.src/app.py"}),
        ("+src/app.py\n-src/old.py", {"src/app.py", "src/old.py"}),
        ("src/dir/ then.", {"src/dir"}),
        ("git@host.example:group/project.git", {"git@host.example", "group/project.git"}),
        ("价格100-150元", {"100-150"}),
        ("//comment/line http://", set()),
    ]:
        assert find_names(text) == names
    for text, rest in [
        ("app/[id]/page.tsx", "]/page.tsx"),
        ("${ROOT}/lib/a_b.py", "}/lib/a_b.py"),
        ("find -path '*/lib/a_b.py'", "*/lib/a_b.py"),
    ]:
        assert find_names(text) == {rest}


@given(text=TEXTS)
def test_each_name_occurs_in_the_text(text: str) -> None:
    """In any text, each name occurs verbatim and has a bounded length.

    It contains no line break and no half of a character.
    """
    for name in find_names(text):
        assert name in text
        assert MIN_NAME_CHARS <= len(name) <= MAX_NAME_CHARS
        assert name.isprintable()
        assert name.encode()
        assert find_kind(name) in Kind
    assert all(len(label) <= 24 and len(number) <= 64 for number, label in find_labels(text).items())
    assert all(number in text and label in text for number, label in find_labels(text).items())


def test_a_number_has_the_word_before_it_as_label() -> None:
    """And the name that it is of: the nearest before it in the sentence, else after it, with no number between."""
    said = 'order ORD-77: order_id: "12345", pid=67890, port is 18080, then pid 67890; x/99999 version 1.23456'
    assert find_labels(said) == {"12345": "order_id", "67890": "pid", "18080": "port", "ORD-77": "order"}
    assert find_labels("order 12345, invoice 12345") == {"12345": "invoice"}
    for said, labels in [
        ("In production billing-db listens on port 22165.", {"22165": "billing-db port"}),
        ("If billing-db fails, a.haas@corp.example is on call.", {"a.haas@corp.example": "billing-db"}),
        ("Der Vertrag von rund-brief endet am 2031-05-04; siehe order-desk.", {"2031-05-04": "rund-brief am"}),
        ("The mail-relay has port 25252, the web-front 8080808.", {"25252": "mail-relay port", "8080808": "web-front"}),
        ("The mail-relay is old. Port 25252 is free.", {"25252": "Port"}),
    ]:
        assert find_labels(said) == labels


HOSTILE = (
    "a",
    "-",
    "/",
    "@",
    "a_",
    "a.",
    "aA",
    "a1",
    "http://",
    "a@a.",
    "a: ",
    "a='",
    "中a_",
    "a_" * 254 + "! ",
    "[",
    ")/a",
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_hostile_text_takes_linear_work(unit: str) -> None:
    """Names and labels are bounded in number and length, and twice the text takes at most twice the work."""
    short, long = (unit * (size // len(unit)) for size in (5_000, 10_000))
    few, more = (count_steps(lambda text=text: (find_names(text), find_labels(text))) for text in (short, long))
    assert more <= 2 * few + 40
    assert all(len(name) <= MAX_NAME_CHARS for name in find_names(long))


FACT = "In production kestrel-portal listens on port 51234."
SPEAKERS = {"user": "the user said", "assistant": "the assistant said", "tool": "a tool returned"}
TALK = "We went through the notes of yesterday and they mostly make sense."


def said(line: str) -> str:
    return f"the user said: {line}"


def test_a_line_that_shares_a_rare_word_with_the_tail_is_found() -> None:
    """Whoever said it, however far back. Compound words count for more; of equal lines the newest comes first."""
    tail = (assistant("Still to be looked at: kestrel-portal."),)
    for message in (user(FACT), assistant(f"{TALK} {FACT}"), result("1", f"{TALK}\n{FACT}\n{TALK}")):
        told = find_echoes((message, *(assistant(TALK) for _ in range(40))), tail, frozenset())
        assert told == (f"{SPEAKERS[message.role]}: {FACT}",)
    tail = (assistant(None, call("1", arguments='{"service": "kestrel-portal"}')),)
    assert find_echoes((user(FACT),), tail, frozenset()) == (said(FACT),)
    assert find_echoes((user(FACT),), (result("1", "kestrel-portal"),), frozenset()) == ()
    tail = (assistant("On with kestrel-portal and the heronry."),)
    plain, joined = "Here the heronry takes port 51234.", "Now this kestrel-portal needs port 5123."
    assert find_echoes((user(joined), user(plain)), tail, frozenset()) == (said(joined), said(plain))
    three, joined = "The heronry, jetty and lagoon take 512.", "Now this kestrel-portal has port 51234."
    tail = (assistant("On with kestrel-portal, the heronry, the jetty and the lagoon."),)
    assert find_echoes((user(three), user(joined)), tail, frozenset()) == (said(three), said(joined))
    older, newer = "Now the heronry is at 10.", "Now the heronry is at 20."
    assert find_echoes((user(older), user(newer)), tail, frozenset()) == (said(newer), said(older))


def test_a_line_without_news_does_not_count() -> None:
    """All its names are known, its word is in many lines, it is the system's, endless, or of a program or data."""
    tail = (assistant("The kestrel is next: src/kestrel/main.py."),)
    assert find_echoes((user("The kestrel was a good idea."),), tail, frozenset()) == ()
    line = "The kestrel lives in src/kestrel/main.py."
    assert find_echoes((user(line),), tail, frozenset({"src/kestrel/main.py"})) == ()
    assert find_echoes((user(line),), tail, frozenset()) == (said(line),)
    tail = (assistant("On with the kestrel."),)
    lines = [f"The kestrel has feather {number + 10}." for number in range(MOST_LINES + 1)]
    assert find_echoes(tuple(map(user, lines)), tail, frozenset()) == ()
    assert len(find_echoes(tuple(map(user, lines[:-1])), tail, frozenset())) == MOST_LINES
    assert find_echoes((user(lines[0]),) * 50, tail, frozenset()) == (said(lines[0]),)
    tail = (assistant("kestrel-portal"),)
    assert find_echoes((system(FACT),), tail, frozenset()) == ()
    assert find_echoes((user(f"{'x' * LINE_CHARS} {FACT}"),), tail, frozenset()) == ()
    tail = (assistant("On with kestrel_portal."),)
    for line in (
        "   71\ttest_kestrel_portal()",
        "-rw-r--r-- 1 root root 13221 kestrel_portal",
        '[{"kestrel_portal":"HAT279"}',
        "[trimtab: omitted 12 lines of the kestrel_portal (~17 tokens); read the file again]",
    ):
        assert find_echoes((result("1", line),), tail, frozenset()) == ()
