"""Phrases of answers that are not a note, in several languages, and how much information a text carries."""

from trimtab.rules.summary.handoff import ASKS_BACK, GOES_ON, REFUSAL, REPORTS, count_said, split_sentences

NOTE = "The user wants a retry in `src/client.py`; it has a back-off of 0.5 s."


def test_each_phrase_is_known_in_several_languages() -> None:
    """At the beginning of a text. A fact that begins alike is none."""
    for pattern, texts in [
        (REFUSAL, ["I'm sorry, but I can't", "Sorry, I", "As an AI model", "Lo siento", "Es tut mir leid", "Désolé",
                   "К сожалению, я", "很抱歉", "申し訳", "죄송합니다", "I do not have the transcript"]),
        (GOES_ON, ["Let me look", "Okay, next I'll run", "Sure! Let's", "Ich werde", "Voy a leer", "Je vais lire",
                   "Сначала я", "接下来", "好的，我来", "次に", "다음으로"]),
        (REPORTS, ["Done!", "All tests pass", "I've fixed it", "I have now added", "Fertig.", "Listo", "J'ai ajouté",
                   "Готово", "任务完成了", "完了しました", "완료했습니다"]),
        (ASKS_BACK, ["Let me know if", "Would you like me to", "Soll ich", "¿Quieres que", "N'hésitez pas",
                     "Хотите, чтобы", "请告诉我", "いかがですか", "알려주세요"]),
    ]:  # fmt: skip
        assert [text for text in texts if pattern.match(text) is None] == []
        assert pattern.match(NOTE) is None
    for text in ["Unable to parse line 7 is what the log says", "The task is half done", "Letters are sorted"]:
        assert [pattern for pattern in (REFUSAL, GOES_ON, REPORTS, ASKS_BACK) if pattern.match(text)] == []


def test_what_is_said_is_counted_once() -> None:
    """Sentences of the prompt, repeated ones and empty phrases do not count; an ideograph counts as three letters."""
    for bodies, said in [
        (["abc", "abc"], 0),
        (["abc. xyz", "abc."], 3),
        (["None.", "nothing", "keine", "нет", "无", "なし", "없음"], 0),
        (["I'm sorry, but I can't"], 0),
        (["None of `a.py` was read"], 16),
        (["[what was done so far]"], 0),
        (['["a b", "c d e f"]'], 6),
        (["修正"], 6),
        (["", " \n-"], 0),
    ]:
        assert count_said(bodies, frozenset({"told already"})) == said
    assert split_sentences("One. Two!\n- Three\n* 四。五") == {"One.", "Two!", "Three", "四。", "五"}
