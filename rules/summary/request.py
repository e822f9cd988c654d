"""Rung 6: the texts that stand for what was cut: what is wanted of whom, and what stands in without a model.

Law: the request for a summary is data. How a model is asked for one stands in asking/.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rules.conversation import CountTokens, Message, Role, count_leading
from rules.summary.digest.write import find_note, write_digest
from rules.summary.quoting import break_headings
from rules.text.head_tail import truncate_text
from rules.window.prune import is_prunable
from rules.window.state import Cut, CutKind, Window

PROMPT_VERSION = "5"
"""Part of a summary's id: a changed prompt, or another notion of what a note is, never finds older texts."""
NOTE_GAP_TOKENS = 8
"""Between a note and the list behind it, and what both may cost more together."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A summary wanted, as data.

    `key` names the prefix that it covers, which ends before message `at`. `base` is the key of the previous
    cut's summary, which covers `earlier`; `span` are the messages from there to the cut. `task` is the first user
    message, which will stand before it. `pruned` are results of the span that are forwarded as placeholders. Where no
    model is to be asked, the digest is wanted, going on from the previous summary.

    The newest `kept` user messages of what is covered will stand verbatim behind the text, as the newest `base_kept` of
    `earlier` stood behind the previous summary. A digest lists neither.

    `leading` are the system messages before all of that, which whoever is asked behind the conversation reads, too.
    Two requests that differ in them alone (a timestamp) are the same.
    `instructions` are the operator's own words on what the note is to be; none if empty.
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


@dataclass(frozen=True, slots=True)
class Summary:
    """The text that stands for a cut, and whether a model wrote it.

    `carried` is what code carries over the cut besides: it is spliced in between the text and the closing line, whole,
    and never stored, because it is worked out anew for each request.
    """

    text: str
    by_model: bool
    carried: str = ""


def request_summary(messages: Sequence[Message], hashes: Sequence[bytes], window: Window) -> SummaryRequest | None:
    """The request for the text that the window's last cut needs; None where no cut stands."""
    cut, earlier = window.cut, window.earlier
    if cut is None or earlier is None:
        return None
    request = _request(messages, hashes, earlier, cut.at)
    asks = cut.kind is CutKind.SUMMARISE
    return replace(request, key=_name(hashes, cut), max_tokens=cut.reserved_tokens, asks_model=asks, kept=len(cut.kept))


def request_prefetch(messages: Sequence[Message], hashes: Sequence[bytes], window: Window) -> SummaryRequest | None:
    """The request for the text that the next cut is expected to need; None where none is."""
    if window.next_cut is None or not window.prefetch_tokens:
        return None
    return replace(_request(messages, hashes, window, window.next_cut), max_tokens=window.prefetch_tokens)


def _request(messages: Sequence[Message], hashes: Sequence[bytes], before: Window, at: int) -> SummaryRequest:
    """A summary of what stands between head and `at`, going on from the cut that stood before."""
    leading = count_leading(messages)
    start = before.cut.at if before.cut else leading
    task = messages[before.task] if before.task is not None and before.task < at else None
    return SummaryRequest(
        key=hashes[at].hex(),
        at=at,
        base=_name(hashes, before.cut) if before.cut and start > leading else None,
        task=task,
        earlier=tuple(messages[index] for index in range(leading, start) if index != before.task),
        span=tuple(messages[index] for index in range(start, at) if index != before.task),
        max_tokens=0,
        pruned=tuple(message for message in messages[start : min(before.prune_stop, at)] if is_prunable(message)),
        base_kept=len(before.cut.kept) if before.cut else 0,
        leading=tuple(messages[:leading]),
    )


def _name(hashes: Sequence[bytes], cut: Cut) -> str:
    """The key of a cut's text.

    A list made where too few steps were cut is not found where a summary is wanted, nor where other messages are kept.
    """
    return hashes[cut.at].hex() + ("" if cut.kind is CutKind.SUMMARISE else f"-digest-{len(cut.kept)}")


def make_digest(request: SummaryRequest, *, base: Summary | None = None, count: CountTokens) -> str:
    """The text that stands in when no model's summary is to be had, within the request's `max_tokens`.

    It goes on from the previous summary if a model wrote that. User messages that stand verbatim behind it are left
    out; those that stood behind the previous summary, and no longer do, are listed. If the previous text was itself a
    digest, all of it is listed anew, behind the summary that it went on from. A summary has half of the room, and what
    the list of the other half needs not.
    """
    covered = (*request.earlier, *request.span)
    users = [index for index, message in enumerate(covered) if message.role is Role.USER]
    kept = set(_newest(users, request.kept))
    uncovered: Sequence[int] = range(len(covered))
    note = ""
    if base is not None and base.by_model:
        note, start = base.text, len(request.earlier)
        before = [index for index in users if index < start]
        uncovered = (*_newest(before, request.base_kept), *range(start, len(covered)))
    elif base is not None:
        note = find_note(base.text)
    left = [covered[index] for index in uncovered if index not in kept]
    note, note_tokens = break_headings(note), request.max_tokens // 2
    if count(note) > note_tokens:  # of a short list's half it has what that leaves
        listed = write_digest(left, max_tokens=note_tokens, count=count)
        note = truncate_text(note, max(request.max_tokens - count(listed) - NOTE_GAP_TOKENS, note_tokens), count)
    return write_digest(left, max_tokens=request.max_tokens, count=count, note=note)


def _newest(indexes: Sequence[int], number: int) -> Sequence[int]:
    return indexes[-number:] if number else ()
