"""The room that the head leaves."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import IMAGE, MEDIA_TOKENS, assistant, call, conversation, fill, result, system, transcripts, user
from support.steps import count_steps

from trimtab.rules.conversation import Media, Message, Role
from trimtab.rules.policy import Policy
from trimtab.rules.window.prune import PLACEHOLDER_TOKENS
from trimtab.rules.window.room import HEAD_STEPS, Cap, Marks, OpenStep, Room, bound_guesses, least_tokens

LIMIT = 3200
GRAIN = LIMIT // HEAD_STEPS


@pytest.mark.parametrize(
    ("fixed_tokens", "grains"), [(0, 0), (1, 1), (GRAIN, 1), (GRAIN + 1, 2), (2 * LIMIT, 2 * HEAD_STEPS)]
)
def test_the_head_is_rounded_up(fixed_tokens: int, grains: int) -> None:
    """It is rounded to a sixteenth of the limit. If the head exceeds the limit, the room is negative."""
    left = LIMIT - grains * GRAIN
    assert Room.measure((), fixed_tokens, LIMIT) == Room(LIMIT, leading=0, early=left, tokens=left)


def test_the_head_is_leading_system_messages_and_the_task() -> None:
    """The first user message counts from its place on, wherever it is. Later system messages do not count."""
    head, task = system(fill("rules", GRAIN - 4)), user(fill("task", GRAIN - 4))
    room = Room.measure((head, assistant("Hello."), task, system(fill("note", 900)), user("more")), 0, LIMIT)
    assert room == Room(LIMIT, leading=1, early=LIMIT - GRAIN, tokens=LIMIT - 2 * GRAIN)


@pytest.mark.parametrize("limit", [0, 1, 15])
def test_a_limit_below_any_rounding_leaves_what_is_left(limit: int) -> None:
    assert Room.measure((), 3, limit).tokens == limit - 3


def test_a_soft_limit_is_a_threshold() -> None:
    """Only if it is below high water, and only if the head leaves it a quarter. Low water is at most half of it."""
    policy = Policy(high_water=0.8, low_water=0.4)
    plain = Marks.measure(1000, None, policy)
    assert structs.replace(plain, due=900) == structs.replace(Marks.measure(1000, 900, policy), low=400, least_gain=100)
    assert (plain.high, plain.low, plain.least_gain, plain.protected, plain.due) == (800, 400, 100, 640, 1001)
    soft = Marks.measure(1000, 400, policy)
    assert (soft.tokens, soft.high, soft.low, soft.least_gain, soft.due) == (1000, 400, 200, 50, 400)
    assert Marks.measure(1000, 900, replace(policy, compact_at_tokens=900)).high == 900
    assert Marks.measure(1000, None, replace(policy, compact_at_tokens=2000)) == plain
    both = Marks.measure(1000, 900, replace(policy, compact_at_tokens=900, cuts_at_threshold=True))
    assert both == structs.replace(plain, due=800)
    messages = [system(), user(fill("task", 500))]
    assert Room.measure(messages, 0, 10_000, soft_limit=3200).soft == 2650
    assert Room.measure(messages, 0, 10_000, soft_limit=600).soft is None
    assert Room.measure(messages, 0, 10_000).soft is None


def attach(message: Message, *files: Media) -> Message:
    return replace(message, media=files, tokens=message.tokens + sum(part.tokens for part in files))


def test_guesses_about_files_leave_room() -> None:
    """However many files are between two answers: only the upstream knows what they cost."""
    files = tuple(Media(b"{}", 4000, guessed_tokens=4000) for _ in range(20))
    before = conversation(attach(user("task"), *files), assistant("seen"), attach(user("more"), *files[:1]))
    bounded = bound_guesses(before, 32_000)
    assert [sum(part.tokens for part in message.media) for message in bounded.messages] == [8000, 0, 4000]
    assert bounded.guessed_tokens == 12_000
    assert before.tokens - bounded.tokens == 72_000
    assert Room.measure(bounded.messages, 0, 32_000, shortens=True).tokens >= 22_000
    counted = replace(before.messages[0], media=tuple(structs.replace(part, guessed_tokens=0) for part in files))
    before = conversation(counted)
    assert bound_guesses(before, 32_000) is before


def test_the_results_of_a_step_share_what_may_be_guessed() -> None:
    """Those before the answer count first, so what counts of a file never depends on what comes after it."""
    file = Media(b"{}", 3000, guessed_tokens=3000)
    messages = (user("task"), assistant("look"), *(attach(user("file"), file) for _ in range(4)))
    for stop in range(2, 7):
        bounded = bound_guesses(conversation(*messages[:stop]), 20_000)
        found = [part.tokens for message in bounded.messages for part in message.media]
        assert found == [3000, 2000, 0, 0][: stop - 2]


def test_an_image_of_unknown_size_stays_an_image() -> None:
    """A marker in its place still saves something, and what was counted of a part stays."""
    image = Media(b"{}", 1000, line="[image]", line_tokens=10, guessed_tokens=1000)
    partly = Media(b"{}", 500, guessed_tokens=200)
    bounded = bound_guesses(conversation(attach(user("task"), image, image, partly)), 4000)
    assert [(part.tokens, part.guessed_tokens) for part in bounded.messages[0].media] == [
        (1000, 1000),
        (11, 11),
        (300, 0),
    ]


# How the newest messages share the room that is left.


def open_step(messages: Sequence[Message]) -> OpenStep:
    """The unanswered messages of a transcript, whose first user message is the task."""
    step = OpenStep()
    task = next((index for index, message in enumerate(messages) if message.role == "user"), None)
    for index, message in enumerate(messages):
        step.add(message, is_task=index == task, shows_answer=message.role is Role.ASSISTANT)
    return step


@given(messages=transcripts(), excess=st.integers(1, 4000), start=st.integers(0, 20))
def test_what_is_shared_out_takes_just_the_excess_away(messages: tuple[Message, ...], excess: int, start: int) -> None:
    """Nothing is, if messages cannot spare it. Each keeps a placeholder's size, and only open ones are shortened."""
    step = open_step(messages)
    caps = step.share(excess, start)
    assert (caps is None) == (step.spare_tokens(start) < excess)
    answered = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=-1)
    saved = 0
    for cap in caps or ():
        message = messages[cap.at]
        assert cap.at > answered
        assert cap.at >= start
        assert message.role in {Role.TOOL, Role.USER}
        assert least_tokens(message) <= cap.tokens < message.tokens
        saved += message.tokens - cap.tokens
    if caps is not None:
        assert excess <= saved < excess + len(caps)


@given(messages=transcripts(), excess=st.integers(1, 4000))
def test_the_largest_give_way_first(messages: tuple[Message, ...], excess: int) -> None:
    """All shortened messages have one level, except for those that cannot spare that much."""
    caps = {cap.at: cap.tokens for cap in open_step(messages).share(excess, 0) or ()}
    levels = [tokens for at, tokens in caps.items() if tokens > least_tokens(messages[at])]
    assert len(set(levels)) <= 1


def test_results_give_way_before_the_last_words() -> None:
    """The user's own text is shortened only if the results cannot spare enough."""
    messages = (user("go"), assistant(None, call("1")), result("1", fill("x", 500)), user(fill("words", 500)))
    step = open_step(messages)
    assert [cap.at for cap in step.share(400, 0) or ()] == [2]
    assert [cap.at for cap in step.share(600, 0) or ()] == [2, 3]
    assert step.share(2000, 0) is None


def test_an_answer_leaves_nothing_open() -> None:
    """Messages that the model has seen are not shortened any more. The task and earlier messages are not, either."""
    seen = (user("go"), assistant(None, call("1")), result("1", fill("x", 500)), assistant("I see."))
    assert open_step(seen).share(1, 0) is None
    assert open_step((user(fill("task", 500)),)).share(1, 0) is None
    assert open_step((*seen, user(fill("words", 500)), user("more"))).share(1, 5) is None
    assert open_step((*seen, user(fill("words", 500)), user("more"))).share(1, 4) == (Cap(4, 503),)


def test_attachments_stay() -> None:
    """An image is not text, so its cost stays."""
    message = user(fill("words", 500), IMAGE)
    assert least_tokens(message) == PLACEHOLDER_TOKENS + MEDIA_TOKENS
    assert least_tokens(user("short")) == user("short").tokens
    step = open_step((user("go"), assistant("yes"), message))
    assert step.share(step.spare_tokens(0), 0) == (Cap(2, PLACEHOLDER_TOKENS + MEDIA_TOKENS),)


def test_what_could_be_spared_is_known_at_every_message_of_a_step_of_thousands() -> None:
    """The last message takes as long as the first. Once the time grew with the square of the number of results."""

    def ask(results: int) -> int:
        step = open_step([user("task"), assistant(None, call("c")), *[result("c", fill("r", 30))] * results])
        return count_steps(lambda: step.spare_tokens(0))

    assert ask(2000) <= 2 * ask(20)


def test_images_go_only_as_far_as_texts_cannot_spare_enough() -> None:
    """First all texts are shortened as far as allowed, then the oldest images go."""
    messages = (user("go"), *(user(fill("words", 300), IMAGE) for _ in range(3)))
    step = open_step(messages)
    spare = step.spare_tokens(0)
    caps = step.share(spare + 1, 0, of_images=True) or ()
    assert [cap.at for cap in caps] == [1, 2, 3]
    least = [least_tokens(message) for message in messages]
    assert [least[cap.at] - cap.tokens for cap in caps] == [1, 0, 0]
