"""What a request costs in prompt tokens, given a tokenizer and the family of the model.

Law: arithmetic only; the tokenizer comes in as `count`, JSON comes in decoded or in the form that is to be counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rules.conversation import CountTokens, Message, Role, ToolCall
from rules.prefix import digest_message
from rules.tokens.families import GENERIC, Costs
from rules.tokens.tool_schemas import render_tools

MESSAGE_TOKENS = 3
"""Frame of each message. Source: the OpenAI cookbook's formula, exact on 99 % of 659 recorded plain requests."""
ROLE_TOKENS = 1
NAME_TOKENS = 1
"""With a name; one that repeats the role costs only itself. Source: recorded requests."""
FUNCTION_TOKENS = -2
LEGACY_CALL_TOKENS = 3
"""Results and calls of the form before tools. Source: hmarr/openai-chat-tokens."""
SYSTEM_TOKENS = -4
"""With tools the first system message shares their frame. Source: hmarr/openai-chat-tokens."""
PARALLEL_TOKENS = 20
PARALLEL_CALL_TOKENS = -7
"""Of calls made together, beside the JSON that they are read as. Source: residuals of 24 recorded requests."""
MAX_JOINED_CHARS = 1024 * 1024
"""Of calls made together. Longer arguments are counted one by one: joined, they would take their memory twice more."""
NO_CHOICE = "none"
NO_CHOICE_TOKENS = 1
NAMED_CHOICE_TOKENS = 7
"""Source: residuals of recorded requests; litellm counts so, too."""
OTHER_TOOL_TOKENS = 50
"""Of a tool that is no function, beside its JSON. Source: one recorded request with a grammar."""
FORMAT_TOKENS = 10
"""Of a response format, beside its name and schema. Source: residuals of 78 recorded requests, mean error 3 %."""
MEDIA_TOKENS = 3
WAVE_CHARS_PER_TOKEN = 1066
AUDIO_CHARS_PER_TOKEN = 133
"""Of base64 text: ten tokens a second at 8 kHz and 16 bits, or at 8 kbit a second when compressed. A bound."""
FILE_CHARS_PER_TOKEN = 24
"""Of base64 text: recorded requests with PDF files had 26 to 80. A bound."""
TEXT_CHARS_PER_TOKEN = 4
"""Of base64 text that is text within: three bytes a token, which prose, code and JSON do not reach."""
UNSEEN_FILE_TOKENS = 2000
"""Of a file that is named only. A guess."""
RENDERED_SHARE = 2
RENDERED_CHARS = 2048
TAIL_CHARS = 32


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands outside the messages and is read with them.

    `functions` are the tools that are functions, `functions_json` all of them in one, `others` the JSON of each tool
    that is none. `choice` is the function that must be called, or NO_CHOICE. `format_texts` are the response format's
    name, description and schema, in the form in which they are counted.
    """

    functions: Sequence[dict[str, Any]] = ()
    functions_json: str = ""
    others: Sequence[str] = ()
    choice: str | None = None
    format_texts: Sequence[str] = ()


def count_message(
    message: Message, count: CountTokens, costs: Costs = GENERIC.costs, extra_texts: Iterable[str] = ()
) -> int:
    """Prompt tokens of one message; `extra_texts` are texts outside its content (reasoning, say)."""
    tokens = MESSAGE_TOKENS + ROLE_TOKENS
    tokens += sum(count(text) for text in message.texts)
    tokens += sum(count(text) for text in extra_texts)
    is_legacy_result = message.role is Role.TOOL and message.answers is None
    tokens += FUNCTION_TOKENS if is_legacy_result else 0
    if message.name and (message.role is not Role.TOOL or is_legacy_result):  # others go by the name in their call
        tokens += count(message.name) + (NAME_TOKENS if message.name != message.role_name else 0)
    return tokens + _count_calls(message.tool_calls, count, costs) + sum(part.tokens for part in message.media)


def finish_message(message: Message, count: CountTokens) -> Message:
    """A message that a rule made or joined, with its tokens and its digest."""
    return replace(message, edited=True, tokens=count_message(message, count), digest=digest_message(message))


def _count_calls(calls: Sequence[ToolCall], count: CountTokens, costs: Costs) -> int:
    """The calls of one message, and what their names cost where they are answered.

    One alone is a message to its function; several are one call whose JSON holds them all.
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


def count_format(around: Surroundings, count: CountTokens, costs: Costs) -> int:
    """Prompt tokens of the response format and of the reply's frame."""
    formats = sum(map(count, around.format_texts)) + (FORMAT_TOKENS if around.format_texts else 0)
    return costs.priming_tokens + formats


def count_tools(around: Surroundings, count: CountTokens, costs: Costs) -> int:
    """Prompt tokens of the tools among them, and of what is said about their choice."""
    tokens = sum(count(text) + OTHER_TOOL_TOKENS for text in around.others)
    if around.functions or around.others:
        tokens += costs.tools_tokens
    if not around.functions:
        return tokens
    if not costs.reads_typescript:
        return tokens + count(around.functions_json)
    # Without references the text is hardly longer than the JSON; hostile ones double it at each level.
    max_chars = RENDERED_SHARE * len(around.functions_json) + RENDERED_CHARS
    tokens += count(render_tools(around.functions, nested_comments=costs.nested_comments, max_chars=max_chars))
    if around.choice == NO_CHOICE:
        return tokens + NO_CHOICE_TOKENS
    if around.choice is None or costs.is_reasoning:
        return tokens
    return tokens + NAMED_CHOICE_TOKENS + count(around.choice)


def count_shared_frame(first: Message, count: CountTokens, costs: Costs) -> int:
    """What a first message that is a system message costs more, or saves, where there are functions.

    They follow it in its own frame, behind a line break.
    """
    if first.role is not Role.SYSTEM or not costs.reads_typescript or costs.is_reasoning:
        return 0
    tail = first.texts[0][-TAIL_CHARS:] if first.texts else ""
    with_break = count(tail + "\n") - count(tail) if tail and not tail.endswith("\n") else 0
    return SYSTEM_TOKENS + with_break


def count_audio(base64_chars: int, *, is_wave: bool) -> int:
    """A bound of what audio costs, by the length of its base64 text."""
    return MEDIA_TOKENS + base64_chars // (WAVE_CHARS_PER_TOKEN if is_wave else AUDIO_CHARS_PER_TOKEN)


def count_file(base64_chars: int | None, *, is_text: bool = False) -> int:
    """A bound of what a file costs, by the length of its base64 text; a guess where only its name is known."""
    if base64_chars is None:
        return MEDIA_TOKENS + UNSEEN_FILE_TOKENS
    return MEDIA_TOKENS + base64_chars // (TEXT_CHARS_PER_TOKEN if is_text else FILE_CHARS_PER_TOKEN)
