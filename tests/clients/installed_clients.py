"""The third-party clients that `tests/clients/run` has installed, and how each one is started."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from programs.starts import PROGRAM, choose_early

DRIVERS = Path(__file__).parent / "drivers"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab-tests"
INSTALLED = Path(os.environ.get("TRIMTAB_CLIENTS") or _CACHE)
NODE, PYTHON = INSTALLED / "node", INSTALLED / "python"


@dataclass(frozen=True, slots=True)
class Client:
    """A client and its driver.

    command: starts the driver.
    dialect: the API that the driver speaks: "chat", "responses" or "messages".
    needs: files that must exist.
    environment: variables for the driver.
    jobs: the jobs of the driver that not every driver has. `parse`: a structured answer. `held`: calls of a tool in a
    conversation that the server holds.
    """

    name: str
    command: tuple[str, ...]
    dialect: str = "chat"
    needs: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()

    @property
    def parameter(self) -> object:
        """The client as a test parameter. The test is skipped if the client is not installed."""
        return pytest.param(self, id=self.name, marks=skip_without(self.name, *self.needs))


def skip_without(name: str, *needs: Path) -> pytest.MarkDecorator:
    """A mark that skips a test if any of these files is missing."""
    reason = f"{name} is not installed: tests/clients/run installs it"
    return pytest.mark.skipif(not all(path.exists() for path in needs), reason=reason)


def _own_openai(name: str, driver: str, dialect: str = "chat", **environment: str) -> Client:
    """The OpenAI SDK of the environment that runs the tests, in a fork of a process that has imported it."""
    return Client(
        name, (PROGRAM, str(DRIVERS / "python" / driver)), dialect, (), choose_early(os.environ) | environment
    )


def _python(name: str, module: str, driver: str, dialect: str = "chat", **environment: str) -> Client:
    command = (str(PYTHON / "bin" / "python"), str(DRIVERS / "python" / driver))
    found = next(PYTHON.glob(f"lib/python*/site-packages/{module}"), PYTHON / module)
    return Client(name, command, dialect, (found,), environment)


def _node(name: str, package: str, driver: str, dialect: str = "chat", **environment: str) -> Client:
    node = Path(shutil.which("node") or NODE / "node")
    needs = (node, NODE / "node_modules" / package / "package.json")
    command = (str(node), str(DRIVERS / "node" / driver))
    return Client(name, command, dialect, needs, environment | {"NODE_CLIENTS": str(NODE)})


def _ai_sdk(name: str, provider: str, dialect: str, **environment: str) -> Client:
    return _node(name, provider, "with_ai_sdk.mjs", dialect, AI_SDK_PROVIDER=provider, **environment)


def _langchain(name: str, dialect: str, **environment: str) -> Client:
    return _python(name, "langchain_openai", "with_langchain.py", dialect, LANGSMITH_TRACING="false", **environment)


def _agents(name: str, dialect: str, **environment: str) -> Client:
    quiet = {"OPENAI_AGENTS_DISABLE_TRACING": "1"}
    return _python(name, "agents", "with_openai_agents.py", dialect, **quiet, **environment)


CLIENTS = (
    _own_openai("openai (Python)", "with_openai.py"),
    _own_openai("openai (Python) AzureOpenAI", "with_openai.py", OPENAI_AZURE="1"),
    replace(_own_openai("openai (Python) responses", "with_openai_responses.py", "responses"), jobs=("parse", "held")),
    _own_openai("openai (Python) responses not stored", "with_openai_responses.py", "responses", OPENAI_STORE="false"),
    _python("anthropic (Python)", "anthropic", "with_anthropic.py", "messages"),
    _langchain("langchain-openai", "chat"),
    _langchain("langchain-openai responses", "responses", OPENAI_RESPONSES="1"),
    _python("litellm", "litellm", "with_litellm.py", LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False"),
    _python("pydantic-ai", "pydantic_ai", "with_pydantic_ai.py"),
    _agents("openai-agents", "chat"),
    _agents("openai-agents responses", "responses", OPENAI_RESPONSES="1"),
    _node("openai (Node)", "openai", "with_openai_node.mjs"),
    replace(_node("openai (Node) responses", "openai", "with_openai_node_responses.mjs", "responses"), jobs=("parse",)),
    replace(
        _node("@anthropic-ai/sdk (Node)", "@anthropic-ai/sdk", "with_anthropic_node.mjs", "messages"), jobs=("held",)
    ),
    _ai_sdk("@ai-sdk/openai-compatible", "@ai-sdk/openai-compatible", "chat"),
    _ai_sdk("@ai-sdk/openai chat", "@ai-sdk/openai", "chat", AI_SDK_API="chat"),
    _ai_sdk("@ai-sdk/openai responses", "@ai-sdk/openai", "responses"),
)
