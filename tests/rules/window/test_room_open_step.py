"""How the newest messages share the room that is left."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from support.builders import IMAGE, MEDIA_TOKENS, assistant, call, fill, result, transcripts, user
from support.steps import count_steps

from trimtab.rules.conversation import Message, Role
from trimtab.rules.window.prune import PLACEHOLDER_TOKENS
from trimtab.rules.window.room import Cap, OpenStep, least_tokens


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
