"""One rule on tool results, applied to each of them.

Law: what becomes of a result is decided by the result and by its own call, which stands before it. It never gets
longer, and a small saving is not worth a change. Each outcome is worked out once and remembered, also "left alone".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rules.conversation import CountTokens, Message, ToolCall
from rules.results.calls import Place
from rules.results.tools.arguments import has_argument
from rules.results.tools.exit_status import says_failure
from rules.results.work import Shortened, Work
from rules.text.head_tail import measure_bytes
from rules.treatment import Budget, Treatment

MIN_SAVED_SHARE = 0.05
"""Of a result's texts: in tokens, or in bytes if it has too many bytes. A smaller saving does not pay for a text that
differs from what the tool said."""
UNTOUCHED = Shortened((), 0)


@dataclass(frozen=True, slots=True)
class Result:
    """One tool result, its call, and how it is to be treated."""

    message: Message
    call: ToolCall | None
    treatment: Treatment

    @property
    def is_exempt(self) -> bool:
        """Whether it is to be left alone: all of its tool's results are, or its call names what is."""
        treatment = self.treatment
        if treatment.is_exempt or not treatment.exempt_arguments:
            return treatment.is_exempt
        return self.call is not None and has_argument(self.call, treatment.exempt_arguments)

    @property
    def is_error(self) -> bool:
        """Whether the client or the result's own text calls it an error. The texts are searched each time."""
        return self.message.is_error or any(map(says_failure, self.message.texts))

    @property
    def budget(self) -> Budget:
        """What it may cost: twice as much for an error."""
        budget = self.treatment.budget
        return budget.for_error() if self.is_error else budget


@dataclass(frozen=True, slots=True)
class Editor:
    """One rule on results.

    `wants` is a cheap filter for the results that this rule may change. `edit` returns the new texts, or the same ones
    if there is nothing to do. `describe` gives the reason if some were changed.
    """

    rule: str
    wants: Callable[[Sequence[Message], Sequence[Place]], list[Place]]
    edit: Callable[[Result, CountTokens], tuple[str, ...]]
    describe: Callable[[Sequence[Place]], str]


def edit_one(message: Message, place: Place, editor: Editor, work: Work) -> Message:
    """One result as the editor has it; the same message if there is nothing to do. Raises LargeWorkError."""

    def work_out() -> Shortened:
        return _work_out(Result(message, place.call, place.treatment), editor, work.count)

    return shorten_once(message, place, editor.rule, work, work_out)


def shorten_once(
    message: Message, place: Place | None, rule: str, work: Work, work_out: Callable[[], Shortened]
) -> Message:
    """A message as a rule shortens it, which is worked out if it is not remembered. Raises LargeWorkError."""
    said = message.texts if message.edited else message.digest
    treatment, call = ("", None) if place is None else (place.treatment_name, place.call)
    name, arguments = ("", "") if call is None else (call.name, call.arguments)
    key = (work.counter, rule, treatment, said, message.is_error, name, arguments)
    short = work.results.get(key)
    if short is None:
        work.allowance.spend(sum(map(len, message.texts)))
        short = work.results[key] = work_out()
    return message.shorten(short.texts, short.saved_tokens) if short.texts else message


def _work_out(result: Result, editor: Editor, count: CountTokens) -> Shortened:
    """What becomes of a result; nothing if that would save too little."""
    message = result.message
    texts = message.texts if result.is_exempt else editor.edit(result, count)
    if texts == message.texts:
        return UNTOUCHED
    tokens = sum(map(count, message.texts))
    saved = tokens - sum(map(count, texts))
    is_worth_it = saved > 0 and saved >= tokens * MIN_SAVED_SHARE
    return Shortened(texts, saved) if is_worth_it or (saved >= 0 and _saves_bytes(result, texts)) else UNTOUCHED


def _saves_bytes(result: Result, texts: Iterable[str]) -> bool:
    """Whether a result that has too many bytes has enough of them less with other texts."""
    limit = result.budget.max_bytes
    if limit is None:
        return False
    size = sum(map(measure_bytes, result.message.texts))
    return size > limit and size - sum(map(measure_bytes, texts)) >= size * MIN_SAVED_SHARE
