"""Old results become placeholders."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    IMAGE,
    IMAGE_LINE,
    MEDIA_TOKENS,
    KeptStates,
    assistant,
    call,
    conversation,
    count,
    fill,
    function_result,
    listing,
    read,
    result,
    session,
    shown,
    system,
    transcripts,
    user,
)

from trimtab.proxy.compaction.tokenizers.exact import count_pieces
from trimtab.rules.conversation import Decision, Media, Message
from trimtab.rules.pipeline.order import plan
from trimtab.rules.policy import Budget, Policy
from trimtab.rules.text.markers import mark_pruned, mark_pruned_again
from trimtab.rules.window.prune import (
    PLACEHOLDER_TOKENS,
    ImageStop,
    Loops,
    drop_images,
    prune_tool_results,
    remove_images,
    saving_tokens,
)
from trimtab.rules.window.sums import ImageSums


def test_a_result_that_is_too_long_to_keep_says_so() -> None:
    messages = session(3, result_tokens=400)
    outcome = prune_tool_results(
        conversation(*messages), start=0, stop=8, count=count, loops=Loops(((2, 4),), ((4, 6),))
    )
    texts = [message.text for message in outcome.conversation.messages if message.role == "tool"]
    assert texts[0] == messages[3].text
    assert texts[1] == mark_pruned_again(messages[5].tokens)
    assert texts[2] == mark_pruned(messages[7].tokens)


def test_results_in_the_span_become_placeholders() -> None:
    """The line says how many tokens were there. Nothing else is touched."""
    before = conversation(*session(4), fixed_tokens=3)
    outcome = prune_tool_results(before, start=4, stop=8, count=count)
    changed = [
        index
        for index, pair in enumerate(zip(before.messages, outcome.conversation.messages, strict=True))
        if pair[0] is not pair[1]
    ]
    assert changed == [5, 7]
    pruned = outcome.conversation.messages[5]
    text = "[trimtab: tool result of 64 tokens removed; call the tool again if needed]"
    assert pruned.tokens == 4 + count(text)
    assert pruned == before.messages[5].shorten((text,), 60 - count(text))
    after = outcome.conversation.tokens
    assert outcome.decisions == (Decision("prune", "2 tool results before message 8", before.tokens, after, 2, 5),)


def test_what_is_no_longer_than_a_placeholder_stays() -> None:
    before = conversation(result("1", fill("short", PLACEHOLDER_TOKENS - 4)))
    assert prune_tool_results(before, start=0, stop=1, count=count).conversation is before
    longer = conversation(result("1", fill("long", PLACEHOLDER_TOKENS - 3)))
    assert prune_tool_results(longer, start=0, stop=1, count=count).conversation is not longer


def test_media_and_several_texts_go_too() -> None:
    """A result of several parts becomes only the placeholder, and so does a legacy result."""
    plain = result("1", fill("a", 60), fill("b", 60))
    with_image = replace(plain, media=(Media(IMAGE, MEDIA_TOKENS),), tokens=plain.tokens + MEDIA_TOKENS)
    outcome = prune_tool_results(conversation(with_image, function_result(fill("c", 60))), start=0, stop=2, count=count)
    assert [len(message.texts) for message in outcome.conversation.messages] == [1, 1]
    assert outcome.conversation.messages[0].media == ()
    assert all(message.tokens <= PLACEHOLDER_TOKENS for message in outcome.conversation.messages)


POLICY = Policy(result_budget=Budget(400), dedupe=False)
GREEN = "".join(f"\x1b[32mstep {number} of the build was done\x1b[0m\n" for number in range(300))


def prune_after_the_rules_on_results(*messages: Message, known: KeptStates | None = None) -> list[str]:
    """The results' texts, pruned after they were paired, tidied and truncated."""
    short = plan(
        conversation(*messages), POLICY, count=count, states=KeptStates() if known is None else known
    ).conversation
    outcome = prune_tool_results(short, start=0, stop=len(messages), count=count).conversation
    return [message.text for message in outcome.messages if message.role == "tool"]


@pytest.mark.parametrize("text", [GREEN, listing(1, lines=90)])
def test_a_placeholder_names_the_size_that_the_client_sent(text: str) -> None:
    """Tidying, truncation and the position of the result have no effect on it."""
    first, other = result("a", text, name="x"), result("b", listing(3, lines=60))
    head = (system(), user(), assistant(None, call("a"), call("b")))
    expected = [
        f"[trimtab: tool result of {message.tokens} tokens removed; call the tool again if needed]"
        for message in (first, other)
    ]
    assert prune_after_the_rules_on_results(*head, first, other) == expected
    # A result that the client put elsewhere is moved after its call.
    assert prune_after_the_rules_on_results(*head, first, user(), other) == expected
    # The placeholders kept from the shorter transcript are the same.
    known = KeptStates()
    assert prune_after_the_rules_on_results(*head, first, known=known)[:1] == expected[:1]
    for _ in range(2):
        assert prune_after_the_rules_on_results(*head, first, other, known=known) == expected


def test_a_placeholder_of_any_size_keeps_its_bound(encoding: tiktoken.Encoding) -> None:
    """It does not matter how large a result was. A real vocabulary counts."""
    truth = count_pieces(encoding)
    short = replace(result("1", fill("what is left", 60)), saved_tokens=10**12, edited=True)
    (pruned,) = prune_tool_results(conversation(short), start=0, stop=1, count=truth).conversation.messages
    assert f"of {10**12 + short.tokens} tokens" in pruned.text
    assert truth(pruned.text) + 4 <= PLACEHOLDER_TOKENS


@pytest.mark.parametrize(("header", "stays"), [("[tool: read]\n", True), ("[tool: " + "q7 z9 x8 " * 20 + "]\n", False)])
def test_a_written_result_keeps_its_header_only_if_the_placeholder_has_room(header: str, stays: object) -> None:
    """A pruned result never costs more than the fold has counted for it."""
    text = fill("long", 200)
    message = replace(result(None, text, name="read"), wire_role="user", header=header)
    message = replace(message, tokens=4 + count(header) + count(text))
    (pruned,) = prune_tool_results(conversation(message), start=0, stop=1, count=count).conversation.messages
    said = pruned.as_said()
    assert said.text.startswith(header) is stays
    assert said.text.endswith("call the tool again if needed]")
    assert pruned.tokens == 4 + sum(map(count, pruned.texts)) + count(pruned.header) <= PLACEHOLDER_TOKENS


# Images as lines: what is saved, where they are, and what is written.

SAVING = MEDIA_TOKENS - count(IMAGE_LINE)
FILE = b'{"type":"file","file":{"file_data":"AAAA"}}'


def sum_up(messages: Sequence[Message]) -> ImageSums:
    sums = ImageSums()
    for index, message in enumerate(messages):
        sums.add_message(index, message)
    return sums


def test_an_image_becomes_its_line_and_the_rest_stays() -> None:
    """The line is in its place. Texts, other parts and the client's bytes are unchanged."""
    before = user("Look.", IMAGE, FILE)
    outcome = remove_images(conversation(before, user("Go on.")), [0, 1])
    after = outcome.conversation.messages[0]
    assert (after.texts, after.raw, after.digest, after.edited) == (before.texts, before.raw, before.digest, True)
    assert [(part.is_removed, part.tokens) for part in after.media] == [(True, count(IMAGE_LINE)), (False, 85)]
    assert after.media[1] is before.media[1]
    assert (before.tokens - after.tokens, after.saved_tokens) == (SAVING, SAVING)
    tokens = before.tokens + user("Go on.").tokens
    assert outcome.decisions == (Decision("images", "1 images of 1 messages", tokens, tokens - SAVING, 1, 0),)


def test_images_of_users_and_tools_alone_are_removed() -> None:
    """Messages of the system and the model are never touched. With nothing to do, the same object is returned."""
    spoken = read({"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})
    system = read({"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})
    before = conversation(spoken, system, user("Go."), user("Read.", FILE))
    assert remove_images(before, range(4)).conversation is before
    assert [saving_tokens(one) for one in (*before.messages, shown("a", IMAGE, IMAGE))] == [0, 0, 0, 0, 2 * SAVING]


@given(number=st.integers(0, 6), excess=st.integers(0, 600))
def test_the_oldest_images_go_first_and_no_more_than_must(number: int, excess: int) -> None:
    """Only as many as save the excess are removed, or all of them if that is not enough."""
    message = user("Look.", *[IMAGE] * number)
    short = drop_images(message, excess)
    gone = min(-(-excess // SAVING), number)
    assert [part.is_removed for part in short.media] == [True] * gone + [False] * (number - gone)
    assert message.tokens - short.tokens == gone * SAVING
    assert (short is message) == (gone == 0)


@given(messages=transcripts(), first=st.integers(0, 40), second=st.integers(0, 40), spared=st.integers(-1, 40))
def test_sums_are_those_of_the_messages(messages: tuple[Message, ...], first: int, second: int, spared: int) -> None:
    """The law holds for what any span saves and contains. What is spared saves nothing."""
    sums = sum_up(messages)
    start, stop = sorted((min(first, len(messages)), min(second, len(messages))))
    savings = [saving_tokens(message) for message in messages]
    assert sums.saved(start, stop) == sum(savings[start:stop])
    assert sums.number(start, stop) == sum(savings[start:stop]) // SAVING
    assert sums.saved(stop, start) == sums.number(stop, start) == 0
    removed = [saving for index, saving in enumerate(savings) if start <= index < stop and index != spared]
    assert sums.saved_by(start, ImageStop(stop, spared if spared < stop else -1)) == sum(removed)
    assert bool(sums.places) == any(savings)


@given(messages=transcripts(), number=st.integers(0, 5))
def test_the_newest_images_are_found(messages: tuple[Message, ...], number: int) -> None:
    """From that place on there are at least that many. Without the message at that place there are fewer."""
    sums = sum_up(messages)
    at = sums.find_newest(number)
    total = sums.number(0, len(messages))
    assert sums.number(at, len(messages)) >= min(number, total)
    if total and number:
        assert sums.number(at + 1, len(messages)) < number


@given(messages=transcripts(), start=st.integers(0, 40), tokens=st.integers(1, 500))
def test_a_stop_saves_what_is_wanted(messages: tuple[Message, ...], start: int, tokens: int) -> None:
    """One place earlier does not. If all images together save less, all of them are before the place."""
    sums, start = sum_up(messages), min(start, len(messages))
    stop = sums.find_stop(start, tokens)
    if sums.saved(start, len(messages)) >= tokens:
        assert sums.saved(start, stop) >= tokens > sums.saved(start, stop - 1)
    else:
        assert sums.saved(start, stop) == sums.saved(start, len(messages))
