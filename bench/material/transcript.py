"""A long made-up agent session: one task, then call after call with its result.

Law: the same arguments make the same bytes. Sizes are approximate JSON bytes.
"""

import random
from collections.abc import Iterator

import orjson

LONG_RESULT_BYTES = 24_000
"""About 6,000 tokens. Chosen: over the default max_tool_result_tokens."""
_STEP_BYTES = 420
"""Approximate bytes of a step in addition to the text of its result."""
_TOOLS = ("read_file", "run_command", "search_code", "edit_file", "list_directory", "fetch_page")
_WORDS = (
    "config", "parser", "retry", "loader", "session", "token", "buffer", "request", "answer", "index", "cache",
    "store", "window", "prefix", "merge", "branch", "handler", "schema", "upstream", "client", "header", "socket",
    "thread", "lock", "queue", "batch", "event", "stream", "summary", "message", "result",
)  # fmt: skip
_LINES = (
    "    def {0}_{1}(self, {2}: str, *, {3}_bytes: int = {n}) -> {4} | None:",
    "        return self._{0}.get({1}, {2}) or {3}({4}={n})",
    "2026-11-21T10:{m:02d}:07Z INFO {0}.{1}: {2} took {n} ms ({3}={4})",
    "src/{0}/{1}_{2}.py:{n}: error: {3} has no attribute '{4}'  [attr-defined]",
    "tests/{0}/test_{1}.py::test_{2}_{3} PASSED [{m}%]",
    "The {0} of the {1} waits for the {2}, so the {3} must not hold the {4} for more than {n} ms.",
)


def build_body(total_bytes: int, *, steps: int = 175, long_results: int = 0, model: str = "bench") -> bytes:
    """The JSON of a request of about `total_bytes`; `long_results` of its results are over the truncation budget."""
    dice = random.Random(2026)  # noqa: S311 - no secret: the same text in every run
    long_at = {steps * (index + 1) // (long_results + 1) for index in range(long_results)}
    short_bytes = (total_bytes - long_results * LONG_RESULT_BYTES) // steps - _STEP_BYTES
    messages: list[object] = [
        {"role": "system", "content": "You are a careful engineer. " + _write_text(dice, 1500)},
        {"role": "user", "content": "Fix the failing tests of the loader. " + _write_text(dice, 600)},
    ]
    for step in range(steps):
        size = LONG_RESULT_BYTES if step in long_at else int(short_bytes * dice.uniform(0.25, 1.75))
        messages.extend(_write_step(dice, step, size))
    return orjson.dumps({"model": model, "messages": messages, "tools": [_describe_tool(name) for name in _TOOLS]})


def _write_step(dice: random.Random, step: int, result_bytes: int) -> Iterator[object]:
    name = dice.choice(_TOOLS)
    call_id = f"call_{step:06d}_{dice.getrandbits(64):016x}"
    path = f"src/{dice.choice(_WORDS)}/{dice.choice(_WORDS)}_{step}.py"
    arguments = orjson.dumps({"path": path, "pattern": dice.choice(_WORDS), "limit": dice.randrange(500)}).decode()
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    yield {"role": "assistant", "content": f"Next I look at {path}.", "tool_calls": [call]}
    yield {"role": "tool", "tool_call_id": call_id, "content": _write_text(dice, result_bytes)}


def _write_text(dice: random.Random, size_bytes: int) -> str:
    """Lines of code, logs and prose; two are equal only by chance."""
    lines: list[str] = []
    left = size_bytes
    while left > 0:
        words = dice.choices(_WORDS, k=5)
        lines.append(dice.choice(_LINES).format(*words, n=dice.randrange(10_000), m=dice.randrange(60)))
        left -= len(lines[-1]) + 2
    return "\n".join(lines)


def _describe_tool(name: str) -> object:
    text = {"type": "string", "description": f"what {name} works on, relative to the workspace"}
    limit = {"type": "integer", "description": "how many lines at most"}
    properties = {"path": text, "pattern": text, "limit": limit}
    parameters = {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": f"{name}, safely", "parameters": parameters}}
