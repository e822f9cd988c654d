"""Writes the text of a request for the dashboard: what became of each message, and what its session is called.

Law: text only if the user asked for it, in a thread, after the client has its answer. What a client's headers call a
session stays in memory, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from trimtab.proxy.account.history.kept import History, Text
from trimtab.proxy.account.history.texts import Packed, Title, pack_text
from trimtab.proxy.account.outcome import OutcomeText
from trimtab.proxy.account.recorder import Recorder, fail_open
from trimtab.proxy.account.recordings.format import CarriedOut, Served
from trimtab.proxy.account.redact import Hidden, find_hidden, redact_text
from trimtab.proxy.memory import KEPT_FACTOR
from trimtab.rules.conversation import Message, Role
from trimtab.rules.pipeline.appended import read_words
from trimtab.rules.pipeline.changes import Change, Fate
from trimtab.rules.pipeline.story import tell_story
from trimtab.rules.summary.quoting import quote_line

MAX_MESSAGE_CHARS = 64 * 1024  # Kept of a message before, and after. Chosen: more than a person reads.
MAX_TEXT_CHARS = 4 * 1024 * 1024  # The most that is kept of a request. Chosen: a long session, whole.
TITLE_CHARS = 100  # Of a title. Chosen: a line of a table.
READ_MESSAGES, READ_TEXTS, READ_CHARS = 8, 16, 16 * 1024
"""User messages that may hold the first words of a user, texts of each, and characters of each. Chosen: clients put
their own text in front, some thousand characters in one or two messages."""


def tell_title(recorder: Recorder, history: History, served: Served) -> None:
    """Have it written what the session of a request is called; once."""
    done, outcome = served.carried_out, served.outcome
    if done is not None:
        size_bytes = KEPT_FACTOR * len(served.request.body) if served.request is not None and history.keeps_text else 0
        messages = done.plan.original.messages if history.keeps_text else ()
        write = partial(_write_title, recorder, served, messages)
        history.add_text(Text("", outcome.session, outcome.at, size_bytes, write))


def _write_title(recorder: Recorder, served: Served, messages: Sequence[Message]) -> Title | None:
    with fail_open(recorder, served.outcome.request_id, "tell"):
        hidden = find_hidden(served.config, served.find_shown())
        names = dict.fromkeys(served.config.sessions.headers)
        values = dict.fromkeys(value for name, value in served.headers if name.lower() in names)
        header = redact_text(clean(" ".join(values)), hidden)
        return Title(find_title(messages, hidden), quote_line(header, TITLE_CHARS))
    return None


def find_title(messages: Iterable[Message], hidden: Hidden) -> str:
    """The beginning of what the user said first, as one line; empty if it has no words."""
    users = (message for message in messages if message.role is Role.USER)
    for message in islice(users, READ_MESSAGES):
        texts = tuple([text[:READ_CHARS] for text in message.texts[:READ_TEXTS]])
        words = read_words(replace(message, texts=texts), ())
        if line := quote_line(redact_text(clean(words[:READ_CHARS]), hidden), TITLE_CHARS):
            return line
    return ""


def tell_text(recorder: Recorder, history: History, served: Served) -> None:
    done, outcome, request = served.carried_out, served.outcome, served.request
    if done is None or request is None or not done.applied.decisions:
        return
    size_bytes = KEPT_FACTOR * len(request.body)
    write = partial(_pack, recorder, served, done)
    history.add_text(Text(outcome.request_id, outcome.session, outcome.at, size_bytes, write))


def _pack(recorder: Recorder, served: Served, done: CarriedOut) -> Packed | None:
    with fail_open(recorder, served.outcome.request_id, "tell"):
        return pack_text(_write(served, done))
    return None


def _write(served: Served, done: CarriedOut) -> OutcomeText:
    story = tell_story(done.plan, done.applied, ratio=done.ratio)
    hidden = find_hidden(served.config, served.find_shown())
    changes = [_redact(change, hidden) for change in story.changes]
    summary = "" if done.text is None or done.used is None else redact_text(done.text.shown, hidden)
    if not summary and served.outcome.summary_kind:  # a digest
        summary = max((change.after for change in changes if change.fate is Fate.ADDED), key=len, default="")
    sentences = tuple(redact_text(sentence.text, hidden) for sentence in story.sentences)
    return OutcomeText(sentences, tuple(_crop(changes)), crop(summary, MAX_MESSAGE_CHARS))


def _redact(change: Change, hidden: Hidden) -> Change:
    """The change without credentials. It is made before any text is cropped, or else a part of a key could stay."""
    role, tool = redact_text(change.role, hidden), redact_text(change.tool, hidden)
    before, after = redact_text(change.before, hidden), redact_text(change.after, hidden)
    return replace(change, role=role, tool=tool, before=before, after=after)


def _crop(changes: Sequence[Change]) -> Iterator[Change]:
    """The changes, the newest first to get their texts; in their own order."""
    left, cropped = MAX_TEXT_CHARS, []
    for change in reversed(changes):
        before, after = (crop(text, min(left, MAX_MESSAGE_CHARS)) for text in (change.before, change.after))
        left = max(left - len(before) - len(after), 0)
        cropped.append(replace(change, before=before, after=after))
    return reversed(cropped)


def crop(text: str, most_chars: int) -> str:
    if len(text) > most_chars:
        text = f"{text[:most_chars]}\n[{len(text) - most_chars} more characters are not kept]"
    return clean(text)


def clean(text: str) -> str:
    """The text without lone surrogates, which no encoder takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
