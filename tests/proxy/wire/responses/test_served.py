"""Calls that a server answers in another unit."""

from typing import Any

import orjson
import pytest

from proxy.compaction.caches import make_known
from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.wire.codec import Counting
from proxy.wire.responses.message import decode_unit
from rules.conversation import Served

ASKED = {"type": "mcp_approval_request", "id": "m1", "name": "rm", "arguments": "{}", "server_label": "s"}


@pytest.mark.parametrize(
    ("items", "served"),
    [
        ([{"type": "program", "call_id": "p", "code": "x"}], Served(opens=("p",))),
        ([{"type": "program_output", "call_id": "p", "result": "x"}], Served(closes=("p",))),
        ([{"type": "program", "call_id": "p"}, {"type": "program_output", "call_id": "p"}], Served()),
        ([{"type": "of_the_future_call", "call_id": 1}], Served(opens=("1",))),
        ([{"type": "of_the_future_call_output", "call_id": "1"}], Served(closes=("1",))),
        ([{"type": "tool_search_call", "call_id": "t"}, {"type": "tool_search_output"}], Served()),
        ([{"type": "web_search_call", "id": "w", "action": {}}], Served()),
        ([{"type": "function_call", "call_id": "f", "name": "ls", "arguments": ""}], Served()),
        ([{"type": "function_call_output", "call_id": "f", "output": ""}], Served()),
        ([ASKED], Served(opens=("m1",))),
        ([{"type": "mcp_approval_response", "approval_request_id": "m1", "approve": True}], Served()),
        ([{"type": "mcp_approval_response", "approval_request_id": "m1", "approve": False}], Served(closes=("m1",))),
        ([{"type": "mcp_call", "id": "c", "approval_request_id": "m1", "name": "rm"}], Served(closes=("m1",))),
        ([{"type": "mcp_call", "id": "c", "approval_request_id": None, "name": "rm"}], Served()),
        (
            [{"type": "function_call", "call_id": "f", "name": "a", "caller": {"type": "program", "caller_id": "p"}}],
            Served(goes_on=("p",)),
        ),
    ],
)
def test_items_connect_units(items: list[dict[str, Any]], served: Served) -> None:
    """By the ids of calls whose results are elsewhere."""
    unit = b",".join(map(orjson.dumps, items))
    (message,) = decode_unit(Counting(count_by_heuristic, make_known()), unit)
    assert message.served == served
