"""Checks a Responses body as OpenAI would.

Law: it works on JSON, and does not import the rules or the proxy. Each check returns its problems as sentences; an
empty list means that there are none.
Sources: openai-python, `types/responses/response_input_param.py`; the refusals that users of the API reported.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

Wire = dict[str, Any]

ANSWERS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "mcp_approval_request": "mcp_approval_response",
    "program": "program_output",
}
"""Which kind of item answers each kind of call."""
OUTPUTS = frozenset((*ANSWERS.values(), "tool_search_output"))
BY_MODEL = frozenset(
    (
        *ANSWERS,
        "reasoning",
        "tool_search_call",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
    )
)
"""Kinds that only a model's response contains, besides the assistant's messages."""
PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
LEADERS = ("system", "developer")
PARTS = {
    "user": {"input_text", "input_image", "input_file", "input_audio"},
    "assistant": {"output_text", "refusal"},
}
MAX_CALL_ID_CHARS = 64
"""Source: OpenAI's refusal `Expected a string with maximum length 64`."""
LEAST_OUTPUT_TOKENS = 16
"""Source: OpenAI's refusal of `max_output_tokens` below 16."""


def check_body(body: Wire) -> list[str]:
    """What OpenAI would refuse in a body."""
    said = body.get("input")
    continues = bool(body.get("previous_response_id") or body.get("conversation"))
    problems = []
    if not said and not continues and not body.get("prompt"):
        problems.append("no input")
    if body.get("max_output_tokens") is not None and body["max_output_tokens"] < LEAST_OUTPUT_TOKENS:
        problems.append(f"max_output_tokens is below {LEAST_OUTPUT_TOKENS}")
    if said is None or isinstance(said, str):
        return problems
    if not isinstance(said, list) or not all(isinstance(item, dict) for item in said):
        return [*problems, "input is neither a string nor a list of items"]
    return [
        *problems,
        *check_pairing(said, continues=continues),
        *check_reasoning(said),
        *check_ids(said),
        *check_messages(said),
        *check_members_of_items(said),
    ]


def kind_of(item: Wire) -> str:
    """The kind of an item. A message may have none, and an item reference too."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    return "message" if "role" in item else "item_reference"


def check_pairing(items: Sequence[Wire], *, continues: bool = False) -> list[str]:
    """Every call has exactly one output after it, and every output has its call.

    `continues`: the provider has the items before these. Then an output may answer one of them. So may one beside an
    item reference.
    """
    has_references = any(kind_of(item) == "item_reference" for item in items)
    opened: dict[tuple[str, str], int] = {}
    answered = Counter[tuple[str, str]]()
    problems = []
    for index, item in enumerate(items):
        kind = kind_of(item)
        if _awaits(item):
            key = (_answer_kind(kind), name_call(item))
            if key in opened:
                problems.append(f"input[{index}]: a second call with the id {key[1]!r}")
            opened[key] = index
        elif kind in OUTPUTS:
            key = _find_call(item, opened)
            if key is None and not (continues or has_references or _is_servers(item)):
                problems.append(f"input[{index}]: no call found for the output of {name_output(item)!r}")
            elif key is not None:
                answered[key] += 1
                problems += [f"input[{index}]: a second output of {key[1]!r}"] if answered[key] > 1 else []
    if has_references:
        return problems
    return problems + [f"no output found for the call {key[1]!r}" for key in opened if not answered[key]]


def name_call(item: Wire) -> str:
    """The id by which an output names a call."""
    names = ("id", "call_id") if kind_of(item) == "mcp_approval_request" else ("call_id", "id")
    return next((item[name] for name in names if isinstance(item.get(name), str)), "")


def name_output(item: Wire) -> str:
    """The id of the call that an output answers."""
    names = ("approval_request_id", "call_id", "id")
    return next((item[name] for name in names if isinstance(item.get(name), str)), "")


def _awaits(item: Wire) -> bool:
    """Whether the client answers a call. A tool search is the provider's own, unless it says otherwise."""
    kind = kind_of(item)
    return kind in ANSWERS or (kind == "tool_search_call" and item.get("execution") == "client")


def _is_servers(item: Wire) -> bool:
    return kind_of(item) == "tool_search_output" and item.get("execution") != "client"


def _answer_kind(kind: str) -> str:
    return ANSWERS.get(kind, "tool_search_output")


def _find_call(item: Wire, opened: dict[tuple[str, str], int]) -> tuple[str, str] | None:
    """The call that an output answers. Codex answers a local shell call with a function's output."""
    kinds = [kind_of(item)]
    kinds += ["local_shell_call_output"] if kinds[0] == "function_call_output" else []
    keys = [(kind, name_output(item)) for kind in kinds]
    return next((key for key in keys if key in opened), None)


def is_by_model(item: Wire) -> bool:
    """Whether an item is a part of a model's response."""
    kind = kind_of(item)
    return kind in BY_MODEL or (kind == "message" and item.get("role") == "assistant")


def check_reasoning(items: Sequence[Wire]) -> list[str]:
    """Reasoning is followed by what it led to: a message or a call of the same response."""
    return [
        f"input[{index}]: reasoning without its required following item"
        for index, item in enumerate(items)
        if kind_of(item) == "reasoning" and not (index + 1 < len(items) and _may_follow(items[index + 1]))
    ]


def _may_follow(item: Wire) -> bool:
    kind = kind_of(item)
    is_known = kind == "message" or kind in OUTPUTS or "compaction" in kind
    return is_by_model(item) or not is_known


def check_ids(items: Sequence[Wire]) -> list[str]:
    """Ids of items are unique and have the prefix of their kind. Ids of calls are neither empty nor too long."""
    problems = []
    seen = Counter[str]()
    for index, item in enumerate(items):
        kind, key = kind_of(item), item.get("id")
        if isinstance(key, str) and kind not in {"item_reference", "local_shell_call_output"}:
            seen[key] += 1
            problems += [f"input[{index}]: duplicate item with id {key!r}"] if seen[key] > 1 else []
            if not key.startswith(PREFIXES.get(kind, "")):
                problems.append(f"input[{index}].id: {key!r} does not begin with {PREFIXES[kind]!r}")
        if "call_id" in item and kind != "tool_search_output":
            length = len(item["call_id"] or "")
            if not 1 <= length <= MAX_CALL_ID_CHARS:
                problems.append(f"input[{index}].call_id: has {length} characters")
    return problems


def check_messages(items: Sequence[Wire]) -> list[str]:
    """The roles and the kinds of parts of messages are those that the API has."""
    problems = []
    for index, item in enumerate(items):
        if kind_of(item) != "message":
            continue
        role, content = item.get("role"), item.get("content")
        if role not in {"user", "assistant", *LEADERS}:
            problems.append(f"input[{index}].role: {role!r}")
        elif isinstance(content, list):
            allowed = PARTS.get(role, PARTS["user"])
            kinds = [part.get("type") for part in content]
            problems += [f"input[{index}].content: {kind!r} as {role}" for kind in kinds if kind not in allowed]
        elif not isinstance(content, str):
            problems.append(f"input[{index}].content: neither a string nor a list")
    return problems


REQUIRED = {
    "function_call": {"call_id": str, "name": str, "arguments": str},
    "function_call_output": {"call_id": str, "output": (str, list)},
    "custom_tool_call": {"call_id": str, "name": str, "input": str},
    "custom_tool_call_output": {"call_id": str, "output": (str, list)},
    "local_shell_call": {"call_id": str, "action": dict},
    "local_shell_call_output": {"output": str},
    "shell_call": {"call_id": str, "action": dict},
    "shell_call_output": {"call_id": str, "output": list},
    "apply_patch_call": {"call_id": str, "operation": dict},
    "apply_patch_call_output": {"call_id": str, "status": str},
    "computer_call": {"call_id": str},
    "computer_call_output": {"call_id": str, "output": dict},
    "mcp_approval_response": {"approval_request_id": str, "approve": bool},
    "reasoning": {"summary": list},
    "compaction": {"encrypted_content": str},
    "item_reference": {"id": str},
}
"""The members that an item of a kind must have, and their types."""


def check_members_of_items(items: Sequence[Wire]) -> list[str]:
    """Items of the known kinds have what they must have. A trigger of compaction is last."""
    problems = []
    for index, item in enumerate(items):
        kind = kind_of(item)
        for name, types in REQUIRED.get(kind, {}).items():
            if not isinstance(item.get(name), types):
                problems.append(f"input[{index}].{name}: missing or of a wrong type in {kind}")
        if kind == "compaction_trigger" and index + 1 < len(items):
            problems.append(f"input[{index}]: the trigger of compaction is not last")
    return problems
