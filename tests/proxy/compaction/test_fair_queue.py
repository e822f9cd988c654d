"""Work waits in lanes that take turns."""

from trimtab.proxy.compaction.fair_queue import FairQueue


def _begin_all(queue: FairQueue[str], most: int = 100) -> str:
    begun = (queue.begin() for _ in range(most))
    return "".join(item for item in begun if item is not None)


def test_lanes_take_turns() -> None:
    """The amount of work in the first lane does not matter. Within a lane, the order is that of arrival."""
    queue: FairQueue[str] = FairQueue(100, places_per_lane=100)
    for item in ["a1", "a2", "a3", "a4", "b1", "b2", "c1"]:
        queue.add(item[0], item)

    assert _begin_all(queue) == "a1b1c1a2b2a3a4"


def test_no_lane_has_more_than_its_share() -> None:
    """Free places stay free for another lane, which gets them at once."""
    queue: FairQueue[str] = FairQueue(3, places_per_lane=2)
    for number in range(5):
        queue.add("a", f"a{number}")
    assert _begin_all(queue) == "a0a1"
    queue.add("b", "b0")
    assert _begin_all(queue) == "b0"
    queue.add("c", "c0")
    assert _begin_all(queue) == ""
    queue.end("a")
    assert _begin_all(queue) == "a2"  # which came before c0
    queue.end("a")
    assert _begin_all(queue) == "c0"


def test_what_was_taken_out_is_never_begun() -> None:
    """It leaves no trace. An item that has begun, or that never waited, cannot be taken out."""
    queue: FairQueue[str] = FairQueue(1, places_per_lane=1)
    for item in ("a0", "a1", "b0"):
        queue.add(item[0], item)

    assert [queue.remove("a", "a1"), queue.remove("a", "a1"), queue.remove("z", "z0"), len(queue)] == [
        True, False, False, 2,
    ]  # fmt: skip
    assert queue.begin() == "a0"
    assert not queue.remove("a", "a0")
    assert queue.remove("b", "b0")
    queue.end("a")
    assert (queue.begin(), len(queue)) == (None, 0)
