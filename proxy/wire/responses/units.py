"""Says which items of a transcript belong together, and which calls a server answers in another unit.

Law: total and linear. Only the last unit changes if items are added after it. A reasoning item stays with the message
or call that it precedes, and parallel calls stay together: what the model said in one go is one unit.

A pair of a server's call and its result within one unit connects it with no other. A call that the client answers
connects nothing. Source: OpenAI's guides on MCP, on tool search and on programmatic tool calling. Any type counts whose
name ends as these do, so those to come count, too.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Any

import msgspec

from trimtab.proxy.wire.json import DECODE_ERRORS, decode_or_none, mend, read_id
from trimtab.proxy.wire.tools import find_callers
from trimtab.rules.conversation import NOT_SERVED, Served
from trimtab.rules.text.client_summaries import TRIGGER

REFERENCE = "item_reference"  # Type of an item that stands for one that the server has stored
COMPACTIONS = frozenset({"compaction", "compaction_summary", "context_compaction"})
"""Types of items that stand for everything before them. Source: OpenAI's Python SDK; Codex."""
RESULT_TYPES = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""For each type of call that the client answers, the type of its result."""
_SERVED = (
    "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools",
    "mcp_call", "tool_search_call", "tool_search_output",
)  # fmt: skip


class Kind(Enum):
    """What an item is for the items around it.

    MODEL: the model or its server wrote it, and it needs no result.
    PROGRAM, PROGRAM_END: a program that calls tools, and its output. Everything in between belongs to it.
    UNKNOWN: belongs to the items of the model before it, if there are any.
    ALONE: a unit of its own.
    """

    SPEECH = auto()
    REASONING = auto()
    CALL = auto()
    RESULT = auto()
    MODEL = auto()
    PROGRAM = auto()
    PROGRAM_END = auto()
    UNKNOWN = auto()
    ALONE = auto()


_KINDS = {
    "reasoning": Kind.REASONING,
    "program": Kind.PROGRAM,
    "program_output": Kind.PROGRAM_END,
    **dict.fromkeys(RESULT_TYPES, Kind.CALL),
    **dict.fromkeys(RESULT_TYPES.values(), Kind.RESULT),
    **dict.fromkeys((*_SERVED, REFERENCE), Kind.MODEL),
    **dict.fromkeys((*COMPACTIONS, TRIGGER, "additional_tools", "configuration_update"), Kind.ALONE),
}
_OUTSIDE_RUNS = frozenset({Kind.ALONE, Kind.RESULT})
_OPENS_NO_RUN = frozenset({Kind.ALONE, Kind.RESULT, Kind.UNKNOWN})


class _Head(msgspec.Struct):
    type: Any = None
    role: Any = None


_decode_head = msgspec.json.Decoder(_Head).decode


def read_head(raw: bytes) -> tuple[str | None, Any]:
    try:
        head = _decode_head(raw)
    except DECODE_ERRORS:
        try:
            head = _decode_head(mend(raw))
        except DECODE_ERRORS:
            return "", None
    return read_type(head.type), head.role


def read_type(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else ""


def tell_kind(item_type: str | None, role: Any) -> Kind:
    """The kind of an item with this `type` and `role`; a message needs no type, and a reference has neither."""
    if item_type is None or item_type == "message":
        return Kind.SPEECH if role == "assistant" else Kind.ALONE
    return _KINDS.get(item_type, Kind.UNKNOWN)


class _Run:
    """Items of the model from `start` on. stop: where the run ends without the reasoning at its end."""

    __slots__ = ("_has_open_calls", "_has_reasoning", "_has_speech", "_in_program", "start", "stop")

    def __init__(self, start: int, *, has_reasoning: bool = False) -> None:
        self.start = self.stop = start
        self._has_reasoning = has_reasoning
        self._has_speech = self._has_open_calls = self._in_program = False

    def takes(self, kind: Kind) -> bool:
        return kind not in _OUTSIDE_RUNS or (self._in_program and kind is Kind.RESULT)

    def is_over(self, at: int, kind: Kind) -> bool:
        """Whether the item begins another message. One without reasoning right before it takes that of the run."""
        if kind is not Kind.SPEECH or not self._has_speech or self._has_open_calls or self._in_program:
            return False
        return at > self.stop or not self._has_reasoning

    def add(self, at: int, kind: Kind) -> None:
        if kind is not Kind.REASONING:
            self.stop = at + 1
        self._has_speech = self._has_speech or kind is Kind.SPEECH
        self._has_reasoning = self._has_reasoning or kind is Kind.REASONING
        self._has_open_calls = self._has_open_calls or (kind is Kind.CALL and not self._in_program)
        self._in_program = (self._in_program or kind is Kind.PROGRAM) and kind is not Kind.PROGRAM_END


def find_units(raws: Sequence[bytes], start: int = 0) -> Iterator[tuple[int, int]]:
    """The units from the item `start` on, where a unit begins: the half-open range of each, in order."""
    # Strategy: one pass with one open run, which is everything that the model has said since the client's last item.
    # A second message splits it; reasoning right before that message goes along, since it belongs to what follows.
    # Whatever comes later can only lengthen the last run, so units that have ended stay as they are.
    run: _Run | None = None
    for at in range(start, len(raws)):
        kind = tell_kind(*read_head(raws[at]))
        if run is not None and not run.takes(kind):
            yield run.start, at
            run = None
        if run is None and kind in _OPENS_NO_RUN:
            yield at, at + 1
            continue
        if run is None:
            run = _Run(at)
        elif run.is_over(at, kind):
            yield run.start, run.stop
            run = _Run(run.stop, has_reasoning=at > run.stop)
        run.add(at, kind)
    if run is not None:
        yield run.start, len(raws)


_APPROVAL, _APPROVED = "mcp_approval_request", "mcp_approval_response"
_CLIENTS = frozenset({*RESULT_TYPES, *RESULT_TYPES.values()}) - {_APPROVAL, _APPROVED}
_CALLS, _RESULTS = ("_call", "program"), "_output"


class ServedItems:
    def __init__(self) -> None:
        self._opens: dict[str, None] = {}
        self._closes: list[str] = []
        self._goes_on: list[str] = []

    def find(self) -> Served:
        if not (self._opens or self._closes or self._goes_on):
            return NOT_SERVED
        return Served(tuple(self._opens), tuple(self._closes), tuple(self._goes_on))

    def add(self, item_type: str, members: dict[str, msgspec.Raw]) -> None:
        self._goes_on += find_callers(members)
        if item_type == _APPROVAL:
            self._open(_read(members, "id"))
        elif item_type == _APPROVED:
            if bytes(members.get("approve", b"")) != b"true":  # the call will not be made
                self._close(_read(members, "approval_request_id"))
        elif item_type == "mcp_call":
            if approved := _read(members, "approval_request_id"):
                self._close(approved)
        elif item_type not in _CLIENTS and item_type.endswith(_RESULTS):
            self._close(_read(members, "call_id"))
        elif item_type not in _CLIENTS and item_type.endswith(_CALLS):
            self._open(_read(members, "call_id"))

    def _open(self, call_id: str) -> None:
        if call_id:
            self._opens[call_id] = None

    def _close(self, call_id: str) -> None:
        if call_id in self._opens:
            del self._opens[call_id]
        elif not call_id and self._opens:
            self._opens.popitem()
        elif call_id:
            self._closes.append(call_id)


def find_served(item_type: str, members: dict[str, msgspec.Raw]) -> Served:
    items = ServedItems()
    items.add(item_type, members)
    return items.find()


def _read(members: dict[str, msgspec.Raw], name: str) -> str:
    return read_id(decode_or_none(members.get(name)))
