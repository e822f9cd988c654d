"""Kinds of text that a model's vocabulary may count otherwise than ours, and what answers show of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, call, conversation

from trimtab.proxy.compaction.pool import load_compactor
from trimtab.rules.tokens.families import SAMPLE_TOKENS, SILENT, Reading, read_costs
from trimtab.rules.tokens.scripts import (
    EVEN,
    IS_PLAIN,
    LEAST_WEIGHTS,
    MOST_WEIGHT,
    NO_CHARS,
    SAMPLES,
    USUAL,
    Chars,
    Measured,
    Scale,
    Weights,
    add_chars,
    count_bytes,
    count_chars,
    count_kinds,
    find_kind,
    fit,
    fit_samples,
    weigh,
)

OURS = SAMPLE_TOKENS["o200k_base"]
ENGLISH, LOG = Chars(0.04), Chars(0.6)
CHINESE, RUSSIAN = Chars(0.09, 1.1), Chars(0.0, 0.0, 3.5)
GERMAN = Chars(0.0, 0.0, 0.1, 4.3)
KOREAN, ARABIC, HINDI = Chars(hangul=1.25), Chars(semitic=2.4), Chars(indic=2.5)
KINDS = (ENGLISH, LOG, CHINESE, RUSSIAN, GERMAN, KOREAN, ARABIC, HINDI)
"""The usual characters of each kind of text, for one token of ours."""


@pytest.mark.parametrize("vocabulary", SAMPLE_TOKENS)
def test_the_samples_have_the_tokens_that_are_written_down(vocabulary: str) -> None:
    count = load_compactor("m", vocabulary=vocabulary).count
    assert tuple(map(count, SAMPLES)) == SAMPLE_TOKENS[vocabulary]


def test_each_sample_is_of_its_own_kind() -> None:
    kinds = [find_kind(ours, count_chars(text)) for ours, text in zip(OURS, SAMPLES, strict=True)]
    assert kinds == list(range(len(SAMPLES)))


@pytest.mark.parametrize(("drops_calls", "chars"), [(False, Chars(code=5)), (True, Chars(code=2))])
def test_characters_of_calls_count_where_calls_do(chars: Chars, *, drops_calls: bool) -> None:
    talk = conversation(assistant("in 42", call("1", "run_it", '{"a": 17}')))
    assert count_kinds(talk, drops_calls=drops_calls) == chars


def test_with_the_weights_of_a_server_its_own_counts_of_the_samples_come_out() -> None:
    """Here it needs a tenth more for plain text, twice as much for numbers and names, and more for the others."""
    theirs = (round(1.1 * OURS[0]), 2 * OURS[1], round(2.4 * OURS[2]), *(2 * each for each in OURS[3:]))
    ratio, weights = fit_samples(theirs, OURS)
    known = dict(zip(SAMPLES, OURS, strict=True))
    counted = [ratio * weigh(known.__getitem__, weights)(sample) for sample in SAMPLES]
    assert counted == pytest.approx(theirs, rel=0.01)


def test_each_kind_weighs_by_its_own_characters() -> None:
    """Digits and underscores; kana and Chinese; accents and rare scripts; and others. Nothing else, also no emoji."""
    count = weigh(lambda _: 100, Weights(code=1.0, dense=10.0, other=3.0, hangul=20.0, semitic=5.0, indic=7.0))
    assert count("plain — “quoted” • and 😀!") == 100
    assert count("row_17") == 103
    assert count("桥かの!") == 130
    assert count("한국") == 140
    assert count("第1章") == 121
    assert count("Да, été") == 112
    assert count("שם") == count("اب") == 110
    assert count("กข") == count("हम") == 114


PROSE = {
    "Polish": "Port leży u ujścia rzeki i został założony w czternastym wieku przez kupców z północnych miast.",
    "Vietnamese": "Cảng nằm ở cửa sông và được thành lập vào thế kỷ mười bốn bởi các thương nhân từ phía bắc.",
}
OTHERS = {
    "English": "The harbour lies at the mouth of the river and was founded in the fourteenth century by merchants.",
    "code": "    def find_free(self, ship: Ship) -> Iterator[Berth]:\n        yield from self._berths.values()",
    "Russian": "Порт расположен в устье реки и был основан в четырнадцатом веке купцами из северных городов.",
}


@pytest.mark.parametrize("text", PROSE.values(), ids=PROSE)
def test_prose_in_latin_letters_that_is_not_english_is_a_kind_of_its_own(text: str) -> None:
    assert count_chars(text).latin == len(text.encode())
    assert weigh(lambda _: 100, Weights(latin=0.1))(text) == 100 + round(len(text.encode()) / 10)


@pytest.mark.parametrize("text", [*OTHERS.values(), "Kurz gesagt: nein, danke."], ids=[*OTHERS, "short"])
def test_all_other_text_is_not(text: str) -> None:
    assert count_chars(text).latin == 0


@given(st.text(st.characters(exclude_categories=()), max_size=200), st.tuples(*(st.floats(-1, 8),) * len(NO_CHARS)))
def test_every_text_has_at_least_half_of_our_count(text: str, weights: tuple[float, ...]) -> None:
    """Also one of long tokens, whose characters weigh more than it has tokens."""
    tokens, scale = len(text) // 10, Scale(1.0, Weights(*weights))
    assert weigh(lambda _: tokens, scale.weights)(text) >= tokens / 2
    assert scale.predict(tokens, count_chars(text)) >= tokens / 2


@given(st.lists(st.text(max_size=40), max_size=5))
def test_the_characters_of_texts_are_those_of_each(texts: list[str]) -> None:
    """Of short texts: only in a long one, the letters show the language."""
    each = add_chars([count_chars(text) for text in texts])
    joined = "".join(texts)
    assert count_chars(joined) == count_bytes(joined.encode())
    assert each._replace(latin=0) == count_chars(joined)._replace(latin=0)


def assert_bounded(weights: Weights) -> None:
    """Within 0.001, because they are rounded. So a text of any kind has some tokens."""
    for weight, least in zip(weights, LEAST_WEIGHTS, strict=True):
        assert least - 0.001 <= weight <= MOST_WEIGHT
    assert all(Scale(1.0, weights).predict(1, usual) > 0.05 for usual in USUAL)


@given(st.tuples(*(st.integers(1, 100_000),) * len(SAMPLES)))
def test_no_answer_of_a_server_makes_a_weight_large(theirs: tuple[int, ...]) -> None:
    assert_bounded(fit_samples(theirs, OURS).weights)


measures = st.builds(
    Measured,
    st.integers(0, len(SAMPLES) - 1),
    st.floats(0.01, 20),
    st.builds(Chars, *(st.floats(0, 5),) * len(NO_CHARS)),
)


@given(st.lists(measures, max_size=len(SAMPLES)))
def test_whatever_is_measured_the_scale_is_bounded(rows: list[Measured]) -> None:
    ratio, weights = fit(Scale(), rows)
    assert 0 < ratio < 1e6
    assert_bounded(weights)


def test_what_is_measured_of_plain_text_counts_for_all_kinds() -> None:
    """A server that counts bytes, for example, does so in every script."""
    assert fit(Scale(1.0, Weights(0.1, 0.2)), [Measured(IS_PLAIN, 4.0)]) == Scale(4.0, Weights(0.1, 0.2))


@pytest.mark.parametrize("kind", range(2, len(KINDS)))
def test_what_is_measured_of_another_script_hardly_changes_plain_text(kind: int) -> None:
    """Before anything is known of plain text, a tenth of it may be common; afterwards it stays."""
    found = Measured(kind, 2.3, KINDS[kind])
    scale = fit(Scale(), [found])
    assert scale.predict(1, found.chars) == pytest.approx(2.3, rel=0.01)
    assert 1.0 < scale.predict(1, ENGLISH) < 1.15
    scale = fit(Scale(1.1), [Measured(IS_PLAIN, 1.1, ENGLISH), found])
    assert scale.predict(1, ENGLISH) == pytest.approx(1.1, rel=0.01)


@given(st.permutations(range(len(SAMPLES))))
def test_all_kinds_that_were_measured_come_out_in_any_order(order: list[int]) -> None:
    true = Scale(1.1, Weights(0.2, 0.9, 0.3))
    rows = [Measured(kind, true.predict(1, KINDS[kind]), KINDS[kind]) for kind in order]
    scale = fit(Scale(), rows)
    for chars in (*KINDS, NO_CHARS):
        assert scale.predict(1, chars) == pytest.approx(true.predict(1, chars), rel=0.02)


def test_what_answers_show_comes_before_what_the_tokenizer_says() -> None:
    reading = Reading(samples=tuple(2 * tokens for tokens in OURS), priming=3, frame=4.0)
    assert read_costs("m", "o200k_base", reading, Weights(0.5)).weights == Weights(0.5)
    assert read_costs("m", "o200k_base", SILENT, Weights(0.5)).weights == Weights(0.5)


def test_samples_of_another_version_say_nothing() -> None:
    """A store may hold what a tokenizer said of fewer samples."""
    reading = Reading(drops_tools=True, samples=OURS[:3], priming=3, frame=4.0, drops_calls=True)
    assert reading.find_scale("o200k_base") is None
    costs = read_costs("m", "o200k_base", reading)
    assert (costs.drops_tools, costs.drops_calls) == (True, True)


def test_what_the_template_adds_is_counted_in_our_tokens() -> None:
    """The server has twice as many tokens for the same text: a frame of 12 is 6 of ours, 2 above the usual frame."""
    samples = tuple(2 * tokens for tokens in OURS)
    reading = Reading(drops_tools=True, samples=samples, priming=8, frame=12, unspoken=40, drops_calls=True)
    costs = read_costs("m", "o200k_base", reading)
    assert (costs.priming_tokens, costs.frame_tokens, costs.unspoken_tokens) == (4, 2, 20)
    assert (costs.drops_tools, costs.drops_calls, costs.weights) == (True, True, EVEN)
    assert reading.find_scale("o200k_base") == Scale(2.0)
