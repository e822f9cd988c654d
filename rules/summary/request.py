"""The request for the summary of a cut part, and the digest that replaces it if no model's summary is available.

Law: the request is data. The prompts for a model are in asking/.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from msgspec import structs

from trimtab.rules.conversation import CountTokens, Message, Role, count_leading
from trimtab.rules.summary.digest import find_note, write_digest
from trimtab.rules.summary.quoting import clean_note
from trimtab.rules.text.head_tail import truncate_text
from trimtab.rules.window.prune import is_prunable
from trimtab.rules.window.state import Cut, CutKind, Window

PROMPT_VERSION = "5"
"""Part of a summary's id. Change it with the prompts or the check of notes, so that older summaries are not found."""
NOTE_GAP_TOKENS = 8
"""Tokens reserved for the blank line between a note and the list after it, and for the difference between the count of
the joined text and the sum of the two counts. Chosen."""
OPAQUE = "(encrypted: only the provider can read it)"  # Shown in the place of a note without a text


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A request for the summary of everything between the head and message `at`.

    - `key`: names the covered prefix.
    - `base`: the key of the previous cut's summary, which covers `earlier`; None if there is none.
    - `task`: the task statement. It is forwarded verbatim before the summary.
    - `opening`: the client's own summary of an earlier session, if it is forwarded verbatim after the task statement.
    - `earlier`, `span`: the covered messages before and after the previous cut, without the task statement and
      without `opening`. Of equal system messages, each of them has only the newest.
    - `max_tokens`: the most that the summary may have.
    - `pruned`: tool results of the span that are forwarded as placeholders.
    - `asks_model`: if false, no model is asked; the text is a digest that continues the previous summary.
    - `kept`: this many of the newest covered user messages are forwarded verbatim after the summary. A digest does not
      list them.
    - `base_kept`: the same number for the previous summary, counted in `earlier`.
    - `said_elsewhere`: digests of covered system messages that are forwarded anyway. A digest does not list them.
    - `leading`: the system messages before the covered part. A model that is asked within the conversation reads them,
      too. They do not count for equality, because they may contain a timestamp.
    - `instructions`: the operator's own instructions for the note; empty if there are none.
    - `room_tokens`: what the cut has left for everything that stands for the covered part.
    """

    key: str
    at: int
    base: str | None
    task: Message | None
    earlier: tuple[Message, ...]
    span: tuple[Message, ...]
    max_tokens: int
    pruned: tuple[Message, ...] = ()
    asks_model: bool = True
    kept: int = 0
    base_kept: int = 0
    leading: tuple[Message, ...] = field(default=(), compare=False)
    instructions: str = ""
    said_elsewhere: frozenset[bytes] = frozenset()
    opening: Message | None = None

    @property
    def room_tokens(self) -> int:
        covered = (*self.earlier, *self.span)
        users = [message for message in covered if message.role is Role.USER]
        kept = users[-self.kept :] if self.kept else ()
        verbatim = [message for message in (self.task, self.opening, *kept) if message is not None]
        tokens: int = sum(message.tokens for message in verbatim)
        return self.max_tokens + tokens


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a cut part, and whether a model wrote it (if not, it is a digest).

    `carried` is the text that code carries over the cut (task list, instruction files, exact names). It is inserted
    whole between the summary and the closing line. It is never stored, because it is computed for each request.

    note: what the provider's own compaction wrote, in its dialect's JSON; `text` is then what can be read of it.
    standing: the messages of `note`, which replace the cut part as they are. They are never stored either.
    """

    text: str
    by_model: bool
    carried: str = ""
    note: bytes = b""
    standing: tuple[Message, ...] = ()

    @property
    def shown(self) -> str:
        return self.text or (OPAQUE if self.note else "")


def request_summary(messages: Sequence[Message], hashes: Sequence[bytes], window: Window) -> SummaryRequest | None:
    """The request for the summary that the window's last cut needs; None if there is no cut."""
    cut, earlier = window.cut, window.earlier
    if cut is None or earlier is None:
        return None
    request = _request(messages, hashes, structs.replace(earlier, opening=cut.opening), cut.at)
    forwarded = [messages[index] for index in (*cut.kept_systems, *range(cut.at, cut.made_at))]
    return replace(
        request,
        key=_name(hashes, cut),
        max_tokens=cut.reserved_tokens,
        asks_model=cut.kind is CutKind.SUMMARISE,
        kept=len(cut.kept),
        said_elsewhere=frozenset(message.digest for message in forwarded if message.role is Role.SYSTEM),
    )


def request_prefetch(messages: Sequence[Message], hashes: Sequence[bytes], window: Window) -> SummaryRequest | None:
    """The request for the summary that the next cut is expected to need; None if none is expected."""
    if window.next_cut is None or not window.prefetch_tokens:
        return None
    return replace(_request(messages, hashes, window, window.next_cut), max_tokens=window.prefetch_tokens)


def request_cold(messages: Sequence[Message], hashes: Sequence[bytes], window: Window) -> SummaryRequest | None:
    """The request for the summary that a cut needs if the upstream's cache is cold at the next request; None for none.

    It is the one to which that cut will find the text: it ends at the same message and continues the same summary.
    """
    cold = window.cold_summary
    if cold is None:
        return None
    return replace(_request(messages, hashes, window, cold.at), max_tokens=cold.reserved_tokens)


def _request(messages: Sequence[Message], hashes: Sequence[bytes], before: Window, at: int) -> SummaryRequest:
    """The request for a summary of everything between head and `at`, which continues that of the cut `before`."""
    leading = count_leading(messages)
    start = before.cut.at if before.cut else leading
    task = messages[before.task] if before.task is not None and before.task < at else None
    apart = {before.task, before.opening}
    return SummaryRequest(
        key=hashes[at].hex(),
        at=at,
        base=_name(hashes, before.cut) if before.cut and start > leading else None,
        task=task,
        earlier=_take(messages, range(leading, start), apart),
        span=_take(messages, range(start, at), apart),
        max_tokens=0,
        pruned=tuple(
            messages[index] for index in before.pruned if start <= index < at and is_prunable(messages[index])
        ),
        base_kept=len(before.cut.kept) if before.cut else 0,
        leading=tuple(messages[:leading]),
        opening=messages[before.opening] if 0 <= before.opening < at else None,
    )


def _take(messages: Sequence[Message], places: range, apart: AbstractSet[int | None]) -> tuple[Message, ...]:
    """These messages without those apart; of equal system messages only the newest."""
    newest = {messages[index].digest: index for index in places if messages[index].role is Role.SYSTEM}
    return tuple(
        message
        for index in places
        if index not in apart
        and ((message := messages[index]).role is not Role.SYSTEM or newest[message.digest] == index)
    )


def _name(hashes: Sequence[bytes], cut: Cut) -> str:
    """The key of a cut's summary.

    A digest has a key of its own, so it is not found if a model's summary is wanted or if other messages are kept.
    """
    name = hashes[cut.at].hex()
    if cut.kind is CutKind.SUMMARISE:
        return name
    systems = f"-{len(cut.kept_systems)}" if cut.kept_systems else ""
    opening = "-opening" if cut.opening >= 0 else ""
    return f"{name}-digest-{len(cut.kept)}{systems}{opening}"


def make_digest(request: SummaryRequest, *, base: Summary | None = None, count: CountTokens) -> str:
    """Write the digest that is used if no model's summary is available, within the request's `max_tokens`.

    If a model wrote the previous summary (`base`), the digest begins with it and lists only the later messages. If the
    previous text was itself a digest, all covered messages are listed again, after the model's summary that it began
    with, if any. User messages that are forwarded verbatim are not listed. A user message is listed if it was
    forwarded verbatim after the previous summary and no longer is.

    A previous summary gets half of the tokens, and what the list leaves of the other half.
    """
    covered = (*request.earlier, *request.span)
    users = [index for index, message in enumerate(covered) if message.role is Role.USER]
    kept = set(_newest(users, request.kept))
    uncovered: Sequence[int] = range(len(covered))
    note = ""
    if base is not None and base.note and not base.text:
        base = None  # only the provider can read it
    if base is not None and base.by_model:
        note, start = base.text, len(request.earlier)
        before = [index for index in users if index < start]
        uncovered = (*_newest(before, request.base_kept), *range(start, len(covered)))
    elif base is not None:
        note = find_note(base.text)
    left = [
        message
        for index in uncovered
        if index not in kept
        and ((message := covered[index]).role is not Role.SYSTEM or message.digest not in request.said_elsewhere)
    ]
    note, note_tokens = clean_note(note), request.max_tokens // 2
    if count(note) > note_tokens:  # the note also gets what a short list leaves of its half
        listed = write_digest(left, max_tokens=note_tokens, count=count)
        note = truncate_text(note, max(request.max_tokens - count(listed) - NOTE_GAP_TOKENS, note_tokens), count)
    return write_digest(left, max_tokens=request.max_tokens, count=count, note=note)


def _newest(indexes: Sequence[int], number: int) -> Sequence[int]:
    return indexes[-number:] if number else ()
