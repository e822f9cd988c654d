"""The check whether a model's answer is a handoff note."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.steps import check_linear

from trimtab.rules.summary.handoff import NOTE_PARTS, Flaw, read_answer

PLAIN = """\
1. Progress and decisions: the user asked for a retry in `src/http/client.py`. It was added with a back-off of 0.5 s.
2. Constraints and preferences: no new dependency; the public signature stays.
3. Remaining: run `pytest -q tests/http`, then write the changelog.
4. Exact data: `TimeoutError: timed out` in `tests/http/test_retry.py::test_gives_up`, line 88."""

AS_ASKED = """\
## 1. Progress and decisions
The user asked for a retry in `src/http/client.py`. It was added.

## 2. Constraints and preferences
- No new dependency.

## 3. Remaining
1. Run the tests.
2. Commit.
3. Write the changelog.
4. Tell the user.

## 4. Exact data
```python
# 1. a comment
raise TimeoutError("timed out")
```
`src/http/client.py:88`"""

BOLD = """\
**1. Progress and Decisions**
Read `src/app.py`; the loader drops the last row.

**2. Constraints and Preferences**
None were named.

**3. Remaining**
* Mend `load_rows`, then run the tests.

**4. Exact Data**
`src/app.py`, `IndexError: list index out of range`"""

BOLD_IN_LISTS = """\
Here is the handoff note:

1) **Progress and decisions:** Read `src/app.py`; the loader drops the last row.
2) **Constraints and preferences:** Python 3.11; no pandas.
3) **Remaining:** mend `load_rows`, then run the tests.
4) **Exact data:** `src/app.py:41`, `IndexError: list index out of range`"""

WITHOUT_NUMBERS = """\
# Handoff note

## Progress
Read `src/app.py`; the loader drops the last row. Decided to keep the format.

## Constraints
Python 3.11; no pandas.

## Next steps
Mend `load_rows`, then run the tests.

## Key details
`src/app.py:41`"""

LABELS = """\
Progress and decisions:
- read `src/app.py`; the loader drops the last row

Constraints and preferences:
- no pandas

Remaining:
- mend `load_rows`, then run the tests

Exact data:
- `src/app.py:41`"""

CHINESE = """\
1. 进展与决定：用户要求修复 `src/app.py` 中的加载器。已找到原因：最后一行被丢弃。
2. 约束与偏好：不得使用 pandas，保持 Python 3.11。
3. 剩余工作：修改 `load_rows`，然后运行测试。
4. 精确数据：`src/app.py:41`，`IndexError: list index out of range`"""

CHINESE_NUMERALS = """\
**一、进度与决策**
用户要求修复加载器；已找到原因，最后一行被丢弃，决定保持文件格式不变。

**二、限制与偏好**
不得使用 pandas。

**三、待办事项**
修改 `load_rows`，然后运行测试。

**四、具体数据**
`src/app.py:41`"""

JAPANESE = """\
## 1. 進捗と決定事項
`src/app.py` のローダーが最後の行を落とすことを確認した。形式は変えないと決めた。
## 2. 制約と希望
pandas は使わない。
## 3. 残りの作業
`load_rows` を直し、テストを実行する。
## 4. 正確なデータ
`src/app.py:41`"""

GERMAN = """\
### 1. Fortschritt und Entscheidungen
Der Benutzer wollte, dass `src/app.py` alle Zeilen lädt. Die letzte fehlt.

### 2. Einschränkungen und Vorlieben
Kein pandas.

### 3. Noch zu tun
`load_rows` ändern, dann testen.

### 4. Genaue Angaben
`src/app.py:41`"""

SPANISH = """\
1. **Progreso y decisiones**: se leyó `src/app.py`; el cargador pierde la última fila.
2. **Restricciones y preferencias**: sin pandas.
3. **Pendiente**: corregir `load_rows` y ejecutar las pruebas.
4. **Datos exactos**: `src/app.py:41`"""

RUSSIAN = """\
1. Ход работы и решения: прочитан `src/app.py`; загрузчик теряет последнюю строку.
2. Ограничения и предпочтения: без pandas.
3. Осталось: исправить `load_rows`, запустить тесты.
4. Точные данные: `src/app.py:41`"""

THAI = """\
## ความคืบหน้าและการตัดสินใจ
อ่าน `src/app.py` แล้ว ตัวโหลดทิ้งแถวสุดท้าย และตัดสินใจคงรูปแบบเดิม
## ข้อจำกัดและความต้องการ
ห้ามใช้ pandas
## งานที่เหลือ
แก้ `load_rows` แล้วรันเทสต์
## ข้อมูลที่ถูกต้อง
`src/app.py:41`"""

SWAHILI = """\
## 1. Maendeleo na maamuzi
Faili `src/app.py` imesomwa; safu ya mwisho inapotea.
## 2. Vikwazo na mapendeleo
Bila pandas.
## 3. Kilichobaki
Rekebisha `load_rows`, kisha endesha majaribio.
## 4. Taarifa kamili
`src/app.py:41`"""

THOUGHT = f"<think>\nOkay, the user wants a note. 1. I should list the files.\n</think>\n\n{PLAIN}"
THOUGHT_UNOPENED = f"Okay, the user wants a note. Let me think of what was done.\n</think>\n\n{PLAIN}"
THOUGHT_OTHERWISE = f"[THINK]Let me think.[/THINK]{AS_ASKED}"
FENCED = f"```markdown\n{LABELS}\n```"
FENCED_WITH_A_FENCE = f"Here is the note:\n\n```markdown\n{AS_ASKED}\n```"
FENCED_BY_FOUR = f"````Markdown\n{AS_ASKED}\n````"
FENCED_BY_TILDES = f"~~~\n{LABELS}\n~~~"
OF_WHAT_CANNOT_BE = PLAIN.replace("the user asked", "I cannot reproduce it; the user asked").replace(
    "no new", "I won't add a"
)
ORDERED_OTHERWISE = PLAIN.replace("1. P", "0. Task: add a retry to the client.\n1. P").replace("3. R", "\n\n(3) R")
CUT_OFF = AS_ASKED.partition("## 4.")[0] + "## 4. Exact d"
OF_REFUSALS = PLAIN.replace("It was added", "The model had said `I'm sorry, but I can't help`; it was added")
OF_CALLS = AS_ASKED.replace('raise TimeoutError("timed out")', '<tool_call>{"name": "ls", "arguments": {}}</tool_call>')
OF_CALLS_INLINE = PLAIN.replace("no new dependency", "the parser must read `<tool_call>` and `<function=ls>`")
NOTHING_TO_KEEP_TO = PLAIN.replace("no new dependency; the public signature stays", "None")
FULL_WIDTH = CHINESE.replace("1. ", "１．").replace("2. ", "２．").replace("3. ", "３．").replace("4. ", "４．")

BEHIND_A_PREFACE = f"I will not call any tools and won't go on with the task. Here is the note.\n\n{AS_ASKED}"
BEHIND_SORRY = f"I'm sorry, but I can't share all of it.\n\n{PLAIN}"
BEHIND_A_CHINESE_PREFACE = f"我不能继续执行任务，以下是交接笔记：\n\n{CHINESE}"
BEHIND_A_STATEMENT = "The task is to mend the loader.\n\n" + WITHOUT_NUMBERS
BEHIND_A_PLAN_TO_WRITE = f"I've read it all. Let me write the handoff note.\n\n{WITHOUT_NUMBERS}"
WITH_A_CLOSING = f"{AS_ASKED}\n\nLet me know if you need anything else."
OF_HARMONY = (
    f"<|channel|>analysis<|message|>A note.<|end|><|start|>assistant<|channel|>final<|message|>{AS_ASKED}<|return|>"
)
TABLE = """\
| Part | Content |
|---|---|
| **1. Progress and decisions** | Read `src/app.py`; the loader drops the last row. |
| **2. Constraints and preferences** | No pandas. |
| **3. Remaining** | Mend `load_rows`, then run the tests. |
| **4. Exact data** | `src/app.py:41` |"""
HTML = """\
<h2>1. Progress and decisions</h2>
<p>Read <code>src/app.py</code>; the loader drops the last row.</p>
<h2>2. Constraints and preferences</h2>
<p>No pandas.</p>
<h2>3. Remaining</h2>
<p>Mend load_rows.</p>
<h2>4. Exact data</h2>
<p>src/app.py:41</p>"""
LETTERED = PLAIN.replace("1. P", "A. P").replace("2. C", "B. C").replace("3. R", "C. R").replace("4. E", "D. E")
SYNONYMS = """\
### Work so far
Read `src/app.py`; the loader drops the last row.
### Ground rules
No pandas.
### Next actions
Mend `load_rows`, then run the tests.
### Key references
`src/app.py:41`"""
UNCLOSED_FENCE = (
    AS_ASKED.replace("It was added.", "It was added:\n```python\nx = 1")
    .replace("```python\n# 1", "# 1")
    .replace('")\n```', '")')
)
CHINESE_SHORT = """\
## 1. 进展与决策
已修复加载器，最后一行不再丢失。
## 2. 约束
无。
## 3. 剩余
运行测试。
## 4. 数据
`a.py:41`"""
SWAHILI_PLAIN = SWAHILI.replace("## ", "")
OF_REACT = AS_ASKED.replace("It was added.", "The agent's format stays:\nAction: search\nAction Input: a")
OF_A_SCHEMA = f"""{PLAIN}
{{"name": "get_weather", "parameters": {{"type": "object"}}}}"""
OF_AN_INTRODUCED_CALL = f"""{AS_ASKED}
The request that fails:
```json
{{"name": "ls", "arguments": {{}}}}
```"""
OF_XML = AS_ASKED.replace(
    "It was added.", "It was added:\n\n<build_plugins>\n  <plugin>surefire</plugin>\n</build_plugins>"
)
OF_FENCED_CODE = AS_ASKED.replace("```python", "```tool_code")
OF_NEGATIONS = """\
## 1. Progress and decisions
No changes were made yet. The user asked why the login page of the shop fails.
## 2. Constraints and preferences
None.
## 3. Remaining
Nothing was tried; look for the cause first.
## 4. Exact data
None."""

NOTES = {name: value for name, value in globals().items() if name.isupper() and name != "NOTE_PARTS"}
UNWRAPPED = {
    "THOUGHT": PLAIN,
    "THOUGHT_UNOPENED": PLAIN,
    "THOUGHT_OTHERWISE": AS_ASKED,
    "FENCED": LABELS,
    "FENCED_WITH_A_FENCE": AS_ASKED,
    "FENCED_BY_FOUR": AS_ASKED,
    "FENCED_BY_TILDES": LABELS,
    "OF_HARMONY": AS_ASKED,
}


def test_a_note_is_a_note_however_it_is_written() -> None:
    """With or without numbers, bold, in any language, fenced, after reasoning, or cut off after the third part."""
    for name, note in NOTES.items():
        assert read_answer(note).flaw is None, name
        assert read_answer(note).text == UNWRAPPED.get(name, note).strip(), name


PLAN = """\
1. **Run the tests**: `pytest -q`, to see what fails.
2. **Mend the loader**: it drops the last row.
3. **Update the rules**: the format is documented there.
4. **Commit**: with a message that says why."""
EMPTY_HEADED = "\n".join(line.partition(":")[0] for line in PLAIN.splitlines())


@pytest.mark.parametrize(
    ("answer", "flaw"),
    [
        pytest.param("ok", Flaw.NO_HEADINGS, id="ok"),
        pytest.param("OK, noted. I'm ready for the next message.", Flaw.NO_HEADINGS, id="noted"),
        pytest.param("The work was done and the tests pass.", Flaw.NO_HEADINGS, id="a sentence"),
        pytest.param("word " * 500, Flaw.NO_HEADINGS, id="babble"),
        pytest.param("I'm sorry, but I can't help with that.", Flaw.REFUSAL, id="sorry"),
        pytest.param("I’m sorry, but I can’t assist with that request.", Flaw.REFUSAL, id="sorry, typeset"),
        pytest.param("I cannot provide a summary of this conversation.", Flaw.REFUSAL, id="cannot"),
        pytest.param("I am unable to continue.", Flaw.REFUSAL, id="unable"),
        pytest.param("As an AI language model, I have no access to files.", Flaw.REFUSAL, id="as an AI"),
        pytest.param("Unfortunately, I don't have the transcript.", Flaw.REFUSAL, id="unfortunately"),
        pytest.param("抱歉，我无法完成这个请求。", Flaw.REFUSAL, id="Chinese"),
        pytest.param("Lo siento, pero no puedo ayudar con eso.", Flaw.REFUSAL, id="Spanish"),
        pytest.param("Es tut mir leid, dabei kann ich nicht helfen.", Flaw.REFUSAL, id="German"),
        pytest.param(
            "\n".join(
                f"{line.partition(':')[0]}: I cannot tell you that, it is private." for line in PLAIN.splitlines()
            ),
            Flaw.REFUSAL,
            id="under every heading",
        ),
        pytest.param('<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>', Flaw.TOOL_CALL, id="Hermes"),
        pytest.param("I'll look.\n<function=read_file>\n<parameter=path>a</parameter>", Flaw.TOOL_CALL, id="Qwen"),
        pytest.param('<function_calls>\n<invoke name="ls">\n</invoke>', Flaw.TOOL_CALL, id="Anthropic"),
        pytest.param("<read_file>\n<path>src/app.py</path>\n</read_file>", Flaw.TOOL_CALL, id="Cline"),
        pytest.param("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function", Flaw.TOOL_CALL, id="DeepSeek"),
        pytest.param('[TOOL_CALLS] [{"name": "ls"}]', Flaw.TOOL_CALL, id="Mistral"),
        pytest.param("<|python_tag|>ls()", Flaw.TOOL_CALL, id="Llama"),
        pytest.param('{"name": "read_file", "arguments": {"path": "a"}}', Flaw.TOOL_CALL, id="JSON"),
        pytest.param('[\n  {\n    "name": "ls",\n    "parameters": {}\n  }\n]', Flaw.TOOL_CALL, id="JSON, pretty"),
        pytest.param("```tool_code\nprint(read_file('a'))\n```", Flaw.TOOL_CALL, id="Gemini"),
        pytest.param("Thought: hm\nAction: read_file\nAction Input: a", Flaw.TOOL_CALL, id="ReAct"),
        pytest.param(f'{PLAIN}\n\n<tool_call>\n{{"name": "ls"}}\n</tool_call>', Flaw.TOOL_CALL, id="note and call"),
        pytest.param(
            f'{PLAIN}\n\nNow the tests. <tool_call>{{"name": "ls"}}', Flaw.TOOL_CALL, id="note and call in a line"
        ),
        pytest.param(
            f"{PLAIN}\n\nI go on.<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0",
            Flaw.TOOL_CALL,
            id="Kimi, behind a text",
        ),
        pytest.param(f"{AS_ASKED}\n```tool\nls\n```", Flaw.TOOL_CALL, id="note and fenced call"),
        pytest.param('{"progress": "done", "remaining": "nothing"}', Flaw.NO_HEADINGS, id="a note as JSON"),
        pytest.param('```json\n{"summary": "done"}\n```', Flaw.NO_HEADINGS, id="fenced JSON"),
        pytest.param(
            "Sure, let me continue by running the tests:\n\n```bash\npytest -q\n```", Flaw.IN_ROLE, id="goes on"
        ),
        pytest.param(f"Sure! I'll do this next:\n\n{PLAN}", Flaw.IN_ROLE, id="goes on with a plan"),
        pytest.param(f"Now I need to mend it.\n\n{PLAN.replace('**', '')}", Flaw.IN_ROLE, id="a plain plan"),
        pytest.param(PLAN, Flaw.NO_HEADINGS, id="a bare plan"),
        pytest.param(
            "The bug is mended.\n\n## Summary\nOne line.\n\n## Changes\n`a.py`\n\n## Next steps\nMerge it.",
            Flaw.NO_HEADINGS,
            id="a final answer",
        ),
        pytest.param(EMPTY_HEADED, Flaw.NO_HEADINGS, id="empty-headed"),
        pytest.param(f"{EMPTY_HEADED}: a.py", Flaw.NO_HEADINGS, id="one thing under four headings"),
        pytest.param(EMPTY_HEADED.replace("\n", ": None.\n"), Flaw.NO_CONTENT, id="none, none, none"),
        pytest.param(NOTE_PARTS, Flaw.NO_HEADINGS, id="what was asked for, repeated"),
        pytest.param(AS_ASKED.partition("## 2.")[0], Flaw.NO_HEADINGS, id="cut off in its first part"),
        pytest.param(AS_ASKED.partition("## 3.")[0], Flaw.NO_HEADINGS, id="cut off in its second part"),
        pytest.param("\n".join(reversed(PLAIN.splitlines())), Flaw.NO_HEADINGS, id="out of order"),
        pytest.param("<think>on and on", Flaw.NO_HEADINGS, id="nothing but thinking"),
    ],
)
def test_an_answer_that_is_not_a_note_has_a_flaw(answer: str, flaw: Flaw) -> None:
    """An answer that is only shorter than what it replaces is not a note."""
    assert read_answer(answer).flaw is flaw


@pytest.mark.parametrize(("parts", "flaw"), [(2, Flaw.IN_ROLE), (3, None), (4, None)])
def test_three_headings_that_were_asked_for_make_a_note_however_it_begins(parts: int, flaw: Flaw | None) -> None:
    """With fewer, a model that says what it does next goes on with the task."""
    note = AS_ASKED.partition(f"## {parts + 1}.")[0]
    assert read_answer(f"Sure! I'll do this next:\n\n{note}").flaw is flaw


def under_headings(*bodies: str) -> str:
    """The headings that were asked for, with a text below each."""
    headings = [line for line in NOTE_PARTS.splitlines() if line.startswith("#")]
    return "\n".join(f"{heading}\n{body}" for heading, body in zip(headings, bodies, strict=True))


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param(["Nothing to report for this part."] * 4, id="the same under each"),
        pytest.param(["Zu diesem Teil gibt es derzeit wirklich gar nichts zu berichten."] * 4, id="in German"),
        pytest.param(
            ["Nothing was done.", "No demands were made.", "Nothing remains.", "No data is at hand."], id="no"
        ),
        pytest.param(
            ["没有任何进展可以报告", "没有任何约束可以报告", "没有剩余的工作", "没有数据可以报告"], id="Chinese"
        ),
        pytest.param(
            [
                "[Describe what was asked and done]",
                "[List what the user wants]",
                "<what is still to do>",
                "[Paths, ids]",
            ],
            id="a template",
        ),
        pytest.param(
            [
                "No conversation was provided.",
                "Nothing.",
                "Please provide the conversation, so that I can write it.",
                "-",
            ],
            id="no conversation",
        ),
        pytest.param(["As an AI, I have no memory of earlier messages.", *["Unknown."] * 3], id="no memory"),
        pytest.param(
            ["The transcript is empty, so that no progress can be reported.", "None.", "Nothing.", "There is no data."],
            id="an empty transcript",
        ),
        pytest.param(["It was all done.", "Be quick.", "Test it.", "None."], id="a few words"),
    ],
)
def test_headings_without_content_are_not_a_note(bodies: list[str]) -> None:
    """A text that says there is nothing to say, or that is still to be filled in, does not count."""
    assert read_answer(under_headings(*bodies)).flaw in {Flaw.NO_CONTENT, Flaw.REFUSAL, Flaw.NO_HEADINGS}


def test_forty_characters_are_content_and_fewer_are_not() -> None:
    """A Chinese character counts as three letters."""
    assert read_answer(under_headings("x" * 37, "y", "z", "w")).flaw is None
    assert read_answer(under_headings("x" * 36, "y", "z", "w")).flaw is Flaw.NO_CONTENT
    assert read_answer(under_headings("修" * 13, "y", "z", "w")).flaw is None
    assert read_answer(under_headings("修" * 12, "y", "z", "w")).flaw is Flaw.NO_CONTENT


STATUS_PLAN = """\
1. **Review the current status of the tests** - run pytest
2. **Check the requirements** - `requirements.txt`
3. **Do the remaining fixes** - in `src/`
4. **Verify the data** - compare the outputs"""
CHINESE_PLAN = """\
1. **检查当前进展**：运行测试看看完成了多少
2. **确认要求**：阅读需求文档
3. **完成剩余部分**：修改 `load_rows`
4. **核对数据**：对比输出结果"""
FINAL = """\
## Decisions
- `limit` is 50 by default.

## Known limitations
- An offset above 10,000 is slow.

## Next steps
- Merge the branch."""
FINAL_BOLD = """\
**Completed:** `app/models.py` has its migration.
**Requirements:** PostgreSQL 14.
**Next steps:** run `migrate`.
**Details:** see `docs/migration.md`."""
TUTORIAL = """\
## 1. Install Docker
`apt install docker`
## 2. Build
`docker build .`
## 3. Start
`docker run app`
## 4. Verify
`curl localhost:8000/health` should give 200"""


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(f"Let me continue. Current plan:\n\n{STATUS_PLAN}", id="a plan"),
        pytest.param(STATUS_PLAN, id="a bare plan"),
        pytest.param(f"好的，我来继续完成任务：\n\n{CHINESE_PLAN}", id="a Chinese plan"),
        pytest.param(CHINESE_PLAN, id="a bare Chinese plan"),
        pytest.param(f"Done! The pagination works.\n\n{FINAL}", id="done"),
        pytest.param(f"I've added it.\n\n{FINAL}\n\nLet me know if you want more.", id="I have"),
        pytest.param(f"{FINAL}\n\nWould you like me to merge it?", id="a question to the user"),
        pytest.param(f"Here's a summary:\n\n{FINAL_BOLD}\n\nWould you like me to run it now?", id="a bold one"),
        pytest.param(f"Fertig, alles läuft.\n\n{FINAL_BOLD}", id="German"),
        pytest.param(f"完成了！\n\n{FINAL_BOLD}", id="Chinese"),
        pytest.param(TUTORIAL, id="four numbered headings in English"),
        pytest.param(TUTORIAL.replace("Install", "Préparer").replace("Start", "Démarrer"), id="in French"),
        pytest.param(TUTORIAL.replace("Install Docker", "安装").replace("Verify", "验证"), id="in Chinese"),
    ],
)
def test_a_plan_or_a_report_to_the_user_is_not_a_note(answer: str) -> None:
    """Even if it contains some words of the headings."""
    assert read_answer(answer).flaw in {Flaw.IN_ROLE, Flaw.NO_HEADINGS}


@pytest.mark.parametrize(
    "call",
    [
        '[bash(command="pytest")]',
        '[read_file(path="a"), ls(path=".")]',
        '```json\n{"name": "bash", "arguments": {"command": "pytest"}}\n```',
        '```\n[{"name": "bash", "arguments": {}}]\n```',
        '{"name": "bash", "arguments": {"command": "pytest"}}',
        "Action: bash\nAction Input: pytest",
        "<read_file>\n<path>src/app.py</path>\n</read_file>",
        'Now I run the tests:\n\n```json\n{"tool": "bash", "input": {}}\n```',
        "```tool_code\nls()\n```",
        "<|start|>assistant<|channel|>commentary to=functions.ls <|message|>{}",
    ],
)
@pytest.mark.parametrize("note", [PLAIN, AS_ASKED], ids=["plain", "as asked"])
def test_a_text_that_ends_in_a_call_is_not_a_note(note: str, call: str) -> None:
    """The model goes on with the task instead of writing a note."""
    assert read_answer(f"{note}\n\n{call}").flaw is Flaw.TOOL_CALL


def test_reasoning_is_removed_from_a_flawed_answer_too() -> None:
    """Reasoning is never taken for the answer."""
    assert read_answer("<think>hm</think> ok").text == "ok"
    assert read_answer("<think>hm").text == ""


@given(st.text(alphabet=st.sampled_from("1234.)#* _-:`~<>|/{}[]\"'\n abdeforstuil数据："), max_size=300))
def test_any_text_is_judged(text: str) -> None:
    """No text raises an exception, and a note is still a note when it is read a second time."""
    answer = read_answer(text)
    if answer.flaw is None:
        assert read_answer(answer.text) == answer


@pytest.mark.parametrize(
    "unit",
    [
        "1. progress: x\n",
        "```\n",
        "<tool",
        "<a_b>",
        '{"name":\n',
        "</think>",
        "**",
        "# ",
        "I ",
        "1.",
        "sure ok ",
        "| ",
        "<h2>",
        "[a(",
        "No. ",
        "- [x ",
        "A. ",
        "Action: a\n",
        "<|channel|>final",
        "\n\n```json\n{",
    ],
)
def test_hostile_answers_are_judged(unit: str) -> None:
    """A long text that may begin a pattern is read in linear time."""

    def work(size: int) -> None:
        assert read_answer(unit * (size // len(unit))).flaw is not None

    check_linear(work, 1500)
