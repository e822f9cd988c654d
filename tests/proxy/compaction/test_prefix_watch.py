"""How much of a prompt the upstream has read before."""

from dataclasses import replace

import pytest
from support.builders import assistant, conversation, result, session, system, user

from proxy.compaction import prefix_watch
from proxy.compaction.prefix_watch import MAX_NEW_MESSAGES, Prefix, PrefixWatch
from rules.conversation import Message
from rules.prefix import hash_prefixes


def observe(
    watch: PrefixWatch, messages: tuple[Message, ...], *, client: str = "m", tools: bytes = b"[]"
) -> float | None:
    """The share that is kept of a request that is forwarded unchanged, with ten tokens outside its messages."""
    prefix = compare(watch, messages, client=client, tools=tools)
    return prefix.kept_share if prefix is not None and prefix.continues else None


def compare(
    watch: PrefixWatch,
    messages: tuple[Message, ...],
    forwarded: tuple[Message, ...] | None = None,
    *,
    client: str = "m",
    tools: bytes = b"[]",
    age_seconds: float = 0.0,
) -> Prefix | None:
    """What is found of a request; it is forwarded unchanged if `forwarded` is None."""
    sent = conversation(*(messages if forwarded is None else forwarded), fixed_tokens=10)
    return watch.observe(client, hash_prefixes(messages), sent, (tools,), original=messages, age_seconds=age_seconds)


def test_of_a_first_request_nothing_is_said() -> None:
    """There is no earlier request to compare with. Another client's requests are not compared."""
    watch = PrefixWatch()
    assert observe(watch, session(3)) is None
    assert observe(watch, session(4), client="other") is None


def test_what_stands_as_it_did_is_kept() -> None:
    """Tools and earlier messages count. New messages do not."""
    watch = PrefixWatch()
    before, after = session(3), session(4)
    assert observe(watch, before) is None
    kept = 10 + sum(message.tokens for message in before)
    assert observe(watch, after) == pytest.approx(kept / (10 + sum(message.tokens for message in after)))
    assert observe(watch, after) == 1.0


def test_a_changed_message_breaks_the_prefix_there() -> None:
    """The forwarded bytes are compared, not what the client said."""
    watch = PrefixWatch()
    messages = session(3)
    assert observe(watch, messages) is None
    edited = (*messages[:3], replace(messages[3], texts=("pruned",), edited=True), *messages[4:])
    forwarded = conversation(*edited, fixed_tokens=10)
    kept = 10 + sum(message.tokens for message in edited[:3])
    prefix = compare(watch, messages, edited)
    assert prefix is not None
    assert prefix.kept_share == pytest.approx(kept / forwarded.tokens)


def test_changed_tools_break_all_of_it() -> None:
    """In a prompt, tools come before the first message."""
    watch = PrefixWatch()
    assert observe(watch, session(3)) is None
    assert observe(watch, session(4), tools=b"[{}]") == 0.0


def test_parallel_branches_do_not_mix() -> None:
    """Each branch continues its own last request."""
    watch = PrefixWatch()
    trunk = (user("task"), assistant("yes"))
    left, right = (*trunk, user("left")), (*trunk, user("right"))
    assert observe(watch, trunk) is None
    assert observe(watch, left) is not None
    assert observe(watch, right) is None
    assert observe(watch, (*left, assistant("l"))) is not None
    assert observe(watch, (*right, assistant("r"), result("x"))) is not None


def test_the_search_for_the_request_before_is_bounded() -> None:
    """If a transcript has grown by more, it counts as a new one."""
    watch, messages = PrefixWatch(), session(MAX_NEW_MESSAGES)
    for growth, is_known in ((MAX_NEW_MESSAGES - 1, True), (MAX_NEW_MESSAGES, False)):
        assert observe(watch, messages[:4], client=str(growth)) is None
        assert (observe(watch, messages[: 4 + growth], client=str(growth)) is not None) is is_known


def test_what_changes_while_the_client_only_adds_is_ours() -> None:
    """A cut changes what is forwarded; the client's transcript, instructions and tools go on."""
    watch = PrefixWatch()
    before, after = (system(), *session(4)), (system(), *session(5))
    compare(watch, before)
    first = compare(watch, after, (*after[:2], user("a summary"), *after[8:]))
    again = compare(watch, after, (*after[:2], user("a summary"), *after[8:]))

    assert first is not None
    assert again is not None
    assert (first.continues, first.is_ours) == (True, True)
    assert first.kept_tokens == 10 + before[0].tokens + before[1].tokens
    assert first.previous_tokens == 10 + sum(message.tokens for message in before)
    assert again.kept_tokens == again.tokens == again.previous_tokens


@pytest.mark.parametrize("changed", ["tools", "instruction", "transcript", "shorter"])
def test_what_the_client_changes_is_not_ours(changed: str) -> None:
    """A session whose transcript was rewritten is recognised by its first message."""
    watch = PrefixWatch()
    before = (system(), *session(4))
    after = {
        "tools": before,
        "instruction": (system("You are quick."), *before[1:]),
        "transcript": (*before[:4], replace(before[4], texts=("other",), edited=True, digest=bytes(32)), *before[5:]),
        "shorter": before[:4],
    }[changed]
    compare(watch, before)
    prefix = compare(watch, after, tools=b"[{}]" if changed == "tools" else b"[]")

    assert prefix is not None
    assert not prefix.is_ours
    assert prefix.continues is (changed in {"tools", "instruction"})
    kept = {"tools": 0, "instruction": 10, "transcript": 10 + sum(message.tokens for message in before[:4])}
    assert prefix.kept_tokens == kept.get(changed, prefix.tokens)


def test_the_pause_is_between_the_moments_of_sending() -> None:
    """How long the answers took does not count. A clock that is set back gives no pause."""
    times = iter([100.0, 400.0, 50.0])
    watch = PrefixWatch(lambda: next(times))
    found = [compare(watch, session(steps), age_seconds=age) for steps, age in ((3, 20.0), (4, 60.0), (5, 0.0))]

    assert [prefix and prefix.pause_seconds for prefix in found] == [None, 260.0, 0.0]


def test_another_branch_is_compared_with_the_newest_request_of_the_same_beginning() -> None:
    """It does not count as a continuation, and the branch that it is compared with can still be continued."""
    watch = PrefixWatch()
    trunk = (user("task"), assistant("yes"))
    compare(watch, (*trunk, user("left")))
    right = compare(watch, (*trunk, user("right")))
    left = compare(watch, (*trunk, user("left"), assistant("l")))

    assert right is not None
    assert left is not None
    assert (right.continues, left.continues) == (False, True)
    assert right.kept_tokens == 10 + sum(message.tokens for message in trunk)
    assert compare(watch, (user("another task"), *trunk[1:])) is None
    assert compare(watch, (*trunk, user("right")), client="other") is None


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old sessions are forgotten, and a forgotten session counts as new."""
    monkeypatch.setattr(prefix_watch, "MAX_BYTES", 20_000)
    monkeypatch.setattr(prefix_watch, "MAX_NEWEST_BYTES", 5_000)
    watch = PrefixWatch()
    for number in range(200):
        assert compare(watch, (user(f"task {number}"), *session(3))) is None

    assert watch._forwarded.total_bytes <= 20_000
    assert watch._newest.total_bytes <= 5_000
    assert compare(watch, (user("task 0"), *session(3))) is None
    assert compare(watch, (user("task 199"), *session(3))) is not None
