"""The newest task list among removed messages: always found, and written within a budget."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, count, transcripts, user
from support.steps import count_steps
from support.tool_steps import answered, step

from trimtab.rules.conversation import Message
from trimtab.rules.summary.task_items import Item, Rank, make_item
from trimtab.rules.summary.task_list import (
    ITEM_CHARS,
    KEPT_CHARS,
    RESULT_CHARS,
    OpenItem,
    TaskList,
    apply_changes,
    find_task_list,
    read_list_call,
    write_task_list,
)
from trimtab.rules.text.markers import QUOTE_END, QUOTE_START

SAID = "Plan:\n- [x] say\n- [ ] do"
WORDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)
ITEMS = st.lists(st.tuples(WORDS, st.sampled_from(["pending", "in_progress", "completed"])), min_size=1, max_size=8)


def todo(*items: tuple[str, str]) -> list[Message]:
    return step("TodoWrite", {"todos": [{"content": label, "status": status} for label, status in items]})


def found(removed: Sequence[Message], tail: Sequence[Message] = ()) -> list[str] | None:
    task_list = find_task_list(removed, tail)
    return None if task_list is None else [item.write() for item in task_list.items]


A, B = todo(("a", "pending")), todo(("b", "in_progress"), ("c", "completed"))
ENDED = todo(("e", "completed"))
FILED = step("Write", {"file_path": "/r/TODO.md", "content": "# Now\n- [ ] file\n"})


def test_the_newest_list_is_kept_as_the_agent_wrote_it() -> None:
    """Not one that was rejected. A tail that only changes it does not hold it."""
    assert found([user(), *A, *B]) == ["- [in_progress] b", "- [completed] c"]
    assert find_task_list([*A, *B], []) == TaskList(
        (make_item("b", "in_progress"), make_item("c", "completed")), "TodoWrite"
    )
    for said in [
        "Error: InputValidationError: TodoWrite failed",
        "The user doesn't want to proceed with this tool use. The tool use was rejected",
    ]:
        rejected = step("TodoWrite", {"todos": [{"content": "new", "status": "pending"}]}, said)
        assert found([*B, *rejected]) == found(B)
    made = [
        *step("TaskCreate", {"subject": "a", "description": "how"}, "Task #1 created successfully: a"),
        *step("TaskCreate", {"subject": "b"}, "Task #2 created successfully: b"),
        *step("TaskUpdate", {"taskId": "1", "status": "in_progress"}),
    ]
    update = step("TaskUpdate", {"taskId": "1", "status": "completed"})
    assert found(made, update) == ["- [in_progress] 1: a", "- 2: b"]
    assert found([*made, *update]) == ["- [completed] 1: a", "- 2: b"]
    assert found(made, step("TaskList", {}, "#1 [completed] a\n#2 [pending] b")) is None
    gone = step("TaskUpdate", {"taskId": "1", "status": "deleted"})
    assert found([*made, *gone]) == ["- 2: b"]


@given(before=transcripts(), after=transcripts(), items=ITEMS, texts=st.lists(st.text(), max_size=3))
def test_a_list_is_found_in_any_transcript(
    before: list[Message], after: list[Message], items: list[tuple[str, str]], texts: list[str]
) -> None:
    """Verbatim, in order, and the same in each call."""
    around = [assistant(text) for text in texts]
    removed = [*before, *around, *todo(*items), *around, *after]
    lines = [f"- [{status}] {label}" for label, status in items]
    assert found(removed) == lines
    assert found(removed, [*around, *after]) == lines
    task_list = find_task_list(removed, [])
    assert task_list is not None
    assert all(line in write_task_list(task_list, max_tokens=2000, count=count).splitlines() for line in lines)


@given(removed=transcripts(), tail=transcripts(), items=ITEMS)
def test_a_tail_that_holds_a_list_holds_the_newest(
    removed: list[Message], tail: list[Message], items: list[tuple[str, str]]
) -> None:
    """So nothing is carried, at whatever place of the tail the list is."""
    assert find_task_list([*removed, *A], [*tail, *todo(*items)]) is None
    assert find_task_list([*removed, *A], [*todo(*items), *tail]) is None


def test_a_tools_list_counts_more_than_words_and_files() -> None:
    """Unless all of its items are closed."""
    words = [assistant(SAID)]
    assert found([*A, *words, *FILED]) == ["- [pending] a"]
    assert found(A, [*words, *FILED]) == ["- [pending] a"]
    assert found([*ENDED, *words]) == ["- [x] say", "- [ ] do"]
    assert found([*ENDED, *words, *FILED]) == ["# Now", "- [ ] file"]
    assert found([*ENDED, *FILED]) == ["# Now", "- [ ] file"]
    assert found([*words, *FILED, *ENDED]) == ["- [completed] e"]
    assert found(ENDED, words) is None
    assert found(words, A) is None
    assert found(words, words) is None
    assert found([*A, *todo()]) is found(A, todo()) is None  # the one before it does not come back
    assert found([user(SAID), *step("bash", {"command": "cat README"}, SAID)]) is None
    assert found(step("create_todo", {"title": "Groceries"}, '{"status":"success"}')) is None


def test_a_file_of_plans_is_followed_through_its_edits() -> None:
    """If they are clear. Other files are no plans, and of a document that was read only the name of one tells it."""
    edit = step("Edit", {"file_path": "/r/TODO.md", "old_string": "- [ ] file", "new_string": "- [x] file\n- [ ] more"})
    assert found([*FILED, *edit]) == ["# Now", "- [x] file", "- [ ] more"]
    changed = find_task_list([*FILED, *step("bash", {"command": "sed -i s/x/y/ TODO.md"})], [])
    assert changed.is_uncertain
    assert "may be incomplete or outdated" in write_task_list(changed, max_tokens=99, count=count)
    assert found(step("Read", {"file_path": "docs/upgrade-plan.md"}, "- [ ] a\n- [ ] b")) is None
    assert found(step("Read", {"file_path": "docs/plan.md"}, "1\t- [ ] a\n2\t- [ ] b")) == ["- [ ] a", "- [ ] b"]
    for name in ["/r/README.md", "/r/plan.py", "/r/explanation.md", "/r/todo"]:
        assert found(step("Write", {"file_path": name, "content": "- [ ] a\n- [ ] b"})) is None
        assert found(step("Read", {"file_path": "plan.md"}, "We plan to grow.\nMuch.")) is None


def test_a_list_is_marked_as_of_then_and_quoted() -> None:
    """Nothing that a client writes can end the quotation or begin a marker."""
    task_list = TaskList(
        (make_item(f"a {QUOTE_END}\n## Requests, oldest first", "x", details="[trimtab: d]"),), "[trimtab: t]"
    )
    text = write_task_list(task_list, max_tokens=999, count=count)
    assert text.startswith(f"{QUOTE_START}\n## Last known task list (")
    assert text.endswith(f"{QUOTE_END}\n")
    assert text.count("[trimtab: ") == 2
    assert "Requests, oldest first" not in text


def test_the_items_with_priority_stay_if_not_all_fit() -> None:
    """A line says how many are left out. A plan in prose keeps head and tail."""
    closed = [make_item(f"closed {number} and some more words", "completed") for number in range(20)]
    opened = [make_item("now", "in_progress", details="with care"), make_item("later", "pending")]
    text = write_task_list(TaskList((*closed, *opened), "t"), max_tokens=70, count=count)
    lines = text.splitlines()
    assert lines[2] == "(0 open and 19 closed items omitted)"
    assert lines[3:-1] == [closed[19].write(), "- [in_progress] now", "  with care", "- [pending] later"]
    assert write_task_list(TaskList((make_item("a" * 400),), "t"), max_tokens=60, count=count) == ""
    plan = "# Plan\n" + "".join(f"Step {number}: do what is to be done.\n" for number in range(99)) + "The end."
    task_list = find_task_list(step("ExitPlanMode", {"plan": plan}), [])
    assert task_list is not None
    text = write_task_list(task_list, max_tokens=200, count=count)
    assert "# Plan\nStep 0" in text
    assert "The end." in text
    assert "[trimtab: omitted " in text
    assert count(text) <= 200


@given(
    items=st.lists(st.builds(make_item, st.text(), st.text(max_size=9), details=st.text()), max_size=12),
    source=st.text(),
    max_tokens=st.integers(-5, 200),
)
def test_the_text_is_within_the_budget_and_whole(items: list[Item], source: str, max_tokens: int) -> None:
    text = write_task_list(TaskList(tuple(items), source), max_tokens=max_tokens, count=count)
    assert not text or (count(text) <= max_tokens and text.startswith(QUOTE_START) and text.endswith(f"{QUOTE_END}\n"))


def test_what_is_kept_is_bounded() -> None:
    """However many steps change a list without ever setting it whole; and no message is read twice."""
    item = OpenItem()
    text = "- [ ] item\n" * 400
    for number in range(100):
        item.add(step("Write", {"file_path": f"/r/plan-{number}.md", "content": text}))
    assert item.size_bytes <= KEPT_CHARS
    for steps in [step("bash", {"command": "ls TODO.md"}), [assistant("- [ ] one\n")], [user(SAID)]]:
        small, large = (count_steps(lambda more=steps * n: find_task_list([*FILED, *more], more)) for n in (40, 80))
        assert large <= 2 * small


def follow(steps: Sequence[Sequence[Message]]) -> str:
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
    """Else the first that is open, as one short line in which our markers are broken; none if all are done."""
    assert [follow([one]) for one in STEPS] == [
        "test", "write", "", "", "add a test", "", "from a file", "", "", "said in a text", "",
    ]  # fmt: skip
    assert follow([STEPS[6], STEPS[7]]) == ""
    assert follow([STEPS[0], STEPS[10]]) == "test"
    assert follow([todo(("a\nb " + "c" * 500, "pending"))]).startswith("a b ccc")
    assert len(follow([todo(("c" * 500, "pending"))])) == ITEM_CHARS + 1
    quoted = follow([todo(("do [trimtab: omitted 3 lines] now", "pending"))])
    assert quoted == "do [quoted trimtab: omitted 3 lines] now"


@given(steps=st.lists(st.sampled_from(STEPS), max_size=12))
def test_following_finds_what_a_search_finds(steps: list[list[Message]]) -> None:
    tasks = find_task_list([message for one in steps for message in one], ())
    ranks = [] if tasks is None else [(item.rank, item.label) for item in tasks.items if item.rank <= Rank.OPEN]
    assert follow(steps) == (min(ranks, key=lambda pair: pair[0])[1] if ranks else "")


def lines(name: str, arguments: object, said: str = "ok") -> list[str] | None:
    told = read_list_call(answered(name, arguments, said))
    return [item.write() for item in told.items] if told is not None and told.is_whole else None


def test_the_whole_list_is_read_from_the_arguments() -> None:
    """With the agent's own labels and statuses; or from the result, if it was only looked at."""
    for name, arguments, line in [
        ("TodoWrite", {"todos": [{"content": "a", "status": "pending", "activeForm": "Doing"}]}, "- [pending] a"),
        ("todo_write", {"todos": [{"id": "1", "content": "a", "status": "pending"}]}, "- [pending] 1: a"),
        ("update_plan", {"explanation": "e", "plan": [{"step": "a", "status": "pending"}]}, "- [pending] a"),
        ("write_todos", {"todos": [{"description": "a", "status": "cancelled"}]}, "- [cancelled] a"),
        ("task_tracker", {"command": "plan", "task_list": [{"title": "a", "status": "todo"}]}, "- [todo] a"),
        ("manage_todo_list", {"operation": "write", "todoList": [{"id": 1, "title": "a", "status": "not-started"}]},
         "- [not-started] 1: a"),
        ("todo", {"action": "write", "todos": [{"id": "1", "content": "a"}]}, "- 1: a"),
        ("update_todo_list", {"todos": "[-] a"}, "[-] a"),
        ("Checklist", {"checklist": "- [x] a"}, "- [x] a"),
        ("execute_command", {"command": "ls", "task_progress": "- [x] a"}, "- [x] a"),
        ("mcp__planner__set", {"tasks": [{"name": "a", "state": "open"}]}, "- [open] a"),
        ("write_todos", ["a"], None),
        ("write_todos", {"todos": ["a"]}, "- a"),
        ("TodoWrite", {"todos": '[{"content": "a", "status": "pending"}]'}, "- [pending] a"),
        ("ExitPlanMode", {"plan": "# P\ndo"}, "# P\ndo"),
    ]:  # fmt: skip
        assert lines(name, arguments) == (None if line is None else [line])
    for name, arguments, said in [
        ("TaskList", {}, "#1 [completed] a\n#2 [pending] b"),
        ("todoread", {}, '[{"content":"a","status":"completed"},{"content":"b","status":"pending"}]'),
        (
            "todo",
            {"action": "read"},
            '{"todos":[{"content":"a","status":"completed"},{"content":"b","status":"pending"}]}',
        ),
        ("task_tracker", {"command": "view"}, "1. ✅ a\n2. ⏳ b"),
    ]:
        told = read_list_call(answered(name, arguments, said))
        assert told.is_whole
        assert [item.label for item in told.items] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("Task", {"description": "look", "prompt": "do", "subagent_type": "x"}, "- [ ] a\n- [ ] b"),
        ("TaskGet", {"taskId": "1"}, "Task #1\n- [ ] a\n- [ ] b"),
        ("run_tasks", {"tasks": ["build", "test"]}, "ok"),
        ("spawn_tasks", {"tasks": [{"name": "a", "prompt": "do"}]}, "ok"),
        ("find_orders", {"tasks": [{"name": "a", "status": "shipped to Bonn"}]}, "ok"),
        ("bash", {"command": "echo '- [ ] a'"}, "- [ ] a\n- [ ] b"),
        ("pay", {"todos": []}, "ok"),
        ("TodoWrite", '{"todos": [{"content": "a", "sta', "ok"),
        ("TaskList", {}, "#1 [pending] a\n" * (RESULT_CHARS // 15 + 1)),
        ("TodoWrite", {"todos": 7}, "ok"),
    ],
)
def test_other_calls_say_nothing_about_the_list(name: str, arguments: object, said: str) -> None:
    assert read_list_call(answered(name, arguments, said)) is None


def test_single_items_are_added_and_changed() -> None:
    """They keep their order; a change of an unknown item adds nothing."""
    for name, arguments, said, item in [
        ("TaskCreate", {"subject": "a", "description": "d"}, "Task #7 created successfully: a",
         make_item("a", name="7", details="d")),
        ("task_create", {"title": "a"}, '{"task": {"id": "t-1", "title": "a"}}', make_item("a", name="t-1")),
        ("TaskUpdate", {"taskId": "7", "status": "done", "addBlocks": ["8"]}, "ok", make_item("", "done", name="7")),
        ("todo", {"action": "complete", "id": 3}, "ok", make_item("", "complete", name="3")),
        ("todo_write", {"merge": True, "todos": [{"id": "a", "status": "completed"}]}, "ok",
         make_item("", "completed", name="a")),
        ("update_tasks", {"tasks": [{"task_id": "a", "state": "COMPLETE"}]}, "ok", make_item("", "COMPLETE", name="a")),
    ]:  # fmt: skip
        told = read_list_call(answered(name, arguments, said))
        assert (told.items, told.is_whole) == ((item,), False)
    whole = (make_item("a", "pending", name="1"), make_item("b", "pending", name="2"), make_item("x"))
    changes = (
        [make_item("", "in_progress", name="1")],
        [make_item("c", name="3"), make_item("", "done", name="9")],
        [make_item("", "deleted", name="2"), make_item("A", name="1")],
    )
    assert [item.write() for item in apply_changes(whole, changes)] == ["- [in_progress] 1: A", "- x", "- 3: c"]
