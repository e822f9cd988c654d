"""Finds the calls that a server answers itself, and their results, in the content of a message.

Law: a pair within one message connects it with no other. Any type of block counts whose name ends as these do, so those
to come count, too.

Source: Anthropic's pages on server tools, on the MCP connector and on programmatic tool calling.
"""

import re
from collections.abc import Iterable

import msgspec

from proxy.wire.content.schemas import decode_or_none
from proxy.wire.json.ids import read_id
from rules.conversation import NOT_SERVED, Served

_CALL, _RESULT = "_tool_use", "_tool_result"
_MARK = re.compile(rb'_tool_(?:use|result)"|"caller"')
_CALLERS = ("tool_id", "caller_id", "id")


def find_served(raw: bytes, blocks: Iterable[dict[str, msgspec.Raw]]) -> Served:
    """The server's calls that connect a message with others; `blocks` are the members of each block of its content."""
    if _MARK.search(raw) is None:
        return NOT_SERVED
    opens, closes, goes_on = dict[str, None](), list[str](), list[str]()
    for members in blocks:
        kind = decode_or_none(members.get("type"))
        if not isinstance(kind, str):
            continue
        if kind.endswith(_CALL):
            opens[read_id(decode_or_none(members.get("id")))] = None
        elif kind.endswith(_RESULT) and kind != _RESULT[1:]:
            answered = read_id(decode_or_none(members.get("tool_use_id")))
            if answered in opens:
                del opens[answered]
            else:
                closes.append(answered)
        else:
            goes_on += find_callers(members)
    return Served(tuple(opens), tuple(closes), tuple(goes_on)) if opens or closes or goes_on else NOT_SERVED


def find_callers(members: dict[str, msgspec.Raw]) -> list[str]:
    """The id of the server's call whose code makes a call."""
    caller = decode_or_none(members["caller"]) if "caller" in members else None
    named = [read_id(caller.get(key)) for key in _CALLERS] if isinstance(caller, dict) else []
    return [call_id for call_id in named if call_id][:1]
