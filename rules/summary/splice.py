"""A summary takes the place of the part before the cut.

Law: a function of the transcript, the cut, the text and the role. The task statement and the kept messages stand
verbatim; no system message of the client moves or goes. What a tool has said gains no authority by standing in a
summary, whoever speaks it: the introduction says so.
"""

from collections.abc import Sequence
from dataclasses import replace

from rules.conversation import (
    HEAD_ROLES,
    RESULT_ROLES,
    Conversation,
    CountTokens,
    Decision,
    Message,
    Outcome,
    count_leading,
)
from rules.policy import SummaryRole
from rules.prefix import digest_message
from rules.summary.request import Summary
from rules.text.head_tail import MIN_TEXT_TOKENS, truncate_text
from rules.text.markers import INTRODUCTION, KEPT_TITLE
from rules.tokens.messages import count_message
from rules.window.state import Window

_NO_ROOM = "Earlier messages were removed."
_ACKNOWLEDGEMENT = "Understood. I will go on from the summary above."
_GO_ON = "Go on from the summary above."


def splice_summary(
    conversation: Conversation, *, window: Window, summary: Summary, role: SummaryRole, count: CountTokens
) -> Outcome:
    """Put `summary` in the place of everything between head and the window's cut.

    System messages of the cut part stay behind it. Where no user message has come before the cut, every role is as
    `auto`.
    """
    cut = window.cut
    if cut is None:
        return Outcome(conversation)
    messages = conversation.messages
    leading = count_leading(messages)
    task = messages[window.task] if window.task is not None and window.task < cut.at else None
    text = summary.text if cut.reserved_tokens >= MIN_TEXT_TOKENS else _NO_ROOM
    body = f"{INTRODUCTION}\n\n{truncate_text(text, max(cut.reserved_tokens, MIN_TEXT_TOKENS), count)}"
    kept = [messages[index] for index in cut.kept]
    memo = _place(SummaryRole.AUTO if task is None else role, task, body, kept)
    systems = [message for message in messages[leading : cut.at] if message.role in HEAD_ROLES]
    tail = _bridge(memo[-1].role, messages[cut.at :], goes_on=role is SummaryRole.PAIR and task is not None)
    placed = [_count(message, count) for message in (*memo, *systems)]
    gone, line = sum(message.tokens for message in messages[leading : cut.at]), _count(_acknowledge(), count)
    # Whether a line bridges the gap depends on what follows, which must not change what was forwarded before.
    if sum(message.tokens for message in placed) + line.tokens >= gone:
        return Outcome(conversation)
    counted = (*placed, *(_count(message, count) for message in tail))
    spliced = Conversation((*messages[:leading], *counted), conversation.fixed_tokens)
    rule = "summarise" if summary.by_model else "digest"
    removed = cut.at - leading - len(systems)
    decision = Decision(rule, f"cut before message {cut.at}", conversation.tokens, spliced.tokens, removed, leading)
    return Outcome(spliced, (decision,))


def _place(role: SummaryRole, task: Message | None, body: str, kept: Sequence[Message]) -> tuple[Message, ...]:
    """Task, summary and the user's kept words in the form that `role` asks for; none of them counted yet.

    `auto`: one user message for all three, so that any chat template takes it. `user`: the task as it is, and a user
    message of its own. The other roles: the kept words are a user message behind the summary.
    """
    if task is None or role is SummaryRole.AUTO:
        return (_join(task or Message("user"), (body, *_title(kept)), kept),)
    if role is SummaryRole.USER:
        return (task, _join(Message("user"), (body, *_title(kept)), kept))
    speaker = "system" if role is SummaryRole.SYSTEM else "assistant"
    words = (_join(Message("user"), _title(kept), kept),) if kept else ()
    return (task, Message(speaker, (body,)), *words)


def _title(kept: Sequence[Message]) -> tuple[str, ...]:
    return (KEPT_TITLE,) if any(message.texts for message in kept) else ()


def _join(base: Message, texts: Sequence[str], kept: Sequence[Message]) -> Message:
    """A message that goes on with `texts`, and with what stands in the kept messages."""
    words = [text for message in kept for text in message.texts]
    media = [part for message in kept for part in message.media]
    taken_in = tuple(message.raw for message in kept if message.raw is not None)
    joined = replace(
        base, texts=(*base.texts, *texts, *words), media=(*base.media, *media), tokens=0, taken_in=taken_in
    )
    return replace(joined, edited=base.raw is not None, digest=b"")


def _bridge(speaker: str, tail: Sequence[Message], *, goes_on: bool) -> tuple[Message, ...]:
    """The tail, with one line of the other side before its first word where two of one side would meet.

    It stands right there, behind any system messages, so that a tail which grows changes nothing before. The line of
    the user is written only where it `goes_on` from a summary in the assistant's own words.
    """
    silent = HEAD_ROLES | RESULT_ROLES
    at = next((index for index, message in enumerate(tail) if message.role not in silent), None)
    if at is None:
        return tuple(tail)
    if tail[at].role == "user" and speaker != "assistant":
        return (*tail[:at], _acknowledge(), *tail[at:])
    if tail[at].role == "assistant" and speaker == "assistant" and goes_on:
        return (*tail[:at], Message("user", (_GO_ON,)), *tail[at:])
    return tuple(tail)


def _acknowledge() -> Message:
    return Message("assistant", (_ACKNOWLEDGEMENT,))


def _count(message: Message, count: CountTokens) -> Message:
    """The message with its tokens and its digest, where it is one of ours."""
    if message.tokens:
        return message
    return replace(message, tokens=count_message(message, count), digest=digest_message(message))
