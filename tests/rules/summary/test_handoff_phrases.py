"""Phrases of answers that are not a note, in several languages, and how much information a text carries."""

import re

import pytest

from trimtab.rules.summary.handoff import ASKS_BACK, GOES_ON, NAMES_NOTE, REFUSAL, REPORTS, count_said, split_sentences

NOTE = "The user wants a retry in `src/client.py`; it has a back-off of 0.5 s."


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (REFUSAL, ["I'm sorry, but I can't", "Sorry, I", "As an AI model", "Lo siento", "Es tut mir leid", "Désolé",
                   "К сожалению, я", "很抱歉", "申し訳", "죄송합니다", "I do not have the transcript"]),
        (GOES_ON, ["Let me look", "Okay, next I'll run", "Sure! Let's", "Ich werde", "Voy a leer", "Je vais lire",
                   "Сначала я", "接下来", "好的，我来", "次に", "다음으로"]),
        (REPORTS, ["Done!", "All tests pass", "I've fixed it", "I have now added", "Fertig.", "Listo", "J'ai ajouté",
                   "Готово", "任务完成了", "完了しました", "완료했습니다"]),
        (ASKS_BACK, ["Let me know if", "Would you like me to", "Soll ich", "¿Quieres que", "N'hésitez pas",
                     "Хотите, чтобы", "请告诉我", "いかがですか", "알려주세요"]),
    ],
    ids=["refuses", "goes on", "reports", "asks back"],
)  # fmt: skip
def test_each_phrase_is_known_in_several_languages(pattern: re.Pattern[str], texts: list[str]) -> None:
    """It is recognised at the beginning of a text. A note that states a fact matches none."""
    assert [text for text in texts if pattern.match(text) is None] == []
    assert pattern.match(NOTE) is None


@pytest.mark.parametrize(
    "text",
    ["Unable to parse line 7 is what the log says", "Sorry for the delay was said by the server",
     "The task is half done", "The user has two accounts", "Continuous integration runs on push", "Letters are sorted"],
)  # fmt: skip
def test_a_fact_with_a_similar_beginning_is_not_a_phrase(text: str) -> None:
    """Plain sentences may begin with the same words."""
    assert [pattern for pattern in (REFUSAL, GOES_ON, REPORTS, ASKS_BACK) if pattern.match(text)] == []


@pytest.mark.parametrize("text", ["# Handoff note", "Summary of the work", "Übergabe", "Resumen", "交接", "引き継ぎ"])
def test_a_title_names_the_note(text: str) -> None:
    """It may be at any place in a line."""
    assert NAMES_NOTE.search(f"** {text} **")
    assert not NAMES_NOTE.search("Footnotes are annotated")


def test_sentences_end_at_their_marks_and_at_lines() -> None:
    """In any script. List bullets are not part of a sentence."""
    assert split_sentences("One. Two!\n- Three\n* 四。五") == {"One.", "Two!", "Three", "四。", "五"}


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        (["abc def"], 6),
        (["abc", "abc"], 0),
        (["abc. xyz", "abc."], 3),
        (["told already"], 0),
        (["None.", "nothing", "keine", "нет", "无", "なし", "없음"], 0),
        (["I'm sorry, but I can't"], 0),
        (["None of `a.py` was read"], 16),
        (["[what was done so far]"], 0),
        (["<the files that matter>"], 0),
        (['["a b", "c d e f"]'], 6),
        (["修正"], 6),
        (["수정"], 4),
        (["", " \n-"], 0),
    ],
)
def test_what_is_said_is_counted_once(bodies: list[str], said: int) -> None:
    """Sentences of the prompt, repeated ones and empty phrases do not count; an ideograph counts as three letters."""
    assert count_said(bodies, frozenset({"told already"})) == said
