"""The services of requests."""

from contextlib import suppress

from proxy.exchange.services import Lifecycle


def test_a_proxy_is_idle_until_a_request_comes_and_after_the_last_has_gone() -> None:
    """`idle` is set exactly while no request is in flight, however requests end. Each new number is shown."""
    lifecycle, shown = Lifecycle(), []
    assert lifecycle.idle.is_set()
    with lifecycle.serving(shown.append):
        with suppress(ValueError), lifecycle.serving(shown.append):
            assert (lifecycle.in_flight, lifecycle.idle.is_set()) == (2, False)
            raise ValueError
        assert not lifecycle.idle.is_set()

    assert lifecycle.idle.is_set()
    assert (shown, lifecycle.in_flight, lifecycle.ready) == ([1, 2, 1, 0], 0, False)
