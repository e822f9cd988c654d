"""Output meant for a terminal becomes text as a reader sees it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.rules.results.tidy import settle_progress, strip_escapes

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
