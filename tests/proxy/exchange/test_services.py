"""The services of requests."""

from contextlib import ExitStack, suppress

from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.exchange.services import Lifecycle, Serving
from trimtab.proxy.http.relay import Reply


def _make_reply() -> Reply:
    return Reply(make_mocked_request("POST", "/v1/chat/completions"))


def test_a_proxy_is_idle_until_a_request_comes_and_after_the_last_has_gone() -> None:
    """`idle` is set exactly while no request is in flight, however requests end. Each new number is shown."""
    lifecycle, shown = Lifecycle(), []
    lifecycle.show = shown.append
    assert lifecycle.idle.is_set()
    with Serving(lifecycle, _make_reply(), ""):
        with suppress(ValueError), Serving(lifecycle, _make_reply(), ""):
            assert (lifecycle.in_flight, lifecycle.idle.is_set()) == (2, False)
            raise ValueError
        assert not lifecycle.idle.is_set()

    assert lifecycle.idle.is_set()
    assert (shown, lifecycle.in_flight, lifecycle.ready) == ([1, 2, 1, 0], 0, False)


def test_the_end_of_the_last_request_is_told_before_the_proxy_is_idle() -> None:
    """So nothing waits in the recorder's ring while nobody is served, whoever waits for `idle`."""
    lifecycle, told = Lifecycle(), list[tuple[int, bool]]()

    def end() -> None:
        told.append((lifecycle.in_flight, lifecycle.idle.is_set()))

    lifecycle.drain = end
    with Serving(lifecycle, _make_reply(), ""):
        with Serving(lifecycle, _make_reply(), ""):
            pass
        assert told == []
    assert told == [(0, False)]


@given(clients=st.lists(st.sampled_from(["", "alice", "bob"]), max_size=12), answered=st.sets(st.integers(0, 11)))
def test_a_client_s_requests_count_until_their_last_byte_is_sent(clients, answered) -> None:
    """Each name has a number of its own. Clients without a name have none. Nothing is left when all have ended."""
    lifecycle = Lifecycle()
    with ExitStack() as open_requests:
        for index, client in enumerate(clients):
            reply = _make_reply()
            reply.last_byte_at = float(index in answered)
            open_requests.enter_context(Serving(lifecycle, reply, client))
        for name in ("alice", "bob"):
            going = [index for index, client in enumerate(clients) if client == name and index not in answered]
            assert lifecycle.count_of(name) == len(going)
        assert lifecycle.count_of("") == 0

    assert lifecycle.by_client == {}
