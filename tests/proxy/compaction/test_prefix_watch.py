"""How much of a prompt the upstream has read before."""

from dataclasses import replace

import pytest
from support.builders import assistant, conversation, result, session, user

from proxy.compaction.prefix_watch import MAX_NEW_MESSAGES, PrefixWatch
from rules.conversation import Message
from rules.prefix import hash_prefixes


def observe(
    watch: PrefixWatch, messages: tuple[Message, ...], *, client: str = "m", tools: bytes = b"[]"
) -> float | None:
    """A request that is forwarded unchanged, with ten tokens outside its messages."""
    return watch.observe(client, hash_prefixes(messages), conversation(*messages, fixed_tokens=10), (tools,))


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
    share = watch.observe("m", hash_prefixes(messages), forwarded, (b"[]",))
    assert share == pytest.approx(kept / forwarded.tokens)


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
