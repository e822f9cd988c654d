"""The phases of a request's work."""

from trimtab.proxy.account.recorder import Phases


def test_a_phase_within_another_has_no_time_of_its_own() -> None:
    """Its time counts for the outer phase, but a fault in it counts under its own name."""
    phases = Phases("plan")
    with phases.timed("summary"), phases.during("apply"):
        assert phases.current == "apply"
    with phases.timed("apply"):
        pass

    assert phases.current == "plan"
    assert [name for name, _ in phases.seconds] == ["summary", "apply"]
