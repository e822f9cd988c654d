"""Replace the part before the cut by its summary.

Law: a function of the transcript, the cut, the summary and the role. The task statement and the kept messages stay
verbatim. No system message of the client is changed, and none at the beginning is removed.

Tool output gains no authority by being in a summary, whatever the summary's role: the introduction says so. Only this
module introduces the user's words. A model's summary is cleaned; a digest is clean when it is written.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import msgspec
from msgspec import structs

from trimtab.rules.conversation import (
    Conversation,
    CountTokens,
    Decision,
    Message,
    Origin,
    Outcome,
    Role,
    Shape,
    Telling,
    count_leading,
    find_beside,
)
from trimtab.rules.policy import SummaryRole
from trimtab.rules.summary.digest import drop_opening
from trimtab.rules.summary.quoting import clean_note
from trimtab.rules.summary.request import Summary
from trimtab.rules.text.head_tail import MIN_TEXT_TOKENS, truncate_text
from trimtab.rules.text.markers import (
    ACKNOWLEDGEMENT,
    GO_ON,
    INTRODUCTION,
    KEPT_TITLE,
    OPENING_TITLE,
    QUOTE_END,
    QUOTE_START,
    SHORT_INTRODUCTION,
    SUMMARY_END,
    UNVERIFIED,
    mark_coverage,
    mark_loop,
)
from trimtab.rules.tokens.messages import finish_message
from trimtab.rules.window.cut_candidates import LOOP_TOKENS
from trimtab.rules.window.state import Cut, Window

SUMMARY_TELLING = Telling("message", "A summary{size} that a model wrote stands for {what}, {saved}.")
NOTE_TELLING = Telling("message", "A note{size} that the provider's own compaction wrote stands for {what}, {saved}.")
DIGEST_TELLING = Telling(
    "message", "A digest{size}, which trimtab makes without a model, stands for {what}, {saved}.{instead}"
)
"""`size`: what it costs. `instead`: whether a model's summary was wanted."""
JOINT_TOKENS = 4  # The blank line before a part of the summary. Chosen: more than it costs in any tokenizer.

SHORT_TOKENS = 800
"""Below this reserve, the introduction of a digest is short, nothing says how much it covers, and its lists and the
index are one quotation: a small window has little room for such lines. A model's note may repeat what a tool's text
demands: there the long introduction says that this is no instruction. Chosen: windows of 4,096 tokens reserve less,
and so do agents' sessions at 8,192."""
_NO_ROOM = "Earlier messages were removed."

_Placed = tuple[Message, Origin | None]
"""A message and its position in the client's request; None for a message that is made here."""
_MadeOf = tuple[
    Cut, int | None, Summary, SummaryRole, Shape, tuple[Message, ...], tuple[Origin | None, ...], Message | None
]
"""A cut, the task statement before it, the summary, the role that the policy gives it, the transcript's shape, the
messages before the cut with their positions, and the message behind it that gets the summary; None for none."""


class Spliced(msgspec.Struct, frozen=True, eq=False):
    """What stands for everything before a cut: a function of these messages, the cut, the summary and its role.

    made_of: all of that.
    memo: the task statement, the summary and the kept words; `role`: the summary's role.
    between: the system messages and the steps that the cut keeps.
    last: the message behind the cut with the summary before its text; None if the memo has the summary.
    bridge: the acknowledgement that some tails need.
    saves: whether it is shorter than what it replaces.
    """

    made_of: _MadeOf
    leading: int
    role: SummaryRole
    shape: Shape
    memo: list[_Placed]
    between: list[_Placed]
    last: Message | None
    bridge: Message
    saves: bool


# Strategy: what stands for the part before the cut depends on `made_of` alone. It is made once and then taken over, so
# the prefix stays the same to the byte. A request lays its own tail behind it, which decides nothing.
def splice_summary(
    conversation: Conversation,
    *,
    window: Window,
    summary: Summary,
    role: SummaryRole,
    count: CountTokens,
    known: Spliced | None = None,
) -> tuple[Spliced | None, Outcome]:
    """Replace everything between the head and the window's cut by `summary`.

    What the cut keeps follows the summary, in order. A provider's own note covers the task statement and the kept
    messages, too. The role is `auto` if there is no user message before the cut, or if the dialect allows no message of
    that role there. If it would not be shorter, nothing changes. `known`: what an earlier request put in that place.
    """
    cut = window.cut
    if cut is None:
        return None, Outcome(conversation)
    messages, origins = conversation.messages, conversation.origins
    task = window.task if window.task is not None and window.task < cut.at else None
    role = SummaryRole.AUTO if summary.standing else role
    at = _find_last(messages, cut, task) if role is SummaryRole.LAST else -1
    last = messages[at] if at >= 0 else None
    made_of = (cut, task, summary, role, conversation.shape, messages[: cut.at], origins[: cut.at], last)
    if known is None or known.made_of != made_of:
        known = _stand_for(made_of, count)
    if not known.saves:
        return known, Outcome(conversation)
    tail = list(zip(messages[cut.at :], origins[cut.at :], strict=True))
    if known.last is not None:
        tail[at - cut.at] = known.last, origins[at]
    new_messages, new_origins = zip(*_follow(known, tail, cut, count), strict=True)
    leading = known.leading
    new_messages, new_origins = (*messages[:leading], *new_messages), (*origins[:leading], *new_origins)
    around = conversation.shape, conversation.continues
    outcome = Conversation(new_messages, conversation.fixed_tokens, new_origins, *around)
    rule = "summarise" if summary.by_model else "digest"
    removed = cut.at - leading - len(known.between)
    decision = Decision(rule, f"cut before message {cut.at}", conversation.tokens, outcome.tokens, removed, leading)
    return known, Outcome(outcome, (decision,))


def _follow(known: Spliced, tail: list[_Placed], cut: Cut, count: CountTokens) -> list[_Placed]:
    """What follows the leading messages: the memo, what the cut keeps, and the tail, in turns if they must be."""
    parts = _part(known.between, tail, known.shape, count, is_one=not cut.kept_steps)
    if known.shape.alternates:
        goes_on = known.role is SummaryRole.PAIR
        parts = _take_turns(known.memo[-1][0].role, parts, known.bridge, goes_on=goes_on, count=count)
    return [*known.memo, *chain.from_iterable(parts)]


def _stand_for(made_of: _MadeOf, count: CountTokens) -> Spliced:
    cut, task_at, summary, role, shape, messages, origins, last = made_of
    leading, placed = count_leading(messages), list(zip(messages, origins, strict=True))
    task = None if task_at is None else placed[task_at]
    shape = structs.replace(shape, alternates=False) if summary.standing else _find_shape(shape, messages)
    if task is None or not _allows(shape, role) or (role is SummaryRole.LAST and last is None):
        role = SummaryRole.AUTO
    body = _write_body(messages, cut, summary, count)
    if cut.opening >= 0:
        task = _open(*(task or (Message(Role.USER), None)), messages[cut.opening], count)
    said = Message(Role.ASSISTANT, beside=find_beside(messages))
    kept = [messages[index] for index in cut.kept]
    if task is not None and last is not None and role is SummaryRole.LAST:
        memo, last = [task], _say_before(last, body, kept, count)
    elif summary.standing:  # nothing may stand before it, and nothing between it and what follows
        memo, last = [(message, None) for message in summary.standing], None
    else:
        memo, last = _place(role, task, replace(said, texts=(body,)), kept, count), None
    steps = (index for step in cut.kept_steps for index in range(*step))
    between = [placed[index] for index in sorted({*cut.kept_systems, *steps})]
    bridge = finish_message(replace(said, texts=(ACKNOWLEDGEMENT,)), count)
    gone = sum(message.tokens for message in messages[leading:])
    # The bridge is always counted, although only some tails need it: otherwise a tail that grows could change whether
    # the cut is carried out, and so the prefix that was forwarded before.
    added = 0 if last is None or made_of[-1] is None else last.tokens - made_of[-1].tokens
    saves = sum(message.tokens for message, _ in (*memo, *between)) + added + bridge.tokens < gone
    return Spliced(made_of, leading, role, shape, memo, between, last, bridge, saves)


def _find_last(messages: Sequence[Message], cut: Cut, task: int | None) -> int:
    """The user message that ended the first request with this cut; -1 if the summary must follow the task statement.

    Then nothing new stands before what the cut keeps: a server that reuses what has moved in its cache reads only the
    message itself. A request ends with a user message, or the cut was made at the answer before that. A user message
    behind results comes too late: a request may have ended with them. What follows the task statement must be an
    answer, or roles would not alternate.
    """
    at = cut.made_at - 1
    if cut.made_at < len(messages) and messages[at].role is Role.ASSISTANT:
        at += 1
    if task is None or cut.opening >= 0 or at < cut.at:
        return -1
    asked = messages[at]
    if asked.role is not Role.USER or not asked.texts or asked.has_fixed_texts or asked.header:
        return -1
    first = task + 1 if (task + 1, task + 2) in cut.kept_steps else cut.at
    return at if messages[first].role is Role.ASSISTANT else -1


def _say_before(last: Message, body: str, kept: Sequence[Message], count: CountTokens) -> Message:
    """A message with the summary and the kept user messages before its text; the closing line comes behind them."""
    told, _, end = body.rpartition("\n\n")
    said = _join(Message(Role.USER), (told, *_title(kept)), kept, count)
    texts, media = (*said.texts, end, *last.texts), (*last.media, *said.media)
    return finish_message(replace(last, texts=texts, media=media, taken_in=(*last.taken_in, *said.taken_in)), count)


def _find_shape(shape: Shape, covered: Sequence[Message]) -> Shape:
    is_sealed = shape.seals_reasoning and any(message.has_reasoning for message in covered)
    return structs.replace(shape, alternates=False) if is_sealed else shape


def _allows(shape: Shape, role: SummaryRole) -> bool:
    if role is SummaryRole.SYSTEM:
        return shape.has_system_messages
    return role not in {SummaryRole.ASSISTANT, SummaryRole.PAIR} or shape.alternates or not shape.seals_reasoning


def _write_body(messages: Sequence[Message], cut: Cut, summary: Summary, count: CountTokens) -> str:
    """Introduction, coverage, summary, the texts that code carries over, the line of a loop, and the closing line."""
    covered, reserved_tokens = messages[count_leading(messages) : cut.at], cut.reserved_tokens
    told = clean_note(summary.text) if summary.by_model else summary.text
    told = told if reserved_tokens >= MIN_TEXT_TOKENS else _NO_ROOM
    text = truncate_text(told, max(reserved_tokens, MIN_TEXT_TOKENS), count)
    users = sum(message.role is Role.USER for message in covered)
    assistants = sum(message.role is Role.ASSISTANT for message in covered)
    coverage = mark_coverage(users, assistants, has_unverified=summary.by_model and UNVERIFIED in text)
    is_short = reserved_tokens < SHORT_TOKENS and not summary.by_model
    introduction, text = (SHORT_INTRODUCTION, drop_opening(text)) if is_short else (f"{INTRODUCTION}\n{coverage}", text)
    parts = (introduction, text.rstrip("\n"), summary.carried, _tell_loop(messages, cut, count), SUMMARY_END)
    body = "\n\n".join(part for part in parts if part)
    return body.replace(f"{QUOTE_END}\n\n{QUOTE_START}\n", "") if is_short else body


def _tell_loop(messages: Sequence[Message], cut: Cut, count: CountTokens) -> str:
    """The line about the newest call that is repeated although its result is too long to keep; empty without one."""
    if cut.unfit < 0:
        return ""
    calling, *results = messages[cut.unfit : cut.unfit + 2]
    name = calling.tool_calls[0].name if calling.tool_calls else ""
    line = mark_loop(name, sum(one.original_tokens for one in results))
    return line if count(line) <= LOOP_TOKENS - JOINT_TOKENS else ""


def _place(
    role: SummaryRole, task: _Placed | None, said: Message, kept: Sequence[Message], count: CountTokens
) -> list[_Placed]:
    """Place task statement, summary and the kept user messages as `role` asks. `said`: the summary as an assistant's.

    - `auto`: one user message for all three, which every chat template accepts.
    - `user`: the task statement unchanged, then one user message with summary and kept messages.
    - `last`: the newest user message gets it, see `_find_last`.
    - Other roles: the task statement, the summary as a message of that role, then the kept messages as a user message.
    """
    made = Message(Role.USER)
    if task is None or role is SummaryRole.AUTO:
        base, origin = task or (made, None)
        return [(_join(base, (*said.texts, *_title(kept)), kept, count), origin)]
    if role is SummaryRole.USER:
        return [task, (_join(made, (*said.texts, *_title(kept)), kept, count), None)]
    memo = Message(Role.SYSTEM, said.texts) if role is SummaryRole.SYSTEM else said
    words: list[_Placed] = [(_join(made, _title(kept), kept, count), None)] if kept else []
    return [task, (finish_message(memo, count), None), *words]


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


def _take_turns(
    speaker: Role, parts: Sequence[list[_Placed]], acknowledgement: Message, *, goes_on: bool, count: CountTokens
) -> list[list[_Placed]]:
    """The kept steps, if there are any, and the tail, each with the lines of the other side that it needs.

    Results are the user's side: after kept calls, a tail that begins with the user needs a line, too.
    """
    if len(parts) == 1:
        return [_bridge(speaker, parts[0], acknowledgement, goes_on=goes_on, count=count)]
    kept, tail = parts
    bridged: list[_Placed] = []
    for placed in kept:
        bridged += _bridge(speaker, [placed], acknowledgement, goes_on=goes_on, count=count)
        said = placed[0].speaker
        if said in {Role.USER, Role.TOOL, Role.ASSISTANT}:
            speaker, goes_on = (Role.ASSISTANT if said is Role.ASSISTANT else Role.USER), True
    return [bridged, _bridge(speaker, tail, acknowledgement, goes_on=goes_on, count=count)]


def _part(
    between: list[_Placed], tail: list[_Placed], shape: Shape, count: CountTokens, *, is_one: bool
) -> list[list[_Placed]]:
    """What the cut keeps after the memo, and the tail; `is_one`: both together.

    A first system message of the tail may join what is kept.
    """
    whole = [*between, *tail]
    if shape.joins_systems:
        whole = _place_systems(whole, len(between), shape, count)
    if is_one:
        return [whole]
    if not shape.joins_systems:
        return [between, tail]
    stop = len(whole) - len(tail)
    is_joined = bool(tail) and (stop < 0 or whole[stop][0] is not tail[0][0])
    return [whole[: stop + is_joined], whole[stop + is_joined :]]


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
    for at, (message, _) in enumerate(tail):
        first = message.speaker
        if first in {Role.SYSTEM, Role.TOOL}:
            continue
        if first is Role.USER and speaker is not Role.ASSISTANT:
            return [*tail[:at], (acknowledgement, None), *tail[at:]]
        if first is Role.ASSISTANT and speaker is Role.ASSISTANT and goes_on:
            return [*tail[:at], (finish_message(Message(Role.USER, (GO_ON,)), count), None), *tail[at:]]
        break
    return list(tail)
