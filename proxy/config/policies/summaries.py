"""The configuration's keys for summaries.

Law: every key has a default.
"""

from typing import Literal

from pydantic import Field

from proxy.config.policies.tools import Section
from proxy.config.values import AutoTokens, OptionalName, SummaryModels
from rules.policy import SummaryRole


class SummaryConfig(Section):
    """How trimtab asks a model for summaries."""

    model: SummaryModels = Field(
        None,
        examples=["gpt-4.1-mini", ["gpt-4.1-mini", "gpt-4o-mini"]],
        description="The model that writes summaries, or a list: if the first one writes none or is overloaded, the "
        "next one is asked. null: the model of the request.",
    )
    upstream: OptionalName = Field(
        None,
        examples=["local"],
        description="The server that summaries are requested from: a name of upstreams. null: the server of the "
        "request.",
    )
    request: Literal["auto", "inline", "transcript"] = Field(
        "auto",
        description="The form of the request for a summary. inline: the forwarded messages and a question after them, "
        "so that the upstream's prompt cache is used. transcript: one user message that contains the transcript. auto: "
        "at present the same as inline. transcript is used if inline is not possible: another model or server is "
        "asked, the request has a response_format, or the messages do not fit the window.",
    )
    max_tokens: AutoTokens = Field(
        "auto",
        examples=[2000],
        description="The longest summary in tokens. auto: 1500 for windows up to 32000 tokens, 4000 for 128000, 8000 "
        "for 1000000 and more.",
    )
    instructions: str | None = Field(
        None,
        min_length=1,
        max_length=4000,
        examples=["Write in English. Keep every ticket number."],
        description="Your own instructions for the summary, at most 4000 characters. They are added to trimtab's, and "
        "override them if the two contradict each other. null: none.",
    )
    wait_seconds: float | None = Field(
        None,
        ge=0,
        examples=[10, 0],
        description="If a request does not fit without a new summary, it waits for the summary for this time in "
        "seconds, at most timeout_seconds. After that, a digest made without a model replaces the summary. null: "
        "timeout_seconds. 0: no waiting.",
    )
    min_steps: int = Field(
        6,
        ge=1,
        description="The least number of steps that a cut must remove for a model to be asked. Fewer get a digest.",
    )
    role: SummaryRole = Field(
        SummaryRole.AUTO,
        description="The message that contains the summary. auto: the first user message, after its text. user, "
        "system, assistant: a message of that role after the first user message. pair: an assistant message, followed "
        "by a user message if roles would not alternate otherwise.",
    )
    timeout_seconds: float = Field(
        60.0, gt=0, description="The time in seconds that one summary may take, including its retries."
    )
    temperature: float | None = Field(
        0.2,
        ge=0,
        le=2,
        examples=[0.5],
        description="The sampling temperature of the request for a summary. null: none is sent.",
    )

    @property
    def models(self) -> tuple[str, ...]:
        """The models to ask, in order; empty for the model of the request."""
        return (self.model,) if isinstance(self.model, str) else self.model or ()
