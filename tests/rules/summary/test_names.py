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
    MOST_TOLD,
    SHOWN_CHARS,
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
def test_a_name_is_found_whole(name: str) -> None:
    """Only the name, and none of its parts, whatever signs surround it."""
    found = {(before, after): find_names(f"{before}{name}{after}") for before, after in AROUND}
    assert found == {around: {name} for around in AROUND}


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
def test_words_and_small_numbers_are_not_names(text: str) -> None:
    """Neither is anything of fewer than five characters."""
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
def test_a_name_that_is_too_long_is_not_found_in_part(text: str) -> None:
    """A run that is too long is not a name, and neither is its end."""
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
def test_the_rest_of_a_path_keeps_the_sign_before_it(text: str, rest: str) -> None:
    """Without the sign it would be another path, from the root."""
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
def test_text_around_a_name_is_not_part_of_it(text: str, names: set[str]) -> None:
    """A list's number, a diff's sign, the slash after a folder, the sentence in a script without spaces."""
    assert find_names(text) == names


@pytest.mark.parametrize(
    ("chars", "is_name"),
    [(MIN_NAME_CHARS - 1, False), (MIN_NAME_CHARS, True), (MAX_NAME_CHARS, True), (MAX_NAME_CHARS + 1, False)],
)
def test_a_name_is_neither_very_short_nor_very_long(chars: int, is_name: bool) -> None:  # noqa: FBT001
    """Both bounds are inclusive."""
    name = "a/" + "b" * (chars - 2)
    assert find_names(f"see {name} there") == ({name} if is_name else set())


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


@given(texts=st.lists(TEXTS, max_size=5))
def test_texts_in_lines_have_the_names_of_each(texts: list[str]) -> None:
    """A name never continues on the next line."""
    lines = [line for text in texts for line in text.splitlines()]
    assert find_names("\n".join(lines)) == frozenset().union(*map(find_names, lines))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_of_one_kind(name: str) -> None:
    """Its form decides."""
    kinds = ((PATHS, Kind.PATH), (ADDRESSES, Kind.URL), (NUMBERS, Kind.NUMBER))
    expected = next((kind for names, kind in kinds if name in names), Kind.SYMBOL)
    assert find_kind(name) is expected


def test_a_number_has_the_word_before_it_as_label() -> None:
    """The last occurrence counts; a number that is part of something else has no label."""
    said = 'order ORD-77: order_id: "12345", pid=67890, port is 18080, then pid 67890; x/99999 version 1.23456'
    assert find_labels(said) == {"12345": "order_id", "67890": "pid", "18080": "port", "ORD-77": "order"}
    assert find_labels("order 12345, invoice 12345") == {"12345": "invoice"}


@pytest.mark.parametrize(
    ("said", "labels"),
    [
        ("In production billing-db listens on port 22165.", {"22165": "billing-db port"}),
        ("If billing-db fails, a.haas@corp.example is on call.", {"a.haas@corp.example": "billing-db"}),
        ("Der Vertrag von rund-brief endet am 2031-05-04; siehe order-desk.", {"2031-05-04": "rund-brief am"}),
        ("The mail-relay has port 25252, the web-front 8080808.", {"25252": "mail-relay port", "8080808": "web-front"}),
        ("The mail-relay is old. Port 25252 is free.", {"25252": "Port"}),
        ("ticket-desk-7f2 has 31337 of /srv/mail-relay/a.toml", {}),
    ],
)
def test_a_number_is_kept_with_the_name_that_it_is_of(said: str, labels: dict[str, str]) -> None:
    """The nearest one before it in the sentence, else after it, with no other number between the two.

    A part of a longer name does not count.
    """
    assert find_labels(said) == labels


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
    """Names and labels are bounded in number and length, and twice the text takes at most twice the work."""
    short, long = (unit * (size // len(unit)) for size in (20_000, 40_000))
    few, more = (count_steps(lambda text=text: (find_names(text), find_labels(text))) for text in (short, long))
    assert more <= 2 * few + 40
    assert all(len(name) <= MAX_NAME_CHARS for name in find_names(long))


# Lines of the removed part that share rare words with the tail.

FACT = "In production kestrel-portal listens on port 51234."
SPEAKERS = {"user": "the user said", "assistant": "the assistant said", "tool": "a tool returned"}
TALK = "We went through the notes of yesterday and they mostly make sense."


def said(line: str) -> str:
    return f"the user said: {line}"


def test_a_line_that_shares_a_rare_word_with_the_tail_is_found() -> None:
    """It does not matter who said it, or how far back it is."""
    tail = (assistant("Still to be looked at: kestrel-portal."),)
    for message in (user(FACT), assistant(f"{TALK} {FACT}"), result("1", f"{TALK}\n{FACT}\n{TALK}")):
        told = find_echoes((message, *(assistant(TALK) for _ in range(40))), tail, frozenset())
        assert told == (f"{SPEAKERS[message.role]}: {FACT}",)


def test_words_of_a_calls_arguments_count_as_the_tails() -> None:
    """They show what the agent is about to do."""
    tail = (assistant(None, call("1", arguments='{"service": "kestrel-portal"}')),)
    assert find_echoes((user(FACT),), tail, frozenset()) == (said(FACT),)


def test_results_in_the_tail_do_not_count() -> None:
    """Results in the tail do not count: a listing of a thousand names would match a thousand lines."""
    assert find_echoes((user(FACT),), (result("1", "kestrel-portal"),), frozenset()) == ()


def test_a_line_without_a_name_or_a_number_does_not_count() -> None:
    """Neither does a line whose names are all known already."""
    tail = (assistant("The kestrel is next: src/kestrel/main.py."),)
    assert find_echoes((user("The kestrel was a good idea."),), tail, frozenset()) == ()
    line = "The kestrel lives in src/kestrel/main.py."
    assert find_echoes((user(line),), tail, frozenset({"src/kestrel/main.py"})) == ()
    assert find_echoes((user(line),), tail, frozenset()) == (said(line),)


def test_a_word_in_many_lines_does_not_count() -> None:
    """Equal lines count as one."""
    tail = (assistant("On with the kestrel."),)
    lines = [f"The kestrel has feather {number + 10}." for number in range(MOST_LINES + 1)]
    assert find_echoes(tuple(map(user, lines)), tail, frozenset()) == ()
    assert len(find_echoes(tuple(map(user, lines[:-1])), tail, frozenset())) == MOST_LINES
    assert find_echoes((user(lines[0]),) * 50, tail, frozenset()) == (said(lines[0]),)


def test_compound_words_count_for_more_and_the_newest_of_equal_lines_comes_first() -> None:
    """A word that no other line has counts for more, too."""
    tail = (assistant("On with kestrel-portal and the heronry."),)
    plain, joined = "Here the heronry takes port 51234.", "Now this kestrel-portal needs port 5123."
    assert find_echoes((user(joined), user(plain)), tail, frozenset()) == (said(joined), said(plain))
    three, joined = "The heronry, jetty and lagoon take 512.", "Now this kestrel-portal has port 51234."
    tail = (assistant("On with kestrel-portal, the heronry, the jetty and the lagoon."),)
    assert find_echoes((user(three), user(joined)), tail, frozenset()) == (said(three), said(joined))
    older, newer = "Now the heronry is at 10.", "Now the heronry is at 20."
    assert find_echoes((user(older), user(newer)), tail, frozenset()) == (said(newer), said(older))


@pytest.mark.parametrize(
    "line",
    ["   71\ttest_kestrel_portal()", "if kestrel_portal == '__main__':", "-rw-r--r-- 1 root root 13221 kestrel_portal",
     '[{"kestrel_portal":"HAT279"}', "src/a.py:12:    raise kestrel_portal('12')"],
)  # fmt: skip
def test_lines_of_programs_listings_and_data_do_not_count(line: str) -> None:
    """The number before a line of a file is not part of the line. Our own markers are not lines."""
    tail = (assistant("On with kestrel_portal."),)
    assert find_echoes((result("1", line),), tail, frozenset()) == ()
    ours = "[trimtab: omitted 12 lines of the kestrel_portal (~17 tokens); read the file again]"
    assert find_echoes((result("1", ours),), tail, frozenset()) == ()


def test_system_messages_and_endless_lines_do_not_count() -> None:
    """System messages are always forwarded; endless lines contain every word."""
    tail = (assistant("kestrel-portal"),)
    assert find_echoes((system(FACT),), tail, frozenset()) == ()
    assert find_echoes((user(f"{'x' * LINE_CHARS} {FACT}"),), tail, frozenset()) == ()


def test_sentences_end_in_other_scripts_too() -> None:
    """Without a space after them."""
    told = find_echoes(
        (user("你好。kestrel-portal 的端口是五万一千 51234。再见。"),), (assistant("kestrel-portal"),), frozenset()
    )
    assert told == (said("kestrel-portal 的端口是五万一千 51234。"),)


@given(st.lists(st.text(max_size=80), max_size=12), st.lists(st.text(max_size=40), max_size=4))
def test_whatever_is_said_lines_are_short_single_and_from_the_removed_part(said: list[str], later: list[str]) -> None:
    """They are the same in each call."""
    removed, tail = tuple(map(user, said)), tuple(map(assistant, later))
    told = find_echoes(removed, tail, frozenset())
    assert told == find_echoes(removed, tail, frozenset())
    assert len(told) <= MOST_TOLD
    assert all("\n" not in line and len(line) <= SHOWN_CHARS + 16 for line in told)
