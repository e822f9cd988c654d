"""The face of `import trimtab`: the messages of an agent in, the messages to send out."""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from trimtab import Compactor, LimitExceededError, Policy, Result, SummaryRequest, UndecodableError, make_policy
from trimtab.proxy.compaction.compactor import Compactor as Engine
from trimtab.proxy.compaction.library import UNHEEDED
from trimtab.proxy.config.policy import PolicyConfig, SummaryConfig
from trimtab.rules import OnExceeded, Prices

DIALECTS = ("chat", "responses", "messages")
SMALL = make_policy(context_window=8000)
HEEDED = frozenset(
    {
        "anchors", "compact_at_tokens", "completion_reserve", "context_window", "cut", "dedupe", "economy",
        "high_water", "instruction_files", "keep_images", "keep_recent_steps", "keep_user_tokens", "low_water",
        "max_message_tokens", "max_tool_result_bytes", "max_tool_result_tokens", "max_turns", "memory", "on_exceeded",
        "overflow_strategy", "pin_instruction", "preserve_system", "protect_turns", "sections", "summary.max_tokens",
        "summary.min_steps", "summary.role", "tidy", "tools", "truncate_system", "truncate_users", "truncation",
    }
)  # fmt: skip
"""The keys that are read by PolicyConfig.to_policy."""
NOTE = "1. Done: the files were read.\n2. Decided: nothing.\n3. Open: nothing.\n4. Next: go on."


def _make_steps(dialect: str, number: int) -> list[list[dict[str, Any]]]:
    """A session in any dialect: what is new in each of its requests."""
    steps: list[list[dict[str, Any]]] = [[{"role": "user", "content": "Read all files."}]]
    for step in range(number):
        text = "\n".join(f"line {line} of file {step} is {line * step}" for line in range(40))
        name, given = f"c{step}", f'{{"path": "f{step}"}}'
        if dialect == "chat":
            call = {"id": name, "type": "function", "function": {"name": "read", "arguments": given}}
            made = {"role": "assistant", "content": None, "tool_calls": [call]}
            steps.append([made, {"role": "tool", "tool_call_id": name, "content": text}])
        elif dialect == "responses":
            made = {"type": "function_call", "call_id": name, "name": "read", "arguments": given}
            steps.append([made, {"type": "function_call_output", "call_id": name, "output": text}])
        else:
            use = {"type": "tool_use", "id": name, "name": "read", "input": orjson.loads(given)}
            result = {"type": "tool_result", "tool_use_id": name, "content": text}
            steps.append([{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}])
    return steps


def _run_session(compact: Callable[[list[Any]], Result], dialect: str, number: int = 40) -> list[Result]:
    messages, results = list[Any](), list[Result]()
    for step in _make_steps(dialect, number):
        messages += step
        results.append(compact([*messages]))
    return results


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_returned_begins_as_before_unless_a_cut_moves(dialect: str) -> None:
    results = _run_session(Compactor(SMALL, dialect=dialect, vocabulary="heuristic").compact, dialect)
    kept = [after.messages[: len(before.messages)] == before.messages for before, after in pairwise(results)]

    assert any(decision.rule == "digest" for decision in results[-1].decisions)
    assert kept.count(False) < len(results) / 4
    assert all(result.tokens.sent <= result.tokens.limit for result in results)
    assert results[-1].tokens.original > results[-1].tokens.limit
    assert "digest" in " ".join(results[-1].explain())
    messages = [message for step in _make_steps(dialect, 40) for message in step]
    assert Compactor(SMALL, dialect=dialect, vocabulary="heuristic").compact(messages) == results[-1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_no_rule_has_changed_is_the_callers_own_object(dialect: str) -> None:
    messages = [message for step in _make_steps(dialect, 40) for message in step]
    compactor = Compactor(SMALL, dialect=dialect, vocabulary="heuristic")

    few, many = compactor.compact(messages[:3]), compactor.compact(messages)
    assert [id(one) for one in few.messages] == [id(one) for one in messages[:3]]
    assert (few.decisions, few.summary_request) == ((), None)
    assert few.tokens.sent == few.tokens.original
    assert many.messages[-1] is messages[-1]


def test_objects_of_a_client_library_are_messages_too() -> None:
    class Answer(BaseModel):
        role: str = "assistant"
        content: str = "Hello."

    result = Compactor(vocabulary="heuristic").compact([{"role": "user", "content": "Hi."}, answer := Answer()])
    assert result.messages[1] is answer


def test_other_members_cost_tokens_and_come_back() -> None:
    compactor, messages = Compactor(dialect="messages", vocabulary="heuristic"), [{"role": "user", "content": "Hi."}]
    tools = [{"name": "read", "description": "Reads a file. " * 50, "input_schema": {"type": "object"}}]

    without, result = compactor.compact(messages), compactor.compact(messages, system="Be brief.", tools=tools)
    assert result.tokens.original > without.tokens.original + 100
    assert result.members == {"model": "", "system": "Be brief.", "tools": tools}


def test_a_model_is_asked_once_for_each_cut_and_its_answer_stays() -> None:
    asked: list[SummaryRequest] = []

    def summarise(request: SummaryRequest) -> str:
        asked.append(request)
        assert "Read all files." in request.prompt
        return f"{NOTE}\nNote {len(asked)}."

    results = _run_session(Compactor(SMALL, summarise=summarise, vocabulary="heuristic").compact, "chat", 90)
    assert len(asked) == len({request.key for request in asked}) > 1
    assert f"Note {len(asked)}." in str(results[-1].messages[0])
    assert all(result.summary_request is None for result in results)
    assert "Note 1." in asked[1].prompt  # it goes on from the summary before


def test_a_digest_stays_where_the_model_has_no_answer() -> None:
    """It is not asked again: another text in the same place would break the prompt cache."""
    asked: list[str] = []

    def refuse(request: SummaryRequest) -> str | None:
        asked.append(request.key)
        return "I'm sorry, I can't help with that." if len(asked) == 1 else None

    compactor = Compactor(SMALL, summarise=refuse, vocabulary="heuristic")
    results = _run_session(compactor.compact, "chat", 90)
    plain = _run_session(Compactor(SMALL, vocabulary="heuristic").compact, "chat", 90)

    assert [result.messages for result in results] == [result.messages for result in plain]
    assert len(asked) == len(set(asked)) > 1


def test_a_question_can_be_answered_later_and_the_first_answer_counts() -> None:
    kept: dict[str, str] = {}
    messages = [message for step in _make_steps("chat", 40) for message in step]
    result = Compactor(SMALL, summaries=kept, vocabulary="heuristic").compact(messages)

    assert result.summary_request.max_tokens > 0
    answered = result.with_summary(NOTE)
    assert "the files were read" in str(answered.messages[0])
    assert answered.summary_request is None
    assert answered.with_summary("Another text.") == answered
    assert result.with_summary("Another text.") == answered
    assert Compactor(SMALL, summaries=kept, vocabulary="heuristic").compact(messages) == answered


async def test_an_event_loop_may_await_the_model() -> None:
    async def summarise(_: SummaryRequest) -> str:
        return NOTE

    messages = [message for step in _make_steps("chat", 40) for message in step]
    compactor = Compactor(SMALL, summarise=summarise, vocabulary="heuristic")
    with pytest.raises(TypeError, match="compact_async"):
        compactor.compact(messages)
    result = await compactor.compact_async(messages)

    assert "the files were read" in str(result.messages[0])
    assert await Compactor(SMALL, summarise=lambda _: NOTE, vocabulary="heuristic").compact_async(messages) == result


def test_what_cannot_be_compacted_is_told() -> None:
    compactor = Compactor(Policy(context_window=1000, on_exceeded=OnExceeded.ERROR), vocabulary="heuristic")
    good = {"role": "user", "content": "Hi."}

    with pytest.raises(LimitExceededError):
        compactor.compact([{"role": "user", "content": "word " * 9000}])
    for broken, told in (
        ([object()], "."),
        (["\ud800"], "messages"),
        ([good, 7], r"messages\[1\] is no JSON object"),
        ([{"content": "x"}], r"messages\[0\].*role"),
        ([{"role": "user", "content": ValueError("nothing here is an Exception")}], "nothing here is an Exception"),
    ):
        with pytest.raises(UndecodableError, match=told):
            compactor.compact(broken)
    for wrong in ("Hi.", b"Hi.", good):
        with pytest.raises(TypeError, match="messages must be a list"):
            compactor.compact(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no dialect"):
        Compactor(dialect="french")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_only_python_can_write_is_compacted(dialect: str) -> None:
    """Outputs of programs that are read with `surrogateescape`, and integers of any length."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10**30}}}
    tools = [{"type": "function", "name": "run", "input_schema": schema, "function": {"name": "run"}}]
    odd = {"role": "user", "content": "caf\udce9 \ud83d " + "word " * 200}
    talk = [odd, {"role": "assistant", "content": "done " * 200}] * 12
    result = Compactor(SMALL, dialect=dialect, vocabulary="heuristic").compact([*talk, odd], tools=tools)
    assert result.decisions
    assert len(result.messages) < len(talk)
    assert result.messages[-1] is odd
    assert result.members["tools"] == tools


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"high_water": 7}, "high_water: 7 must be"),
        ({"hihg_water": 0.5}, "hihg_water: unknown key; did you mean high_water?"),
        ({"high_water": 0.5, "low_water": 0.6}, "low_water: 0.6 must be below high_water, 0.5"),
        ({"low_water": 1.0}, "low_water: 1.0 must be below"),
        ({"tools": {"re*": {}, "read": {}}}, r"tools\.read: never matches"),
        ({"context_window": "big"}, "context_window: 'big' must be"),
        ({"summary": {"min_steps": 0}}, "summary.min_steps: 0 must be"),
        ({"mode": "observe"}, "mode: the library always compacts"),
        ({"observe_share": 0.5}, "observe_share: "),
        ({"recall": "tool"}, "recall: .* inject"),
        ({"recall_without_tools": True}, "recall_without_tools: "),
        ({"upstream": "other"}, "upstream: the library sends nothing"),
        ({"drop_tools": ["read"]}, "drop_tools: .* tools="),
        ({"local_items": ["x"]}, "local_items: "),
        ({"pairing": "refuse"}, "pairing: "),
        ({"count": "heuristic"}, r"count: .* Compactor\(vocabulary="),
        ({"context_windows": [{"endpoint": "chat", "tokens": 9000}]}, "context_windows: .* context_window"),
        ({"prices": "auto"}, "prices: .* numbers"),
        ({"summary": {"when": "never"}}, "summary.when: .* `summarise`"),
        ({"summary": {"model": "small"}}, "summary.model: .*`summarise`"),
        (
            {"summary": {"instructions": "x", "wait_seconds": 1}},
            r"summary.wait_seconds: [^\n]+\nsummary.instructions: ",
        ),
    ],
)
def test_a_key_that_the_library_cannot_heed_is_an_error_that_says_what_to_do(
    keys: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_policy(**keys)


def test_a_key_that_it_heeds_has_its_effect_and_so_has_every_other() -> None:
    """Every key of the configuration is heeded or refused, so that none is ignored in silence."""
    defaults = PolicyConfig()
    for name in PolicyConfig.model_fields.keys() - {"summary"}:
        assert name in UNHEEDED or name in HEEDED, name
    for name in SummaryConfig.model_fields:
        assert f"summary.{name}" in UNHEEDED or f"summary.{name}" in HEEDED, name
    for name in UNHEEDED:
        section, _, key = name.rpartition(".")
        value = getattr(defaults.summary if section else defaults, key)
        make_policy(**({section: {key: value}} if section else {key: value}))  # what it does anyway may be said
    assert make_policy(mode="enforce") == make_policy()
    assert make_policy(recall="inject").recalls
    assert make_policy(prices={"input": 2, "cached_input": 1, "output": 8}).prices == Prices(1.0, 0.5, 4.0, 1.0)


def test_to_import_it_loads_nothing() -> None:
    """The program itself is `trimtab`, too, and a library should not slow down who imports it."""
    code = "import sys, trimtab; print(sorted(name for name in sys.modules if name.startswith('trimtab')))"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    import trimtab  # noqa: PLC0415 - not before the other one

    assert printed.strip() == "['trimtab']"
    assert set(trimtab.__all__) <= set(dir(trimtab))
    assert all(hasattr(trimtab, name) for name in trimtab.__all__)
    assert trimtab.Compactor is not Engine
    with pytest.raises(AttributeError, match="nothing"):
        _ = trimtab.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", [{"policy": {"context_window": 8000}}, {"model": 5}, {"dialect": None}])
def test_a_value_of_another_type_is_refused_by_its_name(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"^{next(iter(given))} must be "):
        Compactor(**given)


# Long arguments of calls through the three dialects: the call stays what its tool takes, and all else its bytes.

POLICY = make_policy(context_window=16000, high_water=0.8, low_water=0.5, overflow_strategy="prune")
TEXT = "\n".join(f"def function_{number}(x): return x * {number}" for number in range(200))
Wire = dict[str, Any]
Write = Callable[[int, Wire], list[Wire]]


def chat(number: int, given: Wire) -> list[Wire]:
    """A step in chat: the arguments are a text, and the content is null or absent."""
    function = {"name": "write_file", "arguments": orjson.dumps(given, option=orjson.OPT_INDENT_2).decode()}
    content = {"content": None} if number % 2 else {}
    calls = [{"id": f"c{number}", "type": "function", "index": 0, "function": function}]
    return [
        {"role": "assistant", **content, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{number}", "content": "Written."},
    ]


def messages(number: int, given: Wire) -> list[Wire]:
    """A step in Messages: the arguments are an object, and thinking stands before them."""
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": f"s{number}"}
    use = {"type": "tool_use", "id": f"c{number}", "name": "write_file", "input": given, "caller": {"type": "direct"}}
    done = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "Written."}
    return [{"role": "assistant", "content": [thinking, use]}, {"role": "user", "content": [done]}]


def responses(number: int, given: Wire) -> list[Wire]:
    """A step in Responses: items with ids, and encrypted reasoning before the call."""
    sealed = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAA" * 9}
    said = orjson.dumps(given).decode()
    made = {"type": "function_call", "id": f"fc_{number}", "call_id": f"c{number}", "name": "write_file"}
    return [
        sealed,
        {**made, "arguments": said},
        {"type": "function_call_output", "call_id": f"c{number}", "output": "Ok"},
    ]


def read_given(wire: Wire) -> Wire | None:
    """The arguments of the call in an element, in any dialect."""
    if wire.get("type") == "function_call":
        return dict(orjson.loads(wire["arguments"]))
    if calls := wire.get("tool_calls"):
        return dict(orjson.loads(calls[0]["function"]["arguments"]))
    content = wire.get("content")
    uses = [block for block in content if block.get("type") == "tool_use"] if isinstance(content, list) else []
    return dict(uses[0]["input"]) if uses else None


def without_content(value: Any) -> Any:
    """An element without what was written to the file, in all forms."""
    if isinstance(value, dict):
        return {key: without_content(item) for key, item in value.items() if key != "content" or not _is_text(item)}
    if isinstance(value, list):
        return list(map(without_content, value))
    return without_content(orjson.loads(value)) if isinstance(value, str) and value[:1] == "{" else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "def function" in value


def grow(write: Write, dialect: str, **more: Any) -> list[tuple[list[Wire], Result]]:
    """Each request of a growing session, with what it became."""
    compactor, wires, grown = Compactor(POLICY, dialect=dialect), [{"role": "user", "content": "Go."}], []
    for number in range(10):
        given = {"path": f"src/{number}.py", "content": f"# {number}\n{TEXT}", "mode": 7, "force": True, **more}
        wires = [*wires, *write(number, given)]
        grown.append((wires, compactor.compact(wires)))
    return grown


@pytest.mark.parametrize("write", [chat, messages, responses])
def test_a_stale_call_keeps_its_form_and_only_the_long_text_is_short(write: Write) -> None:
    """Ids, signatures, sealed reasoning, other arguments and other members stay."""
    wires, result = grow(write, write.__name__)[-1]
    assert [decision.rule for decision in result.decisions] == ["arguments"]
    assert len(result.messages) == len(wires)
    changed = [at for at, (old, new) in enumerate(zip(wires, result.messages, strict=True)) if old != new]
    assert len(changed) >= 5
    for at in changed:
        given, left = read_given(wires[at]), read_given(result.messages[at])
        assert {**left, "content": given["content"]} == given
        assert len(left["content"]) < len(given["content"]) / 3
        assert "[trimtab: omitted" in left["content"]
        assert "the call had this part]" in left["content"]
        assert without_content(result.messages[at]) == without_content(wires[at])


@pytest.mark.parametrize("write", [chat, messages, responses])
def test_the_figures_are_those_of_what_is_sent(write: Write) -> None:
    """Who counts the forwarded request gets the tokens that are told."""
    _, result = grow(write, write.__name__)[-1]
    counted = Compactor(make_policy(context_window=1_000_000), dialect=write.__name__).compact(result.messages)
    assert counted.tokens.original == result.tokens.sent
    assert result.tokens.original - result.tokens.sent == sum(one.saved_tokens for one in result.decisions) > 0


def _sign_chat(number: int, given: Wire) -> list[Wire]:
    made, done = chat(number, given)
    signed = {**made["tool_calls"][0], "extra_content": {"google": {"thought_signature": "abc"}}}
    return [{**made, "tool_calls": [signed]}, done]


def _detail_chat(number: int, given: Wire) -> list[Wire]:
    made, done = chat(number, given)
    return [{**made, "reasoning_details": [{"type": "reasoning.encrypted", "id": f"c{number}", "data": "abc"}]}, done]


def _think_behind(number: int, given: Wire) -> list[Wire]:
    made, done = messages(number, given)
    return [{**made, "content": made["content"][::-1]}, done]


def _program(number: int, given: Wire) -> list[Wire]:
    made, done = messages(number, given)
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    return [{**made, "content": [made["content"][0], {**made["content"][1], "caller": caller}]}, done]


@pytest.mark.parametrize(
    ("write", "dialect"),
    [(_sign_chat, "chat"), (_detail_chat, "chat"), (_think_behind, "messages"), (_program, "messages")],
)
def test_a_call_that_a_signature_may_cover_stays(write: Write, dialect: str) -> None:
    """The provider would refuse another text, or lose its reasoning."""
    for _, result in grow(write, dialect):
        assert "arguments" not in {decision.rule for decision in result.decisions}


def test_a_patch_of_a_custom_tool_is_shortened_as_a_text() -> None:
    """Codex's `apply_patch` takes no JSON."""

    def patch(number: int, given: Wire) -> list[Wire]:
        text = f"*** Begin Patch\n*** Add File: {given['path']}\n+{given['content']}\n*** End Patch"
        made = {"type": "custom_tool_call", "id": f"ct_{number}", "call_id": f"c{number}", "name": "apply_patch"}
        return [
            {**made, "status": "completed", "input": text},
            {"type": "custom_tool_call_output", "call_id": f"c{number}", "output": "Done!"},
        ]

    wires, result = grow(patch, "responses")[-1]
    assert [decision.rule for decision in result.decisions] == ["arguments"]
    assert {**result.messages[1], "input": ""} == {**wires[1], "input": ""}
    assert result.messages[1]["input"].startswith("*** Begin Patch\n*** Add File: src/0.py\n")
    assert len(result.messages[1]["input"]) < len(wires[1]["input"]) / 3
