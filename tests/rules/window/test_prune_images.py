"""Images as lines: what is saved, where they are, and what is written."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    IMAGE,
    IMAGE_LINE,
    MEDIA_TOKENS,
    assistant,
    call,
    conversation,
    count,
    fill,
    read,
    screenshots,
    shown,
    transcripts,
    user,
)

from trimtab.rules.conversation import Decision, Message
from trimtab.rules.window.prune import ImageStop, drop_images, remove_images, saving_tokens
from trimtab.rules.window.sums import ImageSums

SAVING = MEDIA_TOKENS - count(IMAGE_LINE)
FILE = b'{"type":"file","file":{"file_data":"AAAA"}}'


def sum_up(messages: Sequence[Message]) -> ImageSums:
    """The sums of a transcript."""
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


@given(messages=transcripts())
def test_a_removed_image_is_not_removed_again(messages: tuple[Message, ...]) -> None:
    """The rule finds nothing to do on its own outcome."""
    places = range(len(messages))
    once = remove_images(conversation(*messages), places).conversation
    assert remove_images(once, places).conversation is once
    assert not any(map(saving_tokens, once.messages))


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


def test_a_message_that_was_shortened_saves_less() -> None:
    """The law holds in every span that contains it, and in no other span."""
    sums = sum_up((user("One.", IMAGE), shown("a", IMAGE, IMAGE), user("Two.", IMAGE)))
    assert sums.shorten(1, SAVING) == SAVING
    assert sums.shorten(1, SAVING) == 0
    assert [sums.saved(at, at + 1) for at in range(3)] == [SAVING] * 3
    assert sums.saved(0, 3) == 3 * SAVING


def test_a_transcript_without_images_weighs_nothing() -> None:
    """Most transcripts have no images."""
    assert not sum_up((assistant(fill("a", 50), call("c")), user("b"))).places
    assert sum_up(screenshots(10)).places
