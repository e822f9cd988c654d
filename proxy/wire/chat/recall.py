"""The tool of recall in chat completions, and the answers in which a model calls it.

Law: the client's own calls keep their ids and their order; their indexes are counted without ours.
"""

from typing import Any, NamedTuple

import msgspec

from trimtab.proxy.wire.answers.recall import (
    DESCRIPTION,
    NAME,
    PARAMETERS,
    RecallCall,
    Round,
    Sifter,
    mend_arguments,
    read_recall_call,
)

TOOL = msgspec.json.encode(
    {"type": "function", "function": {"name": NAME, "description": DESCRIPTION, "parameters": PARAMETERS}}
)
ONE_ANSWER = {"n": frozenset({b"1", b"null"})}
_SAID = ("content", "reasoning_content", "reasoning")
_NEXT = {"tool_calls": "stop", "function_call": "stop"}


def _name(call: Any) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def _find_choice(event: dict[str, Any]) -> dict[str, Any]:
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) and not choice.get("index") else {}


class _Open(NamedTuple):
    """The last call with an index. number: that which the client gets. ours: None for a call of the client's own."""

    id: object
    name: object
    number: int
    ours: dict[str, Any] | None = None


class ChatSifter(Sifter):
    """Reads the first choice."""

    def begin(self) -> None:
        self._said = dict.fromkeys(_SAID, "")
        self._ours: list[dict[str, Any]] = []
        self._own: list[str] = []
        self._open: dict[Any, _Open] = {}
        self._id = getattr(self, "_id", None)
        self._before: dict[str, str] = getattr(self, "_before", {})  # what whole answers have said

    def calls(self, event: dict[str, Any]) -> bool:
        delta = _find_choice(event).get("delta")
        listed = delta.get("tool_calls") if isinstance(delta, dict) else None
        return isinstance(listed, list) and any(_name(call) == NAME for call in listed)

    def sift(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        if "choices" in event:
            self._id = event.setdefault("id", None) if self._id is None else self._id
            event["id"] = self._id
        choice = _find_choice(event)
        if not choice:
            return [] if self.is_over and "error" not in event else [event]
        delta, reason = choice.get("delta"), choice.get("finish_reason")
        has_left = isinstance(delta, dict) and self._take_calls(delta)
        if reason and self.close_calls(len(self._ours), len(self._own)):
            return []
        if reason and self._ours and not self._own:
            choice["finish_reason"] = _NEXT.get(reason, reason)
        return [event] if has_left or reason else []

    def _take_calls(self, delta: dict[str, Any]) -> bool:
        """Take our calls out of a delta; whether anything is left."""
        for key in _SAID:
            if isinstance(delta.get(key), str) and not self.is_full:
                self._said[key] += delta[key]
        if self.rounds:
            delta.pop("role", None)  # clients join the texts of equal members
        listed = delta.get("tool_calls")
        if not isinstance(listed, list):
            return True
        left = [call for call in listed if not self._is_ours(call)]
        delta["tool_calls"] = left
        if not left:
            del delta["tool_calls"]
        return any(value not in (None, "") for value in delta.values())

    def _is_ours(self, call: Any) -> bool:
        if not isinstance(call, dict):
            return False
        at, call_id, name, function = call.get("index"), call.get("id"), _name(call), call.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        known = self._open.get(at)
        # Some servers send whole calls, all with the index 0 or none; others repeat id and name in each piece.
        if known is None or (call_id and call_id != known.id) or (name and name != known.name):
            known = self._open[at] = _Open(call_id, name, len(self._own))
            if name == NAME:
                self._ours.append({key: value for key, value in call.items() if key != "index"})
                self._ours[-1]["function"] = {"name": NAME, "arguments": ""}
                known = self._open[at] = known._replace(ours=self._ours[-1])
            else:
                self._own.append(str(call_id or ""))
        if known.ours is None:
            call["index"] = known.number
            return False
        known.ours["function"]["arguments"] += "" if self.is_full else arguments or ""
        return True

    def finish_round(self) -> Round | None:
        said = {key: text for key, text in self._said.items() if text}
        return _make_round(said, self._ours, tuple(self._own))

    def sift_body(self, answer: dict[str, Any]) -> Round | None:
        choice = _find_choice(answer)
        message = choice.get("message")
        if not isinstance(message, dict):
            return None
        said = {key: value for key, value in message.items() if value is not None and key not in {"role", "tool_calls"}}
        for key in _SAID:
            if isinstance(said.get(key, ""), str) and (text := self._before.get(key, "") + said.get(key, "")):
                self._before[key] = message[key] = text
        listed = message.get("tool_calls")
        ours = [call for call in listed if _name(call) == NAME] if isinstance(listed, list) else []
        if not ours or not isinstance(listed, list):
            return None
        own = message["tool_calls"] = [call for call in listed if _name(call) != NAME]
        if not own:
            del message["tool_calls"]
            choice["finish_reason"] = _NEXT.get(choice.get("finish_reason", ""), choice.get("finish_reason"))
        return _make_round(said, ours, tuple(str(call.get("id")) for call in own if isinstance(call, dict)))

    def write_results(self, said: Round, texts: list[str]) -> tuple[bytes, ...]:
        return tuple(
            msgspec.json.encode({"role": "tool", "tool_call_id": asked.id, "content": text})
            for asked, text in zip(said.asked, texts, strict=True)
        )


def _make_round(said: dict[str, Any], ours: list[dict[str, Any]], own: tuple[str, ...]) -> Round | None:
    if not ours:
        return None
    asked: list[RecallCall] = []
    for number, call in enumerate(ours):
        call["id"] = str(call.get("id") or f"recall_{number}")
        call.setdefault("type", "function")
        function = call["function"] = {**call["function"]}
        function["arguments"] = mend_arguments(function.get("arguments"))
        asked.append(read_recall_call(call["id"], function["arguments"]))
    element = msgspec.json.encode({"role": "assistant", "content": None, **said, "tool_calls": ours})
    return Round((element,), tuple(asked), own)
