"""Runs inside LiteLLM's own environment: requests in, its counts out, a JSON line each; null where it raises an error.

It takes messages, tools and the tool choice; there is nothing in it for a response format.
"""

import json  # noqa: TID251 - no package of ours is in this environment
import sys
from typing import Any

from litellm import token_counter


def count(request: dict[str, Any]) -> int | None:
    """LiteLLM's count of a request. It would fetch images that are named by an address, and there is no network."""
    messages = request["messages"]
    is_remote = '"url": "http' in json.dumps(messages)
    try:
        tokens: int = token_counter(
            model=request["model"],
            messages=messages,
            tools=request.get("tools"),
            tool_choice=request.get("tool_choice"),
            use_default_image_token_count=is_remote,
        )
    except Exception:  # noqa: BLE001 - whatever it is, there is no count
        return None
    return tokens


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(count(json.loads(line))), flush=True)
