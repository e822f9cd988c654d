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

HEADINGS = (
    "**1. Progress and Decisions** | **2. Constraints and Preferences** | **3. Remaining** | **4. Exact Data**",
    "## Progress | ## Constraints | ## Next steps | ## Key details",
    "### Work so far | ### Ground rules | ### Next actions | ### Key references",
    "**一、进度与决策** | **二、限制与偏好** | **三、待办事项** | **四、具体数据**",
    "１．进展与决定： | ２．约束与偏好： | ３．剩余工作： | ４．精确数据：",
    "## 1. 進捗と決定事項 | ## 2. 制約と希望 | ## 3. 残りの作業 | ## 4. 正確なデータ",
    "# 1. Fortschritt und Entscheidungen | # 2. Einschränkungen | # 3. Noch zu tun | # 4. Genaue Angaben",
    "1. **Progreso y decisiones**: | 2. **Restricciones**: | 3. **Pendiente**: | 4. **Datos exactos**:",
    "1. Ход работы и решения: | 2. Ограничения и предпочтения: | 3. Осталось: | 4. Точные данные:",
    "## ความคืบหน้าและการตัดสินใจ | ## ข้อจำกัดและความต้องการ | ## งานที่เหลือ | ## ข้อมูลที่ถูกต้อง",
    "1. Maendeleo na maamuzi | 2. Vikwazo na mapendeleo | 3. Kilichobaki | 4. Taarifa kamili",
    "<h2>1. Progress and decisions</h2> | <h2>2. Constraints</h2> | <h2>3. Remaining</h2> | <h2>4. Exact data</h2>",
)
BODIES = ("Read `src/app.py`; the loader drops the last row.", "No pandas.", "Mend `load_rows`.", "`src/app.py:41`")


def write(headings: str) -> str:
    return "\n".join(f"{heading}\n{body}" for heading, body in zip(headings.split(" | "), BODIES, strict=True))


LABELS = write("Progress and decisions: | Constraints and preferences: | Remaining: | Exact data:")
TABLE = "| Part | Content |\n|---|---|\n" + "\n".join(
    f"| **{number}. {title}** | {body} |"
    for number, (title, body) in enumerate(
        zip(("Progress and decisions", "Constraints", "Remaining", "Exact data"), BODIES, strict=True), 1
    )
)
THOUGHT = f"<think>\nOkay, the user wants a note. 1. I should list the files.\n</think>\n\n{PLAIN}"
THOUGHT_UNOPENED = f"Okay, the user wants a note. Let me think of what was done.\n</think>\n\n{PLAIN}"
THOUGHT_OTHERWISE = f"[THINK]Let me think.[/THINK]{AS_ASKED}"
FENCED = f"```markdown\n{LABELS}\n```"
FENCED_WITH_A_FENCE = f"Here is the note:\n\n```markdown\n{AS_ASKED}\n```"
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
BEHIND_A_PREFACE = f"I will not call any tools and won't go on with the task. Here is the note.\n\n{AS_ASKED}"
BEHIND_SORRY = f"I'm sorry, but I can't share all of it.\n\n{PLAIN}"
BEHIND_A_STATEMENT = "The task is to mend the loader.\n\n" + write(HEADINGS[1])
BEHIND_A_PLAN_TO_WRITE = f"I've read it all. Let me write the handoff note.\n\n{write(HEADINGS[1])}"
WITH_A_CLOSING = f"{AS_ASKED}\n\nLet me know if you need anything else."
OF_HARMONY = (
    f"<|channel|>analysis<|message|>A note.<|end|><|start|>assistant<|channel|>final<|message|>{AS_ASKED}<|return|>"
)
LETTERED = PLAIN.replace("1. P", "A. P").replace("2. C", "B. C").replace("3. R", "C. R").replace("4. E", "D. E")
UNCLOSED_FENCE = (
    AS_ASKED.replace("It was added.", "It was added:\n```python\nx = 1")
    .replace("```python\n# 1", "# 1")
    .replace('")\n```', '")')
)
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

NOTES = (
    *(PLAIN, AS_ASKED, LABELS, TABLE, *map(write, HEADINGS), LETTERED, ORDERED_OTHERWISE, CUT_OFF, UNCLOSED_FENCE),
    *(BEHIND_A_PREFACE, BEHIND_SORRY, BEHIND_A_STATEMENT, BEHIND_A_PLAN_TO_WRITE, WITH_A_CLOSING),
    *(OF_WHAT_CANNOT_BE, OF_REFUSALS, OF_CALLS, OF_CALLS_INLINE, OF_REACT, OF_A_SCHEMA, OF_AN_INTRODUCED_CALL),
    *(OF_XML, OF_FENCED_CODE, OF_NEGATIONS, NOTHING_TO_KEEP_TO),
)
WRAPPED = (
    dict.fromkeys((THOUGHT, THOUGHT_UNOPENED), PLAIN)
    | dict.fromkeys((THOUGHT_OTHERWISE, OF_HARMONY, FENCED_WITH_A_FENCE), AS_ASKED)
    | dict.fromkeys((FENCED, FENCED_BY_TILDES), LABELS)
)


def test_a_note_is_a_note_however_it_is_written() -> None:
    """With or without numbers, bold, in any language, fenced, after reasoning, or cut off after the third part."""
    for answer, note in ({note: note for note in NOTES} | WRAPPED).items():
        assert read_answer(answer).flaw is None, answer
        assert read_answer(answer).text == note, answer


PLAN = """\
1. **Run the tests**: `pytest -q`, to see what fails.
2. **Mend the loader**: it drops the last row.
3. **Update the rules**: the format is documented there.
4. **Commit**: with a message that says why."""
EMPTY_HEADED = "\n".join(line.partition(":")[0] for line in PLAIN.splitlines())


def test_an_answer_that_is_not_a_note_has_a_flaw() -> None:
    """Also if it is shorter than what it replaces. Reasoning is never the answer."""
    for answer, flaw in [
        ("ok", Flaw.NO_HEADINGS),
        ("I'm sorry, but I can't help with that.", Flaw.REFUSAL),
        ("I’m sorry, but I can’t assist with that request.", Flaw.REFUSAL),
        ("I cannot provide a summary of this conversation.", Flaw.REFUSAL),
        (
            "\n".join(
                f"{line.partition(':')[0]}: I cannot tell you that, it is private." for line in PLAIN.splitlines()
            ),
            Flaw.REFUSAL,
        ),
        ('<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>', Flaw.TOOL_CALL),
        ("I'll look.\n<function=read_file>\n<parameter=path>a</parameter>", Flaw.TOOL_CALL),
        ("<read_file>\n<path>src/app.py</path>\n</read_file>", Flaw.TOOL_CALL),
        ('{"name": "read_file", "arguments": {"path": "a"}}', Flaw.TOOL_CALL),
        (f'{PLAIN}\n\n<tool_call>\n{{"name": "ls"}}\n</tool_call>', Flaw.TOOL_CALL),
        (f'{PLAIN}\n\nNow the tests. <tool_call>{{"name": "ls"}}', Flaw.TOOL_CALL),
        (f"{AS_ASKED}\n```tool\nls\n```", Flaw.TOOL_CALL),
        ('{"progress": "done", "remaining": "nothing"}', Flaw.NO_HEADINGS),
        ("Sure, let me continue by running the tests:\n\n```bash\npytest -q\n```", Flaw.IN_ROLE),
        (f"Sure! I'll do this next:\n\n{PLAN}", Flaw.IN_ROLE),
        (f"Now I need to mend it.\n\n{PLAN.replace('**', '')}", Flaw.IN_ROLE),
        (PLAN, Flaw.NO_HEADINGS),
        (
            "The bug is mended.\n\n## Summary\nOne line.\n\n## Changes\n`a.py`\n\n## Next steps\nMerge it.",
            Flaw.NO_HEADINGS,
        ),
        (f"{EMPTY_HEADED}: a.py", Flaw.NO_HEADINGS),
        (EMPTY_HEADED.replace("\n", ": None.\n"), Flaw.NO_CONTENT),
        (NOTE_PARTS, Flaw.NO_HEADINGS),
        (AS_ASKED.partition("## 3.")[0], Flaw.NO_HEADINGS),
        ("\n".join(reversed(PLAIN.splitlines())), Flaw.NO_HEADINGS),
        ("<think>on and on", Flaw.NO_HEADINGS),
    ]:
        assert read_answer(answer).flaw is flaw
    assert read_answer("<think>hm</think> ok").text == "ok"
    assert read_answer("<think>hm").text == ""


def test_an_answer_that_goes_on_is_not_a_note() -> None:
    """A plan, a report to the user, a call at the end; with three of the headings it is one however it begins."""
    for answer in [
        f"Let me continue. Current plan:\n\n{STATUS_PLAN}",
        f"好的，我来继续完成任务：\n\n{CHINESE_PLAN}",
        CHINESE_PLAN,
        f"Done! The pagination works.\n\n{FINAL}",
        f"I've added it.\n\n{FINAL}\n\nLet me know if you want more.",
        TUTORIAL,
        TUTORIAL.replace("Install Docker", "安装").replace("Verify", "验证"),
    ]:
        assert read_answer(answer).flaw in {Flaw.IN_ROLE, Flaw.NO_HEADINGS}
    for call in [
        '[bash(command="pytest")]',
        '```json\n{"name": "bash", "arguments": {"command": "pytest"}}\n```',
        '{"name": "bash", "arguments": {"command": "pytest"}}',
        'Now I run the tests:\n\n```json\n{"tool": "bash", "input": {}}\n```',
        "<|start|>assistant<|channel|>commentary to=functions.ls <|message|>{}",
    ]:
        assert read_answer(f"{AS_ASKED}\n\n{call}").flaw is Flaw.TOOL_CALL
    for parts, flaw in [(2, Flaw.IN_ROLE), (3, None), (4, None)]:
        note = AS_ASKED.partition(f"## {parts + 1}.")[0]
        assert read_answer(f"Sure! I'll do this next:\n\n{note}").flaw is flaw


def under_headings(*bodies: str) -> str:
    headings = [line for line in NOTE_PARTS.splitlines() if line.startswith("#")]
    return "\n".join(f"{heading}\n{body}" for heading, body in zip(headings, bodies, strict=True))


def test_headings_without_content_are_not_a_note() -> None:
    """Nor what says that there is nothing, or is to be filled in. Forty characters are content; fewer in Chinese."""
    for bodies in [
        ["Nothing to report for this part."] * 4,
        ["Nothing was done.", "No demands were made.", "Nothing remains.", "No data is at hand."],
        ["[Describe what was asked and done]", "[List what the user wants]", "<what is still to do>", "[Paths, ids]"],
        ["As an AI, I have no memory of earlier messages.", *["Unknown."] * 3],
        ["The transcript is empty, so that no progress can be reported.", "None.", "Nothing.", "There is no data."],
        ["It was all done.", "Be quick.", "Test it.", "None."],
    ]:
        assert read_answer(under_headings(*bodies)).flaw in {Flaw.NO_CONTENT, Flaw.REFUSAL, Flaw.NO_HEADINGS}
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
TUTORIAL = """\
## 1. Install Docker
`apt install docker`
## 2. Build
`docker build .`
## 3. Start
`docker run app`
## 4. Verify
`curl localhost:8000/health` should give 200"""


@given(st.text(alphabet=st.sampled_from("1234.)#* _-:`~<>|/{}[]\"'\n abdeforstuil数据："), max_size=300))
def test_any_text_is_judged(text: str) -> None:
    """No text raises an exception, and a note is still a note when it is read a second time."""
    answer = read_answer(text)
    if answer.flaw is None:
        assert read_answer(answer.text) == answer


@pytest.mark.parametrize(
    "unit", ["1. progress: x\n", "```\n", "<tool", '{"name":\n', "**", "| ", "<h2>", "[a(", "- [x ", "<|channel|>final"]
)
def test_hostile_answers_are_judged(unit: str) -> None:

    def work(size: int) -> None:
        assert read_answer(unit * (size // len(unit))).flaw is not None

    check_linear(work, 600)
