"""The places of workers and their sockets."""

from pathlib import Path

from proxy.account.history.place import Place
from proxy.telemetry.shared import Roster, SharedMetrics


def make_place(path: str, pids: list[int]) -> Place:
    roster = Roster(len(pids))
    for number, pid in enumerate(pids, 1):
        roster.write(number, pid, 0)
    return Place(2, SharedMetrics(Path(path), roster, 0))


def test_a_place_knows_the_others_and_who_runs():
    place = make_place("/run/trimtab-metrics-x", [10, 11, 0])
    assert place.others == [1, 3]
    assert [place.runs(number) for number in (1, 2, 3)] == [True, True, False]
    assert place.stopped == [3]
    assert place.socket_of(3) == Path("/run/trimtab-metrics-x/worker-3.sock")


def test_a_folder_with_a_long_name_has_no_sockets():
    """The system would refuse them."""
    assert make_place("/" + "x" * 100, [1, 2]).socket_of(1) is None
