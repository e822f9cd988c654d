"""What requests are served with."""

from proxy.exchange.services import Lifecycle


def test_a_proxy_is_idle_until_a_request_comes_and_after_the_last_has_gone() -> None:
    """`idle` is set exactly while nothing is in flight."""
    lifecycle = Lifecycle()
    seen = [lifecycle.idle.is_set()]
    for change in (lifecycle.enter, lifecycle.enter, lifecycle.leave, lifecycle.leave):
        change()
        seen.append(lifecycle.idle.is_set())

    assert seen == [True, False, False, False, True]
    assert (lifecycle.in_flight, lifecycle.ready) == (0, False)
