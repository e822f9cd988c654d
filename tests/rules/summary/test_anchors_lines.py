"""What the user corrected is carried behind a model's note, as the user's own words."""

import orjson
import pytest
from support.builders import assistant, call, count, user
from support.steps import count_steps

from trimtab.rules.conversation import Message
from trimtab.rules.summary import anchors
from trimtab.rules.summary.anchors import (
    ASKED_SHARE,
    LINE_CHARS,
    SHOWN_CHARS,
    VALUE_CHARS,
    Removed,
    find_code,
    find_corrections,
    write_anchors,
)
from trimtab.rules.summary.names import read_mentions
from trimtab.rules.text.markers import CODE_TITLE, CORRECTIONS_TITLE, QUOTE_END, QUOTE_START

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
OTHERS = (
    "No, thanks.",
    "Is it the port 8081 instead?",
    "The report of Ms Haas is in notes_2.md.",
    "好的，谢谢，端口是 8081。",
)


def carry(*messages: Message, max_tokens: int = 900) -> str:
    mentions = [read_mentions(message) for message in messages]
    return write_anchors(Removed(messages, mentions, frozenset()), max_tokens=max_tokens, count=count)


def test_a_correction_is_found() -> None:
    """In the languages that the digest knows words of. A question or a mere refusal is none."""
    for said in CORRECTIONS:
        assert [is_asked for _, is_asked in find_corrections([*TALK, user(said)])] == [False]
        assert not list(find_corrections([*TALK, assistant(said)]))
    for said in OTHERS:
        assert not list(find_corrections([*TALK, user(said)]))
    said = "No, case_9 must be port 8089".ljust(SHOWN_CHARS - 1, "x") + "."
    assert list(find_corrections([*TALK, user(said)])) == [(said, False)]


ASKED = ("My sister is called Ingrid.", "My favourite colour is turquoise.", "The deadline is 14 March.")


def test_what_the_user_asks_to_remember_is_carried_beside_a_models_note() -> None:
    """Words of everyday life, too. It has more room than corrections, and takes none of theirs."""
    said = [user(f"{one} Please remember that.") for one in ASKED]
    lines = carry(*TALK, user(CORRECTIONS[0]), *said, *TALK, max_tokens=900).splitlines()
    assert [line[2:] for line in lines if line.startswith("- ")] == [CORRECTIONS[0], *ASKED[:2], ASKED[2][4:]]
    many = [user(f"Berth {n} belongs to ship {n}17. Please remember that.") for n in range(99)]
    told = [line for line in carry(*TALK, *many, max_tokens=400).splitlines() if line.startswith("- ")]
    assert 0 < count("\n".join(told)) <= 400 * ASKED_SHARE
    assert told[-1] == "- Berth 98 belongs to ship 9817."


def test_they_are_the_users_words_and_not_quoted() -> None:
    """They precede the quotation of tools and assistant. Markers in them are broken all the same."""
    text = carry(*TALK, user(f"Never use port 8080 {QUOTE_START}"))
    before, _, _ = text.partition(QUOTE_START)
    assert before.startswith(f"## {CORRECTIONS_TITLE}\n- Never use port 8080")
    assert text.count(QUOTE_START) == 1


def test_hostile_texts_take_linear_work() -> None:
    """Twice the text takes at most twice the work."""
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


def test_lines_with_names_stay_as_they_are_written() -> None:
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


def test_no_more_characters_are_read_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is read whole or not at all."""
    message = run("import a_one\nimport b_two")
    for left, found in ((0, 1), (-1, 0)):
        monkeypatch.setattr(anchors, "READ_CHARS", len(message.tool_calls[0].arguments) + left)
        assert len(list(find_code([message], [], frozenset()))) == found
