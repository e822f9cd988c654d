"""Find the four headings of a handoff note among the lines of a text."""

from trimtab.rules.summary.handoff import (
    ASKS_BACK,
    FENCE,
    GOES_ON,
    REFUSAL,
    REPORTS,
    count_said,
    ends_in_call,
    find_headings,
    has_any_call,
    has_call_syntax,
    split_sentences,
)


def places(*lines: str) -> list[tuple[int, str]]:
    return [(heading.line, heading.title) for heading in find_headings(lines)]


def test_headings_are_found_in_any_form() -> None:
    """Marked, bold, numbered or plain. Lists within the parts are none; an unknown title counts by its number."""
    forms = (
        "{n}. {title}: x | {n}) {title} | ## {n}. {title} | ### {title} | **{n}. {title}** | {n}. **{title}:** x"
        " | **{title}:** x | - **{title}** x | ({n}) {title}: x | {title}: | {n}\ufe0f\u20e3 {title} | ## ✅ {title}"
        " | - {title}: x | **Part {n}: {title}** | Section {n}: {title} | §{n} {title} | <h2>{n}. {title}</h2>"
    )
    for form in (*forms.split(" | "), "| {n}. {title} | x |", "| **{title}** | x |"):
        titles = ("Progress and decisions", "Constraints", "Remaining", "Exact data")
        found = find_headings([form.format(n=number, title=title) for number, title in enumerate(titles, 1)])
        assert [heading.line for heading in found] == [0, 1, 2, 3]
        assert [heading.rank for heading in found] == [1, 2, 3, 4]
    steps = ["1. run the tests", "2. mend", "3. commit", "4. tell"]
    lines = ["# 1. Progress", *steps, "# 2. Constraints", "# 3. Remaining", *steps, "# 4. Exact data", *steps]
    assert [line for line, _ in places(*lines)] == [0, 5, 6, 11]
    assert len(places("1. Progress: x", "2. House style: x", "3. Remaining: x")) == 3


def test_too_few_or_other_headings_are_not_found() -> None:
    """Two, steps of a plan, the four in reverse, numbers after much text. In an unknown language a word joins them."""
    for lines in [
        ("1. Progress: x", "2. Mend it: x"),
        ("4. Exact data: x", "3. Remaining: x", "2. Constraints: x", "1. Progress: x"),
        ("## ✅ What changed", "## 🧪 Tests", "## 🚀 Usage", "## 📝 Notes"),
        ("## 1. Install", "## 2. Build", "## 3. Start", "## 4. Verify"),
        ("1. Check the status", "2. Review the rules", "3. Finish pending work", "4. Verify the data"),
        ("the work on it is done by now and", "as the rules of the house have it all", "the next step is to do it too"),
        ("Some text.", "", "", "# 1. a", "# 2. b", "# 3. c", "# 4. d"),
    ]:
        assert places(*lines) == []
    swahili = ("1. Maendeleo na maamuzi", "2. Vikwazo na mapendeleo", "3. Kilichobaki", "4. Taarifa kamili")
    assert len(places(*swahili)) == 4
    assert places(*(line.replace(" na ", " and ") for line in swahili)) == []
    assert places(swahili[0], swahili[1].replace(" na ", " ya "), *swahili[2:]) == []


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


SYNTAX = [
    "<tool_call>", "<function=run>", "<invoke name", "<|python_tag|>", "<|channel|>commentary", "[TOOL_CALLS] [",
    "<｜tool▁calls▁begin｜>", "   <tool_code>",
]  # fmt: skip
LIKE_DATA = [
    '{"name": "run", "arguments": {"path": "a"}}',
    '[{"tool": "run", "input": {}}]',
    "<read_file>\n<path>a</path>\n</read_file>",
    "Action: run\nAction Input: a",
    '[run(path="a")]',
]
PLAIN = [
    '{"name": "Ada", "age": 7}',
    '{"name": "run", "parameters": {"type": "object"}}',
    "<div><b>x</b></div>",
    "[see above]",
    "The tool_call was made.",
]


def unfence(lines: list[str]) -> list[str]:
    inside, left = False, []
    for line in lines:
        is_mark = FENCE.match(line) is not None
        left.append("" if inside or is_mark else line)
        inside ^= is_mark
    return left


def ends(text: str) -> bool:
    lines = text.split("\n")
    return ends_in_call(lines, unfence(lines), GOES_ON)


def test_a_models_own_syntax_is_a_call_wherever_a_line_begins_with_it() -> None:
    """Or behind a text, unless it is quoted."""
    for call in SYNTAX:
        assert has_call_syntax(f"Some words.\n{call}\nmore words")
        assert not has_call_syntax(f"The form `{call}` was seen")
    for call in ['<tool_call>{"name": "run"', "<tool_call> <function=run>", "<|channel|>commentary"]:
        assert has_call_syntax(f"I look. {call}")
        assert not has_call_syntax(f"I look. '{call}'")


def test_what_may_be_data_is_a_call_at_the_end() -> None:
    """Not before other text, nor after a line that announces data without saying what is done next."""
    for call in LIKE_DATA:
        assert ends(f"Some words.\n\n{call}\n")
        assert not ends(f"{call}\n\nThat is what the file holds.")
        assert not ends(f"The answer was:\n\n{call}")
        assert not ends(f"## Exact data\n\n{call}")
        assert ends(f"Now I'll run it:\n\n{call}")
    for text in PLAIN:
        assert not ends(f"Some words.\n\n{text}")
        assert not has_any_call(text.split("\n"), text)
    for fenced, is_call in [
        ("```json\n%s\n```", True),
        ("~~~\n%s\n~~~\n\n", True),
        ("```json\n%s\n```\nThat is all.", False),
        ("%s", True),
    ]:
        assert ends("Words.\n\n" + fenced % LIKE_DATA[0]) is is_call
        assert not ends("Words.\n\n" + fenced % PLAIN[0])
