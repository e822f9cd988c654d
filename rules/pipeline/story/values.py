"""The values of a story.

Law: values only.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Fate(StrEnum):
    """What became of a message of the client's transcript, or that it is one of trimtab's own.

    SHORTENED: some of its text or images is gone or replaced. PRUNED: a placeholder stands for its result.
    REMOVED: it is not forwarded; a summary or digest may tell what it said. ADDED: trimtab made it.
    """

    SHORTENED = "shortened"
    PRUNED = "pruned"
    REMOVED = "removed"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one message. Messages that are forwarded unchanged have none.

    at: its index in the client's transcript; for an added message, that of the message before which it stands.
    role: on the wire. tool: the name of the tool whose result it is; empty if it is no result.
    rules: the names of the rules that changed it, as in decisions, in order.
    tokens_before, tokens_after: in trimtab's own tokens; 0 for a message that is not there.
    before, after: its text as the client sent it, and as it is forwarded; empty if it is not there.
    """

    at: int
    role: str
    tool: str
    fate: Fate
    rules: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    before: str = field(default="", repr=False)
    after: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a story. It names tools, messages and tokens, and quotes no text of the conversation.

    rule: the decision that it tells; empty for a sentence about the whole request.
    messages: indexes in the client's transcript that it is about, ascending.
    saved_tokens: what was saved, in the model's own tokens; negative if something was added.
    """

    text: str
    rule: str = ""
    messages: tuple[int, ...] = ()
    saved_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Story:
    """What was done to a request: told in sentences, in order; and message by message."""

    sentences: tuple[Sentence, ...] = ()
    changes: tuple[Change, ...] = ()
