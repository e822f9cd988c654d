"""The tool of recall in Messages, and the answers in which a model calls it.

Law: thinking that was written behind a result of ours is not shown to the client: it is bound to what the client's
transcript does not have, so a later request with it would be refused. Source: Anthropic's page on preserved thinking,
which allows leaving thinking out at the end. The thinking before the call is bound to nothing of ours and stays.
"""

from typing import Any

import msgspec

from trimtab.proxy.wire.answers.recall import (
    DESCRIPTION,
    NAME,
    PARAMETERS,
    Round,
    Sifter,
    read_object,
    read_recall_call,
)

TOOL = msgspec.json.encode({"name": NAME, "description": DESCRIPTION, "input_schema": PARAMETERS})
_THINKING = frozenset({"thinking", "redacted_thinking"})
_JOINED = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def _is_ours(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_use" and block.get("name") == NAME


class MessagesSifter(Sifter):
    """Numbers the blocks that the client gets through all rounds."""

    def begin(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._places: dict[int, int | None] = {}  # of each block, its number for the client; None if it is not shown
        self._shown = getattr(self, "_shown", 0)
        self._before: list[Any] = getattr(self, "_before", [])  # what whole answers have said

    def calls(self, event: dict[str, Any]) -> bool:
        return event.get("type") == "content_block_start" and _is_ours(event.get("content_block"))

    def sift(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        kind, at = event.get("type"), event.get("index")
        if kind == "message_start":
            return [] if self.rounds else [event]
        if isinstance(at, int):
            return self._sift_block(event, at)
        if kind == "message_delta":
            called = [block for block in self._blocks.values() if block.get("type") == "tool_use"]
            ours, delta = sum(map(_is_ours, called)), event.get("delta")
            own = len(called) - ours
            self.close_calls(ours, own)
            if ours and not own and isinstance(delta, dict) and delta.get("stop_reason") == "tool_use":
                delta["stop_reason"] = "end_turn"
        return [] if self.is_over and kind in {"message_delta", "message_stop"} else [event]

    def _sift_block(self, event: dict[str, Any], at: int) -> list[dict[str, Any]]:
        block = event.get("content_block")
        if isinstance(block, dict):
            self._blocks[at] = {**block, "input": ""} if "input" in block else dict(block)
            is_hidden = _is_ours(block) or (self.rounds > 0 and block.get("type") in _THINKING)
            self._places[at] = None if is_hidden else self._shown
            self._shown += not is_hidden
        delta = event.get("delta")
        if isinstance(delta, dict) and at in self._blocks and not self.is_full:
            _join(self._blocks[at], delta)
        place = self._places.get(at)
        if place is None:
            return []
        event["index"] = place
        return [event]

    def finish_round(self) -> Round | None:
        content = [block for _, block in sorted(self._blocks.items())]
        for block in content:
            if isinstance(block.get("input"), str):
                block["input"] = read_object(block["input"].encode("utf-8", "replace")) or {}
        return _make_round(content)

    def sift_body(self, answer: dict[str, Any]) -> Round | None:
        content = answer.get("content")
        if not isinstance(content, list):
            return None
        said = _make_round(content)
        hidden = _THINKING if self.rounds else frozenset[str]()
        answer["content"] = self._before = [
            *self._before,
            *(
                block
                for block in content
                if not _is_ours(block) and not (isinstance(block, dict) and block.get("type") in hidden)
            ),
        ]
        if said is not None and not said.own and answer.get("stop_reason") == "tool_use":
            answer["stop_reason"] = "end_turn"
        return said

    def write_results(self, said: Round, texts: list[str]) -> tuple[bytes, ...]:
        results = [
            {"type": "tool_result", "tool_use_id": asked.id, "content": text}
            for asked, text in zip(said.asked, texts, strict=True)
        ]
        return (msgspec.json.encode({"role": "user", "content": results}),)


def _join(block: dict[str, Any], delta: dict[str, Any]) -> None:
    kind = str(delta.get("type"))
    if kind == "input_json_delta":
        block["input"] = f"{block.get('input') or ''}{delta.get('partial_json') or ''}"
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
    elif (name := _JOINED.get(kind)) is not None:
        block[name] = f"{block.get(name) or ''}{delta.get(name) or ''}"


def _make_round(content: list[Any]) -> Round | None:
    called = [block for block in content if isinstance(block, dict) and block.get("type") == "tool_use"]
    ours = [block for block in called if _is_ours(block)]
    if not ours:
        return None
    kept = [block for block in content if not (isinstance(block, dict) and block.get("text") == "")]
    element = msgspec.json.encode({"role": "assistant", "content": kept})
    own = tuple(str(block.get("id")) for block in called if not _is_ours(block))
    return Round((element,), tuple(read_recall_call(str(block.get("id")), block.get("input")) for block in ours), own)
