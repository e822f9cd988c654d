"""The configuration's keys for which requests are compacted.

Law: the end of a path decides its dialect; these keys are for what it cannot tell.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from proxy.config.policies.tools import Section
from proxy.config.values import RootedPath, require

Dialect = Literal["chat", "responses", "messages"]


def _check_odd_path(path: str) -> str:
    require("*" not in path and path != "/", "must be the whole path of requests, without *")
    return path.removesuffix("/")


class CompactionConfig(Section):
    """Which further requests are compacted, and which prompts are counted."""

    paths: dict[Annotated[RootedPath, AfterValidator(_check_odd_path)], Dialect] = Field(
        {},
        examples=[{"/llm/generate": "chat"}],
        description="The dialect of POST requests at other paths: chat, responses or messages. Paths that end in "
        "/chat/completions, /responses or /messages need no entry, whatever precedes that.",
    )
    count_tokens: Literal["forwarded", "passed"] = Field(
        "forwarded",
        description="The prompt that POST .../messages/count_tokens counts. forwarded: what trimtab would forward. "
        "passed: the client's own; the request passes unchanged.",
    )
