"""What a message costs in prompt tokens, given a tokenizer.

Law: arithmetic only; the tokenizer comes in as `count`.
"""

from collections.abc import Iterable

from rules.conversation import CountTokens, Message

MESSAGE_TOKENS = 3
"""Frame of each message. Source: the OpenAI cookbook's formula, exact on 99 % of 659 recorded plain requests."""
ROLE_TOKENS = 1
NAME_TOKENS = 1
PRIMING_TOKENS = 3
"""Once per request, for the reply's own frame. Source: as above."""
CALL_TOKENS = 5
"""Per tool call, beyond its arguments and twice its name. Source: residuals of recorded requests."""
IMAGE_TOKENS = 1445
"""Upper bound of one image of unknown size in high detail (gpt-4o: 85 + 8 tiles of 170)."""
LOW_DETAIL_IMAGE_TOKENS = 85
MEDIA_BYTES_PER_TOKEN = 64
"""Audio and files: a rough bound by the size of their base64 text."""


def count_message(message: Message, count: CountTokens, extra_texts: Iterable[str] = ()) -> int:
    """Prompt tokens of one message; `extra_texts` are texts outside its content (reasoning, say)."""
    tokens = MESSAGE_TOKENS + ROLE_TOKENS
    tokens += sum(count(text) for text in message.texts)
    tokens += sum(count(text) for text in extra_texts)
    if message.name:
        tokens += NAME_TOKENS + count(message.name)
    for call in message.tool_calls:
        tokens += CALL_TOKENS + 2 * count(call.name) + count(call.arguments)
    return tokens + sum(count_media(part) for part in message.media)


def count_media(part: bytes) -> int:
    """Upper bound of the prompt tokens of a content part that is not text, given as JSON."""
    if b'"image' in part[:64] or b'"image_url"' in part:
        return LOW_DETAIL_IMAGE_TOKENS if b'"low"' in part[-64:] else IMAGE_TOKENS
    return MESSAGE_TOKENS + len(part) // MEDIA_BYTES_PER_TOKEN
