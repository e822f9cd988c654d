"""What survives cuts, through the pipeline: for any author of the summary, and any number of cuts.

A note that carries no information and the digest are the two extremes: neither was asked to keep anything.
"""

from collections.abc import Callable, Sequence
from itertools import chain, cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import FREE, assistant, conversation, count, fill, system, user
from support.tool_steps import step

from trimtab.rules.conversation import Message
from trimtab.rules.economy import Economy, find_budgets
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import Policy, Prices
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.markers import TASK_LIST_TITLE

CUTS = 5
NOTE = Summary("## State\nThe work went on as it was asked for, and what was decided stands.\n" * 3, by_model=True)
TEXTS = {"a note that says nothing": NOTE, "the digest": None}
SAYINGS = {
    "English": "Please mend the harbour's gates, and leave the lamps alone.",
    "Chinese": "请修好港口的闸门。不要动那些灯。",
    "Hindi": "बंदरगाह के फाटक ठीक करो, और दीयों को मत छुओ।",
}
TASK = "Find out why the build of the harbour fails, and mend it in src/harbour/gates.py."
LISTS: dict[str, tuple[list[Message], tuple[str, ...]]] = {
    "TodoWrite": (
        step(
            "TodoWrite",
            {
                "todos": [
                    {"content": "oil the hinges", "status": "in_progress"},
                    {"content": "lift", "status": "pending"},
                ]
            },
        ),
        ("oil the hinges", "lift"),
    ),
    "TaskCreate": (
        [
            *step("TaskCreate", {"subject": "oil the hinges"}, "Task #1 created successfully: oil the hinges"),
            *step("TaskUpdate", {"taskId": "1", "status": "in_progress"}),
        ],
        ("oil the hinges", "in_progress"),
    ),
    "a file of plans": (
        step("Write", {"file_path": "/r/TODO.md", "content": "- [ ] oil the hinges\n"}),
        ("oil the hinges",),
    ),
    "a check list": ([assistant("My plan:\n- [x] look around\n- [ ] oil the hinges\n")], ("oil the hinges",)),
}
OLD_LIST = step("TodoWrite", {"todos": [{"content": "paint the fence", "status": "in_progress"}]})
RULES = step("Read", {"file_path": "/r/AGENTS.md"}, "Run `make lint` before you say that you are done.")
RUNNING = (
    *step("bash", {"command": "python lamp_server.py --port 8080 &"}, "[1] 4127"),
    *step("Task", {"description": "Read the docs", "prompt": "Read all of them"}, "agentId: a81f3c"),
)


def policies() -> st.SearchStrategy[Policy]:
    """The default policies of all economies, for small windows and larger ones."""

    def make(economy: Economy, window: int, prices: Prices) -> Policy:
        fitted = find_budgets(economy, window)
        return Policy(
            context_window=window,
            high_water=fitted.high_water,
            low_water=fitted.low_water,
            summary_max_tokens=fitted.summary_tokens,
            anchor_share=fitted.anchor_share,
            prices=prices,
        )

    return st.builds(
        make, st.sampled_from(Economy), st.sampled_from([8_000, 16_000, 32_000]), st.sampled_from([FREE, Prices()])
    )


def work(number: int, tokens: int) -> list[Message]:
    """A step of the session. It reads a file of its own and names many other things."""
    names = " ".join(f"src/part_{number}/file_{index}.py" for index in range(4))
    said = fill(f"part {number}: {names}", tokens)
    return step("read_file", {"path": f"src/part_{number}/main.py", "depth": number}, said)


def run(messages: Sequence[Message], policy: Policy, cuts: int, text: str, growth: Callable[[int], int]) -> str:
    """What is forwarded after this many cuts of a session that goes on with work."""
    more = chain.from_iterable(work(number, growth(number)) for number in range(160 * policy.context_window // 8_000))
    session = (*messages, *more)
    made = plan(conversation(*session), policy, count=count).window.cuts
    assert len(made) >= cuts, "the session is too short for so many cuts"
    planned = plan(conversation(*session[: made[cuts - 1].made_at]), policy, count=count)
    assert planned.window.cut.at > len(messages)
    sent = apply(planned, policy, count=count, summary=TEXTS[text]).conversation
    assert sent.tokens < planned.original.tokens
    return "\n".join(part for message in sent.messages for part in message.texts)


@pytest.mark.parametrize(("shape", "text"), list(zip(LISTS, cycle(TEXTS), strict=False)))
@settings(max_examples=max(6, settings.default.max_examples // 5))
@given(policy=policies(), cuts=st.integers(1, CUTS), data=st.data())
def test_all_of_it_survives_together(shape: str, text: str, policy: Policy, cuts: int, data: st.DataObject) -> None:
    """The task and the user's last words, the newest task list of any tool, instruction files, ids of what is running.

    A long instruction file becomes a line that says to read it again, and an older task list does not come back.
    """
    told, items = LISTS[shape]
    older = OLD_LIST if shape == "TodoWrite" else []
    said = SAYINGS[data.draw(st.sampled_from(sorted(SAYINGS)))]
    sizes = data.draw(st.lists(st.integers(100, 900), min_size=1, max_size=5))
    long = step("Read", {"file_path": "/r/CLAUDE.md"}, fill("Mind this.", 3000))
    messages = (system(), user(TASK), *long, *RULES, *RUNNING, *older, *work(-1, 300), *told, user(said))
    body = run(messages, policy, cuts, text, lambda number: sizes[number % len(sizes)])
    assert all(known in body for known in (TASK, said, "pid 4127", "a81f3c", *items))
    assert "Run `make lint` before you say that you are done." in body
    assert "read it again: /r/CLAUDE.md" in body
    assert TASK_LIST_TITLE in body
    assert "paint the fence" not in body.partition(TASK_LIST_TITLE)[2]
