"""Work waits in lanes that take turns."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.fair_queue import FairQueue

LANES = "abcd"
STEPS = st.lists(st.tuples(st.sampled_from(["add", "begin", "end", "remove"]), st.sampled_from(LANES)), max_size=80)


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


class _Watched:
    """A queue and its expected state: what waits, what holds places, and the turns that each lane has seen."""

    def __init__(self, places: int, per_lane: int) -> None:
        self.queue: FairQueue[int] = FairQueue(places, places_per_lane=per_lane)
        self.places, self.per_lane = places, per_lane
        self.waiting: dict[str, list[int]] = {lane: [] for lane in LANES}
        self.held: Counter[str] = Counter()
        self.passed: dict[str, Counter[str]] = {lane: Counter() for lane in LANES}

    def add(self, lane: str, item: int) -> None:
        self.queue.add(lane, item)
        self.waiting[lane].append(item)

    def remove(self, lane: str, _: int) -> None:
        if self.waiting[lane]:
            assert self.queue.remove(lane, self.waiting[lane].pop())

    def end(self, lane: str, _: int) -> None:
        if self.held[lane]:
            self.queue.end(lane)
            self.held[lane] -= 1

    def begin(self, _: str, __: int) -> None:
        may_begin = [lane for lane in LANES if self.waiting[lane] and self.held[lane] < self.per_lane]
        item = self.queue.begin()
        assert (item is None) == (self.held.total() == self.places or not may_begin)
        if item is None:
            return
        begun = next(lane for lane in may_begin if self.waiting[lane][0] == item)
        self.waiting[begun].pop(0)
        self.held[begun] += 1
        for lane in may_begin:
            self.passed[lane][begun] += 1
            assert lane == begun or self.passed[lane][begun] <= 1
        self.passed[begun] = Counter()

    def look(self) -> None:
        """Forget the turns that a lane has seen if it does not wait or has its share."""
        for lane in LANES:
            if not self.waiting[lane] or self.held[lane] == self.per_lane:
                self.passed[lane] = Counter()
        assert len(self.queue) == sum(map(len, self.waiting.values()))


@given(STEPS, st.integers(1, 3), st.integers(1, 3))
def test_nobody_waits_for_more_than_one_turn_of_each_other(
    steps: list[tuple[str, str]], places: int, per_lane: int
) -> None:
    """Between two turns of a waiting lane, no other lane has two turns while the waiting one may begin.

    Places are never lost or added: no more are held than exist, and none is free while an item may begin.
    """
    watched = _Watched(places, per_lane)
    for number, (what, lane) in enumerate(steps):
        getattr(watched, what)(lane, number)
        watched.look()
