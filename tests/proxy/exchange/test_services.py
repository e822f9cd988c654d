"""The services of requests."""

from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.exchange.services import Lifecycle
from trimtab.proxy.http.relay import Reply


def _make_reply() -> Reply:
    return Reply(make_mocked_request("POST", "/v1/chat/completions"))


def test_a_proxy_is_idle_until_a_request_comes_and_after_the_last_has_gone() -> None:
    """`idle` is set exactly while no request is in flight. Each new number is shown."""
    lifecycle, shown, replies = Lifecycle(), [], [_make_reply(), _make_reply()]
    lifecycle.show = shown.append
    assert lifecycle.idle.is_set()
    for reply in replies:
        lifecycle.begin(reply, "")
    assert (lifecycle.in_flight, lifecycle.idle.is_set()) == (2, False)
    lifecycle.end(replies[1], "")
    assert not lifecycle.idle.is_set()
    lifecycle.end(replies[0], "")
    assert lifecycle.idle.is_set()
    assert (shown, lifecycle.in_flight, lifecycle.ready) == ([1, 2, 1, 0], 0, False)


def test_the_end_of_the_last_request_is_told_before_the_proxy_is_idle() -> None:
    """So nothing waits in the recorder's ring while nobody is served, whoever waits for `idle`."""
    lifecycle, told, replies = Lifecycle(), list[tuple[int, bool]](), [_make_reply(), _make_reply()]
    lifecycle.drain = lambda: told.append((lifecycle.in_flight, lifecycle.idle.is_set()))
    for reply in replies:
        lifecycle.begin(reply, "")
    lifecycle.end(replies[1], "")
    assert told == []
    lifecycle.end(replies[0], "")
    assert told == [(0, False)]


@given(clients=st.lists(st.sampled_from(["", "alice", "bob"]), max_size=12), answered=st.sets(st.integers(0, 11)))
def test_a_client_s_requests_count_until_their_last_byte_is_sent(clients, answered) -> None:
    """Each name has a number of its own. Clients without a name have none. Nothing is left when all have ended."""
    lifecycle, replies = Lifecycle(), [_make_reply() for _ in clients]
    for index, (reply, client) in enumerate(zip(replies, clients, strict=True)):
        reply.last_byte_at = float(index in answered)
        lifecycle.begin(reply, client)
    for name in ("alice", "bob"):
        going = [index for index, client in enumerate(clients) if client == name and index not in answered]
        assert lifecycle.count_of(name) == len(going)
    assert lifecycle.count_of("") == 0

    for reply, client in zip(replies, clients, strict=True):
        lifecycle.end(reply, client)
    assert lifecycle.by_client == {}
