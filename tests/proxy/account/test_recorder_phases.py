"""The phases of a request's work."""

from trimtab.proxy.account.recorder import Phases


def test_after_a_phase_within_another_the_outer_one_is_current_again() -> None:
    """So a fault counts under the innermost phase that has not ended."""
    phases = Phases("plan")
    outer = phases.begin("summary")
    inner = phases.begin("apply")
    assert phases.current == "apply"
    phases.end(inner)
    phases.end(outer)

    assert phases.current == "plan"
    assert [name for name, _ in phases.seconds] == ["apply", "summary"]
