"""Rung 3: a tool result seen before becomes a pointer to the earlier one; one nearly seen before, a diff against it.

Law: what becomes of a result depends on the messages from `start` up to it and on nothing else. What a pointer points
to stands before it in full, letter for letter: it is no pointer itself, and not of the same step, for the last step
may be shortened still. Never longer than before, and always easier to read: a diff that saves little is not made.
"""

from collections.abc import Sequence

from rules.conversation import Conversation, Decision, Message, Outcome, Role, ToolCall, count_leading
from rules.policy import Policy
from rules.results.calls import OpenCalls
from rules.results.edit import Result
from rules.results.incremental import weigh_message
from rules.results.similar import Compared, Index
from rules.results.work import Work
from rules.text.line_diff import write_diff
from rules.text.markers import POINTER, mark_near, mark_same, tells_omission
from rules.text.sketch import Sketch, sketch_text

MIN_CHARS = 160
"""Some 40 tokens. A result that is no longer is left alone: a pointer costs 20 to 60."""
MIN_SAVED_SHARE = 0.5
"""Of a result's tokens: what a pointer or a diff must save."""
MAX_CHARS = 1024 * 1024
"""A longer result is left alone: comparing it would hold the interpreter too long."""
MAX_DIFF_CHARS = 128 * 1024
"""A diff of hostile texts of that length takes 30 ms, of others less than 5."""
DIFF_CHARS = 8 * 1024
"""What comparing two results costs of an allowance, as though so many characters were new."""
RESULT_BYTES = 1600
"""What a result holds in memory beside its message: its place, and its sketch in the table of lines."""
NAME_CHARS = 64
ARGUMENTS_CHARS = 80


def dedupe_tool_results(conversation: Conversation, policy: Policy, *, start: int, work: Work) -> Outcome:
    """Replace results from message `start` on that repeat an earlier one from there on. Raises LargeWorkError.

    `start` is the first message behind all that was pruned or cut.
    """
    view = View(max(start, count_leading(conversation.messages)))
    view.extend(conversation.messages, policy, work)
    return view.apply(conversation)


class View:
    """The results that stand in full, from message `start` on, and what became of the others: a fold."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.size_bytes = 0
        self._messages: list[Message] = []
        self._short: dict[int, Message] = {}
        self._index = Index()
        self._step: list[Compared] = []  # results of the newest step, which nothing points to yet
        self._number = 0
        self._calls = OpenCalls()

    def is_beginning_of(self, messages: Sequence[Message]) -> bool:
        """Whether the messages from `start` on begin with those seen so far."""
        return self._messages == list(messages[self.start : self.start + len(self._messages)])

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> None:
        """Go on to the end of a transcript. After a LargeWorkError the view is of no use any more."""
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
        """What becomes of the conversation whose messages these are."""
        if not self._short:
            return Outcome(conversation)
        messages = list(conversation.messages)
        for index, short in self._short.items():
            messages[index] = short
        outcome = conversation.edit(messages)
        number = len(self._short)
        reason = f"{number} tool results like earlier ones"
        decision = Decision("dedupe", reason, conversation.tokens, outcome.tokens, number, next(iter(self._short)))
        return Outcome(outcome, (decision,))

    def _begin_step(self) -> None:
        """The results so far may be pointed to from here on."""
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
    """Whether a result is exempt, or its tool's are not deduplicated. It may be pointed to all the same."""
    message, call = result.message, result.call
    treatment = policy.find_treatment(call.name if call is not None else message.name or "")
    return not treatment.dedupe or Result(message, call, treatment).is_exempt


def _is_comparable(message: Message) -> bool:
    is_of_size = MIN_CHARS < sum(map(len, message.texts)) <= MAX_CHARS
    return is_of_size and not message.media and not message.texts[0].startswith(POINTER)


def _sketch(message: Message, work: Work) -> Sketch | None:
    """The sketch of a result that a diff may be written for or against; None for others."""
    if len(message.texts) != 1 or len(message.texts[0]) > MAX_DIFF_CHARS:
        return None
    text = message.texts[0]
    if message.edited and tells_omission(text):
        return None  # a diff would tell of markers that say another count, and of nothing else that is sure
    sketch = work.sketches.get(text)
    if sketch is None:
        work.allowance.spend(len(text))
        sketch = work.sketches[text] = sketch_text(text)
    return sketch


def _diff(old: Compared, new: Compared, work: Work) -> str:
    """What to change in the one to have the other; the empty text if that is no shorter."""
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
    """What is forwarded of a result; the same object if it stays."""
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
    """Whether one of the two was shortened: then nobody knows whether they were equal as a whole."""
    return result.message.edited or target.message.edited


def _point(result: Compared, target: Compared) -> tuple[int, str]:
    """How many tool results earlier the target is, which no later message changes, and which call it answers.

    Its id would not help: most models never see ids, and clients use an id twice.
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
    """The beginning of a text in one line of characters that can be seen."""
    start = text[:max_chars]
    if not start.isprintable():
        start = "".join(char if char.isprintable() else " " for char in start)
    return " ".join(start.split()) + ("..." if len(text) > max_chars else "")
