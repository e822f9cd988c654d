"""Which items belong together."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.responses.codec import decode_unit
from trimtab.proxy.wire.responses.units import RESULT_TYPES, find_units
from trimtab.rules.conversation import Served

ITEMS = {
    "u": {"role": "user", "content": "x"},
    "d": {"type": "message", "role": "developer", "content": []},
    "m": {"type": "message", "role": "assistant", "content": []},
    "e": {"role": "assistant", "content": "x"},
    "r": {"type": "reasoning", "summary": []},
    "c": {"type": "function_call", "call_id": "1", "name": "ls", "arguments": "{}"},
    "o": {"type": "function_call_output", "call_id": "1", "output": ""},
    "w": {"type": "web_search_call"},
    "p": {"type": "program", "call_id": "p"},
    "q": {"type": "program_output", "call_id": "p"},
    "k": {"type": "compaction", "encrypted_content": ""},
    "t": {"type": "compaction_trigger"},
    "i": {"id": "msg_1"},
    "j": {"type": "item_reference", "id": "msg_1"},
    "?": {"type": "other"},
    "5": {"type": 5},
}


def _split(letters: str) -> str:
    raws = [orjson.dumps(ITEMS[letter]) for letter in letters]
    return " ".join(letters[start:stop] for start, stop in find_units(raws))


@pytest.mark.parametrize(
    "units",
    [
        "",
        "d u rm u rc o rcc o o m u",
        "u mrcc o",
        "u rcrc o o",
        "u rwcm o",
        "u crm",
        "k rm k k c",
        "u rm t",
        "i jm i c",
        "u jc o jrc o u j u",
        "u ? m??5 m5 o",
        "u rpcocoqmm o pcocoqm m",
        "u rpcrcooqm u",
        "u pc u o",
    ],
)
def test_what_the_model_said_in_one_go_is_one_unit(units: str) -> None:
    """Reasoning stays with what it precedes, and calls stay together; a program ends with its output."""
    assert _split(units.replace(" ", "")) == units


@given(st.text("udmerowpqktij?5c", max_size=14), st.text("udmerowpqktij?5c", max_size=6))
def test_only_the_last_unit_changes_if_items_are_added(first: str, more: str) -> None:
    before, after = _split(first).split(" "), _split(first + more).split(" ")
    assert after[: len(before) - 1] == before[:-1]


@given(st.text("udmerowpqktij?5c", max_size=14))
def test_units_can_be_found_from_any_unit_on(letters: str) -> None:
    """Together they are all items, in order."""
    raws = [orjson.dumps(ITEMS[letter]) for letter in letters]
    units = list(find_units(raws))
    assert [at for start, stop in units for at in range(start, stop)] == list(range(len(raws)))
    for number, (start, _) in enumerate(units):
        assert list(find_units(raws, start)) == units[number:]


def test_every_call_has_a_type_of_result() -> None:
    assert len(set(RESULT_TYPES.values())) == len(RESULT_TYPES)
    for call_type, result_type in RESULT_TYPES.items():
        raws = [orjson.dumps({"type": call_type}), orjson.dumps({"type": result_type})]
        assert list(find_units([*raws, raws[0]])) == [(0, 1), (1, 2), (2, 3)]


def test_an_item_that_needs_repair_has_its_kind() -> None:
    """Upstreams accept a lone surrogate."""
    raws = [
        b'{"type":"function_call","arguments":"\\ud800"}',
        b'{"type":"function_call","arguments":""}',
        b'{"role":"user"}',
    ]
    assert list(find_units(raws)) == [(0, 2), (2, 3)]


ASKED = {"type": "mcp_approval_request", "id": "m1", "name": "rm", "arguments": "{}", "server_label": "s"}


@pytest.mark.parametrize(
    ("items", "served"),
    [
        ([{"type": "program", "call_id": "p", "code": "x"}], Served(opens=("p",))),
        ([{"type": "program_output", "call_id": "p", "result": "x"}], Served(closes=("p",))),
        ([{"type": "of_the_future_call", "call_id": 1}], Served(opens=("1",))),
        ([{"type": "of_the_future_call_output", "call_id": "1"}], Served(closes=("1",))),
        ([{"type": "tool_search_call", "call_id": "t"}, {"type": "tool_search_output"}], Served()),
        ([{"type": "function_call", "call_id": "f", "name": "ls", "arguments": ""}], Served()),
        ([ASKED], Served(opens=("m1",))),
        ([{"type": "mcp_approval_response", "approval_request_id": "m1", "approve": False}], Served(closes=("m1",))),
        ([{"type": "mcp_call", "id": "c", "approval_request_id": "m1", "name": "rm"}], Served(closes=("m1",))),
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
