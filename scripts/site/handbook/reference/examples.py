"""An example value for each key of the configuration: the schema's example, else one of these, else another choice.

A test validates each example, and demands one for each key.
"""

from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from trimtab.proxy.config.policy import Description
from trimtab.proxy.config.values import Slot

EXAMPLES: dict[str, Any] = {
    "metrics_path": "/prometheus",
    "store_ttl_seconds": 86_400,
    "prices.input": 2.5,
    "prices.cached_input": 0.25,
    "prices.cache_write": 3,
    "prices.output": 10,
    "upstream.connect_timeout_seconds": 5,
    "upstream.read_timeout_seconds": 1200,
    "limits.max_body_bytes": 67_108_864,
    "limits.max_concurrent_requests": 256,
    "limits.max_memory_bytes": 4_294_967_296,
    "limits.max_held_bytes": 268_435_456,
    "limits.max_plan_seconds": 5,
    "limits.client_silence_seconds": 120,
    "limits.shutdown_delay_seconds": 5,
    "limits.drain_seconds": 60,
    "defaults.completion_reserve": 4096,
    "defaults.max_tool_result_tokens": 2000,
    "defaults.protect_turns": 3,
    "defaults.keep_user_tokens": 8000,
    "defaults.instruction_files": ["AGENTS.md", "CONTRIBUTING.md"],
    "defaults.local_items": ["ghost_snapshot", "ui_state"],
    "defaults.tools.*.max_tool_result_tokens": 1500,
    "defaults.tools.*.max_tool_result_bytes": 20_000,
    "defaults.tools.*.truncation": "head_tail",
    "defaults.tools.*.tidy": False,
    "defaults.summary.min_steps": 10,
    "defaults.summary.timeout_seconds": 120,
    "defaults.summary.temperature": 0,
}
"""By dotted path. Chosen: values that a reader may meet. They are not recommendations."""


def find_example(path: str, field: FieldInfo, said: Description, slot: Slot) -> Any:
    """An example for the key at a dotted path; None if there is none."""
    if said.examples:
        return said.examples[0]
    others = [choice for choice in _list_choices(slot.kind) if choice != field.default]
    return EXAMPLES.get(path, others[0] if others else None)


def _list_choices(kind: Any) -> list[Any]:
    if kind is bool:
        return [False, True]
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return list(kind) if isinstance(kind, type) and issubclass(kind, Enum) else []
