"""The hash chain names what was said, and nothing else."""

from dataclasses import replace
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st
from support.builders import IMAGE, assistant, session, system, transcripts, user

from trimtab.rules.conversation import Message, Role, ToolCall
from trimtab.rules.prefix import digest_message, hash_head, hash_prefixes, place_session

TEXTS = st.lists(st.sampled_from(["", "a", "b", "ab", "1:a"]), max_size=3).map(tuple)
CALLS = st.lists(st.builds(ToolCall, *[st.sampled_from(["", "a", "b"])] * 3), max_size=2).map(tuple)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["assistant", "a"]),
    texts=TEXTS,
    tool_calls=CALLS,
    answers=st.sampled_from([None, "a", "b"]),
)


@given(left=MESSAGES, right=MESSAGES)
def test_a_digest_names_what_is_said(left: Message, right: Message) -> None:
    """Two messages have the same digest exactly if role, texts, calls and answered call are the same."""
    assert (digest_message(left) == digest_message(right)) == (left == right)


def test_texts_do_not_pass_for_a_call() -> None:
    """A message whose text looks like another's call has a digest of its own, even if the call has no id."""
    calls = Message(Role.ASSISTANT, tool_calls=(ToolCall("", "run", "{}"),))
    says = Message(Role.ASSISTANT, texts=("run", "{}", ""))
    assert digest_message(calls) != digest_message(says)


def test_media_enter_the_digest() -> None:
    """Each part that is not text counts, and is never confused with a text."""
    message = Message(Role.USER, ("a",))
    digests = {
        digest_message(message),
        digest_message(message, [IMAGE]),
        digest_message(message, [IMAGE, IMAGE]),
        digest_message(replace(message, texts=("a", IMAGE.decode()))),
    }
    assert len(digests) == 4


def test_lone_surrogates_are_digested() -> None:
    assert len(digest_message(Message(Role.USER, ("\ud800",)))) == 32


def test_what_stands_outside_the_words_does_not_count() -> None:
    """Raw bytes, token counts and a user's name do not change the digest."""
    message = Message(Role.USER, ("a",))
    assert digest_message(message) == digest_message(replace(message, raw=b"{}", tokens=9, edited=True))


def test_leading_system_messages_do_not_count() -> None:
    """A timestamp in the system prompt does not rename a summary. The same message further on would."""
    messages = session(3)
    later = (system("Now it is noon."), system("More."), *messages[1:])
    assert hash_prefixes(messages)[5] == hash_prefixes(later)[6]
    assert hash_prefixes((*messages[:4], system("x"), *messages[4:]))[6] != hash_prefixes(messages)[5]


def test_edits_do_not_rename() -> None:
    """A truncated or pruned message keeps the digest of what the client said."""
    messages = session(3)
    edited = tuple(replace(message, texts=("cut",), edited=True, tokens=5) for message in messages)
    assert hash_prefixes(messages)[8] == hash_prefixes(edited)[8]


@given(messages=transcripts(), edits=st.lists(st.integers(0, 30), max_size=2))
def test_prefixes_share_a_hash_exactly_when_they_say_the_same(messages: tuple[Message, ...], edits: list[int]) -> None:
    """A changed message changes the hash of every prefix that contains it, and of no shorter one."""
    messages = (user(), *messages)
    first = min((index for index in edits if 0 < index < len(messages)), default=len(messages))
    others = [user("else") if index in edits and index else message for index, message in enumerate(messages)]
    left, right = hash_prefixes(messages), hash_prefixes(others)
    assert left[: first + 1] == right[: first + 1]
    assert not set(left[first + 1 :]) & set(right)
    assert len(set(left)) == len(messages) + 1


@given(messages=transcripts(), leading=st.lists(st.text(max_size=9), max_size=3))
def test_a_session_keeps_its_place_while_it_grows(messages: tuple[Message, ...], leading: list[str]) -> None:
    """From its first user message on, whatever comes later, and whatever the system messages say."""
    until = len(list(takewhile(lambda message: message.role is not Role.USER, messages))) + 1
    places = {place_session(messages[:stop]) for stop in range(until, len(messages) + 1)}
    with_system = place_session((*map(system, leading), *messages))

    assert len(places) <= 1
    assert with_system == place_session(messages)
    assert 0 <= with_system < 1


def test_the_places_of_sessions_are_spread_evenly() -> None:
    """Of 4000 sessions, each tenth of the range has a tenth of them: within 5 standard deviations."""
    places = [place_session((system(), user(f"Task {number}."))) for number in range(4000)]

    for tenth in range(10):
        assert abs(sum(tenth <= 10 * place < tenth + 1 for place in places) - 400) <= 95


def test_what_comes_before_the_first_user_message_counts() -> None:
    """A greeting of the assistant belongs to the beginning. Without a user message, the first message decides."""
    greeted, other = assistant("Hello."), assistant("Welcome.")

    assert place_session((greeted, user("a"))) != place_session((other, user("a"))) != place_session((other, user("b")))
    assert place_session((greeted, other)) == place_session((system(), greeted))
    assert place_session(()) == place_session((system(),))


def test_the_head_is_the_leading_system_messages_and_the_task() -> None:
    """Nothing after them changes its hash; each of them does, and so does the border between the two."""
    lead, other = system("Be brief."), system("Be long.")
    head = hash_head((lead, user("Mend it.")))
    assert hash_head((lead, user("Mend it."), assistant("I look."), other, user("More."))) == head
    assert len({head, hash_head((other, user("Mend it."))), hash_head((lead, user("x"))), hash_head((lead, lead))}) == 4
    assert hash_head((lead, assistant("Hello."))) == hash_head((lead, assistant("Hello."), assistant("You?")))
