"""Tool results that a client writes as text, through the running proxy in each dialect."""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.client import post
from upstreams.strict import check_chat, check_messages, check_responses

from trimtab.proxy.compaction import load_compactor, read_request
from trimtab.rules.conversation import Role
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.policy import OverflowStrategy, Policy

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
CHECKS = {"chat": check_chat, "responses": check_responses, "messages": check_messages}
LIMIT = 7000
WINDOW = ("defaults.context_window=8000", "defaults.completion_reserve=1000", "defaults.overflow_strategy=prune")


def say(role: str, text: str) -> dict[str, object]:
    """An element of a transcript, in any dialect."""
    return {"role": role, "content": text}


def result(number: int) -> str:
    """A result of about 330 tokens."""
    return f"[tool: read_file]\nfile {number}\n" + "\n".join(
        f"line {at} of part {number} has words" for at in range(36)
    )


def lay_out(layout: str, role: str, results: int = 30) -> list[dict[str, object]]:
    """A session with this many results; the layout says what stands between them."""
    said = [say("user", "Mend the build.")]
    said += [say("assistant", "I read the files.")] if layout == "behind one answer" else []
    for number in range(results):
        said += [say("assistant", f"I read file {number}.")] if layout == "behind answers" else []
        said.append(say(role, result(number)))
        said += [say("user", f"And file {number + 1}?")] if layout == "before questions" else []
    return [*said, say("user", "What is broken?")] if layout != "before questions" else said


def write(dialect: str, said: list[dict[str, object]]) -> bytes:
    """A request."""
    if dialect == "responses":
        return orjson.dumps({"model": "gpt-4o", "instructions": "Be careful.", "input": said})
    if dialect == "messages":
        return orjson.dumps({"model": "claude-x", "max_tokens": 900, "system": "Be careful.", "messages": said})
    return orjson.dumps({"model": "gpt-4o", "messages": [say("system", "Be careful."), *said]})


def read_texts(dialect: str, body: bytes) -> list[tuple[str, str]]:
    """Role and text of each element."""
    elements = orjson.loads(body)["input" if dialect == "responses" else "messages"]
    found = []
    for one in elements:
        content = one["content"]
        parts = [content] if isinstance(content, str) else [part["text"] for part in content]
        found += [(one["role"], text) for text in parts]
    return found


@pytest.mark.parametrize(
    ("dialect", "role", "layout"),
    [
        ("chat", "user", "behind answers"),
        ("chat", "system", "in a row"),
        ("chat", "user", "behind one answer"),
        ("responses", "system", "behind answers"),
        ("responses", "user", "before questions"),
        ("messages", "user", "in a row"),
        ("messages", "user", "before questions"),
    ],
)
async def test_thirty_results_fit_the_limit(dialect, role, layout, start_proxy, client, upstream):
    """Old ones become placeholders. The task and the newest words stay, and strict upstreams accept the roles."""
    proxy = await start_proxy(*WINDOW)
    body = write(dialect, lay_out(layout, role))
    answer, _ = await post(client, proxy.url + PATHS[dialect], body)

    assert answer.status == 200
    tokens = dict(one.split("=") for one in answer.headers["x-trimtab-tokens"].split(", ") if "=" in one)
    assert int(tokens["original"]) > 9000 > LIMIT >= int(tokens["sent"])
    is_one_step = layout == "behind one answer"  # the model has seen none of them
    assert is_one_step or "prune" in answer.headers["x-trimtab-decisions"]
    sent = read_texts(dialect, upstream.chats[-1].body)
    assert CHECKS[dialect](orjson.loads(upstream.chats[-1].body)) == []
    assert any("Mend the build." in text for _, text in sent)
    newest = "What is broken?" if layout != "before questions" else "And file 30?"
    assert sent[-1] == ("user", newest)
    placeholders = [(one, text) for one, text in sent if "tool result of" in text]
    assert placeholders or is_one_step
    assert all(one == role and text.startswith("[tool: read_file]\n[trimtab: ") for one, text in placeholders)
    assert any(result(29) in text for _, text in sent)


KINDS = st.sampled_from(["user", "assistant", "result", "system", "written system"])


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@settings(max_examples=8)
@given(
    kinds=st.lists(KINDS, min_size=1, max_size=40),
    strategy=st.sampled_from([OverflowStrategy.PRUNE, OverflowStrategy.AUTO_COMPACT]),
)
def test_a_grown_transcript_repeats_what_was_sent(dialect: str, kinds: list[str], strategy: OverflowStrategy) -> None:
    """Unless a decision has changed, the messages sent before are sent again. Nothing goes out over the limit."""
    policy = Policy(context_window=4000, completion_reserve=500, overflow_strategy=strategy)
    said = [say("user", "Mend the build.")]
    for number, kind in enumerate(kinds):
        is_written = kind in {"result", "written system"}
        role = "system" if "system" in kind else "user" if kind == "result" else kind
        said.append(say(role, result(number) if is_written else f"words {number}"))
    compactor = load_compactor("gpt-4o")
    before: tuple = ((), ())
    for stop in range(max(len(said) - 4, 1), len(said) + 1):
        planned = compactor.plan(read_request(write(dialect, said[:stop]), dialect), policy)
        try:
            compacted = compactor.apply(planned, None)
        except LimitExceededError:
            return  # only system messages that are no results can be left
        assert compacted.sent_tokens <= compacted.limit_tokens
        window, forwarded = planned.plan.window, compacted.forwarded
        decided = (window.cuts, window.prune_stop, window.caps)
        if decided == before[0]:
            assert forwarded.messages[: len(before[1])] == before[1]
        before = (decided, forwarded.messages)
        assert all(message.role is not Role.TOOL or message.is_written for message in forwarded.messages)
