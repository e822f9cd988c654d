"""Agents that `trimtab wrap` knows: what each one is given, and which server its key goes to."""

import stat
import tomllib
from pathlib import Path

import orjson
import pytest
from support.command_line import tell
from support.golden import check_golden

from trimtab.proxy.cli.serving.agents import AGENTS, CHATGPT, Wiring, find_agent

PROXY = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
"""What every wrapped command gets."""
OURS = "https://ours.test/openai"


def lead(home: Path, *command: str, **environment: str) -> Wiring:
    found = find_agent(command, {"HOME": str(home), **environment})
    return found[0].wire(found[1])


def write(home: Path, name: str, text: str) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)


def read_options(arguments: tuple[str, ...]) -> dict[str, object]:
    """The settings that Codex makes of its options."""
    assert arguments[::2] == ("-c",) * (len(arguments) // 2)
    settings: dict[str, object] = {}
    for one in arguments[1::2]:
        path, _, value = one.partition("=")
        settings[path] = tomllib.loads(f"value = {value}")["value"]
    return settings


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


def test_codex_gets_a_provider_of_its_own(tmp_path: Path) -> None:
    """That of OpenAI would use a WebSocket. A variable that Codex does not read names no server."""
    led = lead(tmp_path, "codex", OPENAI_API_KEY="k", OPENAI_BASE_URL=OURS, AZURE_OPENAI_ENDPOINT=OURS)
    assert not led.warning
    assert led.environment == {"HOME": str(tmp_path), "OPENAI_API_KEY": "k"}
    settings = read_options(led.write(dict(PROXY)))
    provider = settings["model_providers.trimtab"]
    assert (settings["model_provider"], provider["base_url"]) == ("trimtab", PROXY["OPENAI_BASE_URL"])
    assert (provider["wire_api"], provider["env_key"]) == ("responses", "OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("login", "environment", "server"),
    [
        ({"OPENAI_API_KEY": None, "tokens": {"access_token": "t"}}, {}, CHATGPT),
        ({"auth_mode": "chatgpt", "tokens": {}}, {"OPENAI_API_KEY": "k"}, CHATGPT),
        ({"OPENAI_API_KEY": "k"}, {}, None),
        ({}, {"CODEX_API_KEY": "k", "OPENAI_API_KEY": "other"}, None),
        ({}, {}, None),
    ],
)
def test_codex_keeps_its_login(
    login: dict[str, object], environment: dict[str, str], server: str | None, tmp_path: Path
) -> None:
    """A token of ChatGPT goes to ChatGPT's server, a key to OpenAI's."""
    write(tmp_path, ".codex/auth.json", orjson.dumps(login).decode())
    led = lead(tmp_path, "codex", **environment)
    assert led.environment.get("OPENAI_BASE_URL") == server
    provider = read_options(led.write(dict(PROXY)))["model_providers.trimtab"]
    assert provider["requires_openai_auth"] is True
    assert "env_key" not in provider


CONFIG = f"""
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


@pytest.mark.parametrize(
    ("arguments", "server", "place"),
    [
        ((), OURS, "model_providers.ours.base_url"),
        (("exec", "-p", "plain"), None, "model_provider"),
        (("--profile=plain",), None, "model_provider"),
        (("-c", "model_provider=openai"), None, "model_provider"),
        (
            ("-c", "model_provider='openai'", "-c", 'openai_base_url="https://o.test/v1"'),
            "https://o.test/v1",
            "model_provider",
        ),
        (("-c", "model_providers.ours.base_url=https://b.test"), "https://b.test", "model_providers.ours.base_url"),
        (("--profile", "file"), "https://f.test", "model_providers.ours.base_url"),
        (("exec", "--", "-p", "plain"), OURS, "model_providers.ours.base_url"),
        (("-p", "lost"), None, None),
        (("--oss",), None, None),
        (("--oss", "-c", "oss_provider=ours"), OURS, "model_providers.ours.base_url"),
    ],
)
def test_codex_asks_the_provider_that_its_settings_name(
    arguments: tuple[str, ...], server: str | None, place: str | None, tmp_path: Path
) -> None:
    """Options win over the profile, the profile over the file. What has no base URL cannot be led, and that is said."""
    write(tmp_path, "conf/config.toml", CONFIG)
    write(tmp_path, "conf/file.config.toml", '[model_providers.ours]\nbase_url = "https://f.test"\n')
    led = lead(tmp_path, "codex", *arguments, CODEX_HOME=str(tmp_path / "conf"))
    assert led.environment.get("OPENAI_BASE_URL") == server
    assert bool(led.warning) == (place is None)
    written = led.write(dict(PROXY))
    assert (place in read_options(written)) if place else written == ()


def test_broken_settings_are_the_agents_own_business(tmp_path: Path) -> None:
    """It starts, and says so itself."""
    write(tmp_path, ".codex/config.toml", "= broken")
    write(tmp_path, ".codex/auth.json", "[")
    write(tmp_path, ".claude/settings.json", "[]")
    write(tmp_path, ".config/goose/config.yaml", "{: [")
    assert read_options(lead(tmp_path, "codex").write(dict(PROXY)))["model_provider"] == "trimtab"
    for name in ("claude", "goose"):
        assert not lead(tmp_path, name).warning


def test_claude_code_asks_the_server_that_its_files_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They win over the environment, so it gets settings that win over them. The project's files win."""
    monkeypatch.chdir(tmp_path)
    assert lead(tmp_path, "claude").write(dict(PROXY)) == ()
    write(tmp_path, "home/.claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "https://user.test"}}')
    write(tmp_path, ".claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "https://project.test"}}')
    led = lead(tmp_path / "home", "claude", ANTHROPIC_BASE_URL="https://variable.test")
    assert led.environment["ANTHROPIC_BASE_URL"] == "https://project.test"
    option, value = led.write(dict(PROXY))
    assert (option, orjson.loads(value)) == ("--settings", {"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}})
    assert "remove one" in lead(tmp_path / "home", "claude", "--settings", "{}").warning


def test_claude_code_at_another_cloud_is_warned_of(tmp_path: Path) -> None:
    """It would not read the base URL."""
    warned = [bool(lead(tmp_path, "claude", CLAUDE_CODE_USE_BEDROCK=value).warning) for value in ("1", "0", "")]
    assert warned == [True, False, False]


GOOSE = "GOOSE_PROVIDER: openai\nOPENAI_HOST: https://file.test\nANTHROPIC_HOST: https://a.test\n"


@pytest.mark.parametrize(
    ("environment", "server"),
    [
        ({}, "https://file.test/v1"),
        ({"OPENAI_HOST": "https://host.test/", "OPENAI_BASE_PATH": "x/v1/chat/completions"}, "https://host.test/x/v1"),
        ({"OPENAI_BASE_URL": OURS}, OURS),
        ({"OPENAI_BASE_URL": OURS, "OPENAI_HOST": "https://host.test"}, "https://host.test/v1"),
    ],
)
def test_goose_asks_the_host_that_it_would_have_asked(environment: dict[str, str], server: str, tmp_path: Path) -> None:
    """Its variables win over its file, and OPENAI_HOST over OPENAI_BASE_URL."""
    write(tmp_path, ".config/goose/config.yaml", GOOSE)
    led = lead(tmp_path, "goose", "session", **environment)
    assert (led.environment["OPENAI_BASE_URL"], led.environment["ANTHROPIC_BASE_URL"]) == (server, "https://a.test")
    written = dict(PROXY)
    assert led.write(written) == ()
    assert (written["OPENAI_HOST"], written["ANTHROPIC_HOST"]) == ("http://127.0.0.1:1", "http://127.0.0.1:1")
    assert written["OPENAI_BASE_PATH"] == "v1/chat/completions"
    assert "groq" in lead(tmp_path, "goose", **environment, GOOSE_PROVIDER="groq").warning


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
