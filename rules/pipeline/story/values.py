"""The values of a story.

Law: values only.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum


class Fate(StrEnum):
    """What became of a message of the client's transcript, or that it is one of trimtab's own.

    SHORTENED: some of its text or images is gone or replaced. PRUNED: a placeholder stands for its result.
    REMOVED: it is not forwarded; a summary or digest may tell what it said. ADDED: trimtab made it.
    MOVED: its words are forwarded unchanged, but at another place: in the message that holds the summary, in a
    neighbouring system message, or right after the call that it answers.
    """

    SHORTENED = "shortened"
    PRUNED = "pruned"
    REMOVED = "removed"
    ADDED = "added"
    MOVED = "moved"


OUTSIDE = -1
"""The index of a message that is not in the request's list: the member `system` of a Messages request, or the member
`instructions` of a Responses request."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one message. Messages that are forwarded unchanged have none.

    at: the index, from 0, of its first element in the request's own list (`messages` or `input`); OUTSIDE if it is not
        in the list. Several results in one element have the same index. For an added message, the index of the element
        before which it stands.
    role: on the wire. tool: the name of the tool whose result it is; empty if it is no result.
    rules: the names of the rules that changed it, as in decisions, in order.
    tokens_before, tokens_after: in the model's own tokens; 0 for a message that is not there. They are rounded so that
        all changes of a story add up to what was saved, to the token. So they may be one off.
    before, after: its text as the client sent it, and as it is forwarded, with its calls and a line for each image;
        empty if it is not there.
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

    def describe(self, *, with_texts: bool = False) -> dict[str, object]:
        """The fields by their names, for JSON.

        with_texts: `before` and `after`, too, with `?` for each lone surrogate, which UTF-8 cannot hold.
        """
        described: dict[str, object] = asdict(self)
        del described["before"], described["after"]
        if not with_texts:
            return described
        texts = {"before": self.before, "after": self.after}
        return described | {name: text.encode("utf-8", "replace").decode() for name, text in texts.items()}


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a story. It names tools, messages and tokens, and quotes no text of the conversation.

    rule: the decision that it tells; empty for a sentence about the whole request.
    messages: indexes in the request's own list that it is about, ascending, as in `Change.at`.
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
