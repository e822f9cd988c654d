"""Coding agents installed by `tests/clients/run`, with a single provider and without requests to any other host.

The tests do not trigger the agents' own compaction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
from clients.agent_tools import Tools, fit_by_name, fit_codex
from clients.installed_clients import NODE, skip_without
from upstreams.scripted import Call

KEY = "sk-of-the-agent"
BINARIES = NODE / "node_modules" / ".bin"


@dataclass(frozen=True, slots=True)
class CodingAgent:
    """How an agent is started.

    words: the arguments before the task.
    prepare: writes configuration into a home directory, and returns environment variables.
    window_tokens: a window with room left after the agent's system prompt and tools.
    fit: puts a call of the script in terms of the agent's own tools.
    dialect: the API that the agent speaks.
    """

    name: str
    program: Path
    words: tuple[str, ...]
    prepare: Callable[[Path, str], dict[str, str]]
    window_tokens: int
    fit: Callable[[Call, Tools], Call] = fit_by_name
    dialect: str = "chat"

    @property
    def parameter(self) -> object:
        """The agent as a test parameter. The test is skipped if the agent is not installed."""
        return pytest.param(self, id=self.name, marks=skip_without(self.name, self.program))


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


def _prepare_codex(model: str) -> Callable[[Path, str], dict[str, str]]:
    def prepare(home: Path, base_url: str) -> dict[str, str]:
        (home / ".codex").mkdir()
        (home / ".codex" / "config.toml").write_text(
            f"""model = "{model}"
model_provider = "trimtab"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.trimtab]
name = "trimtab"
base_url = "{base_url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
        )
        return {"OPENAI_API_KEY": KEY}

    return prepare


def _prepare_claude(_home: Path, base_url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4000",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",  # it skips permissions as root only in a sandbox
    }


def _codex(name: str, model: str, window_tokens: int) -> CodingAgent:
    words = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    return CodingAgent(name, BINARIES / "codex", words, _prepare_codex(model), window_tokens, fit_codex, "responses")


OPENCODE = NODE / "node_modules/opencode-ai/bin/opencode.exe"
CLAUDE = ("--print", "--dangerously-skip-permissions")
AGENTS = (
    CodingAgent("opencode-ai", OPENCODE, ("run",), _prepare_opencode, 20_000),
    CodingAgent("@qwen-code/qwen-code", BINARIES / "qwen", ("--yolo", "--prompt"), _prepare_qwen, 40_000),
    _codex("@openai/codex", "gpt-5.5", 26_000),
    _codex("@openai/codex with tools as items", "gpt-6.1-sol", 28_000),
    CodingAgent("@anthropic-ai/claude-code", BINARIES / "claude", CLAUDE, _prepare_claude, 28_000, dialect="messages"),
)
