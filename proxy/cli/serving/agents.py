"""Agents that `trimtab wrap` knows: how each one finds its server, and how it is led to the proxy instead.

Law: an agent's own files are read and never written. Its key goes to the server that it would have asked without
trimtab. What cannot be led is said before the agent starts.

The settings were tried with Codex 0.171.0, Claude Code 2.1.332 and opencode 1.18.33. Those of goose are in its source
(`openai_def.rs`, `anthropic_def.rs` and `config/base.rs`, 2026-11).
"""

import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import orjson
import yaml

OPENAI, ANTHROPIC = "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"
CHATGPT = "https://chatgpt.com/backend-api/codex"
"""The server of Codex after a login with ChatGPT. Source: `codex-rs/model-provider-info`."""
_OPENAIS_NAMES = (OPENAI, "OPENAI_API_BASE", "AZURE_OPENAI_ENDPOINT", "AZURE_API_BASE")
_RUNNERS = frozenset({"npx", "bunx", "pnpx", "uvx"})
_DEBUG_SECONDS = 30.0  # For opencode to print its settings. Chosen: it takes 2 seconds on a busy machine.

Environment = Mapping[str, str]
Write = Callable[[dict[str, str]], tuple[str, ...]]
"""Sets further variables in an environment that has the proxy's URLs; returns further arguments."""


class Wiring(msgspec.Struct, frozen=True):
    """How an agent is led to the proxy.

    environment: the user's, with the variables that name the agent's servers as its own settings name them.
    write: what it needs besides the variables that every command gets.
    warning: why its requests do not come through the proxy, and what to do; empty if they do.
    """

    environment: Environment
    write: Write = msgspec.field(default=lambda _: ())
    warning: str = ""


class Agent(msgspec.Struct, frozen=True):
    """An agent that is known. `way`: how it is led, for people."""

    programs: tuple[str, ...]
    way: str
    wire: Callable[["AgentCommand"], Wiring] = msgspec.field(default=lambda start: Wiring(start.environment))


class AgentCommand(msgspec.Struct, frozen=True):
    """A command as the user gave it. `at`: where the agent's own arguments begin, after a runner such as npx."""

    command: tuple[str, ...]
    at: int
    environment: Environment

    def warn(self, why: str) -> Wiring:
        return Wiring(self.environment, warning=why)

    @property
    def home(self) -> Path:
        return Path(self.environment.get("HOME") or Path.home())

    def find_folder(self, variable: str, usual: str) -> Path:
        return Path(self.environment.get(variable) or self.home / usual)

    def list_values(self, *names: str) -> list[str]:
        """The values of an option with these names, `--name value` and `--name=value`, up to `--`."""
        arguments = self.command[self.at :]
        arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
        found = [value for name, value in pairwise(arguments) if name in names]
        return found + [one.partition("=")[2] for one in arguments if one.partition("=")[0] in names and "=" in one]


def find_agent(command: Sequence[str], environment: Environment) -> tuple[Agent, AgentCommand] | None:
    words = list(enumerate(command))
    if words and Path(command[0]).name in _RUNNERS:
        words = [(at, word) for at, word in words[1:] if not word.startswith("-")]
    if not words:
        return None
    at, word = words[0]
    name = Path(word.removesuffix("@latest")).name
    agent = next((agent for agent in AGENTS if name in agent.programs), None)
    return None if agent is None else (agent, AgentCommand(tuple(command), at + 1, environment))


def list_agents() -> list[tuple[str, str]]:
    return [(", ".join(agent.programs), agent.way) for agent in AGENTS]


def _read(path: Path, read: Callable[[str], Any]) -> dict[str, Any]:
    """A mapping in a file of the agent; empty if there is none, or if it is broken: the agent says that itself."""
    try:
        found = read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):  # those of TOML and JSON are ValueErrors
        return {}
    return found if isinstance(found, dict) else {}


def _wire_codex(start: AgentCommand) -> Wiring:
    settings = _read_codex(start)
    name = settings.get("model_provider", "openai")
    if start.list_values("--local-provider") or "--oss" in start.command:
        name = settings.get("oss_provider", "of --oss")
    seen = {key: value for key, value in start.environment.items() if key not in _OPENAIS_NAMES}
    if name == "openai":
        return _wire_codex_at_openai(start, seen, settings.get("openai_base_url"))
    url = _find(settings, "model_providers", name, "base_url")
    if not isinstance(url, str) or not str(name).replace("-", "").replace("_", "").isalnum():
        return start.warn(f"Codex's provider {name} is not led through the proxy; give it a base_url in config.toml")
    place = f"model_providers.{name}"

    def write(environment: dict[str, str]) -> tuple[str, ...]:
        return ("-c", f"{place}.base_url={_quote(environment[OPENAI])}", "-c", f"{place}.supports_websockets=false")

    return Wiring({**seen, OPENAI: url}, write)


def _wire_codex_at_openai(start: AgentCommand, seen: Environment, url: object) -> Wiring:
    """A provider of its own: that of OpenAI would use a WebSocket, which is not compacted."""
    login = _read(start.find_folder("CODEX_HOME", ".codex") / "auth.json", orjson.loads)
    has_key = bool(login.get("OPENAI_API_KEY") or start.environment.get("CODEX_API_KEY"))
    is_chatgpt = login.get("auth_mode") == "chatgpt" or bool(login.get("tokens")) > has_key
    is_logged_in = has_key or is_chatgpt or not start.environment.get("OPENAI_API_KEY")
    key = "requires_openai_auth=true" if is_logged_in else 'env_key="OPENAI_API_KEY"'
    headers = '{"OpenAI-Organization"="OPENAI_ORGANIZATION","OpenAI-Project"="OPENAI_PROJECT"}'
    before = url if isinstance(url, str) else CHATGPT if is_chatgpt else None

    def write(environment: dict[str, str]) -> tuple[str, ...]:
        shared = f'name="trimtab",wire_api="responses",{key},env_http_headers={headers}'
        provider = f"{{base_url={_quote(environment[OPENAI])},{shared}}}"
        return ("-c", 'model_provider="trimtab"', "-c", f"model_providers.trimtab={provider}")

    return Wiring(seen if before is None else {**seen, OPENAI: before}, write)


def _read_codex(start: AgentCommand) -> dict[str, Any]:
    """Codex's settings: its file, over it the profile, over it the options of the command."""
    folder = start.find_folder("CODEX_HOME", ".codex")
    settings = _read(folder / "config.toml", tomllib.loads)
    chosen = [*start.list_values("-p", "--profile"), settings.get("profile")][0]
    if isinstance(chosen, str):
        profile = _find(settings, "profiles", chosen)
        own = profile if isinstance(profile, dict) else _read(folder / f"{chosen}.config.toml", tomllib.loads)
        settings = {**settings, **own}
    for option in start.list_values("-c", "--config"):
        path, _, value = option.partition("=")
        *places, last = path.strip().split(".")
        within = settings
        for place in places:
            inner = within.get(place)
            within[place] = within = dict(inner) if isinstance(inner, dict) else {}
        try:
            within[last] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            within[last] = value
    return settings


def _quote(text: str) -> str:
    return orjson.dumps(text).decode()  # what JSON escapes, TOML reads


def _find(tree: object, *names: str) -> object:
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _wire_claude(start: AgentCommand) -> Wiring:
    """Its variables in settings files win over those of the environment; `--settings` wins over the files."""
    for name in ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"):
        if start.environment.get(name) not in {None, "", "0", "false"}:
            warning = f"{name} is set, so Claude Code's requests do not come through the proxy; unset it to wrap claude"
            return start.warn(warning)
    files = (
        Path(".claude/settings.local.json"),
        Path(".claude/settings.json"),
        start.find_folder("CLAUDE_CONFIG_DIR", ".claude") / "settings.json",
    )
    urls = (_find(_read(file, orjson.loads), "env", ANTHROPIC) for file in files)
    url = next((url for url in urls if isinstance(url, str) and url), None)
    if url is None:
        return Wiring(start.environment)
    if start.list_values("--settings"):
        warning = f"a settings file of Claude Code sets {ANTHROPIC}, and the command has --settings of its own"
        return start.warn(f"{warning}, so no request comes through the proxy; remove one of them")

    def write(environment: dict[str, str]) -> tuple[str, ...]:
        return ("--settings", orjson.dumps({"env": {ANTHROPIC: environment[ANTHROPIC]}}).decode())

    return Wiring({**start.environment, ANTHROPIC: url}, write)


def _wire_opencode(start: AgentCommand) -> Wiring:
    """It says itself what its settings are. What OPENCODE_CONFIG_CONTENT says wins over its files."""
    settings = _ask_opencode(start)
    if settings is None:
        return start.warn("opencode does not tell its settings, so nothing is led to the proxy")
    models = [*start.list_values("-m", "--model"), settings.get("model")]
    name = str(models[0] or "").partition("/")[0]
    providers = {"openai": OPENAI, "anthropic": ANTHROPIC}
    if name and name not in providers:
        if not isinstance(_find(settings, "provider", name, "options", "baseURL"), str):
            return start.warn(f"opencode's provider {name} is not led through the proxy; give it options.baseURL")
        is_anthropic = _find(settings, "provider", name, "npm") == "@ai-sdk/anthropic"
        providers = {name: ANTHROPIC, "openai": OPENAI} if is_anthropic else {name: OPENAI, "anthropic": ANTHROPIC}
    seen = dict(start.environment)
    for provider, variable in providers.items():
        url = _find(settings, "provider", provider, "options", "baseURL")
        seen |= {variable: url} if isinstance(url, str) else {}
    given = _read_content(start.environment)

    def write(environment: dict[str, str]) -> tuple[str, ...]:
        urls = {OPENAI: environment.get(OPENAI), ANTHROPIC: f"{environment[ANTHROPIC]}/v1"}
        led = {provider: {"options": {"baseURL": urls[variable]}} for provider, variable in providers.items()}
        environment["OPENCODE_CONFIG_CONTENT"] = orjson.dumps(_overlay(given, {"provider": led})).decode()
        return ()

    return Wiring(seen, write)


def _ask_opencode(start: AgentCommand) -> dict[str, Any] | None:
    command = (*start.command[: start.at], "debug", "config")
    try:
        asked = subprocess.run(  # noqa: S603 - the user's own command
            command,
            env=dict(start.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DEBUG_SECONDS,
            check=True,
        )
        told = orjson.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _read_content(environment: Environment) -> dict[str, Any]:
    try:
        given = orjson.loads(environment.get("OPENCODE_CONFIG_CONTENT") or "{}")
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _overlay(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _wire_goose(start: AgentCommand) -> Wiring:
    """Its variables win over its file."""
    settings = _read(start.home / ".config/goose/config.yaml", yaml.safe_load)
    settings = {name: value for name, value in settings.items() if isinstance(value, str)} | dict(start.environment)
    provider = settings.get("GOOSE_PROVIDER", "openai")
    if provider not in {"openai", "anthropic"}:
        return start.warn(f"goose's provider {provider} is not led through the proxy, only openai and anthropic are")
    seen = dict(start.environment) | dict(_find_goose_servers(start.environment, settings))

    def write(environment: dict[str, str]) -> tuple[str, ...]:
        if OPENAI in environment:
            last = "responses" if settings.get("OPENAI_BASE_PATH", "").endswith("responses") else "chat/completions"
            host, _, path = environment[OPENAI].rpartition("/")
            environment |= {"OPENAI_HOST": host, "OPENAI_BASE_PATH": f"{path}/{last}"}
        environment["ANTHROPIC_HOST"] = environment[ANTHROPIC]
        return ()

    return Wiring(seen, write)


def _find_goose_servers(environment: Environment, settings: Environment) -> Iterator[tuple[str, str]]:
    host = environment.get("OPENAI_HOST")
    if host is None and settings.get(OPENAI):
        yield OPENAI, settings[OPENAI]
    elif host := host or settings.get("OPENAI_HOST"):
        path = settings.get("OPENAI_BASE_PATH", "v1/chat/completions").strip("/")
        path = path.removesuffix("chat/completions").removesuffix("responses").strip("/")
        yield OPENAI, f"{host.rstrip('/')}/{path}"
    if settings.get("ANTHROPIC_HOST"):
        yield ANTHROPIC, settings["ANTHROPIC_HOST"]


def _set_by_hand(name: str, programs: tuple[str, ...], remedy: str) -> Agent:
    why = f"{name} takes its server from its own settings, so its requests do not come through this proxy"
    way = "its own settings name the server: a warning says what to set"
    return Agent(programs, way, lambda start: start.warn(f"{why}; run `trimtab serve`, and {remedy}"))


_URL = "http://127.0.0.1:8790/v1"
_ZED = "set api_url of your provider under language_models in its settings.json to"
AGENTS = (
    Agent(("claude", "claude-code"), "ANTHROPIC_BASE_URL; --settings if its files name a server", _wire_claude),
    Agent(("codex",), "-c model_provider, or -c model_providers.NAME.base_url of your own provider", _wire_codex),
    Agent(("opencode", "opencode-ai"), "OPENCODE_CONFIG_CONTENT, for the provider of its model", _wire_opencode),
    Agent(("goose",), "OPENAI_HOST, OPENAI_BASE_PATH, ANTHROPIC_HOST", _wire_goose),
    Agent(("aider", "aider-chat"), "OPENAI_API_BASE, ANTHROPIC_BASE_URL"),
    Agent(("qwen", "qwen-code"), "OPENAI_BASE_URL"),
    _set_by_hand("Cline", ("cline",), f"`cline auth` with --baseurl {_URL}"),
    _set_by_hand("Continue", ("cn",), f"set apiBase: {_URL} of the model in ~/.continue/config.yaml"),
    _set_by_hand("Zed", ("zed", "zeditor"), f"{_ZED} {_URL}"),
    _set_by_hand(
        "An editor",
        ("code", "code-insiders", "codium", "cursor", "windsurf"),
        f"set the base URL of your agent there to {_URL}",
    ),
    Agent(
        ("gemini", "gemini-cli"),
        "not led: it speaks an API that trimtab does not compact",
        lambda start: start.warn("Gemini CLI speaks an API that trimtab does not compact"),
    ),
)
