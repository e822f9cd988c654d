"""How much of a prompt the upstream has read before."""

from dataclasses import replace
from typing import Any

import pytest
from support.builders import assistant, conversation, result, session, system, user

from trimtab.proxy.account import prompt_cache
from trimtab.proxy.account.prompt_cache import MAX_NEW_MESSAGES, Cache, Prefix, PreviousRequests, Seen, Sent
from trimtab.rules.conversation import Message
from trimtab.rules.prefix import hash_prefixes


def observe(previous: PreviousRequests, messages: tuple[Message, ...], *, client: str = "m") -> float | None:
    """The share that is kept of a request that is forwarded unchanged, with ten tokens outside its messages."""
    prefix = see(previous, messages, client=client).prefix
    return prefix.kept_share if prefix is not None and prefix.continues else None


def compare(previous: PreviousRequests, messages: tuple[Message, ...], *forwarded: Any, **more: Any) -> Prefix | None:
    """What is found of a request; it is forwarded unchanged if nothing else is given."""
    return see(previous, messages, *forwarded, **more).prefix


def see(
    previous: PreviousRequests,
    messages: tuple[Message, ...],
    forwarded: tuple[Message, ...] | None = None,
    *,
    client: str = "m",
    tools: bytes = b"[]",
    age_seconds: float = 0.0,
) -> Seen:
    sent = conversation(*(messages if forwarded is None else forwarded), fixed_tokens=10)
    is_changed, hashes = forwarded is not None, hash_prefixes(messages)
    return previous.observe(client, hashes, Sent(messages, sent, (tools,), age_seconds, is_changed))


def test_what_stands_as_it_did_is_kept() -> None:
    previous = PreviousRequests()
    before, after = session(3), session(4)
    assert observe(previous, before) is None
    kept = 10 + sum(message.tokens for message in before)
    assert observe(previous, after) == pytest.approx(kept / (10 + sum(message.tokens for message in after)))
    assert observe(previous, after) == 1.0


def test_a_session_goes_on_after_an_answer_that_the_client_had_begun() -> None:
    previous, asked = PreviousRequests(), (user("task"), assistant("yes"), user("count to ten"))
    assert observe(previous, (*asked, assistant("1, 2,"))) is None
    after = (*asked, assistant("1, 2, 3, 4"), user("go on"))
    kept = 10 + sum(message.tokens for message in asked)
    assert observe(previous, after) == pytest.approx(kept / (10 + sum(message.tokens for message in after)))
    assert observe(previous, after) == 1.0


def test_sessions_that_differ_in_their_tools_only_do_not_mix() -> None:
    previous, caches = PreviousRequests(), {b"[1]": Cache(hit_share=0.1), b"[2]": Cache(hit_share=0.2)}
    for number in (3, 4, 5):
        seen = {tools: see(previous, session(number), tools=tools) for tools in caches}
        for tools, one in seen.items():
            if number > 3:
                assert one.before.cache == caches[tools]
                assert one.prefix.kept_tokens == one.prefix.previous_tokens
                assert one.prefix.is_ours
            previous.learn(one, caches[tools])


def test_parallel_branches_do_not_mix() -> None:
    previous = PreviousRequests()
    trunk = (user("task"), assistant("yes"))
    left, right = (*trunk, user("left")), (*trunk, user("right"))
    assert observe(previous, trunk) is None
    assert observe(previous, left) is not None
    assert observe(previous, right) is None
    assert observe(previous, (*left, assistant("l"))) is not None
    assert observe(previous, (*right, assistant("r"), result("x"))) is not None


def test_the_search_for_the_request_before_is_bounded() -> None:
    previous, messages = PreviousRequests(), session(MAX_NEW_MESSAGES)
    for growth, is_known in ((MAX_NEW_MESSAGES - 1, True), (MAX_NEW_MESSAGES, False)):
        assert observe(previous, messages[:4], client=str(growth)) is None
        assert (observe(previous, messages[: 4 + growth], client=str(growth)) is not None) is is_known


def test_what_changes_while_the_client_only_adds_is_ours() -> None:
    previous = PreviousRequests()
    before, after = (system(), *session(4)), (system(), *session(5))
    compare(previous, before)
    first = compare(previous, after, (*after[:2], user("a summary"), *after[8:]))
    again = compare(previous, after, (*after[:2], user("a summary"), *after[8:]))

    assert again is not None
    assert (first.continues, first.is_ours) == (True, True)
    assert first.kept_tokens == 10 + before[0].tokens + before[1].tokens
    assert first.previous_tokens == 10 + sum(message.tokens for message in before)
    assert again.kept_tokens == again.tokens == again.previous_tokens


@pytest.mark.parametrize("changed", ["tools", "instruction", "transcript", "shorter"])
def test_what_the_client_changes_is_not_ours(changed: str) -> None:
    previous = PreviousRequests()
    before = (system(), *session(4))
    after = {
        "tools": before,
        "instruction": (system("You are quick."), *before[1:]),
        "transcript": (*before[:4], replace(before[4], texts=("other",), edited=True, digest=bytes(32)), *before[5:]),
        "shorter": before[:4],
    }[changed]
    compare(previous, before)
    prefix = compare(previous, after, tools=b"[{}]" if changed == "tools" else b"[]")

    assert not prefix.is_ours
    assert prefix.continues is (changed in {"tools", "instruction"})
    kept = {"tools": 0, "instruction": 10, "transcript": 10 + sum(message.tokens for message in before[:4])}
    assert prefix.kept_tokens == kept.get(changed, prefix.tokens)


def test_the_pause_is_between_the_moments_of_sending() -> None:
    times = iter([100.0, 400.0, 50.0])
    previous = PreviousRequests(lambda: next(times))
    found = [compare(previous, session(steps), age_seconds=age) for steps, age in ((3, 20.0), (4, 60.0), (5, 0.0))]

    assert [prefix and prefix.pause_seconds for prefix in found] == [None, 260.0, 0.0]


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_cache, "MAX_BYTES", 20_000)
    monkeypatch.setattr(prompt_cache, "MAX_NEWEST_BYTES", 5_000)
    previous = PreviousRequests()
    for number in range(200):
        assert compare(previous, (user(f"task {number}"), *session(3))) is None

    assert previous._requests.total_bytes <= 20_000
    assert previous._newest.total_bytes <= 5_000
    assert compare(previous, (user("task 0"), *session(3))) is None
    assert compare(previous, (user("task 199"), *session(3))) is not None


def test_what_was_learned_of_the_cache_goes_on_with_the_session() -> None:
    """So does that trimtab has changed a request. With other tools it is another prompt, of which nothing is known."""
    previous, cache = PreviousRequests(), Cache(0.5, 0.25)
    previous.learn(see(previous, session(3), session(2)), cache)
    seen = see(previous, session(4))
    assert (seen.before.cache, seen.now.cache, seen.now.is_changed) == (cache, cache, True)
    other = see(previous, session(5), tools=b"[{}]")
    assert (other.before, other.now.cache, other.now.is_changed) == (None, Cache(), False)
