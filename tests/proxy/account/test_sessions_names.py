"""Sessions that begin alike have names of their own, and each keeps its name."""

from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.account.sessions import (
    MAX_ALIKE,
    MAX_MESSAGES,
    MAX_NAMES_BYTES,
    NAME_CHARS,
    SessionNames,
    Transcript,
)
from trimtab.rules.conversation import Message, Role

BASE = "0123456789abcdef"


def transcript(*said: str) -> Transcript:
    """A transcript of messages; those of the assistant begin with a capital letter."""
    digests = [sha256(one.encode()).digest() for one in said]
    hashes = [bytes(32)]
    for digest in digests:
        hashes.append(sha256(hashes[-1] + digest).digest())
    answers = [at for at, one in enumerate(said) if one[:1].isupper()]
    return Transcript.of(hashes, digests, 1, answers[-1] + 1 if answers else 0)


def steps(name: str, number: int, opening: str = "hello") -> list[Transcript]:
    """The requests of a session, one for each answer of the model and the result behind it."""
    said = [opening]
    found = [transcript(*said)]
    for step in range(number):
        said += [f"Answer {name} {step}", f"result {name} {step}"]
        found.append(transcript(*said))
    return found


def name_all(names: SessionNames, requests: list[Transcript], base: str = BASE) -> set[str]:
    return {names.find(base, request) for request in requests}


def test_one_session_after_the_other() -> None:
    names = SessionNames()
    first, second, third = (name_all(names, steps(one, 5)) for one in "abc")
    assert [len(one) for one in (first, second, third)] == [1, 1, 1]
    assert len(first | second | third) == 3
    assert all(len(one) == NAME_CHARS for one in first | second | third)
    for name, own in zip("abc", (first, second, third), strict=True):
        assert {names.find(BASE, request) for request in steps(name, 12)[6:]} == own
    assert name_all(names, steps("a", 3), "another beginning") == {"another beginning"}


def test_sessions_that_differ_late_are_named_by_that_message() -> None:
    shared = ("hello", "Yes", "go on", "Done")
    others = [transcript(*shared, f"question {name}", f"Answer {name}", f"more {name}") for name in "abc"]
    names, again = SessionNames(), SessionNames()
    found = [names.find(BASE, other) for other in others]
    assert len(set(found)) == 3
    assert [again.find(BASE, others[0]), again.find(BASE, others[2])] == [found[0], found[2]]


def test_a_request_that_is_sent_again_belongs_to_its_session() -> None:
    """Also if the session has gone on since."""
    names = SessionNames()
    name_all(names, steps("a", 6))
    other = name_all(names, steps("b", 6))
    assert names.find(BASE, steps("a", 6)[3]) == BASE
    assert {names.find(BASE, one) for one in steps("b", 6)[1:]} == other
    assert names.find(BASE, steps("a", 8)[8]) == BASE


def test_a_client_that_writes_its_newest_message_otherwise_goes_on() -> None:
    names = SessionNames()
    said, found = ["hello", "Yes", "go on"], set()
    for step in range(8):
        found.add(names.find(BASE, transcript(*said[:-1], f"{said[-1]} with a reminder")))
        said += [f"Answer {step}", f"result {step}"]
    assert len(found) == 1


@pytest.mark.parametrize("kept", [6, 12])
def test_a_client_that_drops_its_oldest_messages_goes_on(kept: int) -> None:
    names = SessionNames()
    said = [f"{'A' if number % 2 else 'a'} {number}" for number in range(60)]
    slid = [transcript("hello", *said[max(stop - kept, 0) : stop]) for stop in range(2, 60, 2)]
    assert name_all(names, slid) == {BASE}
    assert names.find(BASE, transcript("hello", "a summary", *said[-6:-2], "a new one")) == BASE


def test_the_memory_is_bounded() -> None:
    names = SessionNames()
    found = [name_all(names, steps(str(number), 2)) for number in range(3 * MAX_ALIKE)]
    assert all(one != other for one, other in pairwise(found))
    assert len(names._alike.get(BASE) or ()) == MAX_ALIKE
    long = transcript("hello", *(f"message {number}" for number in range(2 * MAX_MESSAGES)))
    assert len(long) == MAX_MESSAGES
    for number in range(MAX_NAMES_BYTES // MAX_MESSAGES // 8):
        names.find(f"beginning {number}", long)
    assert names._alike.total_bytes <= MAX_NAMES_BYTES


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(1, 7)), max_size=12))
def test_what_only_goes_on_has_the_same_name_as_by_a_full_look(requests: list[tuple[str, int, int]]) -> None:
    by_look, by_step = SessionNames(), SessionNames()
    for branch, fork, length in requests:
        said = ["hello", *(f"A{'' if at < fork else branch}{at}" for at in range(length))]
        messages = [Message(Role.USER, (one,)) for one in said]
        digests = [message.digest for message in messages]
        hashes = [bytes(32), *(sha256(b"".join(digests[:at])).digest() for at in range(1, len(said) + 1))]
        whole = Transcript.of(hashes, digests, 1, len(said))
        followed = by_step.follow(BASE, hashes, messages, len(said)) or by_step.find(BASE, whole)
        assert followed == by_look.find(BASE, whole)


def test_a_session_that_goes_on_is_followed_without_a_full_look() -> None:
    names, digest = SessionNames(), Message(Role.USER, ("x",)).digest
    messages = [Message(Role.USER, ("x",))] * (MAX_MESSAGES + 3)
    hashes = [bytes(32), *(sha256(number.to_bytes(2)).digest() for number in range(1, MAX_MESSAGES + 4))]
    assert names.follow(BASE, hashes[:3], messages[:2], 2) is None
    assert names.find(BASE, Transcript.of(hashes[:3], [digest] * 2, 1, 2)) == BASE
    for length in (2, 3, MAX_MESSAGES, MAX_MESSAGES + 3, 5):
        followed = names.follow(BASE, hashes[: length + 1], messages[:length], length)
        assert followed == (None if length == 5 else BASE)  # a shorter one may begin another session
