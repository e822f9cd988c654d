"""Replace the part before the cut by its summary.

Law: a function of the transcript, the cut, the summary and the role. The task statement and the kept messages stay
verbatim. No system message of the client is changed, and none at the beginning is removed.

Tool output gains no authority by being in a summary, whatever the summary's role: the introduction says so. Only this
module introduces the user's words. In a model's summary our headings are broken; a digest is written without them.
"""

from collections.abc import Sequence
from dataclasses import replace

from rules.conversation import Conversation, CountTokens, Decision, Message, Origin, Outcome, Role, Shape, count_leading
from rules.policy import SummaryRole
from rules.summary.quoting import break_headings
from rules.summary.request import Summary
from rules.text.head_tail import MIN_TEXT_TOKENS, truncate_text
from rules.text.markers import (
    ACKNOWLEDGEMENT,
    GO_ON,
    INTRODUCTION,
    KEPT_TITLE,
    OPENING_TITLE,
    SUMMARY_END,
    UNVERIFIED,
    mark_coverage,
)
from rules.tokens.messages import finish_message
from rules.window.state import Window

_NO_ROOM = "Earlier messages were removed."

_Placed = tuple[Message, Origin | None]
"""A message and its position in the client's request; None for a message that is made here."""


def splice_summary(
    conversation: Conversation, *, window: Window, summary: Summary, role: SummaryRole, count: CountTokens
) -> Outcome:
    """Replace everything between the head and the window's cut by `summary`.

    The system messages and the steps that the cut keeps follow the summary, in their order. The role is treated as
    `auto` if there is no user message before the cut, or if it is `system` and the dialect does not allow a system
    message there. If the summary would not be shorter than what it replaces, the conversation is returned unchanged.
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
    if cut.opening >= 0:
        task = _open(*(task or (Message(Role.USER), None)), messages[cut.opening], count)
    memo = _place(role, task, body, [messages[index] for index in cut.kept], count)
    steps = (index for step in cut.kept_steps for index in range(*step))
    between = [placed[index] for index in sorted((*cut.kept_systems, *steps))]
    bridge = finish_message(Message(Role.ASSISTANT, (ACKNOWLEDGEMENT,)), count)
    gone = sum(message.tokens for message in messages[leading : cut.at])
    # The bridge is always counted, although only some tails need it: otherwise a tail that grows could change whether
    # the cut is carried out, and so the prefix that was forwarded before.
    if sum(message.tokens for message, _ in (*memo, *between)) + bridge.tokens >= gone:
        return Outcome(conversation)
    tail = [*between, *placed[cut.at :]]
    if conversation.shape.joins_systems:
        tail = _place_systems(tail, len(between), conversation.shape, count)
    if conversation.shape.alternates:
        tail = _bridge(memo[-1][0].role, tail, bridge, goes_on=role is SummaryRole.PAIR, count=count)
    spliced = [*placed[:leading], *memo, *tail]
    outcome = replace(conversation, messages=tuple(one for one, _ in spliced), origins=tuple(one for _, one in spliced))
    rule = "summarise" if summary.by_model else "digest"
    removed = cut.at - leading - len(between)
    decision = Decision(rule, f"cut before message {cut.at}", conversation.tokens, outcome.tokens, removed, leading)
    return Outcome(outcome, (decision,))


def _write_body(covered: Sequence[Message], summary: Summary, reserved_tokens: int, count: CountTokens) -> str:
    """Introduction, coverage, summary, the texts that code carries over, and the closing line."""
    told = break_headings(summary.text) if summary.by_model else summary.text
    told = told if reserved_tokens >= MIN_TEXT_TOKENS else _NO_ROOM
    text = truncate_text(told, max(reserved_tokens, MIN_TEXT_TOKENS), count)
    users = sum(message.role is Role.USER for message in covered)
    assistants = sum(message.role is Role.ASSISTANT for message in covered)
    coverage = mark_coverage(users, assistants, has_unverified=summary.by_model and UNVERIFIED in text)
    parts = (f"{INTRODUCTION}\n{coverage}", text.rstrip("\n"), summary.carried, SUMMARY_END)
    return "\n\n".join(part for part in parts if part)


def _place(
    role: SummaryRole, task: _Placed | None, body: str, kept: Sequence[Message], count: CountTokens
) -> list[_Placed]:
    """Place task statement, summary and the kept user messages as `role` asks.

    - `auto`: one user message for all three, which every chat template accepts.
    - `user`: the task statement unchanged, then one user message with summary and kept messages.
    - Other roles: the task statement, the summary as a message of that role, then the kept messages as a user message.
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


def _open(base: Message, origin: Origin | None, opening: Message, count: CountTokens) -> _Placed:
    """The task statement, and after it the client's own summary of an earlier session."""
    texts = (*base.texts, OPENING_TITLE, *opening.texts)
    taken_in = (opening.raw,) if opening.raw and opening.role is Role.USER else ()
    return finish_message(replace(base, texts=texts, taken_in=taken_in), count), origin


def _title(kept: Sequence[Message]) -> tuple[str, ...]:
    return (KEPT_TITLE,) if any(map(_say, kept)) else ()


def _say(message: Message) -> tuple[str, ...]:
    """The texts of a kept message, and the lines that replace its images."""
    return (*message.texts, *(part.line for part in message.media if part.is_removed))


def _join(base: Message, texts: Sequence[str], kept: Sequence[Message], count: CountTokens) -> Message:
    """`base` with `texts` added, and then the texts and media of the kept messages."""
    words = [text for message in kept for text in _say(message)]
    media = [part for message in kept for part in message.media if not part.is_removed]
    taken_in = (*base.taken_in, *(message.raw for message in kept if message.raw))
    joined = replace(base, texts=(*base.texts, *texts, *words), media=(*base.media, *media), taken_in=taken_in)
    return finish_message(joined, count)


def _place_systems(tail: Sequence[_Placed], number: int, shape: Shape, count: CountTokens) -> list[_Placed]:
    """The tail with its first `number` messages, which the cut keeps, in the places that such a dialect accepts."""
    joined = _join_systems(tail, number, count)
    return joined if shape.alternates else _leave_out_before_user(joined, number)


def _join_systems(tail: Sequence[_Placed], number: int, count: CountTokens) -> list[_Placed]:
    """Join neighbouring system messages of which the first is one of the first `number`, so is kept by the cut."""
    joined: list[_Placed] = []
    for index, (message, origin) in enumerate(tail):
        before, place = joined[-1] if joined and index <= number else (message, None)
        if before is message or not (_is_said(before) and _is_said(message)):
            joined.append((message, origin))
        else:
            joined[-1] = _join(before, (), [message], count), place
    return joined


def _leave_out_before_user(tail: Sequence[_Placed], number: int) -> list[_Placed]:
    """Without a kept system message that a user message follows: no answer can be inserted between the two."""
    ends = [*tail[1:], None]
    return [
        one
        for index, (one, after) in enumerate(zip(tail, ends, strict=True))
        if index >= number or not _is_said(one[0]) or after is None or after[0].role is not Role.USER
    ]


def _is_said(message: Message) -> bool:
    """Whether it is a system message with words, not only a setting for what comes after it."""
    return message.role is Role.SYSTEM and not message.stays


def _bridge(
    speaker: Role, tail: Sequence[_Placed], acknowledgement: Message, *, goes_on: bool, count: CountTokens
) -> list[_Placed]:
    """Insert one line of the other side before the tail if two messages of the same side would follow each other.

    The line is right before the tail's first user or assistant message, so a tail that grows changes nothing before it.
    goes_on: a user's line may be inserted, too. Set if the summary is an assistant message (role `pair`).
    """
    silent = {Role.SYSTEM, Role.TOOL}
    at = next((index for index, (message, _) in enumerate(tail) if message.speaker not in silent), None)
    if at is None:
        return list(tail)
    first = tail[at][0].speaker
    if first is Role.USER and speaker is not Role.ASSISTANT:
        return [*tail[:at], (acknowledgement, None), *tail[at:]]
    if first is Role.ASSISTANT and speaker is Role.ASSISTANT and goes_on:
        return [*tail[:at], (finish_message(Message(Role.USER, (GO_ON,)), count), None), *tail[at:]]
    return list(tail)
