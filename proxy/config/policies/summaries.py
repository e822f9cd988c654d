"""The configuration's keys for summaries.

Law: every key has a default.
"""

from typing import Literal

from pydantic import Field

from proxy.config.policies.tools import Section
from proxy.config.values import AutoTokens, OptionalName
from rules.policy import SummaryRole


class SummaryConfig(Section):
    """How summaries are asked for."""

    model: OptionalName = Field(None, description="null: the request's own model")
    upstream: OptionalName = Field(None, description="null: the request's own; else one of upstreams")
    request: Literal["auto", "inline", "transcript"] = Field(
        "auto", description="auto | inline (behind what was forwarded, in the prompt cache) | transcript (on its own)"
    )
    max_tokens: AutoTokens = Field(
        "auto", description="of one summary; auto: grows with the window, 1500 at 32k, 4000 at 128k, 8000 at 1M"
    )
    instructions: str | None = Field(
        None, min_length=1, max_length=4000, description="your own words, added to the prompt"
    )
    wait_seconds: float | None = Field(
        None,
        ge=0,
        description="a request waits for a summary so long; null: timeout_seconds; 0: never, a list stands in",
    )
    min_steps: int = Field(6, ge=1, description="fewer than this are never worth a summary")
    role: SummaryRole = Field(
        SummaryRole.AUTO,
        description="who speaks it: auto (with the task, valid everywhere) | user | system | assistant | pair",
    )
    timeout_seconds: float = Field(60.0, gt=0, description="of one summary, its retries included")
    temperature: float = Field(0.2, ge=0, le=2, description="of the summariser")
