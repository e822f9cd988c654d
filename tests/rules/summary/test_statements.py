"""Statements of user and assistant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, user

from trimtab.rules.conversation import Message
from trimtab.rules.summary.statements import (
    HEAD_CHARS,
    TAIL_CHARS,
    Census,
    Kind,
    find_kind,
    find_statements,
    rank,
    read_words,
    split_sentences,
)


def ranked(*messages: Message, max_tokens: int = 100) -> tuple[list[str], list[str]]:
    """The user's lines in the order in which they are taken, and the assistant's."""
    users, assistants = (rank(said, max_tokens=max_tokens, number=len(messages)) for said in find_statements(messages))
    return [users.lines[place] for place in users.order], [assistants.lines[place] for place in assistants.order]


def test_sentences_end_at_full_stops_of_many_scripts() -> None:
    """Full stops of numbers, names and single letters do not end a sentence."""
    assert split_sentences("It is 2.5. Ask J. Doe! Or not? Am 3. Mai. Dr. No is in.") == [
        "It is 2.5.", "Ask J. Doe!", "Or not?", "Am 3. Mai.", "Dr. No is in.",
    ]  # fmt: skip
    assert split_sentences("端口是5433。好的！是吗？") == ["端口是5433。", "好的！", "是吗？"]
    assert split_sentences("- one\n2. two\n\n# three") == ["one", "two", "three"]


def test_code_in_fences_is_not_a_statement() -> None:
    """Text in a fence that is never closed is not one, either."""
    assert split_sentences("Look:\n```py\nx = 1\n```\nDone.\n~~~\ny = 2") == ["Look:", "Done."]
    assert split_sentences("Look:\n~~~\nx = 1\n~~~\nDone.") == ["Look:", "Done."]


def test_beginning_and_end_of_a_long_text_are_read() -> None:
    """However long the text is."""
    text = "first. " + "x" * (HEAD_CHARS + TAIL_CHARS) + " last."
    read = split_sentences(text)
    assert (read[0], read[-1].endswith(" last.")) == ("first.", True)
    assert sum(map(len, read)) <= HEAD_CHARS + TAIL_CHARS


def test_no_statement_is_repeated() -> None:
    """If sentences are equal, the newest stays. A sentence without a new name is taken last."""
    users, _ = ranked(user("Begin."), user("Ask db-1."), user("Ask db-1."), user("Ask db-1 now."), user("Ask db-2."))
    assert users.index("Ask db-1 now.") > users.index("Ask db-2.")
    assert users.count("Ask db-1.") == 1


def test_facts_are_taken_before_small_talk_and_questions() -> None:
    """Except the user's first statement, which says what the conversation is about."""
    talk = [assistant(f"That sounds good {'to me ' * number}.") for number in range(9)]
    users, assistants = ranked(
        user("Let us begin."),
        *talk,
        assistant("The host is db-7.example.net."),
        user("How so?"),
        user("The port is 5433."),
    )
    assert users[:2] == ["Let us begin.", "port is 5433."]
    assert assistants[0] == "host is db-7.example.net."


@pytest.mark.parametrize(
    "asked",
    [
        "My sister is called Ingrid. Please remember that.",
        "My sister is called Ingrid. Don't forget it!",
        "Remember that my sister is called Ingrid.",
        "Meine Schwester heißt Ingrid. Merk dir das bitte.",
        "Der Code von Ingrid ist 5. Merk dir das.",
        "我妹妹叫 Ingrid。请记住。",
    ],
)
def test_what_the_user_asks_to_remember_is_taken_before_what_weighs_more(asked: str) -> None:
    """In the same sentence, or in the one before it."""
    heavy = [user(f"The hosts are db-{n}.example.net, db-{n}.example.org and `api_{n}` on port {n}.") for n in range(9)]
    users, _ = ranked(user("Begin."), user(asked), *heavy, max_tokens=400)
    assert "Ingrid" in users[1]


@pytest.mark.parametrize("said", ["I remember Ingrid.", "Do you remember Ingrid?", "You remember Ingrid."])
def test_who_remembers_asks_for_nothing(said: str) -> None:
    users, _ = ranked(user("Begin."), user(said), user("The host is db-7.example.net on port 5433."))
    assert "db-7" in users[1]


@pytest.mark.parametrize("form", ["{said} Here is a page. {page} Sum it up.", "“{page}” That was it. {said}"])
def test_what_the_user_says_is_taken_before_the_middle_of_a_long_message(form: str) -> None:
    """That is mostly material, whose names and numbers weigh more. A decision in it keeps its weight."""
    pages = [" ".join(f"Berth 1{n}{m} of the harbour was built of stone." for m in range(9)) for n in range(9)]
    long = [user(form.format(said="", page=page).strip()) for page in pages]
    said = user(form.format(said="My sister is Ingrid.", page=f"We never use db-10. {pages[0]}"))
    users, _ = ranked(user("Begin."), said, *long, max_tokens=400)
    assert "Ingrid" in "".join(users[:3])
    assert "never use db-10" in "".join(users[:3])


def test_the_newer_of_two_facts_is_taken_first() -> None:
    """If they carry as much information."""
    users, _ = ranked(user("Begin."), user("Ask for db-1."), user("Ask for db-2."))
    assert users == ["Begin.", "Ask for db-2.", "Ask for db-1."]


def test_announcements_weigh_less_than_findings() -> None:
    """It has been done since."""
    _, assistants = ranked(assistant("The cause is in main_loop."), assistant("Let me look at side_loop."))
    assert assistants[0] == "cause is in main_loop."


def test_the_announcement_of_a_call_is_left_out() -> None:
    """Unless the announcement gives a reason."""
    acting = assistant("Let me look at main.py. I will use db-1 because it is near. It has 3 rows.", call("1"))
    _, assistants = ranked(user("Begin."), acting)
    assert sorted(assistants) == ["I will use db-1 because it is near.", "It has 3 rows."]


@given(st.lists(st.text(max_size=120), max_size=8), st.integers(0, 60))
def test_lines_are_single_lines_and_each_is_taken_once(texts: list[str], max_tokens: int) -> None:
    """For any texts."""
    messages = [user(text) if number % 2 else assistant(text) for number, text in enumerate(texts)]
    for said in find_statements(messages):
        found = rank(said, max_tokens=max_tokens, number=len(messages))
        assert sorted(found.order) == list(range(len(found.lines)))
        assert all(len(line.splitlines()) == 1 for line in found.lines)


# How much information a piece of text carries.

TALK = ("Thanks, that helps a lot.", "Okay, let us go on then.", "What do you think of it?")


def weigh(text: str, *others: str) -> float:
    """The weight of a text among others, and among small talk that was repeated three times."""
    census = Census()
    for each in (text, *others):
        census.add(read_words(each))
    for each in TALK:
        census.add(read_words(each), 3)
    return census.finish().weigh(text, read_words(text))


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("5433", Kind.EXACT),
        ("v2.1", Kind.EXACT),
        ("src/app", Kind.EXACT),
        ("max_retries", Kind.EXACT),
        ("camelCase", Kind.EXACT),
        ("me@example.org", Kind.EXACT),
        ("Petra", Kind.NAME),
        ("database", Kind.WORD),
        ("端口", Kind.LETTERS),
        ("the", Kind.LITTLE),
    ],
)
def test_the_form_of_a_word_shows_its_kind(word: str, kind: Kind) -> None:
    """Digits and signs make it exact; a capital makes it a name."""
    assert find_kind(word) is kind


@pytest.mark.parametrize(
    "fact",
    [
        "The port is 5433.",
        "We met Petra in Ghent.",
        "We chose it because it is easier.",
        "Set `verbose` to off.",
        "我们决定用它",
        "端口是5433",
        "Der Hafen hat die Nummer 12.",
    ],
)
def test_a_fact_weighs_more_than_small_talk(fact: str) -> None:
    """In any language."""
    assert weigh(fact) > 2 * max(weigh(talk) for talk in TALK)


def test_frequent_words_weigh_less() -> None:
    """A rare word is the one that a reader could not guess."""
    assert weigh("The port is 5433.") > weigh("The port is 5433.", *["Ask port 5433 again."] * 20)


def test_capitals_weigh_little_if_each_noun_has_one() -> None:
    """German is such a language."""
    nouns = "wir haben Kaffee und Kuchen und Zeit für Schach"
    assert weigh("da ist Petra", *[nouns] * 9) < weigh("da ist Petra", *[nouns.lower()] * 9)


@given(st.lists(st.text(max_size=80), max_size=6))
def test_any_text_has_a_weight_within_bounds(texts: list[str]) -> None:
    """The weight is never negative."""
    for text in texts:
        assert 0.0 <= weigh(text, *texts) < 7.0


def test_a_fact_is_identified_by_its_exact_words_and_names() -> None:
    """The first word does not count, as it has a capital anyway."""
    census = Census()
    words = read_words("Today Petra opened port 5433.")
    census.add(words)
    assert census.finish().find_keys(words) == {"Petra", "5433"}
