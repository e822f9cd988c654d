"""Rung 3: a tool result that repeats an earlier one becomes a pointer to it; one that nearly repeats it, a diff.

Law: the outcome for a result depends only on the messages from `start` up to it. A pointer refers to an earlier result
that is forwarded in full: not to another pointer, and not to a result of the same step, since the newest step may still
be shortened. A result never gets longer, and a diff that saves little is not made.
"""

from collections.abc import Sequence

from trimtab.rules.conversation import (
    Conversation,
    Message,
    Outcome,
    Role,
    Telling,
    ToolCall,
    count_leading,
    replace_messages,
)
from trimtab.rules.policy import Policy
from trimtab.rules.results.calls import OpenCalls
from trimtab.rules.results.edit import Result, weigh_message
from trimtab.rules.results.similar import Compared, Index, Sketch, sketch_text, write_diff
from trimtab.rules.results.work import Work
from trimtab.rules.text.markers import POINTER, mark_near, mark_same, tells_omission

MIN_CHARS = 160
"""A result of at most this length stays unchanged: it has about 40 tokens, and a pointer costs 20 to 60."""
MIN_SAVED_SHARE = 0.5
"""Share of a result's tokens that a pointer or a diff must save. Chosen: a diff nearly as long as the text is harder to
read than the text."""
MAX_CHARS = 1024 * 1024
"""A longer result stays unchanged. Chosen: comparing it would hold the interpreter too long."""
MAX_DIFF_CHARS = 128 * 1024
"""Longest text for a diff. Chosen: a diff of hostile texts of this length takes 30 ms, of others less than 5 ms."""
DIFF_CHARS = 8 * 1024
"""Characters that comparing two results takes from the allowance. Chosen."""
RESULT_BYTES = 1600
"""Memory of a result without its message: its place, and its sketch in the table of lines. Chosen: a rough estimate."""
NAME_CHARS = 64  # longest tool name in a pointer; longer than real ones
TELLING = Telling(
    "tool result",
    "{what} {was} like an earlier one that is still there, and became a pointer to it or the difference from it,"
    " {saved}.",
)
ARGUMENTS_CHARS = 80  # beginning of the arguments in a pointer; chosen: enough to recognise a call on one line


def dedupe_tool_results(conversation: Conversation, policy: Policy, *, start: int, work: Work) -> Outcome:
    """Replace results that repeat an earlier one; both at or after index `start`. Raises LargeWorkError.

    `start` is the first message after everything that was pruned or cut.
    """
    view = View(max(start, count_leading(conversation.messages)))
    view.extend(conversation.messages, policy, work)
    return view.apply(conversation)


class View:
    """A fold over the messages from `start` on: which results are forwarded in full, and what replaces the others."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.size_bytes = 0
        self._messages: list[Message] = []
        self._short: dict[int, Message] = {}  # by index: what replaces a result
        self._index = Index()
        self._step: list[Compared] = []  # results of the newest step, to which no pointer may refer yet
        self._number = 0
        self._calls = OpenCalls()

    def is_beginning_of(self, messages: Sequence[Message]) -> bool:
        """Whether the transcript's messages from `start` on begin with those seen so far."""
        return self._messages == list(messages[self.start : self.start + len(self._messages)])

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> None:
        """Process the new messages of a transcript. After a LargeWorkError this object must not be used again."""
        first = self.start + len(self._messages)
        for index, message in enumerate(messages[first:], first):
            self._messages.append(message)
            self.size_bytes += weigh_message(message)
            call = self._calls.answer(message)
            if message.role is Role.TOOL:
                self.size_bytes += RESULT_BYTES
                self._add_result(index, message, call, policy, work)
            else:
                self._begin_step()

    def apply(self, conversation: Conversation) -> Outcome:
        """The conversation with its replaced results. It must consist of the messages seen so far."""
        return replace_messages(
            conversation, self._short, "dedupe", f"{len(self._short)} tool results like earlier ones"
        )

    def _begin_step(self) -> None:
        """A new step begins: from now on, pointers may refer to the results of the step before it."""
        for result in self._step:
            self._index.add(result)
        self._step.clear()

    def _add_result(self, at: int, message: Message, call: ToolCall | None, policy: Policy, work: Work) -> None:
        self._number += 1
        if not _is_comparable(message):
            return
        is_new = self._index.find_equal(message) is None
        result = Compared(self._number, message, call, _sketch(message, work) if is_new else None)
        short = _replace(result, self._index, work)
        if short is message or _is_kept(result, policy):
            self._step.append(result)
        else:
            self._short[at] = short
            self.size_bytes += weigh_message(short)


def _is_kept(result: Compared, policy: Policy) -> bool:
    """Whether a result stays: exempt, to be kept, or of a tool whose are not deduplicated. Pointers may refer to it."""
    message, call = result.message, result.call
    if message.keep:
        return True
    treatment = policy.find_treatment(call.name if call is not None else message.name or "")
    return not treatment.dedupe or Result(message, call, treatment).is_exempt


def _is_comparable(message: Message) -> bool:
    is_of_size = MIN_CHARS < sum(map(len, message.texts)) <= MAX_CHARS
    return is_of_size and not message.media and not message.texts[0].startswith(POINTER)


def _sketch(message: Message, work: Work) -> Sketch | None:
    """The sketch of a result that may take part in a diff; None for other results."""
    if len(message.texts) != 1 or len(message.texts[0]) > MAX_DIFF_CHARS:
        return None
    text = message.texts[0]
    if message.edited and tells_omission(text):
        return None  # a diff would compare the counts in markers, not the lines that they stand for
    sketch = work.sketches.get(text)
    if sketch is None:
        work.allowance.spend(len(text))
        sketch = work.sketches[text] = sketch_text(text)
    return sketch


def _diff(old: Compared, new: Compared, work: Work) -> str:
    """The changes that make `new` of `old`; empty if they are not shorter than `new`."""
    if old.sketch is None or new.sketch is None:
        return ""
    key = (old.sketch.digest, new.sketch.digest)
    written = work.diffs.get(key)
    if written is None:
        work.allowance.spend(DIFF_CHARS)
        before, after = old.message.texts[0], new.message.texts[0]
        written = write_diff(before, after)
        written = work.diffs[key] = written if len(written) < len(after) else ""
    return written


def _replace(result: Compared, index: Index, work: Work) -> Message:
    """The result as a pointer or a diff; the same object if it stays unchanged."""
    message = result.message
    target = index.find_equal(message)
    text = "" if target is None else mark_same(*_point(result, target), as_shown=_is_short(result, target))
    if target is None and (target := index.find_near(result.sketch)) is not None:
        changes = _diff(target, result, work)
        text = mark_near(*_point(result, target), changes, as_shown=_is_short(result, target)) if changes else ""
    if not text:
        return message
    saved = sum(map(work.count, message.texts)) - work.count(text)
    if saved < message.tokens * MIN_SAVED_SHARE:
        return message
    return message.shorten((text,), saved)


def _is_short(result: Compared, target: Compared) -> bool:
    """Whether one of the two was shortened: then the parts that were left out may differ."""
    return result.message.edited or target.message.edited


def _point(result: Compared, target: Compared) -> tuple[int, str]:
    """How many results back the target is (1: the one before this one), and the call that it answers.

    The number of results between the two never changes. The id is not used: most models never see ids, and clients
    reuse them.
    """
    back = result.number - target.number
    if target.call is None:
        return back, ""
    call, other = result.call, target.call
    if call is not None and (call.name, call.arguments) == (other.name, other.arguments):
        return back, "the same call"
    name, arguments = _clip(other.name, NAME_CHARS), _clip(other.arguments, ARGUMENTS_CHARS)
    return back, f"{name} {arguments}".rstrip()


def _clip(text: str, max_chars: int) -> str:
    """The beginning of a text, on one line and with printable characters only."""
    start = text[:max_chars]
    if not start.isprintable():
        start = "".join(char if char.isprintable() else " " for char in start)
    return " ".join(start.split()) + ("..." if len(text) > max_chars else "")
