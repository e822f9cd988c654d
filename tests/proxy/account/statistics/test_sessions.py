"""Sessions are found by the beginning of their transcripts."""

from proxy.account.prompt_cache import Cache
from proxy.account.statistics.sessions import MAX_NEW_MESSAGES, Seen, Sessions

SEEN = Seen(1, 0, is_changed=False, cache=Cache())


def _hashes(*names: str) -> list[bytes]:
    return [bytes(32), *[name.encode() for name in names]]


def test_the_longest_known_beginning_is_found() -> None:
    """Also after a rewind: the request before the rewound one is still known."""
    sessions = Sessions()
    first, second = (Seen(count, count, is_changed=False, cache=Cache()) for count in (1, 3))
    sessions.keep("c", _hashes("a"), first)
    sessions.keep("c", _hashes("a", "b", "c"), second)
    assert sessions.find("c", _hashes("a", "b", "c", "d")) == second
    assert sessions.find("c", _hashes("a", "x", "y")) == first
    assert sessions.find("c", _hashes("x")) is None


def test_another_client_has_other_sessions() -> None:
    sessions = Sessions()
    sessions.keep("c", _hashes("a"), SEEN)
    assert sessions.find("d", _hashes("a", "b")) is None


def test_a_session_that_grew_too_much_is_not_searched_for() -> None:
    sessions = Sessions()
    sessions.keep("c", _hashes("a"), SEEN)
    grown = [str(number) for number in range(MAX_NEW_MESSAGES)]
    assert sessions.find("c", _hashes("a", *grown)) is None
