"""Agents that `trimtab wrap` knows: what each one is given, and which server its key goes to."""

import stat
from pathlib import Path

import orjson
import pytest
from support.command_line import tell
from support.golden import check_golden

from trimtab.proxy.cli.serving.agents import AGENTS, Wiring, find_agent

PROXY = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
"""What every wrapped command gets."""
OURS = "https://ours.test/openai"


def lead(home: Path, *command: str, **environment: str) -> Wiring:
    found = find_agent(command, {"HOME": str(home), **environment})
    return found[0].wire(found[1])


def write(home: Path, name: str, text: str) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)


@pytest.mark.parametrize(
    ("command", "program", "at"),
    [
        (("codex", "exec", "claude"), "codex", 1),
        (("/opt/bin/claude", "-p", "codex"), "claude", 1),
        (("npx", "-y", "@openai/codex@latest", "exec"), "codex", 3),
        (("uvx", "aider-chat"), "aider", 2),
        (("npx", "--yes"), None, 0),
        (("python", "codex"), None, 0),
        ((), None, 0),
    ],
)
def test_an_agent_is_known_by_its_program(command: tuple[str, ...], program: str | None, at: int) -> None:
    """Also after a runner of packages; its own arguments begin behind it."""
    found = find_agent(command, {})
    assert (None if found is None else (found[0].programs[0], found[1].at)) == (program and (program, at))


def test_the_list_names_every_program_and_what_cannot_be_led_says_what_to_do(tmp_path: Path) -> None:
    """The list fits a narrow terminal; what leads an agent stands in a column of its own."""
    programs = [name for agent in AGENTS for name in agent.programs]
    assert len(set(programs)) == len(programs)
    texts = {"the list": tell("wrap", COLUMNS="60")}
    told = {name: lead(tmp_path, name) for name in programs if name != "opencode"}
    warned = {name: led.warning for name, led in told.items() if led.warning}
    assert {led.write({}) for name, led in told.items() if name in warned} == {()}
    check_golden("commands/wrap", texts | warned)


CODEX = f"""
model_provider = "ours"
[model_providers.ours]
base_url = "{OURS}"
[model_providers.nowhere]
name = "x"
[profiles.plain]
model_provider = "openai"
[profiles.lost]
model_provider = "nowhere"
"""
FOLDERS = {
    "login": (".codex/auth.json", '{"OPENAI_API_KEY": null, "tokens": {"access_token": "t"}}'),
    "login by ChatGPT": (".codex/auth.json", '{"auth_mode": "chatgpt", "tokens": {}}'),
    "key": (".codex/auth.json", '{"OPENAI_API_KEY": "k"}'),
    "broken codex": (".codex/config.toml", "= broken"),
    "broken login": (".codex/auth.json", "["),
    "broken claude": (".claude/settings.json", "[]"),
    "broken goose": (".config/goose/config.yaml", "{: ["),
    "providers": (".codex/config.toml", CODEX),
    "a profile": (".codex/file.config.toml", '[model_providers.ours]\nbase_url = "https://f.test"\n'),
    "claude": (".claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "https://user.test"}}'),
    "goose": (
        ".config/goose/config.yaml",
        "OPENAI_HOST: https://file.test\nANTHROPIC_HOST: https://a.test",
    ),
    "nothing": ("none", ""),
}
LED: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("nothing", "codex", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": OURS, "AZURE_OPENAI_ENDPOINT": OURS}),
    ("login", "codex", {}),
    ("login by ChatGPT", "codex", {"OPENAI_API_KEY": "k"}),
    ("key", "codex", {}),
    ("nothing", "codex", {"CODEX_API_KEY": "k", "OPENAI_API_KEY": "other"}),
    ("broken codex", "codex", {}),
    ("broken login", "codex", {}),
    ("providers", "codex", {}),
    ("providers", "codex exec -p plain", {}),
    ("providers", "codex --profile=plain", {}),
    ("providers", "codex -c model_provider=openai", {}),
    ("providers", "codex -c model_provider='openai' -c openai_base_url=\"https://o.test/v1\"", {}),
    ("providers", "codex -c model_providers.ours.base_url=https://b.test", {}),
    ("providers", "codex exec -- -p plain", {}),
    ("providers", "codex -p lost", {}),
    ("providers", "codex --oss", {}),
    ("providers", "codex --oss -c oss_provider=ours", {}),
    ("a profile", "codex --profile file -c model_provider=ours", {}),
    ("nothing", "claude", {}),
    ("nothing", "claude", {"CLAUDE_CODE_USE_BEDROCK": "1"}),
    ("nothing", "claude", {"CLAUDE_CODE_USE_BEDROCK": "0"}),
    ("broken claude", "claude", {}),
    ("claude", "claude", {"ANTHROPIC_BASE_URL": "https://variable.test"}),
    ("claude", "claude --settings {}", {}),
    ("goose", "goose session", {}),
    ("goose", "goose", {"OPENAI_HOST": "https://host.test/", "OPENAI_BASE_PATH": "x/v1/chat/completions"}),
    ("goose", "goose", {"OPENAI_BASE_URL": OURS}),
    ("goose", "goose", {"OPENAI_BASE_URL": OURS, "OPENAI_HOST": "https://host.test"}),
    ("goose", "goose", {"GOOSE_PROVIDER": "groq"}),
    ("broken goose", "goose", {}),
)


def test_an_agent_asks_the_server_that_it_would_have_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options win over its profile, that over its file, and for Goose variables over the file. A login stays.

    What cannot be led is said. Broken settings are the agent's own business: it starts, and says so itself. Codex gets
    a provider of its own: that of OpenAI would use a WebSocket. Claude Code gets settings, which win over its files.
    """
    monkeypatch.chdir(tmp_path)
    told = {}
    for folder, command, variables in LED:
        write(tmp_path / folder, *FOLDERS[folder])
        led = lead(tmp_path / folder, *command.split(), **variables)
        written = dict(PROXY)
        options = led.write(written)
        kept = {name: value for name, value in led.environment.items() if name != "HOME"}
        figures = {"asks": kept, "gets": written | {"options": options}, "warning": led.warning}
        lines = [f"{name}: {one}" for name, one in figures.items() if one]
        told[f"{folder}: {command} {variables or ''}"] = "\n".join(lines)
    check_golden("commands/wrap-agents", told)


def test_the_projects_files_of_claude_code_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "home", *FOLDERS["claude"])
    write(tmp_path, ".claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "https://project.test"}}')
    assert lead(tmp_path / "home", "claude").environment["ANTHROPIC_BASE_URL"] == "https://project.test"


def install_opencode(folder: Path, settings: object, status: int = 0) -> str:
    program = folder / "opencode"
    said = orjson.dumps(settings).decode()
    program.write_text(f"#!/bin/sh\n[ \"$1 $2\" = 'debug config' ] && echo '{said}'\nexit {status}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


OPENCODE = {
    "model": "ours/m",
    "provider": {
        "ours": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": OURS, "apiKey": "PLANTED"}},
        "claudes": {"npm": "@ai-sdk/anthropic", "options": {"baseURL": "https://c.test/v1"}},
    },
}


@pytest.mark.parametrize(
    ("arguments", "variable", "server", "provider", "base_url"),
    [
        ((), "OPENAI_BASE_URL", OURS, "ours", "http://127.0.0.1:1/v1"),
        (("run", "-m", "claudes/x"), "ANTHROPIC_BASE_URL", "https://c.test/v1", "claudes", "http://127.0.0.1:1/v1"),
        (("--model=openai/x",), "OPENAI_BASE_URL", None, "openai", "http://127.0.0.1:1/v1"),
    ],
)
def test_opencode_is_led_for_the_provider_of_its_model(
    arguments: tuple[str, ...], variable: str, server: str | None, provider: str, base_url: str, tmp_path: Path
) -> None:
    """Its key stays where it was. What the user gave in the same variable stays, too."""
    given = '{"share": "disabled", "provider": {"ours": {"name": "Ours"}}}'
    program = install_opencode(tmp_path, OPENCODE)
    led = lead(tmp_path, program, *arguments, OPENCODE_CONFIG_CONTENT=given)
    assert not led.warning
    assert led.environment.get(variable) == server
    written = dict(PROXY)
    assert led.write(written) == ()
    content = orjson.loads(written["OPENCODE_CONFIG_CONTENT"])
    assert content["provider"][provider]["options"] == {"baseURL": base_url}
    assert content["share"] == "disabled"
    assert "PLANTED" not in str(written)


def test_opencode_says_what_it_cannot_be_led_for(tmp_path: Path) -> None:
    """A provider without a base URL, or a program that does not tell its settings."""
    assert "other is not led" in lead(tmp_path, install_opencode(tmp_path, OPENCODE), "-m", "other/x").warning
    assert "does not tell" in lead(tmp_path, install_opencode(tmp_path, OPENCODE, status=1)).warning
