"""What calls say about the task list, in the forms of agents' tools."""

import pytest
from support.tool_steps import answered

from trimtab.rules.summary.task_items import Item, make_item
from trimtab.rules.summary.task_list import RESULT_CHARS, apply_changes, read_list_call


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
    """With any name and any result."""
    assert read_list_call(answered(name, arguments, said)) is None


@pytest.mark.parametrize(
    ("name", "arguments", "said", "item"),
    [
        ("TaskCreate", {"subject": "a", "description": "d"}, "Task #7 created successfully: a",
         make_item("a", name="7", details="d")),
        ("task_create", {"title": "a"}, '{"task": {"id": "t-1", "title": "a"}}', make_item("a", name="t-1")),
        ("TaskUpdate", {"taskId": "7", "status": "done", "addBlocks": ["8"]}, "ok", make_item("", "done", name="7")),
        ("todo", {"action": "complete", "id": 3}, "ok", make_item("", "complete", name="3")),
        ("todo_write", {"merge": True, "todos": [{"id": "a", "status": "completed"}]}, "ok",
         make_item("", "completed", name="a")),
        ("update_tasks", {"tasks": [{"task_id": "a", "state": "COMPLETE"}]}, "ok", make_item("", "COMPLETE", name="a")),
    ],
)  # fmt: skip
def test_single_items_are_added_and_changed(name: str, arguments: object, said: str, item: Item) -> None:
    """The id of an item may come from the result."""
    told = read_list_call(answered(name, arguments, said))
    assert (told.items, told.is_whole) == ((item,), False)


def test_changes_are_applied_to_the_list() -> None:
    """Items keep their order, deleted ones are removed, and a change of an unknown item adds nothing."""
    whole = (make_item("a", "pending", name="1"), make_item("b", "pending", name="2"), make_item("x"))
    changes = (
        [make_item("", "in_progress", name="1")],
        [make_item("c", name="3"), make_item("", "done", name="9")],
        [make_item("", "deleted", name="2"), make_item("A", name="1")],
    )
    assert [item.write() for item in apply_changes(whole, changes)] == ["- [in_progress] 1: A", "- x", "- 3: c"]
