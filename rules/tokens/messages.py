"""Counts the prompt tokens of a request, given a tokenizer and the model's family.

Law: arithmetic only. The tokenizer comes in as `count`. JSON comes in decoded, or as the text that is counted.

"Recorded requests" below are requests to real APIs with the `prompt_tokens` that these reported
(`bench.tokens.run`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from trimtab.rules.conversation import CountTokens, Message, Role, ToolCall
from trimtab.rules.prefix import digest_message
from trimtab.rules.tokens.families import GENERIC, Costs
from trimtab.rules.tokens.tool_schemas import render_tools

MESSAGE_TOKENS = 3
"""Frame of each message. Source: the formula of the OpenAI cookbook; exact on 99 % of 659 recorded plain requests."""
ROLE_TOKENS = 1
NAME_TOKENS = 1
"""Added for a `name` that differs from the role. Source: recorded requests."""
FUNCTION_TOKENS = -2
LEGACY_CALL_TOKENS = 3
"""Added to results and calls in the legacy `function_call` form. Source: hmarr/openai-chat-tokens."""
SYSTEM_TOKENS = -4
"""Added to the first system message if there are tools, because it shares their frame. Source:
hmarr/openai-chat-tokens."""
PARALLEL_TOKENS = 20
PARALLEL_CALL_TOKENS = -7
"""Added to the JSON in which the model reads parallel calls. Source: residuals of 24 recorded requests."""
MAX_JOINED_CHARS = 1024 * 1024
"""Parallel calls with longer arguments are counted one by one. Chosen: joining them would take two more copies in
memory."""
MAX_COMPACTED_CHARS = 1024 * 1024
"""Longer arguments of a call are counted as written. Chosen: removing white space takes three times their memory."""
NO_CHOICE = "none"
# For `tool_choice`: none, and a named function.
NO_CHOICE_TOKENS = 1
NAMED_CHOICE_TOKENS = 7
"""Source: residuals of recorded requests; litellm uses the same numbers."""
OTHER_TOOL_TOKENS = 50
"""Added to the JSON of a tool that is not a function. Source: one recorded request with a grammar."""
FORMAT_TOKENS = 10
"""Added to the name and schema of a response format. Source: residuals of 78 recorded requests, mean error 3 %."""
RENDERED_SHARE = 2
RENDERED_CHARS = 2048
"""The TypeScript of tools has at most RENDERED_SHARE times the characters of their JSON, and RENDERED_CHARS more.
Chosen: without references the two are about equally long. Hostile references double the text at each level."""
TAIL_CHARS = 32
"""Characters of a text's end that are counted with and without a line break after them. Chosen: longer than a token."""


class ToolsAndFormat(msgspec.Struct, frozen=True):
    """The parts of a request outside its messages that the model reads too.

    functions: the tools that are functions; functions_json: all of them as one JSON text.
    others: the JSON of each tool that is not a function.
    choice: the function that must be called, or NO_CHOICE; None if the model is free.
    format_texts: name, description and schema of the response format, as the texts that are counted.
    """

    functions: Sequence[dict[str, Any]] = ()
    functions_json: str = ""
    others: Sequence[str] = ()
    choice: str | None = None
    format_texts: Sequence[str] = ()


def count_message(
    message: Message,
    count: CountTokens,
    costs: Costs = GENERIC.costs,
    extra_texts: Iterable[str] = (),
    *,
    calls: Sequence[ToolCall] | None = None,
) -> int:
    """Prompt tokens of one message.

    extra_texts: texts outside its content, such as reasoning. calls: as servers render them; None for the message's.
    """
    tokens = MESSAGE_TOKENS + ROLE_TOKENS + costs.frame_tokens
    tokens += sum(map(count, message.texts)) + sum(map(count, extra_texts))
    is_legacy_result = message.role is Role.TOOL and message.answers is None
    tokens += FUNCTION_TOKENS if is_legacy_result else 0
    if message.name and (message.role is not Role.TOOL or is_legacy_result):  # for other results the call has the name
        tokens += count(message.name) + (NAME_TOKENS if message.name != message.role_name else 0)
    calls = message.tool_calls if calls is None else calls
    tokens += _count_calls(calls, count, costs) if calls and not costs.drops_calls else 0
    return tokens + sum([part.tokens for part in message.media])


def finish_message(message: Message, count: CountTokens) -> Message:
    """The message as one that a rule has changed: with its tokens and its digest as its texts are now."""
    return replace(message, edited=True, tokens=count_message(message, count), digest=digest_message(message))


def as_counted(call: ToolCall) -> ToolCall:
    """The call with its arguments as servers render them: JSON without white space. Very long ones stay unchanged."""
    if len(call.arguments) > MAX_COMPACTED_CHARS:
        return call
    try:
        compact = msgspec.json.format(call.arguments.encode(), indent=-1).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return call
    return ToolCall(call.id, call.name, compact, call.id_json, call.form, call.shortens)


def count_calls(calls: Sequence[ToolCall], count: CountTokens) -> int:
    """Tokens of a message's calls, up to what each family of models adds to all calls alike."""
    return _count_calls(tuple(map(as_counted, calls)), count, GENERIC.costs)


def _count_calls(calls: Sequence[ToolCall], count: CountTokens, costs: Costs) -> int:
    """Tokens of a message's tool calls, with what their names cost in the answering messages.

    The model reads a single call as a message to its function, and several as one call whose JSON holds them all.
    """
    tokens = sum(count(f"functions.{call.name}") for call in calls)
    if len(calls) == 1:
        return tokens + costs.call_tokens + count(calls[0].name) + count(calls[0].arguments)
    if not calls:
        return 0
    uses = (f'{{"recipient_name":"functions.{call.name}","parameters":{call.arguments}}}' for call in calls)
    if sum(len(call.arguments) for call in calls) > MAX_JOINED_CHARS:
        together = sum(map(count, uses))
    else:
        together = count('{"tool_uses":[' + ",".join(uses) + "]}")
    return max(tokens + together + PARALLEL_TOKENS + PARALLEL_CALL_TOKENS * len(calls), 0)


def count_format(around: ToolsAndFormat, count: CountTokens, costs: Costs) -> int:
    formats = sum(map(count, around.format_texts)) + (FORMAT_TOKENS if around.format_texts else 0)
    return costs.priming_tokens + formats


def count_tools(around: ToolsAndFormat, count: CountTokens, costs: Costs) -> int:
    if costs.drops_tools:
        return 0
    tokens = sum(count(text) + OTHER_TOOL_TOKENS for text in around.others)
    if around.functions or around.others:
        tokens += costs.tools_tokens
    if not around.functions:
        return tokens
    if not costs.reads_typescript:
        return tokens + count(around.functions_json)
    max_chars = RENDERED_SHARE * len(around.functions_json) + RENDERED_CHARS
    tokens += count(render_tools(around.functions, nested_comments=costs.nested_comments, max_chars=max_chars))
    if around.choice == NO_CHOICE:
        return tokens + NO_CHOICE_TOKENS
    if around.choice is None or costs.is_reasoning:
        return tokens
    return tokens + NAMED_CHOICE_TOKENS + count(around.choice)


def count_shared_frame(first: Message, count: CountTokens, costs: Costs) -> int:
    """Tokens that functions add to a leading system message; negative if they save some.

    The model reads the functions in the same frame, after a line break.
    """
    if costs.drops_tools or first.role is not Role.SYSTEM or not costs.reads_typescript or costs.is_reasoning:
        return 0
    tail = first.texts[0][-TAIL_CHARS:] if first.texts else ""
    with_break = count(tail + "\n") - count(tail) if tail and not tail.endswith("\n") else 0
    return SYSTEM_TOKENS + with_break
