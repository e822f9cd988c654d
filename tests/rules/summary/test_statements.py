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
    shorten,
    split_sentences,
)


def ranked(*messages: Message, max_tokens: int = 100) -> tuple[list[str], list[str]]:
    users, assistants = (rank(said, max_tokens=max_tokens, number=len(messages)) for said in find_statements(messages))
    return [users.lines[place] for place in users.order], [assistants.lines[place] for place in assistants.order]


def test_sentences_end_at_full_stops_of_many_scripts() -> None:
    """Not at those of numbers and names. Code is no statement, and of a long text beginning and end are read."""
    assert split_sentences("It is 2.5. Ask J. Doe! Or not? Am 3. Mai. Dr. No is in.") == [
        "It is 2.5.", "Ask J. Doe!", "Or not?", "Am 3. Mai.", "Dr. No is in.",
    ]  # fmt: skip
    assert split_sentences("端口是5433。好的！是吗？") == ["端口是5433。", "好的！", "是吗？"]
    assert split_sentences("- one\n2. two\n\n# three") == ["one", "two", "three"]
    assert split_sentences("Look:\n```py\nx = 1\n```\nDone.\n~~~\ny = 2") == ["Look:", "Done."]
    assert split_sentences("Look:\n~~~\nx = 1\n~~~\nDone.") == ["Look:", "Done."]
    text = "first. " + "x" * (HEAD_CHARS + TAIL_CHARS) + " last."
    read = split_sentences(text)
    assert (read[0], read[-1].endswith(" last.")) == ("first.", True)
    assert sum(map(len, read)) <= HEAD_CHARS + TAIL_CHARS


def test_facts_are_taken_before_small_talk_and_questions() -> None:
    """None twice, and no announcement of a call. The user's first statement says what it is about."""
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
    users, _ = ranked(user("Begin."), user("Ask db-1."), user("Ask db-1."), user("Ask db-1 now."), user("Ask db-2."))
    assert users.index("Ask db-1 now.") > users.index("Ask db-2.")
    assert users.count("Ask db-1.") == 1
    acting = assistant("Let me look at main.py. I will use db-1 because it is near. It has 3 rows.", call("1"))
    _, assistants = ranked(user("Begin."), acting)
    assert sorted(assistants) == ["I will use db-1 because it is near.", "It has 3 rows."]


def test_what_the_user_asks_to_remember_is_taken_before_what_weighs_more() -> None:
    """In the same sentence or the one before. So is what frames a long message, whose middle is material."""
    for asked in [
        "My sister is called Ingrid. Please remember that.",
        "Remember that my sister is called Ingrid.",
        "Meine Schwester heißt Ingrid. Merk dir das bitte.",
        "我妹妹叫 Ingrid。请记住。",
    ]:
        heavy = [
            user(f"The hosts are db-{n}.example.net, db-{n}.example.org and `api_{n}` on port {n}.") for n in range(9)
        ]
        users, _ = ranked(user("Begin."), user(asked), *heavy, max_tokens=400)
        assert "Ingrid" in users[1]
    for form in ["{said} Here is a page. {page} Sum it up.", "“{page}” That was it. {said}"]:
        pages = [" ".join(f"Berth 1{n}{m} of the harbour was built of stone." for m in range(9)) for n in range(9)]
        long = [user(form.format(said="", page=page).strip()) for page in pages]
        said = user(form.format(said="My sister is Ingrid.", page=f"We never use db-10. {pages[0]}"))
        users, _ = ranked(user("Begin."), said, *long, max_tokens=400)
        assert "Ingrid" in "".join(users[:3])
        assert "never use db-10" in "".join(users[:3])


@given(st.lists(st.text(max_size=120), max_size=8), st.integers(0, 60))
def test_lines_are_single_lines_and_each_is_taken_once(texts: list[str], max_tokens: int) -> None:
    messages = [user(text) if number % 2 else assistant(text) for number, text in enumerate(texts)]
    for said in find_statements(messages):
        found = rank(said, max_tokens=max_tokens, number=len(messages))
        assert sorted(found.order) == list(range(len(found.lines)))
        assert all(len(line.splitlines()) == 1 for line in found.lines)


def test_the_form_of_a_word_shows_its_kind() -> None:
    """Exact words and names identify a fact; the first word has a capital anyway."""
    for word, kind in [
        ("5433", Kind.EXACT),
        ("src/app", Kind.EXACT),
        ("max_retries", Kind.EXACT),
        ("Petra", Kind.NAME),
        ("database", Kind.WORD),
        ("端口", Kind.LETTERS),
        ("the", Kind.LITTLE),
    ]:
        assert find_kind(word) is kind
    census = Census()
    words = read_words("Today Petra opened port 5433.")
    census.add(words)
    assert census.finish().find_keys(words) == {"Petra", "5433"}


PARTS = (
    "by the way", "the port is 5433", "as far as I can see", "but not on Mondays", "if the build 7 fails", "and so on",
    "never call Petra", "I think", "said the host db-4", "we will not use it", "which is fine", "顺便说一下",
    "端口是5433",
)  # fmt: skip
TALK = ("by the way", "as far as I can see", "and so on", "I think", "which is fine", "thanks a lot", "顺便说一下")


def shortened(text: str) -> str:
    """The shortened sentence; all of its short words count as common."""
    census = Census()
    census.add(read_words(text))
    for part in TALK:
        census.add(read_words(part), 5)
    return shorten(text, census.finish())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("By the way, the port is 5433, as far as I can see.", "port is 5433;"),
        ("I found that the port is 5433.", "port is 5433."),
        ("The port is 5433, but not on Mondays.", "port is 5433, but not on Mondays."),
        ("If the build 7 fails, call Petra.", "If build 7 fails, call Petra."),
        ("I am not sure that the port is 5433.", "I am not sure that port is 5433."),
        ("顺便说一下，端口是5433。", "端口是5433。"),
    ],
)
def test_the_part_with_the_fact_stays(said: str, told: str) -> None:
    """Together with what limits or denies it."""
    assert shortened(said) == told


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8))
def test_no_word_is_added_or_moved_and_no_negation_is_dropped(parts: list[str]) -> None:
    """All words of the result are words of the sentence, in order."""
    said = ", ".join(parts) + "."
    told = shortened(said)
    rest = iter(said.rstrip("."))
    assert all(char in rest for char in told.rstrip(".;"))
    assert told
    for denial in ("not", "never"):
        assert told.split().count(denial) == said.split().count(denial)
