"""The provider's own compaction: how a dialect asks for it, and puts its note in the place of what it stands for.

Law: nothing in a note is changed, since the provider has signed or encrypted it. A note has only elements that need no
others, so it can stand before any transcript.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from trimtab.proxy.wire.answering import Completion
from trimtab.proxy.wire.answers.sse import read_events
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, describe_fault
from trimtab.proxy.wire.transcript.body import UndecodableError


@dataclass(frozen=True, slots=True)
class ProviderNote:
    """How a dialect's provider compacts.

    path: follows that of the client's request.
    headers: of the question, and of each request that has a note. Their values are lists.
    finish: what the members of a question and its parameters become, with the operator's own instructions; None if they
        do not allow it.
    join: the note in the events of a stream, or in a whole answer; without `note` if there is none. Raises
        UndecodableError or one of DECODE_ERRORS.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    finish: Callable[[dict[str, msgspec.Raw], dict[str, Any], str], dict[str, Any] | None]
    join: Callable[[Sequence[bytes]], Completion]

    def read(self, answer: bytes) -> Completion:
        """The note in an answer, streamed or not. Raises UndecodableError."""
        try:
            events = read_events(answer)
            completion = self.join([answer] if events is None else events)
            completion.note.decode()  # what is stored and forwarded must be UTF-8
        except DECODE_ERRORS as error:
            raise UndecodableError(describe_fault(error)) from error
        return completion
