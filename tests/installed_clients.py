"""Where `tests/clients/run` has installed other people's clients, and how each is started."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

DRIVERS = Path(__file__).parent / "clients" / "drivers"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab-tests"
INSTALLED = Path(os.environ.get("TRIMTAB_CLIENTS") or _CACHE)
# A driver is started with a home of its own, so that no client finds the user's settings.
NODE, PYTHON = INSTALLED / "node", INSTALLED / "python"


@dataclass(frozen=True, slots=True)
class Client:
    """A driver's command, what must be there for it to start, and what it finds in its environment."""

    name: str
    command: tuple[str, ...]
    needs: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def parameter(self) -> object:
        """The client as a parameter of a test, which skips where it is not installed."""
        return pytest.param(self, id=self.name, marks=skip_without(self.needs, self.name))


def skip_without(path: Path, name: str) -> pytest.MarkDecorator:
    """Skips where a client's file is not there."""
    return pytest.mark.skipif(not path.exists(), reason=f"{name} is not installed: tests/clients/run installs it")


def _python(name: str, driver: str, **environment: str) -> Client:
    command = (str(PYTHON / "bin" / "python"), str(DRIVERS / driver))
    found = next(PYTHON.glob(f"lib/python*/site-packages/{name}"), PYTHON / name)
    return Client(name, command, found, environment)


def _node(package: str, driver: str, **environment: str) -> Client:
    command = (shutil.which("node") or "node", str(DRIVERS / driver))
    needs = NODE / "node_modules" / package / "package.json"
    return Client(package, command, needs, environment | {"NODE_CLIENTS": str(NODE)})


CLIENTS = (
    Client("openai (Python)", (sys.executable, str(DRIVERS / "with_openai.py")), DRIVERS),
    _python("langchain_openai", "with_langchain.py", LANGSMITH_TRACING="false"),
    _python("litellm", "with_litellm.py", LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False"),
    _python("pydantic_ai", "with_pydantic_ai.py"),
    _python("agents", "with_openai_agents.py", OPENAI_AGENTS_DISABLE_TRACING="1"),
    _node("openai", "with_openai_node.mjs"),
    *(_node(name, "with_ai_sdk.mjs", AI_SDK_PROVIDER=name) for name in ("@ai-sdk/openai-compatible", "@ai-sdk/openai")),
)
