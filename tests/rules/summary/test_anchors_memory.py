"""The text that is carried over a cut: bounded, and the same with and without the cache."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace
from support.builders import assistant, count, system, transcripts, user
from support.steps import count_steps
from support.tool_steps import step

from trimtab.rules.conversation import Message
from trimtab.rules.results.work import Allowance, LargeWorkError
from trimtab.rules.summary.anchors import MAX_TEXTS, Anchors, Carried
from trimtab.rules.text.markers import QUOTE_END, QUOTE_START
from trimtab.rules.window.state import Cut, CutKind

TODO = step("TodoWrite", {"todos": [{"content": "mend the harbour", "status": "in_progress"}]})
RULES = step("Read", {"file_path": "/r/AGENTS.md"}, "Always run the linter.")
SERVER = step("bash", {"command": "python server.py &"}, "[1] 412")


def place(at: int, made_at: int, *, room: int = 600, kept: tuple[int, ...] = (), task: int | None = None) -> Carried:
    cut = Cut(CutKind.SUMMARISE, at, 200, kept, 360, made_at=made_at, anchor_tokens=room)
    return Carried(cut, task, ("AGENTS.md",))


def find(
    anchors: Anchors, messages: tuple[Message, ...], where: Carried, spend: Callable[[int], None] | None = None
) -> str:
    """The text that is carried over a cut; by default, any amount of text may be read."""
    return anchors.find(messages, where, count=count, spend=spend or (lambda _: None))


def talk(steps: int, label: str = "m") -> tuple[Message, ...]:
    made = (step("read", {"path": f"src/{label}_{number}.py"}, f"found name_{number}") for number in range(steps))
    return tuple(message for one in made for message in one)


REQUESTS = st.lists(
    st.tuples(st.integers(0, 24), st.booleans(), st.integers(0, 24), st.integers(0, 24), st.booleans()), max_size=8
)


@given(messages=transcripts(), other=transcripts(), requests=REQUESTS)
def test_the_cache_does_not_change_the_text(
    messages: tuple[Message, ...], other: tuple[Message, ...], requests: list[tuple[int, bool, int, int, bool]]
) -> None:
    """The transcript may grow, be rewound, branch off, or be another one with the same end."""
    messages, other = (*talk(3), *messages), (*talk(3, "n"), *other)
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
    messages = (*TODO, *RULES, *SERVER, *talk(6), *messages)
    text = find(Anchors(), messages, place(min(at, len(messages)), len(messages), room=room))
    assert count(text) <= room + 2
    assert text.count(QUOTE_START) == text.count(QUOTE_END)
    if text:
        assert all(part.startswith(QUOTE_START) for part in text.split(f"{QUOTE_END}\n\n"))


def test_list_rules_and_names_are_carried() -> None:
    """The task list is last, where a model reads it best."""
    messages = (system(), user("Begin with src/task.py."), *TODO, *RULES, *SERVER, *talk(4))
    text = find(Anchors(), (*messages, assistant("Fine.")), place(len(messages), len(messages) + 1, task=1))
    parts = ["still running: ", "src/m_3.py", "Always run the linter.", "[in_progress] mend the harbour"]
    found = [text.find(part) for part in parts]
    assert -1 not in found
    assert found == sorted(found)
    assert "src/task.py" not in text


def test_names_in_verbatim_messages_are_not_repeated() -> None:
    """Names of the task statement, the kept messages and the tail are in no list, only in whole quoted lines."""
    messages = (user("Mend src/task.py."), user("Mind src/kept.py."), *talk(4), assistant("Now src/tail.py."))
    said = (user("src/task.py src/kept.py src/tail.py src/gone.py"), *messages)
    text = find(Anchors(), said, place(len(said) - 1, len(said), kept=(2,), task=1))
    listed = "\n".join(line for line in text.splitlines() if not line.endswith(said[0].text))
    assert "src/gone.py" in text
    assert not any(name in listed for name in ("src/task.py", "src/kept.py", "src/tail.py"))


def test_each_message_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except READ_CHARS of the removed part, which are read twice again for each new cut.

    Every read is announced to `spend`.
    """
    monkeypatch.setattr("trimtab.rules.summary.anchors.READ_CHARS", 400)
    messages = talk(40)
    kept, spent = Anchors(), []
    find(kept, messages, place(20, 40), spent.append)
    find(kept, messages, place(20, 40), spent.append)
    find(kept, (*messages, *talk(2)), place(30, 60), spent.append)
    read = [len(message.text) + sum(len(call.arguments) for call in message.tool_calls) for message in messages]
    assert sum(read[:20]) < 400 < sum(read[:30])
    assert spent == [sum(read[:40]), 2 * sum(read[:20]), sum(read[40:60]), 800]


def test_too_much_work_leaves_it_as_it_was() -> None:
    """The cache stays correct."""
    messages = talk(40)
    kept, where = Anchors(), place(20, 80)
    find(kept, messages, place(10, 20))
    size = kept.size_bytes
    with pytest.raises(LargeWorkError):
        find(kept, messages, where, Allowance(10).spend)
    assert kept.size_bytes == size
    assert find(kept, messages, place(10, 20), Allowance(0).spend) == find(Anchors(), messages, place(10, 20))
    assert find(kept, messages, where) == find(Anchors(), messages, where)


def test_a_bounded_number_of_texts_is_kept() -> None:
    """However often a cut moves; their approximate size is reported."""
    messages = talk(40)
    kept = Anchors()
    sizes = []
    for at in range(2, 60, 2):
        find(kept, messages, place(at, 60))
        sizes.append(kept.size_bytes)
    assert sizes[-1] - sizes[0] <= MAX_TEXTS * 600 * 4


def test_a_continued_request_takes_little_work() -> None:
    """The cached text is found by comparing messages only."""
    messages = talk(400)
    kept, where = Anchors(), place(400, 500)
    first = count_steps(lambda: find(kept, messages, where))
    assert count_steps(lambda: find(kept, (*messages, *talk(1)), where)) * 50 <= first


def test_another_budget_or_another_text_is_another_place() -> None:
    """A digest lists files and calls itself, so the index after it is shorter."""
    messages = (*SERVER, *talk(30))
    kept, where = Anchors(), place(40, 60)
    texts = [
        find(kept, messages, one)
        for one in (
            where,
            replace(where, told="a list"),
            replace(where, cut=structs.replace(where.cut, anchor_tokens=200)),
        )
    ]
    assert len(set(texts)) == 3
