"""A call that is made again because its result was removed is a loop the third time."""

from support.builders import assistant, call

from rules.window.kept.repeats import MAX_LOOPS, REMOVALS, Repeats


def test_only_calls_behind_a_removal_count() -> None:
    """Equal calls while the last result is there make no loop, and neither do calls with other arguments."""
    repeats = Repeats()
    for index in range(20):
        repeats.add(index, assistant(None, call(f"c{index}")), lambda _: False)
        repeats.add(index, assistant(None, call(f"d{index}", arguments=f"{index}")), lambda _: True)
    assert list(repeats.list()) == []


def test_the_third_one_is_a_loop_and_the_newest_step_counts() -> None:
    """Each later equal call takes the place of the one before."""
    repeats = Repeats()
    found = []
    for index in range(REMOVALS + 3):
        repeats.add(index, assistant(None, call(f"c{index}")), lambda _: True)
        found.append(list(repeats.list()))
    assert found == [[], [], [], [3], [4], [5]]


def test_newest_loops_come_first_and_are_few() -> None:
    """Each step once, although it may have several looping calls."""
    repeats = Repeats()
    for index in range(40 * (REMOVALS + 1)):
        calls = [call(f"{index}-{name}", name, arguments=f"{index % 40}") for name in ("read", "list")]
        repeats.add(index, assistant(None, *calls), lambda _: True)
    newest = list(repeats.list())
    assert newest == sorted(newest, reverse=True)
    assert len(newest) == len(set(newest)) == MAX_LOOPS // 2
    assert repeats.size_bytes > 0
