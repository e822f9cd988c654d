"""The configuration's keys for summaries.

Law: every key has a default.
"""

from typing import Literal

from pydantic import Field

from proxy.config.policies.tools import Section
from proxy.config.values import AutoTokens, OptionalName
from rules.policy import SummaryRole


class SummaryConfig(Section):
    """How trimtab asks a model for summaries."""

    model: OptionalName = Field(
        None,
        examples=["gpt-4.1-mini"],
        description="The model that writes summaries. null: the model of the request.",
    )
    upstream: OptionalName = Field(
        None,
        examples=["local"],
        description="The server that summaries are requested from: a name of upstreams. null: the server of the "
        "request.",
    )
    request: Literal["auto", "inline", "transcript"] = Field(
        "auto",
        description="The form of the request for a summary. inline: the forwarded messages with a question after them, "
        "so that the upstream's prompt cache is used. transcript: one user message that contains the transcript. auto: "
        "inline for the request's own model and server, unless the request has a response_format; else transcript.",
    )
    max_tokens: AutoTokens = Field(
        "auto",
        examples=[2000],
        description="The longest summary in tokens. auto: 1500 for windows up to 32000 tokens, 4000 at 128000, 8000 "
        "from 1000000 on.",
    )
    instructions: str | None = Field(
        None,
        min_length=1,
        max_length=4000,
        examples=["Write in English. Keep every ticket number."],
        description="Your own instructions for the summary, at most 4000 characters. They follow trimtab's and win if "
        "the two contradict each other. null: none.",
    )
    wait_seconds: float | None = Field(
        None,
        ge=0,
        examples=[10, 0],
        description="The time in seconds that a request which does not fit without the summary waits for it, at most "
        "timeout_seconds. After that, a digest made without a model takes its place. null: timeout_seconds. 0: no "
        "waiting.",
    )
    min_steps: int = Field(
        6, ge=1, description="The number of steps that must be removed before a model is asked. Fewer get a digest."
    )
    role: SummaryRole = Field(
        SummaryRole.AUTO,
        description="The message that contains the summary. auto: the first user message, after its text. user, "
        "system, assistant: a message of that role after it. pair: an assistant message, and a user message after it "
        "if that is needed for alternating roles.",
    )
    timeout_seconds: float = Field(
        60.0, gt=0, description="The time in seconds that one summary may take, its retries included."
    )
    temperature: float = Field(0.2, ge=0, le=2, description="The sampling temperature of the request for a summary.")
