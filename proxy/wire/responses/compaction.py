"""OpenAI's compaction: the user's messages and one encrypted item, which the next input begins with.

Law: an answer has a note only if it has exactly one such item, and beside it only messages. The system's are left out,
since trimtab forwards the client's own, as Codex does. Source: OpenAI's guide on compaction and its Python SDK.
"""

from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from trimtab.proxy.wire.answering import Completion, ProviderNote, try_usage
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.json import decode_member, decode_members
from trimtab.proxy.wire.responses.units import COMPACTIONS, read_head
from trimtab.proxy.wire.transcript.body import UndecodableError

_TAKEN = frozenset(
    {
        "model", "input", "instructions", "service_tier",
        "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
    }
)  # fmt: skip
"""The members of such a question. Source: OpenAI's reference of `POST /responses/compact`."""
_SPOKEN = frozenset({"user", "assistant"})
_SYSTEM = frozenset({"system", "developer"})


class _Answer(msgspec.Struct):
    output: list[msgspec.Raw]
    usage: msgspec.Raw = msgspec.Raw(b"null")
    object: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


def _finish(members: dict[str, msgspec.Raw], _: dict[str, Any], __: str) -> dict[str, Any] | None:
    if bytes(members["input"]) == b"[]":
        return None
    return {name: value for name, value in members.items() if name in _TAKEN}


def join(events: list[bytes]) -> Completion:
    if len(events) != 1:
        message = "no answer"
        raise UndecodableError(message)
    answer = _decode(events[0])
    kept = [bytes(item) for item in answer.output if not _is_message(bytes(item), _SYSTEM)]
    packed = [item for item in kept if read_head(item)[0] in COMPACTIONS]
    is_note = (
        len(packed) == 1
        and answer.object == "response.compaction"
        and _is_sealed(packed[0])
        and all(_is_message(item, _SPOKEN) for item in kept if item is not packed[0])
    )
    usage = try_usage(answer.usage) or Usage()
    text = "" if is_note or answer.object == "response.compaction" else "answered"
    return Completion(text, usage, note=b",".join(kept) if is_note else b"")


def _is_message(item: bytes, roles: AbstractSet[str]) -> bool:
    kind, role = read_head(item)
    return kind in (None, "message") and isinstance(role, str) and role in roles


def _is_sealed(item: bytes) -> bool:
    sealed = decode_member(decode_members(item).get("encrypted_content"))
    return isinstance(sealed, str) and bool(sealed)


NOTE = ProviderNote("/compact", (), _finish, join)
