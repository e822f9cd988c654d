"""Tidying of tool results: which results are tidied, and their budgets."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, conversation, count, result
from support.results import tidy_tool_results

from trimtab.rules.conversation import Message, Outcome
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


def tidy(*messages: Message, policy: Policy = POLICY) -> Outcome:
    return tidy_tool_results(conversation(*messages), policy=policy, work=Work(count))


def test_what_a_tools_rule_switches_off_stays() -> None:
    """All or one of them. A short result has nothing to lose."""
    for tidying in [None, Tidying(ansi=False)]:
        policy = replace(POLICY, tools=(ToolRule("run", Treatment(POLICY.result_budget, tidying=tidying)),))
        assert not tidy(assistant(None, call("a", "run")), result("a", GREEN), policy=policy).decisions
        assert tidy(assistant(None, call("a", "look")), result("a", GREEN), policy=policy).decisions
    small = "\x1b[32mx\x1b[0m" * 20
    assert not tidy(result("a", small[:MIN_CHARS])).decisions
    assert tidy(result("a", small[: MIN_CHARS + 1])).decisions
    assert tidy(result("a", small[: MIN_CHARS - 60], small[:70])).decisions


SPACED = "[" + ",\n      ".join(f'{{"name": "n{number}", "x{number}": [ 1, 2 ]}}' for number in range(40)) + "]"


def test_json_is_written_anew_if_it_then_fits_the_results_own_budget() -> None:
    """Several texts have equal shares, an error twice as much. A file that was read is not written anew."""
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
    spaced = "{\n" + ",\n".join(f'    "name{number}":    [ {number} ]' for number in range(60)) + "\n}"
    for command, expected in (("cat a.json", False), ("make a", True)):
        read = call("a", "bash", f'{{"command":"{command}"}}')
        policy = replace(POLICY, result_budget=Budget(4000))
        assert bool(tidy(assistant(None, read), result("a", spaced), policy=policy).decisions) is expected


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


OUTSIDE = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]')  # of strings, for comparison


@given(text=JSON)
def test_only_blanks_between_values_go(text: str) -> None:
    """Every string, number, key and escape stays exactly; duplicate keys and their order do, too."""
    compact = respace_json(text)
    assert compact is not None
    assert compact == OUTSIDE.sub(r"\1", text)
    assert respace_json(compact) == compact


def test_white_space_around_json_stays() -> None:
    """What is no JSON to the letter, or too short or too long, stays as it is."""
    text = f"\n  {BODY}\n"
    assert shorten_json(text, spaces=True, tables=True) == f"\n  {COMPACT}\n"
    assert shorten_json(text, spaces=False, tables=False) is None
    assert shorten_json(text, spaces=False, tables=True) is None
    assert shorten_json(COMPACT, spaces=True, tables=True) is None
    for text in [
        BODY + "\n[exit code 0]",
        '{"a": 1}\n{"a": 2}\n{"a": 3}\n{"a": 4}\n{"a": 5}\n{"a": 6}\n{"a": 7}\n{"a": 8}\n',
        "[12:00:01] started the server and waits\n[12:00:02] and waits still, with nothing to do]",
    ]:
        assert shorten_json(text, spaces=True, tables=True) is None
    lengths = (MIN_JSON_CHARS - 1, MIN_JSON_CHARS, MAX_JSON_CHARS, MAX_JSON_CHARS + 1)
    shorter = [shorten_json(f"[{' ' * (chars - 2)}]", spaces=True, tables=True) for chars in lengths]
    assert shorter == [None, "[]", "[]", None]
    for text in [
        "{'a': 1}", "{a: 1}", "[1, 2,]", "[NaN]", "[1] [2]", '{"a": 1} // so', "[True, None]", "[01]",
        '["\ud800"]', '["a\nb"]',
        "[" * 100_000, '["\\x"]', "", "[1", "[1]\x0c",
    ]:  # fmt: skip
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
APT = (
    "\r0% [Working]\r            \rGet:1 http://deb jammy InRelease [129 kB]\n"
    "\r0% [1 InRelease 13 kB/129 kB 10%]\r                                \rReading package lists... 0%\r"
    "Reading package lists... 50%\rReading package lists... Done\n"
)


def shown(text: str) -> str:
    return settle_progress(strip_escapes(text, repaint=True))


def test_tools_read_as_on_a_terminal() -> None:
    """Colours and links go, the last state of each overwritten line stays; so do wrongly decoded Latin letters."""
    for raw, read in [
        (PIP, f"  Downloading lib-1.0.whl (383 kB)\n     |{BAR}| 383 kB 5.8 MB/s \nInstalling\n"),
        (NPM, "\u2838 reify: lodash\r\nadded 120 packages in 3s\n"),
        (APT, "Get:1 http://deb jammy InRelease [129 kB]\nReading package lists... Done\n"),
    ]:
        assert shown(raw) == read
        assert shown(read) == read
    for raw, read in [
        ("\x1b[38;5;196mred\x1b[m", "red"),
        ("\x1b[01;31m\x1b[Kmatch\x1b[m\x1b[K", "match"),
        ("\x1b]8;id=1;https://a.b/?c=d\x07link\x1b]8;;\x07", "link"),
        ("\x1b(B\x1b[mplain\x1b)0", "plain"),
        ("\x1bP1$r0m\x1b\\kept", "kept"),
        ("\x1b7saved\x1b8", "saved"),
        ("\x1b]0;a title that never ends\nkept", "]0;a title that never ends\nkept"),
        ("\x1b\x1b[31m[32mkept", "[32mkept"),
        ("lone \x1b ERROR", "lone  ERROR"),
        ("je\xc5\x9bli m\xc3\x93wi \x93so\x94 \xe2\x80\x9d1;", "je\xc5\x9bli m\xc3\x93wi \x93so\x94 \xe2\x80\x9d1;"),
    ]:
        assert strip_escapes(raw, repaint=False) == read


@given(text=st.text("\x1b[]0;m\x07\\ab\n(?", max_size=60))
def test_no_escape_character_is_left(text: str) -> None:
    assert "\x1b" not in strip_escapes(text, repaint=False)
    assert set(strip_escapes(text, repaint=False)) <= set(text)


def test_a_line_that_is_not_all_progress_stays() -> None:
    """Carriage returns may be line ends, a message among states must not be lost, and a diff may be a patch."""
    for line in [
        "name,size\rone,1\rtwo,2",
        "Smith, 1\rSmith, 2",
        "ERROR: disk full\rCopying 50%\rCopying 100%",
        "Copying 100% of a long name\rdone",
        "Copying 3%: read error\rCopying 4%\rCopying 5%",
        "started at 12:00\r    \rstopped at 12:30",
        "North of Rome 12%\rSouth of Rome 15%",
        "3/40 at 12:03 the door opened\r4/40 at 12:04 the door opened",
        "50%\r",
        "\r\rtext",
        "Checking\rChecking files\rChecking files, done",
        "a" * 20_000 + "\r12%\r13%",
    ]:
        text = f"Reading 5%\rReading 9%\n{line}\nend"
        assert settle_progress(text) == f"Reading 9%\n{line}\nend"
    text = "@@ -1 +1 @@\n-copied 5%\rcopied 9%\n+copied 6%\rcopied 9%\n"
    assert settle_progress(text) == text
    assert settle_progress("a\r\nb\r\r\n") == "a\r\nb\r\r\n"
    assert settle_progress("50%\r100%\r\nnext\r\n") == "100%\r\nnext\r\n"


def test_progress_leaves_its_last_state() -> None:
    """With the rest of a bar and states that were erased in between, and across pieces of a long line."""
    for states in [
        ["  0     0    0     0 --:--:-- --:--:-- --:--:--     0", "100  1256k  100 1256k 0:00:01 --:--:-- 5000k"],
        ["  3%|\u258e    | 3/100 [00:01<00:09, 4.5it/s]", " 99%|\u2588\u2588\u2588| 99/100 [00:09<00:00, 4.5it/s]"],
        ["   Building [==>      ] 12/345: serde", "   Building [=====>   ] 99/345: syn, tokio"],
        ["3a1b: Downloading  3.1MB/45MB", "3a1b: Downloading  44MB/45MB"],
        ["\u2819 Installing packages", "\u2839 Installing packages", "\u2838 Installing packages"],
        ["remote: Counting objects:  10% (1/10)", "remote: Counting objects: 100% (10/10), done."],
        ["demo.tar.gz      12%[=>     ]   1.2M  300KB/s  eta 12s", "demo.tar.gz     100%[======>]   9.6M  310KB/s"],
        ["lib-1.0 10 kB 3.1 MB/s eta 0:00:01", "lib-1.0 383 kB 5.8 MB/s"],
    ]:
        assert settle_progress("\r".join(states) + "\n") == states[-1] + "\n"
    for line, last in [
        (
            "(Reading database ... \r(Reading database ... 5%\r(Reading database ... 9 files)",
            "(Reading database ... 9 files)",
        ),
        ("  | \remitting:   0% |   | \remitting: 100% |###| ", "emitting: 100% |###| "),
        ("Fetching 10%\r            \rUnpacking 20%\r         \rdone", "done"),
    ]:
        assert settle_progress(line) == last
    line = "".join(f"Copying {number / 100:.2f}% of it\r" for number in range(10_001))
    assert settle_progress(line + "\n") == "Copying 100.00% of it\r\n"
    assert strip_escapes("\x1b[31m." * 50_000, repaint=True) == "." * 50_000
