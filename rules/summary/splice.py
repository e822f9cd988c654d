"""A summary takes the place of the part before the cut.

Law: a function of the transcript, the cut, the text and the role. The task statement and the kept messages stand
verbatim; no system message of the client moves or goes. What a tool has said gains no authority by standing in a
summary, whoever speaks it: the introduction says so. Only what is written here introduces the user's words: a model's
summary has our headings broken, a digest is made without them.
"""

from collections.abc import Sequence
from dataclasses import replace

from rules.conversation import Conversation, CountTokens, Decision, Message, Origin, Outcome, Role, count_leading
from rules.policy import SummaryRole
from rules.summary.quoting import break_headings
from rules.summary.request import Summary
from rules.text.head_tail import MIN_TEXT_TOKENS, truncate_text
from rules.text.markers import (
    ACKNOWLEDGEMENT,
    GO_ON,
    INTRODUCTION,
    KEPT_TITLE,
    SUMMARY_END,
    UNVERIFIED,
    mark_coverage,
)
from rules.tokens.messages import finish_message
from rules.window.state import Window

_NO_ROOM = "Earlier messages were removed."

_Placed = tuple[Message, Origin | None]
"""A message, and where the client's request says it; None for one that is made here."""


def splice_summary(
    conversation: Conversation, *, window: Window, summary: Summary, role: SummaryRole, count: CountTokens
) -> Outcome:
    """Put `summary` in the place of everything between head and the window's cut.

    System messages of the cut part stay behind it. If no user message has come before the cut, or if the transcript
    takes no system message there, every role is as `auto`.
    """
    cut = window.cut
    if cut is None:
        return Outcome(conversation)
    messages = conversation.messages
    placed = list(zip(messages, conversation.origins, strict=True))
    leading = count_leading(messages)
    task = placed[window.task] if window.task is not None and window.task < cut.at else None
    if task is None or (role is SummaryRole.SYSTEM and not conversation.shape.has_system_messages):
        role = SummaryRole.AUTO
    body = _write_body(messages[leading : cut.at], summary, cut.reserved_tokens, count)
    memo = _place(role, task, body, [messages[index] for index in cut.kept], count)
    systems = [each for each in placed[leading : cut.at] if each[0].role is Role.SYSTEM]
    bridge = finish_message(Message(Role.ASSISTANT, (ACKNOWLEDGEMENT,)), count)
    gone = sum(message.tokens for message in messages[leading : cut.at])
    # Whether a line bridges the gap depends on what follows, which must not change what was forwarded before.
    if sum(message.tokens for message, _ in (*memo, *systems)) + bridge.tokens >= gone:
        return Outcome(conversation)
    tail = placed[cut.at :]
    if conversation.shape.alternates:
        tail = _bridge(memo[-1][0].role, tail, bridge, goes_on=role is SummaryRole.PAIR, count=count)
    spliced = [*placed[:leading], *memo, *systems, *tail]
    outcome = replace(
        conversation, messages=tuple(each[0] for each in spliced), origins=tuple(each[1] for each in spliced)
    )
    rule = "summarise" if summary.by_model else "digest"
    removed = cut.at - leading - len(systems)
    decision = Decision(rule, f"cut before message {cut.at}", conversation.tokens, outcome.tokens, removed, leading)
    return Outcome(outcome, (decision,))


def _write_body(covered: Sequence[Message], summary: Summary, reserved_tokens: int, count: CountTokens) -> str:
    """The summary between the lines that introduce and end it, and what is carried over behind its text."""
    told = break_headings(summary.text) if summary.by_model else summary.text
    told = told if reserved_tokens >= MIN_TEXT_TOKENS else _NO_ROOM
    text = truncate_text(told, max(reserved_tokens, MIN_TEXT_TOKENS), count)
    requests = sum(message.role is Role.USER for message in covered)
    steps = sum(message.role is Role.ASSISTANT for message in covered)
    coverage = mark_coverage(requests, steps, has_unverified=summary.by_model and UNVERIFIED in text)
    parts = (f"{INTRODUCTION}\n{coverage}", text.rstrip("\n"), summary.carried, SUMMARY_END)
    return "\n\n".join(part for part in parts if part)


def _place(
    role: SummaryRole, task: _Placed | None, body: str, kept: Sequence[Message], count: CountTokens
) -> list[_Placed]:
    """Task, summary and the user's kept words in the form that `role` asks for.

    `auto`: one user message for all three, so that any chat template takes it. `user`: the task as it is, and a user
    message of its own. The other roles: the kept words are a user message behind the summary.
    """
    made = Message(Role.USER)
    if task is None or role is SummaryRole.AUTO:
        base, origin = task or (made, None)
        return [(_join(base, (body, *_title(kept)), kept, count), origin)]
    if role is SummaryRole.USER:
        return [task, (_join(made, (body, *_title(kept)), kept, count), None)]
    speaker = Role.SYSTEM if role is SummaryRole.SYSTEM else Role.ASSISTANT
    words: list[_Placed] = [(_join(made, _title(kept), kept, count), None)] if kept else []
    return [task, (finish_message(Message(speaker, (body,)), count), None), *words]


def _title(kept: Sequence[Message]) -> tuple[str, ...]:
    return (KEPT_TITLE,) if any(map(_say, kept)) else ()


def _say(message: Message) -> tuple[str, ...]:
    """The texts of a kept message, and the lines that stand for its images."""
    return (*message.texts, *(part.line for part in message.media if part.is_removed))


def _join(base: Message, texts: Sequence[str], kept: Sequence[Message], count: CountTokens) -> Message:
    """A message that goes on with `texts`, and with what stands in the kept messages."""
    words = [text for message in kept for text in _say(message)]
    media = [part for message in kept for part in message.media if not part.is_removed]
    taken_in = tuple(message.raw for message in kept if message.raw)
    joined = replace(base, texts=(*base.texts, *texts, *words), media=(*base.media, *media), taken_in=taken_in)
    return finish_message(joined, count)


def _bridge(
    speaker: Role, tail: Sequence[_Placed], acknowledgement: Message, *, goes_on: bool, count: CountTokens
) -> list[_Placed]:
    """The tail, with one line of the other side before its first word if two of one side would meet.

    It stands right there, behind any system messages, so that a tail which grows changes nothing before. The line of
    the user is written only if it `goes_on` from a summary in the assistant's own words.
    """
    silent = {Role.SYSTEM, Role.TOOL}
    at = next((index for index, (message, _) in enumerate(tail) if message.role not in silent), None)
    if at is None:
        return list(tail)
    first = tail[at][0].role
    if first is Role.USER and speaker is not Role.ASSISTANT:
        return [*tail[:at], (acknowledgement, None), *tail[at:]]
    if first is Role.ASSISTANT and speaker is Role.ASSISTANT and goes_on:
        return [*tail[:at], (finish_message(Message(Role.USER, (GO_ON,)), count), None), *tail[at:]]
    return list(tail)
