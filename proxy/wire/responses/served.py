"""Finds the calls that a server answers in another unit than the one that makes them.

Law: a pair within one unit connects it with no other. A call that the client answers (units.py) connects nothing.

Source: OpenAI's guides on MCP, on tool search and on programmatic tool calling. Any type counts whose name ends as
these do, so those to come count, too.
"""

import msgspec

from proxy.wire.content.schemas import decode_or_none
from proxy.wire.content.server_tools import find_callers
from proxy.wire.json.decode import read_id
from proxy.wire.responses.units import RESULT_TYPES
from rules.conversation import NOT_SERVED, Served

_APPROVAL, _APPROVED = "mcp_approval_request", "mcp_approval_response"
_CLIENTS = frozenset({*RESULT_TYPES, *RESULT_TYPES.values()}) - {_APPROVAL, _APPROVED}
_CALLS, _RESULTS = ("_call", "program"), "_output"


class ServedItems:
    """The calls and results of a server in the items of one unit."""

    def __init__(self) -> None:
        self._opens: dict[str, None] = {}
        self._closes: list[str] = []
        self._goes_on: list[str] = []

    def find(self) -> Served:
        """What connects the unit with others."""
        if not (self._opens or self._closes or self._goes_on):
            return NOT_SERVED
        return Served(tuple(self._opens), tuple(self._closes), tuple(self._goes_on))

    def add(self, item_type: str, members: dict[str, msgspec.Raw]) -> None:
        """Add an item."""
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
    """What connects a unit of one item with others."""
    items = ServedItems()
    items.add(item_type, members)
    return items.find()


def _read(members: dict[str, msgspec.Raw], name: str) -> str:
    return read_id(decode_or_none(members.get(name)))
