"""Runs inside LiteLLM's environment: requests in, its counts out, a JSON line each; null if it raises an error.

It counts messages, tools and the tool choice; it has no way to count a response format.
"""

import json  # noqa: TID251 - trimtab is not installed in this environment
import sys
from typing import Any

from litellm import token_counter


def count(request: dict[str, Any]) -> int | None:
    """LiteLLM's count of a request; None if it raises an error.

    It uses a default count for images that are given by a URL, because there is no network to fetch them.
    """
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
    except Exception:  # noqa: BLE001 - any error means that there is no count
        return None
    return tokens


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(count(json.loads(line))), flush=True)
