"""What a model gets for a query: the best passages of what its prompt does not have of the client's transcript.

Law: a function of the transcript, of what is forwarded of it, and of the queries. A passage is quoted, and nothing in
it looks like a text of ours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trimtab.proxy.recall.search import Archive
from trimtab.rules.conversation import Conversation, CountTokens
from trimtab.rules.pipeline.recall import Passage, read_passages
from trimtab.rules.summary.anchors.names import find_names
from trimtab.rules.text.markers import QUOTE_END, QUOTE_START, START

MAX_TERMS = 64
"""Words of a query that count. Chosen: above the longest useful query."""
MAX_FOUND = 200
"""Passages that are looked at, best first. Chosen: more than fit any budget."""
NOTHING_REMOVED = f"{START}nothing was removed from this conversation: all of it is above]"
NOTHING_FOUND = f"{START}nothing in the removed part of this conversation has any of these words]"
NO_ROOM = f"{START}no room is left in the context window for what was found]"


@dataclass(slots=True)
class Lookup:
    """The search in one request's transcript; its index is made once, when it is first needed.

    original: the client's transcript. forwarded: what the model has of it.
    """

    original: Conversation
    forwarded: Conversation
    count: CountTokens
    _passages: list[Passage] = field(default_factory=list)
    _archive: Archive | None = None

    def _removed(self) -> Iterator[int]:
        whole = [message for message in self.forwarded.messages if message.saved_tokens <= 0]
        same, raws = {id(message) for message in whole}, {message.raw for message in whole if message.raw}
        for at, message in enumerate(self.original.messages):
            if id(message) not in same and message.raw not in raws:
                yield at

    def find(self, query: str, first: int, last: int | None, max_tokens: int) -> str:
        """The best passages for a query from the messages [first, last), as the text of the tool's result."""
        if self._archive is None:
            self._archive = Archive()
            self._passages = [each for at in self._removed() for each in read_passages(at, self.original.messages[at])]
            self._archive.add([each.text for each in self._passages])
        if not self._passages:
            return NOTHING_REMOVED
        terms = [*sorted(find_names(query)), *query.split()][:MAX_TERMS]
        found = (self._passages[each] for each in self._archive.search(terms, most=MAX_FOUND, is_rare=False))
        fitting = [each for each in found if first <= each.at and (last is None or each.at < last)]
        return self._write(fitting, max_tokens) if fitting else NOTHING_FOUND

    def _write(self, found: Sequence[Passage], max_tokens: int) -> str:
        """As many passages as fit, in the order of the transcript. A passage that does not fit is left out."""
        left, chosen = max_tokens - self.count(f"{QUOTE_START}\n{QUOTE_END}"), list[Passage]()
        for passage in found:
            tokens = self.count(f"{passage.write()}\n")
            if tokens <= left:
                left -= tokens
                chosen.append(passage)
        if not chosen:
            return NO_ROOM
        written = "\n".join(passage.write() for passage in sorted(chosen))
        return f"{QUOTE_START}\n{written}\n{QUOTE_END}"
