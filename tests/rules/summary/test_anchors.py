"""The index after a summary: within its budget, in one quotation, and without repetitions."""

from collections.abc import Callable
from math import ceil

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace
from support.builders import assistant, call, count, system, transcripts, user
from support.golden import check_golden
from support.steps import count_steps
from support.told_sessions import told_sessions
from support.tool_steps import step

from trimtab.rules.conversation import CountTokens, Message
from trimtab.rules.results.work import Allowance, LargeWorkError
from trimtab.rules.summary import anchors
from trimtab.rules.summary.anchors import (
    _SEPARATORS,
    ASKED_SHARE,
    CODE_SHARE,
    CORRECTIONS_SHARE,
    LINE_CHARS,
    MAX_TEXTS,
    MIN_TOKENS,
    SHOWN_CHARS,
    VALUE_CHARS,
    Anchors,
    Carried,
    Removed,
    _leave_out_last,
    _write_corrections,
    find_code,
    find_corrections,
    write_anchors,
)
from trimtab.rules.summary.names import Kind, find_names, read_mentions
from trimtab.rules.text.markers import CODE_TITLE, CORRECTIONS_TITLE, NAMES_TITLE, QUOTE_END, QUOTE_START
from trimtab.rules.window.state import Cut, CutKind

BUDGETS = st.integers(0, 400) | st.integers(-5, 5000)
WORDS = st.sampled_from(
    [f"{stem}{number}" for number in range(20) for stem in ("src/m_", "name_", "1234", "camelCase")]
)
SAID = st.lists(WORDS, max_size=12).map(" ".join)


def talk(*said: str) -> tuple[Message, ...]:
    """A step for each text: in its call's arguments, and in its result."""
    steps = (step("look_up", {"query": text}, f"found {text}") for text in said)
    return tuple(message for one in steps for message in one)


def removed(*messages: Message, present: frozenset[str] = frozenset(), is_told: bool = False) -> Removed:
    return Removed(messages, [read_mentions(message) for message in messages], present, is_told)


def lines_of(text: str) -> list[str]:
    """The lines of the quotation; each begins with the quotation's sign."""
    first, title, *lines, last = text.split("\n")
    assert (first, title, last) == (QUOTE_START, f"> {NAMES_TITLE}", QUOTE_END)
    assert all(line.startswith("> ") for line in lines)
    return lines


@pytest.mark.parametrize("counter", [count, len])
@given(messages=transcripts(), said=st.lists(SAID, max_size=8), max_tokens=BUDGETS, is_told=st.booleans())
def test_the_index_is_within_its_budget(
    counter: CountTokens, messages: tuple[Message, ...], said: list[str], max_tokens: int, *, is_told: bool
) -> None:
    """For any budget. It is empty, or has its frame and at least one line."""
    text = write_anchors(removed(*messages, *talk(*said), is_told=is_told), max_tokens=max_tokens, count=counter)
    assert counter(text) <= max(max_tokens, 0)
    assert text == "" or lines_of(text)
    if max_tokens < MIN_TOKENS:
        assert text == ""


@given(said=st.lists(SAID, min_size=1, max_size=8), present=st.frozensets(WORDS))
def test_with_enough_room_each_name_occurs_once(said: list[str], present: frozenset[str]) -> None:
    """Names that are verbatim elsewhere are left out."""
    made = replace(removed(*talk(*said), present=present), is_told=True)
    text = write_anchors(made, max_tokens=100_000, count=count)
    named = {name for mentions in made.mentions for name in mentions.asked | mentions.told}
    if not named - present:
        assert text == ""
        return
    assert find_names(text) - find_names(NAMES_TITLE) == named - present
    rows = [line.removeprefix("> ").partition(": ") for line in lines_of(text)]
    told = [name for kind, _, row in rows for name in row.split(_SEPARATORS[Kind(kind)])]
    assert len({name.split()[-1] for name in told}) == len(told)


SERVER = step("bash", {"command": "python server.py &"}, "[1] 412")


def test_running_processes_are_listed_however_old_they_are() -> None:
    """Unless it was ended, also in the tail."""
    messages = (*SERVER, *[user("Go on.")] * 2000)
    assert "(pid 412)" in write_anchors(removed(*messages), max_tokens=200, count=count)
    ended = replace(removed(*messages), tail=step("bash", {"command": "kill 412"}))
    assert "(pid 412)" not in write_anchors(ended, max_tokens=200, count=count)


def test_the_room_is_filled_to_its_last_token() -> None:
    """With lines of code as JSON, with corrections; the last lines go first, and no title is left alone."""
    line, other = 'print("size_of_a")', "print(size_of_b, size_of_b)"
    messages = [
        *step("write", {"content": "x\ny = size_of_c"}, "ok"),
        *step("write", {"content": f"{line}\n{other}"}, "ok"),
    ]
    needed = len(f"> {CODE_TITLE}\n") + len(line) + len('""') + len("\\n")
    frame = len(f"{QUOTE_START}\n> {NAMES_TITLE}\n{QUOTE_END}")
    for spare, is_there in ((0, True), (-1, False)):
        max_tokens = ceil((needed + spare) / CODE_SHARE) + frame
        text = write_anchors(removed(*messages), max_tokens=max_tokens, count=len)
        assert ('> "print(\\"size_of_a\\")"\n' in text) is is_there
        assert "y = size_of_c" not in text
    told = ["a", "b"]
    assert (_leave_out_last(told, 0, len), told) == (0, ["a", "b"])
    assert (_leave_out_last(told, -1, len), told) == (3, ["a"])
    told = ["a", CODE_TITLE, "b"]
    assert (_leave_out_last(told, -1, len), told) == (3 + len(f"> {CODE_TITLE}\n"), ["a"])
    said = ("No, port is 8080, not 8081.", "No, host is b1, not a1.")
    title, lines = f"## {CORRECTIONS_TITLE}\n\n", [f"- {one}\n" for one in said]
    room = {number: len(title) + len("".join(lines[2 - number :])) for number in (1, 2)}
    for tokens, number in ((room[2], 2), (room[2] - 1, 1), (room[1], 1), (room[1] - 1, 0)):
        written = _write_corrections([user("Begin."), *map(user, said)], ceil((tokens + 0.5) / CORRECTIONS_SHARE), len)
        assert written == (title[:-1] + "".join(lines[2 - number :]) + "\n" if number else "")


@pytest.mark.parametrize("name", told_sessions())
def test_an_index_is_as_it_was(name: str) -> None:
    """Of all but the newest messages: with little room and with more, and beside a digest."""
    messages = told_sessions()[name]
    head, tail = messages[:-4], messages[-4:]
    alone = Removed(head, [read_mentions(each) for each in head], frozenset({"src/quay/tides.py"}), tail=tail)
    beside = Removed(head, alone.mentions, frozenset(), is_told=True, tail=tail)
    check_golden(
        f"anchors/{name}",
        {
            "100 tokens": write_anchors(alone, max_tokens=100, count=count),
            "300 tokens": write_anchors(alone, max_tokens=300, count=count),
            "900 tokens": write_anchors(alone, max_tokens=900, count=count),
            "300 tokens, beside a digest": write_anchors(beside, max_tokens=300, count=count),
        },
    )


TALK = tuple(
    message for n in range(8) for message in (user(f"What is case_{n}?"), assistant(f"It is file_{n}.py of 7777{n}."))
)

CORRECTIONS = (
    "No, billing-db must use port 8081, not 8080.",
    "Never push to the branch release_2.",
    "I meant Lisbon instead of Porto.",
    "Nein, die Datei heißt plan_b.toml.",
    "Der Bericht geht an Frau Haas, nicht an Herrn Berg.",
    "Plutôt le fichier notes_2.md.",
    "No es Porto, sino Lisboa 1200.",
    "Порт не 8080, а не 8081, вместо него 9090.",
    "不对，端口是 8081，不是 8080。",
    "ポートは 8080 ではなく 8081 です。",
)


def carry(*messages: Message, max_tokens: int = 900) -> str:
    mentions = [read_mentions(message) for message in messages]
    return write_anchors(Removed(messages, mentions, frozenset()), max_tokens=max_tokens, count=count)


def test_a_correction_is_found() -> None:
    """In the languages that the digest knows words of. A question or a mere refusal is none."""
    for said in CORRECTIONS:
        assert [is_asked for _, is_asked in find_corrections([*TALK, user(said)])] == [False]
        assert not list(find_corrections([*TALK, assistant(said)]))
    for said in (
        "No, thanks.",
        "Is it the port 8081 instead?",
        "The report is in notes_2.md.",
        "好的，谢谢，端口是 8081。",
    ):
        assert not list(find_corrections([*TALK, user(said)]))
    said = "No, case_9 must be port 8089".ljust(SHOWN_CHARS - 1, "x") + "."
    assert list(find_corrections([*TALK, user(said)])) == [(said, False)]
    assert not list(find_corrections([*TALK, user(f"No, not case_9 but {'x ' * SHOWN_CHARS}.")]))


ASKED = ("My sister is called Ingrid.", "My favourite colour is turquoise.", "The deadline is 14 March.")


def test_what_the_user_asks_to_remember_is_carried_beside_a_models_note() -> None:
    """In words of everyday life, unquoted; markers in them are broken. It takes none of the corrections' room."""
    said = [user(f"{one} Please remember that.") for one in ASKED]
    lines = carry(*TALK, user(CORRECTIONS[0]), *said, *TALK, max_tokens=900).splitlines()
    assert [line[2:] for line in lines if line.startswith("- ")] == [CORRECTIONS[0], *ASKED[:2], ASKED[2][4:]]
    many = [user(f"Berth {n} belongs to ship {n}17. Please remember that.") for n in range(99)]
    told = [line for line in carry(*TALK, *many, max_tokens=400).splitlines() if line.startswith("- ")]
    assert 0 < count("\n".join(told)) <= 400 * ASKED_SHARE
    assert told[-1] == "- Berth 98 belongs to ship 9817."
    text = carry(*TALK, user(f"Never use port 8080 {QUOTE_START}"))
    before, _, _ = text.partition(QUOTE_START)
    assert before.startswith(f"## {CORRECTIONS_TITLE}\n- Never use port 8080")
    assert text.count(QUOTE_START) == 1


def test_hostile_texts_take_linear_work() -> None:
    for unit in ["no, ", ", not ", "不"]:
        said = [user(unit * number) for number in (500, 1000)]
        few, more = (count_steps(lambda one=one: list(find_corrections([one]))) for one in said)
        assert more <= 2 * few + 60
    for unit in ["a_b\n", "\\", "x\t\n"]:
        calls = [run(unit * number) for number in (500, 1000)]
        few, more = (count_steps(lambda one=one: list(find_code([one], [one], frozenset()))) for one in calls)
        assert more <= 2 * few + 60


SCRIPT = "cat > probe.py <<'EOF'\nfrom plan_b import read_plan\nif ready:\n    read_plan('north_quay')\nprint()\nEOF"


def run(script: str, number: int = 1) -> Message:
    return assistant(None, call(f"call_{number}", "bash", orjson.dumps({"command": script}).decode()))


def test_lines_with_names_stay_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, each once; without a name that the reader does not see elsewhere, none. Data is left out."""
    assert list(find_code([run(SCRIPT)], [], frozenset())) == [
        ("cat > probe.py <<'EOF'", "from plan_b import read_plan", "    read_plan('north_quay')")
    ]
    older, newer = run("import a_one\nimport b_two\nimport c_three"), run("import b_two\nimport d_four", 2)
    assert list(find_code([older, newer], [], frozenset())) == [
        ("import b_two", "import d_four"),
        ("import a_one", "import c_three"),
    ]
    assert list(find_code([older, newer], [run("import a_one\nimport d_four", 3)], frozenset())) == [
        ("import b_two",),
        ("import c_three",),
    ]
    assert not list(find_code([run("cat src/plan_b.py"), user("see plan_b\nand plan_c")], [], frozenset()))
    assert list(find_code([run(f"x_one = 1\ny_two = '{'z' * LINE_CHARS}'")], [], frozenset())) == [("x_one = 1",)]
    assert list(find_code([run("x_one = 1\n" + "\n" * VALUE_CHARS + "y_two = 2")], [], frozenset())) == [("x_one = 1",)]
    script = run("import a_one\nimport a_one, b_two")
    assert list(find_code([script], [], {"a_one"})) == [("import a_one, b_two",)]
    assert not list(find_code([script], [], {"a_one", "b_two"}))
    message = run("import a_one\nimport b_two")
    for left, found in ((0, 1), (-1, 0)):
        monkeypatch.setattr(anchors, "READ_CHARS", len(message.tool_calls[0].arguments) + left)
        assert len(list(find_code([message], [], frozenset()))) == found


def test_the_index_has_each_call_as_a_json_string() -> None:
    """So a line of the index is a line, and markers in it are broken."""
    text = carry(run(SCRIPT))
    rows = text.splitlines()
    at = rows.index(f"> {CODE_TITLE}")
    lines = orjson.loads(rows[at + 1].removeprefix("> ")).split("\n")
    assert lines == ["cat > probe.py <<'EOF'", "from plan_b import read_plan", "    read_plan('north_quay')"]
    assert "north_quay" not in "".join(rows[at + 2 :])
    text = carry(run(f"x_one = 1\nprint(y_two)  # {QUOTE_END}\n# {QUOTE_START} z_three"))
    assert (text.count(QUOTE_START), text.count(QUOTE_END)) == (1, 1)


TODO = step("TodoWrite", {"todos": [{"content": "mend the harbour", "status": "in_progress"}]})
RULES = step("Read", {"file_path": "/r/AGENTS.md"}, "Always run the linter.")


def place(at: int, made_at: int, *, room: int = 600, kept: tuple[int, ...] = (), task: int | None = None) -> Carried:
    cut = Cut(CutKind.SUMMARISE, at, 200, kept, 360, made_at=made_at, anchor_tokens=room)
    return Carried(cut, task, ("AGENTS.md",))


def find(
    anchors: Anchors, messages: tuple[Message, ...], where: Carried, spend: Callable[[int], None] | None = None
) -> str:
    """The text that is carried over a cut; by default, any amount of text may be read."""
    return anchors.find(messages, where, count=count, spend=spend or (lambda _: None))


def read_files(steps: int, label: str = "m") -> tuple[Message, ...]:
    made = (step("read", {"path": f"src/{label}_{number}.py"}, f"found name_{number}") for number in range(steps))
    return tuple(message for one in made for message in one)


REQUESTS = st.lists(
    st.tuples(st.integers(0, 24), st.booleans(), st.integers(0, 24), st.integers(0, 24), st.booleans()), max_size=5
)


@given(messages=transcripts(), other=transcripts(), requests=REQUESTS)
def test_the_cache_does_not_change_the_text(
    messages: tuple[Message, ...], other: tuple[Message, ...], requests: list[tuple[int, bool, int, int, bool]]
) -> None:
    """The transcript may grow, be rewound, branch off, or be another one with the same end."""
    messages, other = (*read_files(3), *messages), (*read_files(3, "n"), *other)
    kept = Anchors()
    for branch, is_other, least, most, ends_alike in requests:
        branched = (*messages[:branch], *(other if is_other else messages)[branch:])
        asked = (*branched, *messages[-3:]) if ends_alike else branched
        made_at = min(most, len(asked))
        at = min(least, made_at)
        kept_words = tuple(index for index in range(at) if asked[index].role == "user")[-1:]
        where = place(at, made_at, kept=kept_words, task=0 if at else None)
        assert find(kept, asked, where) == find(Anchors(), asked, where)


@given(messages=transcripts(), room=st.integers(0, 900), at=st.integers(0, 24))
def test_carried_text_is_within_its_room(messages: tuple[Message, ...], room: int, at: int) -> None:
    """For any room, apart from the blank lines between the parts. The text consists of whole quotations."""
    messages = (*TODO, *RULES, *SERVER, *read_files(6), *messages)
    text = find(Anchors(), messages, place(min(at, len(messages)), len(messages), room=room))
    assert count(text) <= room + 2
    assert text.count(QUOTE_START) == text.count(QUOTE_END)
    if text:
        assert all(part.startswith(QUOTE_START) for part in text.split(f"{QUOTE_END}\n\n"))


def test_list_rules_and_names_are_carried() -> None:
    """The task list last, where a model reads it best. Names in messages that stay are not repeated."""
    messages = (system(), user("Begin with src/task.py."), *TODO, *RULES, *SERVER, *read_files(4))
    text = find(Anchors(), (*messages, assistant("Fine.")), place(len(messages), len(messages) + 1, task=1))
    parts = ["still running: ", "src/m_3.py", "Always run the linter.", "[in_progress] mend the harbour"]
    found = [text.find(part) for part in parts]
    assert -1 not in found
    assert found == sorted(found)
    assert "src/task.py" not in text
    messages = (user("Mend src/task.py."), user("Mind src/kept.py."), *read_files(4), assistant("Now src/tail.py."))
    said = (user("src/task.py src/kept.py src/tail.py src/gone.py"), *messages)
    text = find(Anchors(), said, place(len(said) - 1, len(said), kept=(2,), task=1))
    listed = "\n".join(line for line in text.splitlines() if not line.endswith(said[0].text))
    assert "src/gone.py" in text
    assert not any(name in listed for name in ("src/task.py", "src/kept.py", "src/tail.py"))


def test_each_message_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except READ_CHARS of the removed part, twice for each cut. Too much work leaves all as it was; little is kept."""
    monkeypatch.setattr("trimtab.rules.summary.anchors.READ_CHARS", 400)
    messages = read_files(40)
    kept, spent = Anchors(), []
    find(kept, messages, place(20, 40), spent.append)
    find(kept, messages, place(20, 40), spent.append)
    find(kept, (*messages, *read_files(2)), place(30, 60), spent.append)
    read = [len(message.text) + sum(len(call.arguments) for call in message.tool_calls) for message in messages]
    assert sum(read[:20]) < 400 < sum(read[:30])
    assert spent == [sum(read[:40]), 2 * sum(read[:20]), sum(read[40:60]), 800]
    messages = read_files(40)
    kept, where = Anchors(), place(20, 80)
    find(kept, messages, place(10, 20))
    size = kept.size_bytes
    with pytest.raises(LargeWorkError):
        find(kept, messages, where, Allowance(10).spend)
    assert kept.size_bytes == size
    assert find(kept, messages, place(10, 20), Allowance(0).spend) == find(Anchors(), messages, place(10, 20))
    assert find(kept, messages, where) == find(Anchors(), messages, where)
    messages = read_files(40)
    kept = Anchors()
    sizes = []
    for at in range(2, 60, 2):
        find(kept, messages, place(at, 60))
        sizes.append(kept.size_bytes)
    assert sizes[-1] - sizes[0] <= MAX_TEXTS * 600 * 4


def test_another_budget_or_another_text_is_another_place() -> None:
    """A digest lists files and calls itself, so the index after it is shorter."""
    messages = (*SERVER, *read_files(30))
    kept, where = Anchors(), place(40, 60)
    smaller = replace(where, cut=structs.replace(where.cut, anchor_tokens=200))
    texts = [find(kept, messages, one) for one in (where, replace(where, told="a list"), smaller)]
    assert len(set(texts)) == 3
