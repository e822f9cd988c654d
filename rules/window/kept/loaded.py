"""Tools that were loaded by a search within the transcript. The model can call them only while the search is there.

Law: append-only. A tool counts for the newest step that loaded it.
"""

from collections.abc import Iterator
from itertools import chain, islice

from rules.conversation import Message

MAX_NAMES = 64
"""Number of tools whose steps are kept, those first that were called last. Chosen: bounds the work of each decision."""
NAME_BYTES = 150
"""Memory of one name: an entry of a dictionary, and its text. An estimate for CPython, rounded up."""


class Loaded:
    """The steps that loaded tools, by the tools' names."""

    __slots__ = ("_called", "_steps")

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}  # the newest step last
        self._called: dict[str, None] = {}  # those of them that were called since then, the newest call last

    @property
    def size_bytes(self) -> int:
        """Approximate memory of this object in bytes."""
        return NAME_BYTES * (len(self._steps) + len(self._called))

    def add(self, step: int, message: Message) -> None:
        """Add a message of this step."""
        for name in message.loads:
            self._steps.pop(name, None)
            self._steps[name] = step
        for call in message.tool_calls:
            if call.name in self._steps:
                self._called.pop(call.name, None)
                self._called[call.name] = None

    def list(self) -> Iterator[tuple[int, bool]]:
        """The steps, each once, and whether a tool of theirs was called: those first, and the newest first."""
        others = (name for name in reversed(self._steps) if name not in self._called)
        names = islice(chain(reversed(self._called), others), MAX_NAMES)
        found = dict[int, bool]()
        for name in names:
            found.setdefault(self._steps[name], name in self._called)
        return iter(found.items())
