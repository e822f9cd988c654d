"""A call that is made again because its result was removed is a loop the third time."""

from collections.abc import Sequence

from support.builders import assistant, call, result

from trimtab.rules.conversation import ToolCall
from trimtab.rules.window.kept import MAX_LOOPS, REMOVALS, Repeats


def add(
    repeats: Repeats, index: int, *calls: ToolCall, results: Sequence[str] = ("same",), removed: bool = True
) -> None:
    """Add a step with these calls; each gets one of the results in turn."""
    repeats.add(index, assistant(None, *calls), lambda _: removed)
    for number, each in enumerate(calls):
        repeats.answer(result(each.id, results[number % len(results)]))


def test_only_calls_behind_a_removal_count() -> None:
    """Equal calls while the last result is there make no loop, and neither do other arguments or another result."""
    repeats = Repeats()
    for index in range(20):
        add(repeats, index, call(f"c{index}"), removed=False)
        add(repeats, index, call(f"d{index}", arguments=f"{index}"))
        add(repeats, index, call(f"e{index}", "test"), results=[f"run {index}"])
    assert list(repeats.list()) == []


def test_the_third_one_is_a_loop_and_the_newest_step_counts() -> None:
    """Each later equal call takes the place of the one before."""
    repeats = Repeats()
    found = []
    for index in range(REMOVALS + 3):
        add(repeats, index, call(f"c{index}"))
        found.append(list(repeats.list()))
    assert found == [[], [], [], [3], [4], [5]]


def test_newest_loops_come_first_and_are_few() -> None:
    """Each step once, although it may have several looping calls."""
    repeats = Repeats()
    for index in range(40 * (REMOVALS + 1)):
        calls = [call(f"{index}-{name}", name, arguments=f"{index % 40}") for name in ("read", "list")]
        add(repeats, index, *calls)
    newest = list(repeats.list())
    assert newest == sorted(newest, reverse=True)
    assert len(newest) == len(set(newest)) == MAX_LOOPS // 2
    assert repeats.size_bytes > 0


def test_a_result_of_no_call_is_left_out() -> None:
    """However often it comes, it is no loop, and takes no memory."""
    repeats = Repeats()
    for index in range(REMOVALS + 2):
        repeats.add(index, assistant("No call."), lambda _: True)
        repeats.answer(result(None, "same"))
        repeats.answer(result("unknown", "same"))
    assert (list(repeats.list()), repeats.size_bytes) == ([], 0)
