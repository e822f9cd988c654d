"""A strict model whose provider compacts when it is asked: Anthropic's on demand, and OpenAI's endpoint.

It reads a note as what it stands for. So a note that was changed, is not first, or stands beside others is refused, and
thinking behind it is valid as long as all that it stands for was sent so before.

Source: Anthropic's pages on compaction on demand, its errors and preserved thinking; OpenAI's guide on compaction.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from aiohttp import web
from support.dialects.messages_validity import blocks_of
from support.dialects.seals import seal
from upstreams.binding import BindingModel
from upstreams.recording import Recorded, error
from upstreams.speech.messages import fault, refuse
from upstreams.speech.spent import send_events

Wire = dict[str, Any]
BETA = "compact-2026-09-04"
UNKNOWN = "messages.0.content.0: Input tag 'compaction' found using 'type' does not match any of the expected tags"
ALLOWED = {"model", "input", "instructions", "previous_response_id", "prompt_cache_key", "prompt_cache_retention"}
PROMPT_TOKENS, NOTE_TOKENS, CACHED_TOKENS = 900, 60, 800


@dataclass
class CompactingModel(BindingModel):
    """The strict model with its provider's compaction.

    change: what an answer to a question for a note is changed to, or another response; None for what it is.
    forgets: it knows no note, as if a gateway kept the beta header back, or the organisation had changed.
    compacted: the questions for notes, and the ones of them that were refused.
    issued: what each note stands for, by its signature or encrypted content.
    """

    change: Callable[[Wire], Wire | web.Response] | None = None
    forgets: bool = False
    streams_notes: bool = False
    compacted: list[Recorded] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    issued: dict[str, tuple[Wire, list[Wire]]] = field(default_factory=dict)

    async def answer(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request: with a note if that is asked for."""
        path, body = recorded.path.partition("?")[0], recorded.json
        if path.endswith("/responses/compact"):
            return self._compact_input(recorded, body)
        member = "input" if path.endswith("/responses") else "messages"
        whole, problem = self._expand(body, member, "".join(recorded.header("anthropic-beta")))
        if problem is not None:
            self.wrong.append(problem)
            return (
                refuse(problem) if member == "messages" else error(400, message=problem, type="invalid_request_error")
            )
        if "compaction" in body:
            return await self._compact_messages(recorded, body, whole, request)
        return await super().answer(replace(recorded, body=orjson.dumps(whole)), request)

    def _expand(self, body: Wire, member: str, betas: str) -> tuple[Wire, str | None]:
        """The body with what its note stands for, and why it is refused."""
        elements = body.get(member)
        if not isinstance(elements, list):
            return body, None
        return self._expand_items(body) if member == "input" else self._expand_blocks(body, betas)

    def _expand_items(self, body: Wire) -> tuple[Wire, str | None]:
        items = body["input"]
        at = max((at for at, item in enumerate(items) if item.get("type") == "compaction"), default=-1)
        if at < 0:
            return body, None
        known = self.issued.get(items[at]["encrypted_content"])
        if known is None or self.forgets or items[at] != known[0]:
            return body, f"The encrypted content for item {items[at].get('id')} could not be verified."
        return {**body, "input": [*known[1], *items[at + 1 :]]}, None

    def _expand_blocks(self, body: Wire, betas: str) -> tuple[Wire, str | None]:
        elements = body["messages"]
        notes = [block for one in elements for block in blocks_of(one) if block.get("type") == "compaction"]
        if "compaction" in body and BETA not in betas:
            return body, f"compaction: requires anthropic-beta: {BETA}"
        if not notes:
            return body, None
        note = {name: value for name, value in notes[0].items() if name != "cache_control"}
        known = self.issued.get(note.get("signature", ""))
        problems = {
            UNKNOWN: BETA not in betas or self.forgets,
            "compaction_block_misplaced": len(notes) > 1 or blocks_of(elements[0]) != notes,
            "compaction_content_mismatch": known is None or known[0] != note,
        }
        problem = next((problem for problem, is_true in problems.items() if is_true), None)
        if problem is not None or known is None:
            return body, problem
        return {**body, "messages": [*known[1], *elements[1:]]}, None

    async def _compact_messages(
        self, recorded: Recorded, body: Wire, whole: Wire, request: web.BaseRequest
    ) -> web.StreamResponse:
        self.compacted.append(recorded)
        forced = (body.get("tool_choice") or {}).get("type") in {"any", "tool"}
        unfit = {"context_management", "stop_sequences", "output_format"} & body.keys()
        last = blocks_of(whole["messages"][-1])
        is_open = whole["messages"][-1]["role"] == "assistant" and any(one["type"] == "tool_use" for one in last)
        if forced or unfit or is_open or body["compaction"].keys() - {"type", "instructions"}:
            self.wrong.append(f"compaction beside {sorted(unfit)}, forced: {forced}, open: {is_open}")
            return refuse(self.wrong[-1])
        kept, unfit_places = self._find_kept(whole)
        assert unfit_places == [] or "drop_block" in str(body.get("thinking")), kept
        told = f"Note {len(self.compacted)} on {len(whole['messages'])} messages; the clearance was 9 metres."
        block = {"type": "compaction", "content": told, "signature": seal(f"{told} {id(self)}")}
        self.issued[block["signature"]] = block, whole["messages"]
        counts = {"input_tokens": PROMPT_TOKENS - CACHED_TOKENS, "output_tokens": NOTE_TOKENS}
        spent = {"type": "compaction", **counts, "cache_read_input_tokens": CACHED_TOKENS}
        answer: Wire = {"id": "msg_c", "type": "message", "role": "assistant", "model": body["model"]}
        usage = {"input_tokens": 0, "output_tokens": 0, "iterations": [spent]}
        answer |= {"content": [block], "stop_reason": "compaction", "usage": usage}
        changed = self.change(answer) if self.change is not None else answer
        if isinstance(changed, web.Response):
            return changed
        if not self.streams_notes:
            return web.json_response(changed)
        return await send_events(request, _write_events(changed))

    def _compact_input(self, recorded: Recorded, body: Wire) -> web.Response:
        self.compacted.append(recorded)
        whole, problem = self._expand(body, "input", "")
        strange = body.keys() - ALLOWED
        if problem is not None or strange:
            self.wrong.append(problem or f"Unknown parameter: {sorted(strange)}")
            return error(400, message=self.wrong[-1], type="invalid_request_error")
        items = whole["input"]
        sealed = seal(repr(items), 900)
        packed = {"type": "compaction", "id": f"cmp_{len(self.compacted)}", "encrypted_content": sealed}
        said = [item for item in items if item.get("role") in {"user", "developer"}]
        self.issued[sealed] = packed, items
        counts = {"input_tokens": PROMPT_TOKENS, "output_tokens": NOTE_TOKENS}
        usage = {**counts, "total_tokens": 1, "input_tokens_details": {"cached_tokens": CACHED_TOKENS}}
        answer = {"id": "resp_c", "object": "response.compaction", "output": [*said, packed], "usage": usage}
        changed = self.change(answer) if self.change is not None else answer
        return changed if isinstance(changed, web.Response) else web.json_response(changed)


def _write_events(whole: Wire) -> list[Wire]:
    """The block comes whole, and the usage at the end."""
    start = {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": {}}}
    blocks: list[Wire] = []
    for index, block in enumerate(whole["content"]):
        blocks.append({"type": "content_block_start", "index": index, "content_block": block})
        blocks.append({"type": "content_block_stop", "index": index})
    delta = {"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"]}, "usage": whole["usage"]}
    return [start, {"type": "ping"}, *blocks, delta, {"type": "message_stop"}]


def answer_without_notes(status: int) -> web.Response:
    """What a server says that knows no compaction."""
    return fault(status, "not_found_error" if status == 404 else "invalid_request_error", "compaction: not permitted")
