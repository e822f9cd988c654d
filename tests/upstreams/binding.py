"""A strict model that binds its thinking to what stands before it, as Anthropic's newest models do.

A block is valid if `system`, `tools` and all messages before it have the values that they had when it was given, cache
markers aside, and if no block of thinking is missing between it and the one before it.

Source: Anthropic's pages on preserved thinking and prefix checks.
"""

from dataclasses import dataclass, field
from hashlib import sha256

import orjson
from aiohttp import web
from support.dialects.messages_validity import blocks_of
from support.dialects.seals import seal
from upstreams.recording import Recorded
from upstreams.speech.messages import refuse
from upstreams.strict import StrictModel, Wire

BETA = "thinking-binding-controls-2026-08-01"
THINKING = {"thinking", "redacted_thinking"}
MISMATCH = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a block of thinking is bound to: the prefix, and the signature of the block before it; None for none."""

    prefix: str
    before: str | None


@dataclass
class BindingModel(StrictModel):
    """The strict model with the check of prefixes.

    binds: whether it checks prefixes; older models do not, and at first not for older accounts.
    knows_setting: whether it knows the setting; a gateway that keeps the beta header back does not.
    unknown: the requests that were refused for the setting.
    bound: what each block is bound to, by its signature.
    asked: for each request of the session that was accepted, whether it asks that blocks are dropped.
    dropped: for the same requests, how many blocks were dropped.
    mismatched: the requests that were refused for a block.
    """

    binds: bool = True
    knows_setting: bool = True
    unknown: list[Recorded] = field(default_factory=list)
    bound: dict[str, Bound] = field(default_factory=dict)
    asked: list[bool] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    mismatched: list[Recorded] = field(default_factory=list)

    async def answer(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; with 400 if a block in it does not fit, and the request does not let it be dropped."""
        body = recorded.json
        setting = body.get("thinking") or {}
        asks = setting.get("block_binding", {}).get("prefix_mismatch_behavior") == "drop_block"
        if "block_binding" in setting and (problem := _check_setting(setting, recorded, is_known=self.knows_setting)):
            self.unknown.append(recorded)
            return refuse(problem)
        kept, unfit = self._find_kept(body) if self.binds else (None, [])
        if unfit and not asks:
            self.mismatched.append(recorded)
            return refuse(f"messages.{unfit[0][0]}.content.{unfit[0][1]}: {MISMATCH}")
        answer = await super().answer(recorded, request)
        if not recorded.path.endswith("count_tokens") and not recorded.asks_for_summary and answer.status == 200:
            self.asked.append(asks)
            self.dropped.append(len(unfit))
        turn = self.turns[self.played - 1] if self.played else None
        if turn is not None and turn.thought and answer.status == 200 and not recorded.asks_for_summary:
            self.bound.setdefault(seal(turn.thought), Bound(_hash(body, body["messages"]), kept))
        return answer

    def _find_kept(self, body: Wire) -> tuple[str | None, list[tuple[int, int]]]:
        """The signature of the last block that stays, and the places of those that do not fit."""
        kept: str | None = None
        unfit = []
        messages = body.get("messages") or []
        for rank, message in enumerate(messages):
            for index, block in enumerate(blocks_of(message)):
                if block.get("type") not in THINKING:
                    continue
                signature = block.get("signature") or block.get("data")
                bound = self.bound.get(signature)
                before = [*messages[:rank], {**message, "content": blocks_of(message)[:index]}]
                fits = bound is not None and bound.prefix == _hash(body, before if index else messages[:rank])
                if not fits or (kept is not None and bound.before != kept):
                    unfit.append((rank, index))
                else:
                    kept = signature
        return kept, unfit


def _check_setting(setting: Wire, recorded: Recorded, *, is_known: bool) -> str | None:
    betas = [one.strip() for value in recorded.header("anthropic-beta") for one in value.split(",")]
    if BETA not in betas or not is_known:
        return "thinking.block_binding: Extra inputs are not permitted"
    if setting.get("type") not in {"adaptive", "enabled"}:
        return "thinking.block_binding: not accepted with this type"
    return None


def _hash(body: Wire, messages: list[Wire]) -> str:
    """The hash of a prefix: the values of `system`, `tools` and the messages, without thinking and cache markers."""
    told = [[message["role"], [_clean(block) for block in blocks_of(message)]] for message in messages]
    said = [[role, [block for block in blocks if block["type"] not in THINKING]] for role, blocks in told]
    prefix = [_clean(body.get("system")), _clean(body.get("tools")), said]
    return sha256(orjson.dumps(prefix, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _clean(value: object) -> object:
    if isinstance(value, dict):
        return {name: _clean(one) for name, one in value.items() if name != "cache_control"}
    return [_clean(one) for one in value] if isinstance(value, list) else value
