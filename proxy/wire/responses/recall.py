"""The tool of recall in Responses, and the answers in which a model calls it.

Law: an item of reasoning stays with the item that follows it; without that one the API refuses it. So a stream's
reasoning is held until its next item has begun, and goes with a call of ours. Events are numbered again from the first
call on.
"""

import re
from typing import Any

import msgspec

from trimtab.proxy.wire.answers.recall import (
    DESCRIPTION,
    NAME,
    PARAMETERS,
    Round,
    Sifter,
    mend_arguments,
    read_recall_call,
    split_events,
)

TOOL = msgspec.json.encode(
    {"type": "function", "name": NAME, "description": DESCRIPTION, "parameters": PARAMETERS, "strict": False}
)
ONE_ANSWER = {"background": frozenset({b"false", b"null"})}
_BEGINS = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS = frozenset({"response.completed", "response.incomplete"})
_TYPE = rb'"type"\s{0,4}:\s{0,4}"'
_REASONING, _ITEM = re.compile(_TYPE + rb"(?:response\.)?reasoning"), re.compile(_TYPE + rb"response\.output_item")
_OF_REASONING = re.compile(_TYPE + rb"response\.reasoning")


def _is_ours(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "function_call" and item.get("name") == NAME


def _is_of_reasoning(event: bytes) -> bool:
    """Whether an event is about an item of reasoning; the last event of a response only lists it."""
    is_item = _ITEM.search(event) is not None and _REASONING.search(event) is not None
    return is_item or _OF_REASONING.search(event) is not None


def _is_own(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("type")).endswith("_call") and not _is_ours(item)


class ResponsesSifter(Sifter):
    """Numbers the items and the events that the client gets through all rounds."""

    def begin(self) -> None:
        self._items: dict[int, dict[str, Any]] = {}
        self._places: dict[int, int | None] = {}
        self._held: list[dict[str, Any]] = []  # events of reasoning whose next item has not begun
        self._waiting: set[int] = set()  # the items of that reasoning
        self._count = getattr(self, "_count", 0)
        self._shown: list[Any] = getattr(self, "_shown", [])  # the items that the client got, of all rounds
        self._number = getattr(self, "_number", 0)
        self._id: Any = getattr(self, "_id", None)
        self._before: list[Any] = getattr(self, "_before", [])  # what whole answers have said

    def calls(self, event: dict[str, Any]) -> bool:
        return event.get("type") == "response.output_item.added" and _is_ours(event.get("item"))

    def hold(self, ready: bytes) -> tuple[bytes, bytes]:
        if not _REASONING.search(ready):
            return ready, b""
        events = list(split_events(ready))
        stop = next((at for at in range(len(events), 0, -1) if not _is_of_reasoning(events[at - 1])), 0)
        return b"".join(events[:stop]), b"".join(events[stop:])

    def sift(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        kind, at, response = event.get("type"), event.get("output_index"), event.get("response")
        if isinstance(response, dict) and "id" in response:
            # Clients refuse a stream whose response changes its name. Source: openai-python, accumulate_event.
            self._id = response["id"] = self._id or response["id"]
        if kind in _BEGINS:
            return [] if self.rounds else self._number_all([event])
        if isinstance(at, int):
            return self._number_all(self._sift_item(event, at))
        if kind in _ENDS:
            return self._end(event)
        return self._number_all([event])

    def _sift_item(self, event: dict[str, Any], at: int) -> list[dict[str, Any]]:
        kind, item = event.get("type"), event.get("item")
        if kind == "response.output_item.done" and isinstance(item, dict):
            self._items[at] = item
        released = list[dict[str, Any]]()
        if kind == "response.output_item.added" and isinstance(item, dict):
            if item.get("type") == "reasoning":
                released = self._release()
                self._waiting.add(at)
            elif _is_ours(item):
                self._held.clear()  # the reasoning goes with the call
                self._places[at] = None
            else:
                released = self._release()
        if at in self._waiting:
            self._held.append(event)
            return released
        return released + self._place(event, at)

    def _release(self) -> list[dict[str, Any]]:
        held, self._held = self._held, []
        self._waiting.clear()
        return [left for event in held for left in self._place(event, event["output_index"])]

    def _place(self, event: dict[str, Any], at: int) -> list[dict[str, Any]]:
        if at not in self._places:
            self._places[at] = self._count
            self._count += 1
        if (place := self._places[at]) is None:
            return []
        if event.get("type") == "response.output_item.done":
            self._shown.append(event.get("item"))
        return [{**event, "output_index": place}]

    def _number_all(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for event in events:
            event["sequence_number"] = self._number
            self._number += 1
        return events

    def _end(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        told = event.get("response")
        response: dict[str, Any] = told if isinstance(told, dict) else {}
        output = response.get("output")
        if isinstance(output, list) and output:
            self._items = dict(enumerate(output))
        items = self._items.values()
        if self.close_calls(sum(map(_is_ours, items)), sum(map(_is_own, items))):
            self._held.clear()
            return []
        released = self._release()
        if isinstance(output, list):
            response["output"] = [*self._shown]
        return self._number_all([*released, event])

    def finish_round(self) -> Round | None:
        return _make_round([item for _, item in sorted(self._items.items())])

    def sift_body(self, answer: dict[str, Any]) -> Round | None:
        output = answer.get("output")
        if not isinstance(output, list):
            return None
        self._before = [*self._before, *(item for at, item in enumerate(output) if not _goes(output, at))]
        answer["output"] = self._before
        return _make_round(output)

    def write_results(self, said: Round, texts: list[str]) -> tuple[bytes, ...]:
        return tuple(
            msgspec.json.encode({"type": "function_call_output", "call_id": asked.id, "output": text})
            for asked, text in zip(said.asked, texts, strict=True)
        )


def _goes(output: list[Any], at: int) -> bool:
    item, following = output[at], output[at + 1 : at + 2]
    is_reasoning = isinstance(item, dict) and item.get("type") == "reasoning"
    return _is_ours(item) or (is_reasoning and any(map(_is_ours, following)))


def _make_round(output: list[Any]) -> Round | None:
    ours = [item for item in output if _is_ours(item)]
    if not ours:
        return None
    for item in ours:
        item["arguments"] = mend_arguments(item.get("arguments"))
    elements = tuple(msgspec.json.encode(item) for item in output if isinstance(item, dict))
    own = tuple(str(item.get("call_id") or item.get("id")) for item in output if _is_own(item))
    return Round(
        elements, tuple(read_recall_call(str(item.get("call_id")), item.get("arguments")) for item in ours), own
    )
