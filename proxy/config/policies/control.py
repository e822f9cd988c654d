"""The keys of a policy that decide where a request goes, what is done with it, and what is sent at all.

Law: every key has a default.
"""

from typing import Annotated, Literal

from pydantic import Field

from proxy.config.policies.prices import AutoPrices
from proxy.config.policies.tools import Section
from proxy.config.values import NameGlob, OptionalName

MODES = ("off", "observe", "enforce")
"""Ordered from the mode that does least to the mode that does most."""


class ControlConfig(Section):
    """The part of a policy that the shell needs; the rules see nothing of it."""

    upstream: OptionalName = Field(
        None,
        examples=["local"],
        description="The server that requests go to: a name of upstreams. null: the main server, upstream.",
    )
    mode: Literal["enforce", "observe", "off"] | None = Field(
        None,
        examples=["observe"],
        description="The mode of these requests: enforce, observe or off, as in the key mode at the top. A profile "
        "never does more than the mode that the matching entry of models sets. null: the value of the key at the top.",
    )
    prices: AutoPrices | None = Field(
        None,
        examples=[{"cached_input": 0.02, "output": 1.5}],
        description="What tokens cost, as in the key prices at the top. auto: the catalogue's prices. null: those of "
        "the upstream.",
    )
    observe_share: float = Field(
        0.0,
        ge=0,
        le=1,
        examples=[0.9],
        description="The share of sessions that are only observed in mode enforce. The session's first user message "
        "decides, so a session always stays on one side. 0: none. 1: all.",
    )
    pairing: Literal["repair", "refuse"] = Field(
        "repair",
        description="What happens to a request with a tool call without a result, or a result without a call. repair: "
        "a result is added, or the odd result is dropped. refuse: answer 400 unpaired_tool_calls in mode enforce.",
    )
    drop_tools: tuple[NameGlob, ...] = Field(
        (),
        examples=[["mcp__jira__*"]],
        description="Globs on names of tools. Their declarations are not sent. A tool that the conversation has called "
        "already stays.",
    )
    local_items: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        ("ghost_snapshot",),
        description="Types of input items that belong to the client alone. They are not counted and not sent. Only "
        "requests of the Responses API have such items.",
    )
