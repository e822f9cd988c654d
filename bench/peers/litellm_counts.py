"""LiteLLM's side of the bench: its token counts, remembered. Runs inside LiteLLM's environment.

Law: the counts are LiteLLM's own. Its trimming counts everything that it keeps again for every message that it tries,
which takes minutes for a long session. Its count of a list is the sum of its messages' counts and a constant, so here
each message is counted once.
"""

from functools import cache, lru_cache
from typing import Any

import litellm.utils
from litellm.litellm_core_utils import token_counter

REMEMBERED_TEXTS = 100_000


@cache
def remember_counts() -> None:
    """From now on, count a text once in the process, and a message once until `forget_messages`."""
    token_counter._encoding_count = lru_cache(REMEMBERED_TEXTS)(token_counter._encoding_count)  # noqa: SLF001
    litellm.utils.get_token_count = _count_list


def forget_messages() -> None:
    """Call it between two calls of `trim_messages`: messages are known by their identity."""
    _counts.clear()


_counts: dict[tuple[int, Any], int] = {}


def _count_list(messages: list[dict[str, Any]], model: str | None) -> int:
    nothing = _count_one(None, model)
    return nothing + sum(_count_one(message, model) - nothing for message in messages)


def _count_one(message: dict[str, Any] | None, model: str | None) -> int:
    """The count of a list of one message, or of none. The text is in the key: shortening keeps a message's identity."""
    content = message.get("content") if message else None
    key = (id(message), content if isinstance(content, str) else id(content))
    if key not in _counts:
        _counts[key] = token_counter.token_counter(model=model, messages=[message] if message else [])
    return _counts[key]
