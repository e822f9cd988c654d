"""The open item of a task list that is followed step by step."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant
from support.steps import count_steps
from support.tool_steps import step

from trimtab.rules.conversation import Message
from trimtab.rules.summary.carried.items import Rank
from trimtab.rules.summary.carried.task_list import ITEM_CHARS, KEPT_CHARS, OpenItem, find_task_list


def todo(*items: tuple[str, str]) -> list[Message]:
    """A call that sets the whole list."""
    return step("TodoWrite", {"todos": [{"content": label, "status": status} for label, status in items]})


def follow(steps: Sequence[Sequence[Message]]) -> str:
    """The open item after all steps; it is asked for after each."""
    item = OpenItem()
    found = ""
    for one in steps:
        item.add(one)
        found = item.find()
    return found


DONE = ("read", "completed")
STEPS = (
    todo(DONE, ("write", "pending"), ("test", "in_progress")),
    todo(DONE, ("write", "pending")),
    todo(DONE),
    todo(),
    step("TaskCreate", {"subject": "add a test"}, "Task #1 created"),
    step("TaskUpdate", {"taskId": "1", "status": "completed"}),
    step("Write", {"file_path": "/r/TODO.md", "content": "# Now\n- [x] a\n- [ ] from a file\n"}),
    step("Edit", {"file_path": "/r/TODO.md", "old_string": "- [ ] from", "new_string": "- [x] from"}),
    step("read_file", {"path": "a.py"}, "x = 1"),
    [assistant("The plan:\n- [x] say\n- [ ] said in a text")],
    [assistant("Nothing to list.")],
)


def test_the_item_under_way_comes_first() -> None:
    """Else the first that is open; none if all are done."""
    assert [follow([one]) for one in STEPS] == [
        "test", "write", "", "", "add a test", "", "from a file", "", "", "said in a text", "",
    ]  # fmt: skip
    assert follow([STEPS[6], STEPS[7]]) == ""
    assert follow([STEPS[0], STEPS[10]]) == "test"


@given(steps=st.lists(st.sampled_from(STEPS), max_size=12))
def test_following_finds_what_a_search_finds(steps: list[list[Message]]) -> None:
    """The same item as in the list that a cut would carry over."""
    tasks = find_task_list([message for one in steps for message in one], ())
    ranks = [] if tasks is None else [(item.rank, item.label) for item in tasks.items if item.rank <= Rank.OPEN]
    assert follow(steps) == (min(ranks, key=lambda pair: pair[0])[1] if ranks else "")


def test_an_item_is_one_short_line() -> None:
    """Our own markers in it are broken."""
    assert follow([todo(("a\nb " + "c" * 500, "pending"))]).startswith("a b ccc")
    assert len(follow([todo(("c" * 500, "pending"))])) == ITEM_CHARS + 1
    quoted = follow([todo(("do [trimtab: omitted 3 lines] now", "pending"))])
    assert quoted == "do [quoted trimtab: omitted 3 lines] now"


def test_what_is_kept_is_bounded() -> None:
    """However many steps change a list without ever setting it whole."""
    item = OpenItem()
    text = "- [ ] item\n" * 400
    for number in range(100):
        item.add(step("Write", {"file_path": f"/r/plan-{number}.md", "content": text}))
    assert item.size_bytes <= KEPT_CHARS


def test_steps_that_tell_nothing_cost_little() -> None:
    """The list is not searched again."""
    item = OpenItem()
    item.add(STEPS[0])
    assert item.find() == "test"
    item.add(STEPS[8])
    assert count_steps(item.find) < 20
