"""The configuration's context windows that hold only for some requests.

Law: a request's headers and its endpoint alone decide.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field

from proxy.config.policies.tools import Section
from proxy.config.values import MIN_CONTEXT_WINDOW


class WindowConfig(Section):
    """A context window for the requests that match all of its conditions."""

    header: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        examples=["anthropic-beta"],
        description="The name of a header that the request must have. null: any request.",
    )
    value: Annotated[str, Field(min_length=1)] = Field(
        "*",
        examples=["*context-1m-*"],
        description="A glob on the value of that header. A header that is repeated matches if one of its values does.",
    )
    endpoint: Literal["chat", "responses", "messages"] | None = Field(
        None,
        examples=["responses"],
        description="The API that the request must be of: chat, responses or messages. null: any.",
    )
    tokens: int = Field(ge=MIN_CONTEXT_WINDOW, examples=[1_000_000], description="The context window in tokens.")

    def matches(self, headers: Iterable[tuple[str, str]], endpoint: str) -> bool:
        """Whether a request with these headers matches."""
        if self.endpoint is not None and self.endpoint != endpoint:
            return False
        if self.header is None:
            return True
        wanted = self.header.lower()
        return any(name.lower() == wanted and fnmatchcase(value, self.value) for name, value in headers)
