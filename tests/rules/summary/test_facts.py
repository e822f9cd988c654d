"""Exact names in a note are checked against what it covers."""

from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, result, system, user

from trimtab.rules.summary.facts import MOST_SEARCHES, _is_letter, list_sources, mark_unverified
from trimtab.rules.summary.request import SummaryRequest
from trimtab.rules.text.markers import UNVERIFIED

SOURCE = r"""
diff --git a/src/harbour/quay.py b/src/harbour/quay.py
$ ls src/harbour
berth.py
crane_test.go
Listening on http://localhost:8080/api/v2/ships?limit=5, see https://docs.example.org/guide/start
commit 1f3a9c77d0b2e4a6c8e0f1a2b3c4d5e6f7a8b9c0 (order ORD-48213, request req_8Kx2mP9qLz)
rows: 48,213 of 1234567; took 98765.432 ms on 2024-01-15; pid 73155
{"cmd": "cat C:\\Users\\ann\\notes.txt\nrm old.log", "dir": "\/var\/lib\/harbour"}
文件在src/港口/锚.py里面, 48215行
"""


def test_a_name_in_a_source_has_no_mark() -> None:
    """Shortened, joined, escaped, in another case or grouping. Neither has what is no exact name."""
    for note in [
        "In `src/harbour/quay.py:12` and src/harbour/quay.py:12-20, quay.py#L12.",
        "harbour/quay.py, ./src/harbour/quay.py, /work/../src/harbour/quay.py".replace("/work/../", "/"),
        "src/harbour/berth.py was listed, and SRC/HARBOUR/CRANE_TEST.GO; `berth.py`, `Berth.py`",
        "http://localhost:8080/api/v2/ships, (https://docs.example.org/guide/start). localhost:8080",
        "commit 1f3a9c7 is 1f3a9c77d0b2e4a6c8e0f1a2b3c4d5e6f7a8b9c0; ORD-48213, order 48213, req_8Kx2mP9qLz",
        "48213 rows, 48,213, 48.213, 48'213, 1,234,567 and 98765 ms or 98766 ms; 20240115; 2024-01-15; pid 73155",
        r"C:\Users\ann\notes.txt, C:/Users/ann/notes.txt, /var/lib/harbour and `old.log`",
    ]:
        assert mark_unverified(note, [SOURCE]) == note
    for note in [
        "# Heading 1\n\n1. First.\n10. Tenth. 2) Second, 99/100 tests, 3.14 and 2.5e10, 10.0.0.12",
        "and/or, client/server, TCP/IP, he/she, km/h, 24/7, I/O, feature/new-thing, owner/repo, text/html",
        "UTF-8, ISO-8601, SHA-256, x86_64, base64-encoded, sha256sum, gpt-4o-mini, python3.11, v1.2.3, i18n",
        "about 10000 rows, ~48999, ≈12,345, 150,000 tokens, 4096 bytes, 512MB, 30000ms, in 2024, 01/02/2024",
        "`self.count`, `os.path.join`, `Ship.dock`, `**kwargs`, e.g. this, i.e. that, etc. </div> <br/>",
        "src/foo_*.py, /tmp/run-*, /users/{id}, src/$NAME/x.py, /path/<name>, `src/{a,b}.py`",
    ]:
        assert mark_unverified(note, [SOURCE]) == note
    for name in ("src/harbour/quay.py", "48,213"):
        for source in (f"{name} is it", f"it is {name}", name, f"8{name} {name}", f"{name}9 {name}"):
            assert mark_unverified(f"See {name}.", [source]) == f"See {name}."


def test_a_name_in_no_source_has_a_mark_after_it() -> None:
    """After its line number and its closing sign; in a code block, at the end of the line. A mark is no source."""
    for note, expected in [
        ("Edited src/harbour/pier.py.", "Edited src/harbour/pier.py ?."),
        ("(`src/harbour/pier.py:12`)", "(`src/harbour/pier.py:12` ?)"),
        ("/etc/harbour.conf is", "/etc/harbour.conf ? is"),
        (r"C:\Users\bob\notes.txt", r"C:\Users\bob\notes.txt ?"),
        ("See https://docs.example.org/guide/pier.", "See https://docs.example.org/guide/pier ?."),
        ("commit 2f3a9c7 fixed it", "commit 2f3a9c7 ? fixed it"),
        ("ORD-48219 and req_9Kx2mP9qLz", "ORD-48219 ? and req_9Kx2mP9qLz ?"),
        ("exactly 48219 rows, 1,234,568 in all", "exactly 48219 ? rows, 1,234,568 ? in all"),
        (
            "```\ncat pier/x.py | wc\ncat quay.py\n```\npier/x.py",
            "```\ncat pier/x.py | wc ?\ncat quay.py\n```\npier/x.py ?",
        ),
        ("part 8213 of 213, pid 7315599", "part 8213 of 213, pid 7315599 ?"),
    ]:  # fmt: skip
        marked = mark_unverified(note, [SOURCE])
        assert marked == expected.replace(" ?", f" {UNVERIFIED}")
        assert mark_unverified(marked, [SOURCE]) == marked
    before = mark_unverified("It is in pier/x.py, says src/harbour/quay.py.", [SOURCE])
    again = mark_unverified("It is in pier/x.py and src/harbour/quay.py.", [before])
    assert again == f"It is in pier/x.py {UNVERIFIED} and src/harbour/quay.py."


def test_sources_are_all_that_the_writer_may_have_read() -> None:
    """Task statement, system messages, covered messages, earlier summaries, calls, results, instructions."""
    request = SummaryRequest(
        key="00",
        at=9,
        base=None,
        task=user("task/a.py"),
        earlier=(user("early/b.py"),),
        span=(assistant("said/c.py", call("call_5e5e5e5e", "run", '{"path": "args/d.py"}')), result("1", "out/e.py")),
        max_tokens=100,
        leading=(system("lead/f.py"),),
        instructions="own/g.py",
    )
    note = "task/a.py early/b.py said/c.py args/d.py out/e.py lead/f.py own/g.py base/h.py call_5e5e5e5e none/i.py"
    marked = mark_unverified(note, list_sources(request, "base/h.py"))
    assert marked == f"{note} {UNVERIFIED}"
    assert mark_unverified("base/h.py", list_sources(request, None)) == f"base/h.py {UNVERIFIED}"


NOTES = st.lists(st.sampled_from([*"/\\.:`'\"~-_#*[](){}<>$, \n1aZ\u00e9\u6e2f", "48213", "a1b2c3d4", "x.py", "https://",
                                  UNVERIFIED, "```", "src/"]), max_size=60).map("".join)  # fmt: skip


@given(note=NOTES, source=NOTES)
def test_only_marks_are_added(note: str, source: str) -> None:
    """In any note, removing the marks gives the original, and marking twice changes nothing."""
    marked = mark_unverified(note, [source])
    mark = f" {UNVERIFIED}"
    if UNVERIFIED not in note:
        assert marked.replace(mark, "") == note.replace(mark, "")
    assert len(marked) >= len(note)


@given(note=NOTES.filter(lambda note: UNVERIFIED not in note))
def test_a_note_that_is_its_own_source_has_no_mark(note: str) -> None:
    assert mark_unverified(note, [note]) == note


def test_a_long_run_of_anything_is_a_note_like_any_other() -> None:
    """Also a number with more digits than Python converts. Searches are bounded."""
    for unit in ["1", "1,111,", "a1b2", "/", "a/", ".", "`", "https://a", "-a1", "\\", "a.py:1:", "\u0661"]:
        note = unit * (20_000 // len(unit))
        assert mark_unverified(note, [note]) == note
        assert mark_unverified(note, [""]).replace(f" {UNVERIFIED}", "") == note
    note = "\n".join(f"pier/x{number}.py" for number in range(2 * MOST_SEARCHES))
    assert 0 < mark_unverified(note, [SOURCE]).count(UNVERIFIED) <= MOST_SEARCHES
    assert [char for char in "aZ7_é字-./ " if _is_letter(char)] == [*"aZ7_"]
