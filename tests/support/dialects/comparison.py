"""What must be the same in a forwarded body and in the client's, in any dialect.

Law: it knows no rule and no codec. It compares bytes, and a transcript that was read as chat messages.
"""

from collections.abc import Iterable, Sequence

import msgspec
from support.checker import (
    Wires,
    check_bridges,
    check_content,
    check_first_user,
    check_last_user,
    check_pointers,
    check_users,
    texts_of,
)

Members = dict[str, bytes]


def read_members(raw: bytes) -> Members:
    """The members of a JSON object, each as its own bytes, in order."""
    return {key: bytes(value) for key, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items()}


def read_items(raw: bytes) -> list[bytes]:
    """The items of a JSON array, each as its own bytes. Any other value is one item."""
    if not raw.startswith(b"["):
        return [raw]
    return [bytes(item) for item in msgspec.json.decode(raw, type=list[msgspec.Raw])]


def without(members: Members, *names: str) -> Members:
    """The members except the named ones."""
    return {key: value for key, value in members.items() if key not in names}


def check_members(original: Members, sent: Members, transcript: str) -> list[str]:
    """Every member except the transcript has the client's bytes, and all are in the client's order."""
    if list(original) != list(sent):
        return [f"members were added, removed or moved: {', '.join(sent)}"]
    return [f"{name} was changed" for name in original if name != transcript and original[name] != sent[name]]


def check_order(original: Iterable[object], sent: Iterable[object], what: str) -> list[str]:
    """What is sent is in the original, in the same order, and no more often."""
    rest = iter(original)
    return [f"{what} {rank} is not the client's, or was moved" for rank, one in enumerate(sent) if one not in rest]


def check_talk(original: Wires, sent: Wires, *, last_may_shrink: bool = False) -> list[str]:
    """The laws of chat that hold in any dialect: for texts, markers, the task statement and the last user message."""
    return [
        *check_content(original, sent),
        *check_pointers(original, sent, last_may_shrink=last_may_shrink),
        *check_users(original, sent),
        *check_bridges(original, sent),
        *check_first_user(original, sent, may_shrink=last_may_shrink),
        *check_beginning(original, sent, may_shrink=last_may_shrink),
        *check_last_user(original, sent, last_may_shrink=last_may_shrink),
    ]


def check_beginning(original: Wires, sent: Wires, *, may_shrink: bool = False) -> list[str]:
    """The first user message begins with the text of the client's first one."""
    tasks = ["\n\n".join(texts_of(next(iter(users_of(part)), {}))) for part in (original, sent)]
    if tasks[1].startswith(tasks[0]) or (may_shrink and "[trimtab: " in tasks[1]):
        return []
    return ["the first user message does not begin with the task statement"]


def users_of(messages: Wires) -> list[dict[str, object]]:
    """The user messages."""
    return [message for message in messages if message["role"] == "user"]


def find_run(items: Sequence[bytes], run: Sequence[bytes]) -> bool:
    """Whether the items contain the run, without anything in between."""
    return any(list(items[start : start + len(run)]) == list(run) for start in range(len(items) - len(run) + 1))
