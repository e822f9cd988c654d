"""The third-party clients that `tests/clients/run` has installed, and how each one is started."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

DRIVERS = Path(__file__).parent / "drivers"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab-tests"
INSTALLED = Path(os.environ.get("TRIMTAB_CLIENTS") or _CACHE)
NODE, PYTHON = INSTALLED / "node", INSTALLED / "python"


@dataclass(frozen=True, slots=True)
class Client:
    """A client and its driver.

    command: starts the driver.
    needs: files that must exist.
    environment: variables for the driver.
    """

    name: str
    command: tuple[str, ...]
    needs: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def parameter(self) -> object:
        """The client as a test parameter. The test is skipped if the client is not installed."""
        return pytest.param(self, id=self.name, marks=skip_without(self.name, *self.needs))


def skip_without(name: str, *needs: Path) -> pytest.MarkDecorator:
    """A mark that skips a test if any of these files is missing."""
    reason = f"{name} is not installed: tests/clients/run installs it"
    return pytest.mark.skipif(not all(path.exists() for path in needs), reason=reason)


def _python(name: str, module: str, driver: str, **environment: str) -> Client:
    command = (str(PYTHON / "bin" / "python"), str(DRIVERS / driver))
    found = next(PYTHON.glob(f"lib/python*/site-packages/{module}"), PYTHON / module)
    return Client(name, command, (found,), environment)


def _node(name: str, package: str, driver: str, **environment: str) -> Client:
    node = Path(shutil.which("node") or NODE / "node")
    needs = (node, NODE / "node_modules" / package / "package.json")
    return Client(name, (str(node), str(DRIVERS / driver)), needs, environment | {"NODE_CLIENTS": str(NODE)})


def _ai_sdk(provider: str) -> Client:
    return _node(provider, provider, "with_ai_sdk.mjs", AI_SDK_PROVIDER=provider)


CLIENTS = (
    Client("openai (Python)", (sys.executable, str(DRIVERS / "with_openai.py"))),
    _python("langchain-openai", "langchain_openai", "with_langchain.py", LANGSMITH_TRACING="false"),
    _python("litellm", "litellm", "with_litellm.py", LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False"),
    _python("pydantic-ai", "pydantic_ai", "with_pydantic_ai.py"),
    _python("openai-agents", "agents", "with_openai_agents.py", OPENAI_AGENTS_DISABLE_TRACING="1"),
    _node("openai (Node)", "openai", "with_openai_node.mjs"),
    _ai_sdk("@ai-sdk/openai-compatible"),
    _ai_sdk("@ai-sdk/openai"),
)
