"""Background tasks have an owner."""

import ast
import asyncio
from pathlib import Path

import pytest

from trimtab import proxy
from trimtab.proxy.tasks import Tasks, find_pause, shield_to_end


@pytest.fixture
def errors() -> list[BaseException]:
    return []


@pytest.fixture
def tasks(errors: list[BaseException]) -> Tasks:
    return Tasks(errors.append)


async def test_what_is_started_is_waited_for_and_what_it_starts_too(tasks: Tasks) -> None:
    done: list[str] = []

    async def work(*names: str) -> None:
        await asyncio.sleep(0)
        done.append(names[0])
        if names[1:]:
            _ = tasks.start(work(*names[1:]))

    _ = tasks.start(work("a", "b", "c"))
    assert not tasks.is_idle
    await tasks.settle()

    assert (done, tasks.is_idle) == (["a", "b", "c"], True)


async def test_closing_ends_what_is_under_way(tasks: Tasks, errors: list[BaseException]) -> None:
    """Their end is not reported as an error."""
    task = tasks.start(asyncio.Event().wait())
    await tasks.close()

    assert task.cancelled()
    assert errors == []


async def test_an_error_is_told_whether_anybody_waits_or_not(tasks: Tasks, errors: list[BaseException]) -> None:
    async def fail(reason: str) -> None:
        raise ValueError(reason)

    _ = tasks.start(fail("nobody waits"))
    waited_for = tasks.start(fail("somebody waits"))
    with pytest.raises(ValueError, match="somebody waits"):
        await waited_for
    await tasks.settle()

    assert sorted(str(error) for error in errors) == ["nobody waits", "somebody waits"]


async def test_a_caller_that_leaves_does_not_end_the_task(tasks: Tasks) -> None:
    go = asyncio.Event()
    task = tasks.start(go.wait())
    caller = asyncio.get_running_loop().create_task(asyncio.wait({task}))
    await asyncio.sleep(0)
    caller.cancel()
    go.set()
    await tasks.settle()

    assert task.result()


def test_nothing_else_makes_tasks_but_task_groups() -> None:
    """`asyncio.create_task` is banned by ruff; this closes the ways around it, which ruff cannot see."""
    root = Path(proxy.__file__).parent
    makers = {str(path.relative_to(root)) for path in root.rglob("*.py") if _makes_tasks(path.read_text("utf-8"))}

    assert makers == {"tasks.py"}


def _makes_tasks(source: str) -> bool:
    tree = ast.parse(source)
    groups = {
        ast.unparse(item.optional_vars)
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if item.optional_vars is not None and "TaskGroup" in ast.unparse(item.context_expr)
    }
    return any(
        (node.attr == "create_task" and ast.unparse(node.value) not in groups) or node.attr == "ensure_future"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    )


async def test_work_that_is_seen_through_ends_although_its_caller_is_cancelled() -> None:
    """The cancellation comes after it. A second one ends the work."""
    begun, release = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def work() -> None:
        begun.set()
        await release.wait()
        done.append("work")

    caller = asyncio.ensure_future(shield_to_end(work()))
    await begun.wait()
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["work"]

    release.clear()
    begun.clear()
    caller = asyncio.ensure_future(shield_to_end(work()))
    await begun.wait()
    for _ in range(2):
        caller.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["work"]


def test_a_pause_doubles_from_the_first_to_the_longest():
    assert [find_pause(failures, 5.0, 30.0) for failures in (1, 2, 3, 4, 5, 5_000)] == [5, 10, 20, 30, 30, 30]
