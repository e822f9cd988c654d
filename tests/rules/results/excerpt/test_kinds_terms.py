"""What a call asked for."""

from itertools import accumulate

from support.builders import call

from trimtab.rules.results.excerpt.kinds import MAX_TERMS, MIN_TERM_CHARS, add_terms, find_terms


def score(texts: list[str], *terms: str) -> dict[int, float]:
    """The scores that the terms alone give."""
    scores: dict[int, float] = {}
    add_terms(scores, "".join(texts), [0, *accumulate(map(len, texts))], terms)
    return scores


def test_terms_are_the_words_of_the_arguments() -> None:
    """Short words and words of any call are left out. Each term occurs once, without the signs around it."""
    terms = find_terms(
        call("1", "bash", '{"command":"grep -rn read_header src/parse.c | head\\nread_header... x--- ab"}')
    )
    assert terms == ("read_header", "parse.c")
    assert find_terms(None) == ()


def test_there_are_never_many_terms() -> None:
    """The terms are never short, either, whatever the arguments are."""
    many = find_terms(call("1", "bash", " ".join(f"word{number}-.-" for number in range(9000))))
    assert len(many) == MAX_TERMS
    assert all(len(term) >= MIN_TERM_CHARS for term in many)
    assert find_terms(call("1", "bash", "\ud800\0{[")) == ()


def test_a_range_of_lines_has_no_terms() -> None:
    """Arguments that only say which lines to read make no terms."""
    assert find_terms(call("1", "bash", '{"command":"sed -n 100,200p"}')) == ()
    assert find_terms(call("1", "view", '{"view_range":[1,200]}')) == ()


def test_lines_with_a_term_and_those_behind_it_are_raised() -> None:
    """The line itself is raised most. A higher score stays."""
    texts = [f"line {number}\n" for number in range(200)]
    texts[100] = "def read_header():\n"
    scores = score(texts, "read_header")
    assert min(scores) == 99
    assert max(scores) == 108
    assert max(scores, key=scores.__getitem__) == 100
    high = {100: 99.0}
    add_terms(high, "".join(texts), [0, *accumulate(map(len, texts))], ["read_header"])
    assert high[100] == 99.0


def test_a_term_that_stands_in_many_lines_adds_nothing() -> None:
    """It carries no information. A term that does not occur adds nothing, either."""
    texts = [f"common {number}\n" for number in range(200)]
    assert score(texts, "common", "nowhere") == {}
    assert set(score(["common common\n"] * 3, "common")) == {0, 1, 2}
    assert score([], "common") == {}


def test_only_units_that_there_are_have_scores() -> None:
    """Around a term in the first and in the last unit, too: the one before it, and more behind it."""
    assert sorted(score(["wanted_name\n", "b\n", "c\n"], "wanted_name")) == [0, 1, 2]
    assert sorted(score(["a\n", "b\n", "wanted_name\n"], "wanted_name")) == [1, 2]


def test_a_higher_score_stays() -> None:
    """That of the unit itself, not of one on the other side of the term."""
    texts = ["a\n", "b\n", "wanted_name\n", "c\n", "d\n"]
    scores = {1: 99.0, 4: 99.0}
    add_terms(scores, "".join(texts), [0, *accumulate(map(len, texts))], ("wanted_name",))
    assert (scores[1], scores[4]) == (99.0, 99.0)
    assert scores[3] < scores[2] < 99
