"""What codecs remember."""

import pytest

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.wire.transcript.decoding import OBJECT_BYTES, FixedTokens, weigh_element
from trimtab.rules.conversation import Message, Role


def _decode(raw: bytes) -> tuple[Message, ...]:
    return (Message(Role.USER, (raw.decode(),), raw=raw),)


def _fail(_raw: object) -> tuple[Message, ...]:
    raise AssertionError


def test_an_element_is_decoded_once() -> None:
    """Even if it occurs twice in a request: both get the same messages."""
    view = make_known().view("chat", 0)
    assert view.count_unknown_bytes([b"one", b"two"]) == 6
    one, two, again = view.decode([b"one", b"two", b"one"], _decode)

    assert one is again is not two
    assert view.count_unknown_bytes([b"one", b"two", b"three"]) == 5
    assert view.decode([b"two", b"one"], _fail) == [two, one]


@pytest.mark.parametrize("other", [("chat", 1), ("turns", 0)])
def test_dialects_and_ways_of_counting_know_nothing_of_each_other(other: tuple[str, int]) -> None:
    """The same bytes are another message in another dialect, and have other costs with another vocabulary."""
    known = make_known()
    known.view("chat", 0).decode([b"one"], _decode)
    known.view("chat", 0).count_fixed((b"tools",), lambda _: FixedTokens(1, 2))

    assert known.view("chat", 0).count_unknown_bytes([b"one"]) == 0
    assert known.view("chat", 0).count_unknown_bytes([], (b"tools",), 2) == 0
    assert known.view(*other).count_unknown_bytes([b"one"]) == 3
    assert known.view(*other).count_unknown_bytes([], (b"tools",), 2) == 10


def test_what_stands_outside_is_counted_once() -> None:
    """The key is its exact bytes."""
    view = make_known().view("chat", 0)
    assert view.count_fixed((b"tools",), lambda _: FixedTokens(1, 2)) == FixedTokens(1, 2)
    assert view.count_fixed((b"tools",), lambda _: FixedTokens(3, 4)) == FixedTokens(1, 2)


def test_what_the_first_message_costs_is_remembered_of_the_newest() -> None:
    """Another first message is counted anew."""
    view, messages = make_known().view("chat", 0), (*_decode(b"one"), *_decode(b"three"))
    found = [view.count_first(messages[at], lambda one: len(one.raw)) for at in (0, 0, 1)]
    assert (found, view.count_first(messages[1], lambda _: 0)) == ([3, 3, 5], 5)


def test_an_element_that_cannot_be_decoded_is_not_kept() -> None:
    """The error is raised, and elements decoded before it are remembered."""
    view = make_known().view("chat", 0)
    view.decode([b"one"], _decode)
    with pytest.raises(AssertionError):
        view.decode([b"one", b"bad"], _fail)
    assert view.count_unknown_bytes([b"one", b"bad"]) == 3


def test_the_memory_of_an_element_is_that_of_its_bytes_its_texts_and_its_objects() -> None:
    """A longer text weighs more by its length."""
    short, long = (weigh_element((0, b"key"), (Message(Role.USER, ("x" * chars,)),)) for chars in (10, 1010))
    assert short > len(b"key") + 10 + OBJECT_BYTES
    assert long - short == 1000
