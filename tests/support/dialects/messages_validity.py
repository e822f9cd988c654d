"""Checks a Messages body as Anthropic would.

Law: it works on JSON, and does not import the rules or the proxy. Each check returns its problems as sentences; an
empty list means that there are none.
Sources: anthropic-sdk-python, `types/*_param.py`; Anthropic's documentation of tool use, thinking and prompt caching;
the refusals that users of the API reported.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

Wire = dict[str, Any]

ROLES = ("user", "assistant", "system")
THINKING = ("thinking", "redacted_thinking")
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
ASSISTANTS_ONLY = frozenset((*THINKING, *SERVER_CALLS, "tool_use"))
MAX_MARKERS = 4
"""Source: Anthropic's refusal `A maximum of 4 blocks with cache_control may be provided`."""
_ID = re.compile(r"[a-zA-Z0-9_-]+")


def check_body(body: Wire, *, counts_only: bool = False) -> list[str]:
    """What Anthropic would refuse in a body. `counts_only`: it goes to `count_tokens`, which needs no limit."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["messages: at least one message is required"]
    if not all(isinstance(message, dict) for message in messages):
        return ["messages: not a list of objects"]
    problems = check_contents(messages)
    if problems:
        return problems
    return [
        *check_pairing(messages),
        *check_ids(messages),
        *check_thinking(messages, is_enabled=(body.get("thinking") or {}).get("type") == "enabled"),
        *check_markers(body),
        *check_settings(body, counts_only=counts_only),
    ]


def blocks_of(message: Wire) -> list[Wire]:
    """The blocks of a message. A string is one block of text."""
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def check_contents(messages: Sequence[Wire]) -> list[str]:
    """The user is first, no message and no text is empty, and each block is in a role that may have it."""
    roles = [message.get("role") for message in messages]
    problems = [f"messages.{rank}.role: {role!r}" for rank, role in enumerate(roles) if role not in ROLES]
    if next((role for role in roles if role != "system"), None) != "user":
        problems.append("messages: the first message must be the user's")
    for rank, message in enumerate(messages):
        content = message.get("content")
        if not isinstance(content, str | list):
            problems.append(f"messages.{rank}.content: neither a string nor a list")
        elif not content and not (rank == len(messages) - 1 and roles[rank] == "assistant"):
            problems.append(f"messages.{rank}: must have non-empty content")
        else:
            problems += [f"messages.{rank}.{problem}" for problem in _check_blocks(message)]
    last = blocks_of(messages[-1])
    if roles[-1] == "assistant" and last and last[-1].get("text", "").endswith((" ", "\n")):
        problems.append("final assistant content cannot end with trailing whitespace")
    return problems


def _check_blocks(message: Wire) -> Iterator[str]:
    for index, block in enumerate(blocks_of(message)):
        if not isinstance(block, dict):
            yield f"content.{index}: not an object"
            continue
        kind = block.get("type")
        inner = block.get("content") if kind == "tool_result" else None
        parts = inner if isinstance(inner, list) else ()
        for part in (block, *parts):
            if part.get("type") == "text" and not str(part.get("text") or "").strip():
                yield f"content.{index}: text content blocks must contain non-whitespace text"
        if kind in ASSISTANTS_ONLY and message["role"] != "assistant":
            yield f"content.{index}: {kind} in a message of the {message['role']}"
        if kind == "tool_result" and message["role"] != "user":
            yield f"content.{index}: tool_result in a message of the {message['role']}"


def turns_of(messages: Sequence[Wire]) -> list[tuple[str, list[Wire]]]:
    """The roles and blocks of the turns: the API joins messages of one role in a row."""
    turns: list[tuple[str, list[Wire]]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        if not turns or turns[-1][0] != message["role"]:
            turns.append((message["role"], []))
        turns[-1][1].extend(blocks_of(message))
    return turns


def check_pairing(messages: Sequence[Wire]) -> list[str]:
    """Each call has exactly one result, at the beginning of the next turn. Each result has its call right before it.

    A result of a tool of the server is in the same message as its call, or in a later one.
    """
    problems = []
    asked: Counter[str] = Counter()
    servers: set[str] = set()
    for role, blocks in turns_of(messages):
        answered = Counter(block.get("tool_use_id", "") for block in blocks if block.get("type") == "tool_result")
        problems += [f"tool_use {key!r} has no tool_result in the next message" for key in asked - answered]
        problems += [f"unexpected tool_result of {key!r}, or a second one" for key in answered - asked]
        kinds = [block.get("type") == "tool_result" for block in blocks]
        if sorted(kinds, reverse=True) != kinds:
            problems.append("a tool_result after another block of its message")
        asked = Counter(block.get("id", "") for block in blocks if block.get("type") == "tool_use")
        servers |= {block.get("id", "") for block in blocks if block.get("type") in SERVER_CALLS}
        problems += [
            f"{block['type']} of {block.get('tool_use_id')!r} has no call before it"
            for block in blocks
            if _is_server_result(block) and role == "assistant" and block.get("tool_use_id") not in servers
        ]
    return problems + [f"tool_use {key!r} has no tool_result in the next message" for key in asked]


def _is_server_result(block: Wire) -> bool:
    return str(block.get("type")).endswith("_tool_result")


def check_ids(messages: Sequence[Wire]) -> list[str]:
    """The ids of calls are unique and have only letters, digits, `_` and `-`. Their input is an object."""
    calls = [block for message in messages for block in blocks_of(message) if block.get("type") == "tool_use"]
    ids = Counter(str(call.get("id")) for call in calls)
    return [
        *(f"tool_use ids must be unique: {key!r}" for key, times in ids.items() if times > 1),
        *(f"tool_use.id: {key!r} does not match {_ID.pattern}" for key in ids if not _ID.fullmatch(key)),
        *(f"tool_use {call.get('id')!r}: no input, or no object" for call in calls if not _is_dict(call, "input")),
        *(f"tool_use {call.get('id')!r}: no name" for call in calls if not call.get("name")),
    ]


def _is_dict(block: Wire, name: str) -> bool:
    return isinstance(block.get(name), dict)


def check_thinking(messages: Sequence[Wire], *, is_enabled: bool) -> list[str]:
    """Thinking is signed, begins its message, and does not end it.

    If thinking is enabled, the last assistant message must begin with thinking, too. This is asked only of a transcript
    that has any: a recording without it comes from another model. Thinking after a tool of the server is interleaved.
    """
    problems = []
    thinks = False
    begins = False
    for rank, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        kinds = [str(block.get("type")) for block in blocks_of(message)]
        begins = bool(kinds) and kinds[0] in THINKING
        if not set(THINKING) & set(kinds):
            continue
        thinks = True
        if kinds[-1] in THINKING:
            problems.append(f"messages.{rank}: the final block in an assistant message cannot be thinking")
        if not begins and not set(SERVER_CALLS) & set(kinds):
            problems.append(f"messages.{rank}: thinking does not begin its message")
        problems += [f"messages.{rank}: thinking without its signature" for one in blocks_of(message) if _lacks(one)]
    if is_enabled and thinks and not begins:
        problems.append("the last assistant message must start with a thinking block")
    return problems


def _lacks(block: Wire) -> bool:
    needed = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
    return not all(isinstance(block.get(name), str) for name in needed.get(str(block.get("type")), ()))


def check_markers(body: Wire) -> list[str]:
    """There are at most four cache markers, none for an hour is after one for five minutes, and none is on thinking."""
    marked = [block for block in walk_markable(body) if block.get("cache_control")]
    problems = [f"cache_control on {block['type']}" for block in marked if block.get("type") in THINKING]
    automatic = [body["cache_control"]] if body.get("cache_control") else []
    if len(marked) + len(automatic) > MAX_MARKERS:
        problems.append(f"{len(marked) + len(automatic)} blocks with cache_control; at most {MAX_MARKERS}")
    hours = [(block["cache_control"].get("ttl") or "5m") == "1h" for block in marked]
    if sorted(hours, reverse=True) != hours:
        problems.append("a cache_control of 1h after one of 5m")
    return problems


def walk_markable(body: Wire) -> Iterator[Wire]:
    """All blocks that can bear a marker, in the order in which the API reads them: tools, system, messages."""
    yield from body.get("tools") or ()
    system = body.get("system")
    yield from system if isinstance(system, list) else ()
    for message in body["messages"]:
        for block in blocks_of(message):
            inner = block.get("content") if block.get("type") == "tool_result" else None
            yield from inner if isinstance(inner, list) else ()
            yield block


def check_settings(body: Wire, *, counts_only: bool = False) -> list[str]:
    """Limits, thinking, temperature, tools and the choice of a tool fit each other."""
    problems = []
    tokens = body.get("max_tokens")
    thinking = body.get("thinking") or {}
    choice = (body.get("tool_choice") or {}).get("type")
    kinds = {block.get("type") for message in body["messages"] for block in blocks_of(message)}
    if not counts_only and not isinstance(tokens, int):
        problems.append("max_tokens: field required")
    elif isinstance(tokens, int) and tokens <= (thinking.get("budget_tokens") or -1):
        problems.append("max_tokens must be greater than thinking.budget_tokens")
    if thinking.get("type") == "enabled":
        if body.get("temperature") not in {None, 1}:
            problems.append("temperature may only be set to 1 when thinking is enabled")
        if choice in {"any", "tool"}:
            problems.append("thinking may not be enabled when tool_choice forces tool use")
    if {"tool_use", "tool_result"} & kinds and not body.get("tools"):
        problems.append("requests which include tool_use or tool_result blocks must define tools")
    if choice not in {None, "none"} and not body.get("tools"):
        problems.append("tool_choice may only be specified while providing tools")
    return problems
