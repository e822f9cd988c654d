"""Coding agents installed by `tests/clients/run`, with a single provider and without requests to any other host.

The tests do not trigger the agents' own compaction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
from clients.installed_clients import NODE

KEY = "sk-of-the-agent"


@dataclass(frozen=True, slots=True)
class CodingAgent:
    """How an agent is started.

    words: the arguments before the task.
    prepare: writes configuration into a home directory, and returns environment variables.
    window_tokens: a window with room left after the agent's system prompt and tools.
    """

    name: str
    program: Path
    words: tuple[str, ...]
    prepare: Callable[[Path, str], dict[str, str]]
    window_tokens: int


def _prepare_opencode(home: Path, base_url: str) -> dict[str, str]:
    settings = home / ".config" / "opencode"  # without it, opencode installs its plugin's types from the network
    (settings / "node_modules").mkdir(parents=True)
    root = {"dependencies": {"@opencode-ai/plugin": "*"}}
    (settings / "package-lock.json").write_bytes(orjson.dumps({"packages": {"": root}}))
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": base_url, "apiKey": KEY},
        "models": {"scripted": {"limit": {"context": 1_000_000, "output": 2048}, "tool_call": True}},
    }
    configuration = {
        "model": "trimtab/scripted",
        "provider": {"trimtab": provider},
        "enabled_providers": ["trimtab"],
        "autoupdate": False,
        "share": "disabled",
        "permission": {"*": "allow"},
    }
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE", "AUTOCOMPACT", "PRUNE")
    quiet = {f"OPENCODE_DISABLE_{name}": "1" for name in off}
    return quiet | {"OPENCODE_CONFIG_CONTENT": orjson.dumps(configuration).decode(), "CI": "1"}


def _prepare_qwen(home: Path, base_url: str) -> dict[str, str]:
    configuration = {
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "openai"}},
    }
    (home / ".qwen").mkdir()
    (home / ".qwen" / "settings.json").write_bytes(orjson.dumps(configuration))
    return {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "scripted", "CI": "1"}


AGENTS = (
    CodingAgent("opencode-ai", NODE / "node_modules/opencode-ai/bin/opencode.exe", ("run",), _prepare_opencode, 20_000),
    CodingAgent("@qwen-code/qwen-code", NODE / "node_modules/.bin/qwen", ("--yolo", "--prompt"), _prepare_qwen, 40_000),
)
