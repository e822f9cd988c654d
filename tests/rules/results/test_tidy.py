"""Tidying of tool results: which results are tidied, and their budgets."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, conversation, count, result, transcripts, user
from support.results import tidy_tool_results

from trimtab.rules.conversation import Message, Outcome, Role
from trimtab.rules.policy import Budget, Policy, Tidying, ToolRule, Treatment
from trimtab.rules.results.tidy import (
    MAX_DEPTH,
    MAX_JSON_CHARS,
    MIN_CHARS,
    MIN_JSON_CHARS,
    respace_json,
    settle_progress,
    shorten_json,
    strip_escapes,
)
from trimtab.rules.results.work import Work
from trimtab.rules.text.head_tail import measure_bytes

POLICY = Policy(result_budget=Budget(300))
GREEN = "".join(f"\x1b[32mthis is line {number} of what came out\x1b[0m\n" for number in "abcdefgh")
PLAIN = GREEN.replace("\x1b[32m", "").replace("\x1b[0m", "")


def tidy(*messages: Message, policy: Policy = POLICY) -> Outcome:
    """The transcript, tidied."""
    return tidy_tool_results(conversation(*messages), policy=policy, work=Work(count))


@given(transcripts())
def test_only_results_are_tidied_and_by_themselves(messages: tuple[Message, ...]) -> None:
    """Other messages stay the same object. Later messages do not change the outcome for a result."""
    green = tuple(
        replace(message, texts=tuple(f"\x1b[32m{text}\x1b[0m" for text in message.texts), digest=b"")
        for message in messages
    )
    after = tidy(*green).conversation.messages
    for before, tidied in zip(green, after, strict=True):
        assert tidied is before or before.role is Role.TOOL
    for stop in range(len(green)):
        assert tidy(*green[:stop]).conversation.messages == after[:stop]


def test_a_decision_says_how_many_were_tidied() -> None:
    """It also says how many tokens that saved."""
    outcome = tidy(user(), result("a", GREEN), result("b", "fine"), result("c", GREEN))
    decision = outcome.decisions[0]
    assert (decision.rule, decision.reason) == ("tidy", "2 tool results tidied")
    assert (decision.messages, decision.first_changed) == (2, 1)
    assert decision.saved_tokens == 2 * (count(GREEN) - count(PLAIN))
    assert [message.text for message in outcome.conversation.messages[1:]] == [PLAIN, "fine", PLAIN]


def test_a_short_result_has_nothing_to_lose() -> None:
    """The length of all its texts together counts."""
    small = "\x1b[32mx\x1b[0m" * 20
    assert not tidy(result("a", small[:MIN_CHARS])).decisions
    assert tidy(result("a", small[: MIN_CHARS + 1])).decisions
    assert tidy(result("a", small[: MIN_CHARS - 60], small[:70])).decisions


def test_a_tool_without_tidying_is_left_alone() -> None:
    """Its own rule switches tidying off. Results of other tools are tidied."""
    policy = replace(POLICY, tools=(ToolRule("raw", Treatment(POLICY.result_budget, tidying=None)),))
    called = assistant(None, call("a", "raw"), call("b", "run"))
    outcome = tidy(called, result("a", GREEN), result("b", GREEN), policy=policy)
    assert [message.text for message in outcome.conversation.messages[1:]] == [GREEN, PLAIN]


def test_what_a_tools_rule_switches_off_stays() -> None:
    """If the rule of the result's own tool switches it off."""
    policy = replace(POLICY, tools=(ToolRule("run", Treatment(POLICY.result_budget, tidying=Tidying(ansi=False))),))
    assert not tidy(assistant(None, call("a", "run")), result("a", GREEN), policy=policy).decisions
    assert tidy(assistant(None, call("a", "look")), result("a", GREEN), policy=policy).decisions


SPACED = "[" + ",\n      ".join(f'{{"name": "n{number}", "x{number}": [ 1, 2 ]}}' for number in range(40)) + "]"


def test_json_is_written_anew_if_it_then_fits_the_results_own_budget() -> None:
    """Each of several texts has an equal share; an error has twice as much. In tokens and in bytes."""
    tokens, size = count(SPACED) * 3 // 4, measure_bytes(SPACED) * 3 // 4
    for budget in (Budget(tokens), Budget(10 * tokens, size)):
        policy = replace(POLICY, result_budget=budget)
        for texts, is_error, expected in (
            ((SPACED,), False, True),
            ((SPACED,) * 2, False, False),
            ((SPACED,) * 2, True, True),
        ):
            message = replace(result("a", *texts), is_error=is_error)
            assert bool(tidy(message, policy=policy).decisions) is expected


def test_nobody_asks_whether_a_result_failed_if_its_budget_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is slow, so it is asked only about JSON that fits the budget of an error and not the usual one."""
    asked: list[str] = []
    monkeypatch.setattr("trimtab.rules.results.work.says_failure", lambda text: asked.append(text) or True)
    tokens = count(SPACED) * 3 // 4
    for max_tokens, expected in ((tokens, 0), (tokens * 2 // 3, 1), (tokens // 8, 0)):
        asked.clear()
        policy = replace(POLICY, result_budget=Budget(max_tokens))
        messages = (result("a", SPACED), result("b", GREEN), result("c", "plain text " * 40))
        tidy(*messages, policy=policy)
        assert asked == [SPACED] * expected


def test_a_file_that_is_read_is_not_written_anew() -> None:
    """Other output of the same call is shortened."""
    spaced = "{\n" + ",\n".join(f'    "name{number}":    [ {number} ]' for number in range(60)) + "\n}"
    for command, expected in (("cat a.json", False), ("make a", True)):
        read = call("a", "bash", f'{{"command":"{command}"}}')
        policy = replace(POLICY, result_budget=Budget(4000))
        assert bool(tidy(assistant(None, read), result("a", spaced), policy=policy).decisions) is expected


# JSON re-spaced as text.

SCALARS = st.sampled_from(
    ["1", "-0", "1.0", "1e5", "1E+400", "0.1000000000000000055", "123456789012345678901234567890", "true", "null"]
)
STRINGS = st.builds(
    lambda parts: '"' + "".join(parts) + '"',
    st.lists(
        st.sampled_from(
            ["a", " ", "  ", ",", ":", ": ", "[", "}", "{", "\\\\", '\\"', "\\n", "\\u00e9", "\\/", "é", "文"]
        )
    ),
)
BLANK = st.sampled_from(["", " ", "\n", "  \t", "\r\n    "])


def nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    array = st.lists(st.tuples(BLANK, inner, BLANK).map("".join), max_size=4).map(lambda items: f"[{','.join(items)}]")
    field = st.tuples(BLANK, STRINGS, BLANK, st.just(":"), BLANK, inner, BLANK).map("".join)
    return array | st.lists(field, max_size=4).map(lambda fields: f"{{{','.join(fields)}}}")


JSON = st.recursive(SCALARS | STRINGS, nest, max_leaves=20)


def tokens(text: str) -> list[str]:
    """The tokens of a JSON text without the blanks between them. Read character by character, for comparison."""
    found: list[str] = []
    inside = escaped = False
    for char in text:
        if inside:
            found[-1] += char
            inside = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            found.append(char)
            inside = True
        elif char not in " \t\r\n":
            found.append(char)
    return found


@given(text=JSON)
def test_only_blanks_between_values_go(text: str) -> None:
    """Every string, number, key and escape stays exactly; duplicate keys and their order do, too."""
    compact = respace_json(text)
    assert compact is not None
    assert compact == "".join(tokens(text))
    assert respace_json(compact) == compact


@pytest.mark.parametrize(
    "text",
    [
        "{'a': 1}", "{a: 1}", "[1, 2,]", "[NaN]", "[1] [2]", '{"a": 1} // so', "[True, None]", "[01]",
        '["\ud800"]', '["a\nb"]',
        "[" * 100_000, '["\\x"]', "", "[1", "[1]\x0c",
    ],
    ids=lambda text: repr(text[:12]),
)  # fmt: skip
def test_what_is_not_json_to_the_letter_is_left(text: str) -> None:
    assert respace_json(text) is None


@given(
    depth=st.integers(MAX_DEPTH - 2, MAX_DEPTH + 2),
    is_object=st.booleans(),
    siblings=st.lists(st.sampled_from(['"},{"', '"],["', '"[[[["', '"\\\\"', '[{"a":{}},{"b":[]}]']), max_size=60),
)
def test_it_may_be_so_deep_and_no_deeper(depth: int, siblings: list[str], *, is_object: bool) -> None:
    """Whatever else the text contains, also brackets in strings. Siblings add no depth."""
    field = '"a":' if is_object else ""
    opening, closing = ("{", "}") if is_object else ("[", "]")
    beside = "".join(f',"b":{sibling}' if is_object else f",{sibling}" for sibling in siblings)
    text = (
        f"{opening}{field}" * (depth - 1)
        + f"{opening}{field}1{closing}"
        + f"{closing}" * (depth - 2)
        + beside
        + closing
    )
    assert (respace_json(text) is not None) == (depth <= MAX_DEPTH)


BODY = (
    '{\n  "name": "one: two,  three",\n  "sizes": [1.0, 2, 3e4],\n  "more": "to make it long enough to be worth it"\n}'
)
COMPACT = '{"name":"one: two,  three","sizes":[1.0,2,3e4],"more":"to make it long enough to be worth it"}'


def test_white_space_around_it_stays() -> None:
    text = f"\n  {BODY}\n"
    assert shorten_json(text, spaces=True, tables=True) == f"\n  {COMPACT}\n"
    assert shorten_json(text, spaces=False, tables=False) is None
    assert shorten_json(text, spaces=False, tables=True) is None
    assert shorten_json(COMPACT, spaces=True, tables=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "plain text, however long it may be, and with {braces} or [brackets] in it, at that",
        "OBSERVATION:\n" + BODY,
        BODY + "\n[exit code 0]",
        '{"a": 1}\n{"a": 2}\n{"a": 3}\n{"a": 4}\n{"a": 5}\n{"a": 6}\n{"a": 7}\n{"a": 8}\n',
        "[12:00:01] started the server and waits\n[12:00:02] and waits still, with nothing to do]",
    ],
    ids=lambda text: text[:20],
)
def test_other_texts_stay(text: str) -> None:
    """JSON lines, for example, are compact already."""
    assert shorten_json(text, spaces=True, tables=True) is None


def test_only_texts_of_some_length_are_read_as_json() -> None:
    """Shorter ones have little to save, longer ones would not fit any budget."""
    lengths = (MIN_JSON_CHARS - 1, MIN_JSON_CHARS, MAX_JSON_CHARS, MAX_JSON_CHARS + 1)
    shorter = [shorten_json(f"[{' ' * (chars - 2)}]", spaces=True, tables=True) for chars in lengths]
    assert shorter == [None, "[]", "[]", None]


@given(text=JSON)
def test_it_decodes_to_the_same(text: str) -> None:
    """For a decoder that keeps numbers as they are written."""
    compact = respace_json(text)
    assert compact is not None
    if "E+400" not in text:
        assert msgspec.json.decode(compact) == msgspec.json.decode(text)


# Output meant for a terminal becomes text as a reader sees it.

# Output of tools, shortened.
CARGO = "\x1b[1m\x1b[32m   Compiling\x1b[0m demo v0.1.0\n\x1b]8;;file:///target/doc\x1b\\\x1b[0mdocs\x1b]8;;\x1b\\\n"
BAR = "\u2588" * 9
PIP = (
    "  Downloading lib-1.0.whl (383 kB)\n"
    "\x1b[?25l\r\x1b[K     |\u2589        | 10 kB 27.2 MB/s eta 0:00:01"
    "\r\x1b[K     |\u2588\u2588\u2588\u2588     | 200 kB 5.8 MB/s eta 0:00:01"
    f"\r\x1b[K     |{BAR}| 383 kB 5.8 MB/s \n\x1b[?25hInstalling\n"
)
NPM = (
    "\x1b[1G\x1b[0K\u2819\x1b[1G\x1b[0K\u2839 idealTree: timing\x1b[1G\x1b[0K\u2838 reify: lodash\x1b[1G\x1b[0K\n"
    "added 120 packages in 3s\n"
)
GIT = (
    "Cloning into 'demo'...\n"
    "Receiving objects:   1% (1/100)\rReceiving objects:  50% (50/100), 1.2 MiB | 2.3 MiB/s\r"
    "Receiving objects: 100% (100/100), 3.4 MiB | 2.5 MiB/s, done.\n"
    "Resolving deltas: 100% (7/7)\rResolving deltas: 100% (7/7), done.\n"
)
APT = (
    "\r0% [Working]\r            \rGet:1 http://deb jammy InRelease [129 kB]\n"
    "\r0% [1 InRelease 13 kB/129 kB 10%]\r                                \rReading package lists... 0%\r"
    "Reading package lists... 50%\rReading package lists... Done\n"
)


def shown(text: str) -> str:
    return settle_progress(strip_escapes(text, repaint=True))


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (CARGO, "   Compiling demo v0.1.0\ndocs\n"),
        (
            PIP,
            f"  Downloading lib-1.0.whl (383 kB)\n     |{BAR}| 383 kB 5.8 MB/s \nInstalling\n",
        ),
        (NPM, "\u2838 reify: lodash\r\nadded 120 packages in 3s\n"),
        (
            GIT,
            (
                "Cloning into 'demo'...\nReceiving objects: 100% (100/100), 3.4 MiB | 2.5 MiB/s, done.\n"
                "Resolving deltas: 100% (7/7), done.\n"
            ),
        ),
        (APT, "Get:1 http://deb jammy InRelease [129 kB]\nReading package lists... Done\n"),
    ],
    ids=["cargo", "pip", "npm", "git", "apt"],
)
def test_tools_read_as_on_a_terminal(raw: str, read: str) -> None:
    """Colours and links go; the last state of each overwritten line stays."""
    assert shown(raw) == read
    assert shown(read) == read


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("\x1b[38;5;196mred\x1b[m", "red"),
        ("\x1b[01;31m\x1b[Kmatch\x1b[m\x1b[K", "match"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;id=1;https://a.b/?c=d\x07link\x1b]8;;\x07", "link"),
        ("\x1b(B\x1b[mplain\x1b)0", "plain"),
        ("\x1bP1$r0m\x1b\\kept", "kept"),
        ("\x1b7saved\x1b8", "saved"),
        ("\x1b]0;a title that never ends\nkept", "]0;a title that never ends\nkept"),
        ("\x1b\x1b[31m[32mkept", "[32mkept"),
        ("lone \x1b", "lone "),
        ("lone \x1b ERROR", "lone  ERROR"),
        ("je\xc5\x9bli m\xc3\x93wi \x93so\x94 \xe2\x80\x9d1;", "je\xc5\x9bli m\xc3\x93wi \x93so\x94 \xe2\x80\x9d1;"),
    ],
)
def test_escapes_go_and_text_stays(raw: str, read: str) -> None:
    """Whole sequences go. One without an end is not a sequence, and wrongly decoded Latin letters stay."""
    assert strip_escapes(raw, repaint=False) == read


@given(text=st.text(st.characters(exclude_characters="\x1b\r")))
def test_a_text_without_controls_is_the_same_object(text: str) -> None:
    for repaint in (True, False):
        assert strip_escapes(text, repaint=repaint) is text
    assert settle_progress(text) is text


@given(text=st.text("\x1b[]0;m\x07\\ab\n(?", max_size=60))
def test_no_escape_character_is_left(text: str) -> None:
    assert "\x1b" not in strip_escapes(text, repaint=False)
    assert set(strip_escapes(text, repaint=False)) <= set(text)


@pytest.mark.parametrize(
    "line",
    [
        "name,size\rone,1\rtwo,2",
        "first paragraph\r\rsecond paragraph",
        "Smith, 1\rSmith, 2",
        "ERROR: disk full\rCopying 50%\rCopying 100%",
        "Copying 100% of a long name\rdone",
        "Counted 17\rCounted 18\rCounted 19 in all",
        "12:00:01 ERROR disk full, job aborted\r 45%\r 46%",
        "cache hit 3/4, but table users gone\r 45%\r 46%",
        "Copying 3%: read error\rCopying 4%\rCopying 5%",
        "Copying 3%: read error\r      \rCopying 4%",
        "started at 12:00\r    \rstopped at 12:30",
        "North of Rome 12%\rSouth of Rome 15%",
        "Item 1\rItem 10",
        "- item one\r- item two",
        "Title\r-----\rtext",
        "10\r\r20",
        "50%\r",
        "\r\rtext",
        "Checking\rChecking files\rChecking files, done",
        "a" * 20_000 + "\r12%\r13%",
    ],
    ids=lambda line: line[:20],
)
def test_a_line_that_is_not_all_progress_stays(line: str) -> None:
    """Carriage returns may be line ends, and a message among states of progress must not be lost."""
    text = f"Reading 5%\rReading 9%\n{line}\nend"
    assert settle_progress(text) == f"Reading 9%\n{line}\nend"


def test_lines_that_end_with_carriage_returns_stay() -> None:
    """In old files and serial output, similar lines are not states of progress."""
    lines = [f"Section number {number} title here" for number in range(40)]
    assert settle_progress("\r".join(lines)) == "\r".join(lines)
    lines = [f"{number}/40 at 12:{number:02} the door opened" for number in range(40)]
    assert settle_progress("\r".join(lines)) == "\r".join(lines)


def test_a_text_with_a_diff_in_it_stays() -> None:
    """It may be a patch."""
    text = "@@ -1 +1 @@\n-copied 5%\rcopied 9%\n+copied 6%\rcopied 9%\n"
    assert settle_progress(text) == text


@pytest.mark.parametrize(
    ("line", "last"),
    [
        (
            "(Reading database ... \r(Reading database ... 5%\r(Reading database ... 9 files)",
            "(Reading database ... 9 files)",
        ),
        ("  | \remitting:   0% |   | \remitting: 100% |###| ", "emitting: 100% |###| "),
        ("Fetching 10%\r            \rUnpacking 20%\r         \rdone", "done"),
    ],
)
def test_what_belongs_to_progress_goes_with_it(line: str, last: str) -> None:
    """A state that the next one continues, the rest of a bar, and states that were erased in between."""
    assert settle_progress(line) == last


@pytest.mark.parametrize(
    "states",
    [
        ["  0     0    0     0 --:--:-- --:--:-- --:--:--     0", "100  1256k  100 1256k 0:00:01 --:--:-- 5000k"],
        ["  3%|\u258e    | 3/100 [00:01<00:09, 4.5it/s]", " 99%|\u2588\u2588\u2588| 99/100 [00:09<00:00, 4.5it/s]"],
        ["   Building [==>      ] 12/345: serde", "   Building [=====>   ] 99/345: syn, tokio"],
        ["3a1b: Downloading  3.1MB/45MB", "3a1b: Downloading  44MB/45MB"],
        ["\u2819 Installing packages", "\u2839 Installing packages", "\u2838 Installing packages"],
        ["remote: Counting objects:  10% (1/10)", "remote: Counting objects: 100% (10/10), done."],
        ["demo.tar.gz      12%[=>     ]   1.2M  300KB/s  eta 12s", "demo.tar.gz     100%[======>]   9.6M  310KB/s"],
        ["lib-1.0 10 kB 3.1 MB/s eta 0:00:01", "lib-1.0 383 kB 5.8 MB/s"],
    ],
    ids=["curl", "tqdm", "cargo", "docker", "spinner", "git", "wget", "pip"],
)
def test_progress_leaves_its_last_state(states: list[str]) -> None:
    """Without sequences that erase, as these tools write progress if their output is not a terminal."""
    assert settle_progress("\r".join(states) + "\n") == states[-1] + "\n"


def test_line_ends_stay() -> None:
    assert settle_progress("a\r\nb\r\r\n") == "a\r\nb\r\r\n"
    assert settle_progress("50%\r100%\r\nnext\r\n") == "100%\r\nnext\r\n"


def test_long_lines_are_settled_too() -> None:
    """A line longer than a piece: its states are read across the pieces."""
    line = "".join(f"Copying {number / 100:.2f}% of it\r" for number in range(10_001))
    assert settle_progress(line + "\n") == "Copying 100.00% of it\r\n"
    assert strip_escapes("\x1b[31m." * 50_000, repaint=True) == "." * 50_000
