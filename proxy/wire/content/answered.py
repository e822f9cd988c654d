"""Writes the id of the call that a result answers.

Law: an id that says the same keeps its bytes.
"""

import msgspec
import orjson

from proxy.wire.content.schemas import decode_or_none
from proxy.wire.json.ids import read_id
from rules.conversation import Message


def write_answered(message: Message) -> msgspec.Raw:
    """The id as its call has it."""
    return msgspec.Raw(message.answers_json or orjson.dumps(message.answers or ""))


def rename(message: Message, members: dict[str, msgspec.Raw], key: str) -> None:
    """Change the id in the members of an edited result, if a rule has found that it answers another call."""
    if message.answers and read_id(decode_or_none(members.get(key))) not in {"", message.answers}:
        members[key] = write_answered(message)
