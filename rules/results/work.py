"""How the rules on results work: their counter, caches and bound, and one rule applied to each result of a transcript.

Laws: a cache saves time and changes no outcome; an entry that it has dropped is computed again. The outcome for a
result depends only on the result and its own call. It never gets longer, and a small saving changes nothing. Each
outcome is cached, also the outcome "unchanged". For a growing transcript, the rules are a fold: only new messages are
processed, and they never change what was made of earlier ones. Leading system and developer messages are not compared
with the earlier transcript, because nothing here depends on them.
"""

from collections.abc import Callable, Iterable, Sequence
from sys import getsizeof
from typing import Protocol, TypeVar

import msgspec

from trimtab.rules.conversation import Conversation, CountTokens, Decision, Message, Outcome, Telling, ToolCall
from trimtab.rules.policy import Budget, Policy, Treatment
from trimtab.rules.results.calls import FoundResult, find_results, has_argument, says_failure
from trimtab.rules.text.head_tail import measure_bytes

K_contra = TypeVar("K_contra", contravariant=True)
V = TypeVar("V")


class Cache(Protocol[K_contra, V]):
    """Values computed before, by key. It may drop any entry at any time."""

    def get(self, key: K_contra, /) -> V | None:
        """The value of `key`; None if it is not stored."""

    def __setitem__(self, key: K_contra, value: V, /) -> None: ...


class Sketch(msgspec.Struct, frozen=True):
    """What is compared of a text: the smallest checksums of its lines, none if those are short. digest: SHA-256."""

    digest: bytes
    lines: tuple[int, ...]


class Shortened(msgspec.Struct, frozen=True):
    """The new texts of a result, and the tokens that they save. Empty `texts`: the result stays unchanged."""

    texts: tuple[str, ...]
    saved_tokens: int


ResultKey = tuple[int, str, str, bytes | tuple[str, ...], bool, str, str]
"""Everything that the outcome for one result depends on, in this order: the counter, the rule, the treatment, the
result's content, whether the client marked it as an error, and the name and arguments of its call."""


class Archive(Protocol):
    """Passages that can be searched. What is found depends only on the passages and their order."""

    def add(self, passages: Sequence[str]) -> None:
        """Add passages behind the others; the first one has the number 0."""

    def search(self, terms: Sequence[str], *, most: int) -> Sequence[int]:
        """The numbers of at most `most` passages that have one of these rare terms, best first."""


class LargeWorkError(Exception):
    """There is more text to process than the caller allowed."""


class Allowance(msgspec.Struct, eq=False):
    """How many characters may still be processed; None for no bound."""

    _left: int | None = None

    def spend(self, chars: int) -> None:
        """Call this before processing `chars` characters. Raises LargeWorkError if fewer are left."""
        if self._left is not None:
            self._left -= chars
            if self._left < 0:
                raise LargeWorkError


class Work(msgspec.Struct, frozen=True):
    """The counter, caches and bound of the rules on results. If the caller gives no caches, it has its own.

    count: counts the tokens of a text.
    results: outcomes of earlier results.
    allowance: how many characters may still be processed.
    counter: number that identifies `count` among all users of the same caches.
    sketches: by text; they depend on neither the counter nor the policy.
    diffs: by the digests of the older and the newer text; they depend on neither the counter nor the policy.
    max_chars: if more new characters than this have to be processed, the rules raise LargeWorkError. What they computed
        until then is in the caches. None for no bound.
    open_archive: makes an index for what was cut; None if nothing can be looked up.
    measure: counts by the vocabulary alone, without what was learned of the model: so a result is always shortened
        alike. None for `count`.
    drops_calls: the server leaves calls out of the prompt.
    """

    count: CountTokens
    results: Cache[ResultKey, Shortened] = msgspec.field(default_factory=dict)
    allowance: Allowance = msgspec.field(default_factory=Allowance)
    counter: int = 0
    sketches: Cache[str, Sketch] = msgspec.field(default_factory=dict)
    diffs: Cache[tuple[bytes, bytes], str] = msgspec.field(default_factory=dict)
    max_chars: int | None = None
    open_archive: Callable[[], Archive] | None = None
    measure: CountTokens | None = None
    drops_calls: bool = False

    def begin(self) -> "Work":
        """The same for the next piece of work, with the full allowance of `max_chars`."""
        if (most := self.max_chars) is None:
            return self
        # Not `replace`, which takes 20 calls: every request comes here.
        allowance, archive, measure = Allowance(most), self.open_archive, self.measure
        results, sketches, diffs = self.results, self.sketches, self.diffs
        return Work(
            self.count, results, allowance, self.counter, sketches, diffs, most, archive, measure, self.drops_calls
        )


MESSAGE_CHARS = 64
"""To plan one more message takes as long as to process so many characters. Measured: 0.02 ms."""
MIN_SAVED_SHARE = 0.05
"""Share of a result's texts that a rule must save: in tokens, or in bytes if the result exceeds its limit in bytes.
Chosen: a smaller saving is not worth a text that differs from what the tool said."""
UNTOUCHED = Shortened((), 0)


class Result(msgspec.Struct, frozen=True):
    """One tool result, its call (None if it has none), and how its tool's results are treated."""

    message: Message
    call: ToolCall | None
    treatment: Treatment

    @property
    def is_exempt(self) -> bool:
        """Whether it stays unchanged: because of its tool, or because of an argument of its call."""
        treatment = self.treatment
        if treatment.is_exempt or not treatment.exempt_arguments:
            return treatment.is_exempt
        return self.call is not None and has_argument(self.call, treatment.exempt_arguments)

    @property
    def is_error(self) -> bool:
        """Whether the client or the result's own text calls it an error. Slow: each use searches the texts."""
        return self.message.is_error or any(map(says_failure, self.message.texts))

    @property
    def budget(self) -> Budget:
        """The most that the result may cost. An error has ERROR_FACTOR times the budget of another result."""
        budget = self.treatment.budget
        return budget.for_error() if self.is_error else budget


def may_exceed(message: Message, treatment: Treatment) -> bool:
    """Whether a message may be longer than its tool may fill."""
    budget = treatment.budget
    if message.tokens > budget.max_tokens:
        return True
    return budget.max_bytes is not None and sum(map(measure_bytes, message.texts)) > budget.max_bytes


class Editor(msgspec.Struct, frozen=True):
    """One rule on results.

    rule: name of the rule in decisions.
    wants: cheap test of whether this rule may change a result.
    edit: returns the new texts, or the same tuple if there is nothing to do.
    reason: that of the decision, with `{}` for the number of results that were changed. telling: its sentence.
    """

    rule: str
    wants: Callable[[Message, Treatment], bool]
    edit: Callable[[Result, CountTokens], tuple[str, ...]]
    reason: str
    telling: Telling


def edit_one(message: Message, place: FoundResult, editor: Editor, work: Work) -> Message:
    """One result as the editor changes it; the same message if there is nothing to do. Raises LargeWorkError."""

    def work_out() -> Shortened:
        return _work_out(Result(message, place.call, place.treatment), editor, work)

    return shorten_once(message, place, editor.rule, work, work_out)


def shorten_once(
    message: Message, place: FoundResult | None, rule: str, work: Work, work_out: Callable[[], Shortened]
) -> Message:
    """A message as a rule shortens it. `work_out` is called if the cache has no outcome. Raises LargeWorkError."""
    said = message.texts if message.edited else message.digest  # the digest is that of the client's original texts
    treatment, call = ("", None) if place is None else (place.treatment_name, place.call)
    name, arguments = ("", "") if call is None else (call.name, call.arguments)
    key = (work.counter, rule, treatment, said, message.is_error, name, arguments)
    short = work.results.get(key)
    if short is None:
        work.allowance.spend(sum(map(len, message.texts)))
        short = work.results[key] = work_out()
    return message.shorten(short.texts, short.saved_tokens) if short.texts else message


def _work_out(result: Result, editor: Editor, work: Work) -> Shortened:
    """The shortened result; UNTOUCHED if that saves too little."""
    message, measure = result.message, work.measure or work.count
    texts = message.texts if result.is_exempt else editor.edit(result, measure)
    if texts == message.texts:
        return UNTOUCHED
    tokens = sum(map(measure, message.texts))
    saved = tokens - sum(map(measure, texts))
    is_worth_it = saved > 0 and saved >= tokens * MIN_SAVED_SHARE
    if not (is_worth_it or (saved >= 0 and _saves_bytes(result, texts))):
        return UNTOUCHED
    if measure is not work.count:
        saved = sum(map(work.count, message.texts)) - sum(map(work.count, texts))
    return Shortened(texts, saved)


def _saves_bytes(result: Result, texts: Iterable[str]) -> bool:
    """Whether the result exceeds its limit in bytes, and the new texts are shorter by MIN_SAVED_SHARE or more."""
    limit = result.budget.max_bytes
    if limit is None:
        return False
    size = sum(map(measure_bytes, result.message.texts))
    return size > limit and size - sum(map(measure_bytes, texts)) >= size * MIN_SAVED_SHARE


OBJECT_BYTES = 600
"""Memory of a message or a call, without its bytes and texts. Chosen: above the about 330 bytes of a small Message in
CPython (by tracemalloc), for the containers that hold it."""


class _Changes(msgspec.Struct, eq=False):
    """The changes of one editor: the indexes of the results, and their tokens before and after."""

    editor: Editor
    at: list[int] = msgspec.field(default_factory=list)
    before_tokens: int = 0
    after_tokens: int = 0

    def decide(self) -> Decision:
        number = len(self.at)
        reason = self.editor.reason.format(number)
        return Decision(self.editor.rule, reason, self.before_tokens, self.after_tokens, number, self.at[0])


class Edits:
    """The results of a transcript so far, as the editors changed them.

    leading: number of messages at the start that are skipped.
    size_bytes: memory that this takes, roughly.
    has_media: whether a message behind the leading ones has an attachment.
    """

    def __init__(self, leading: int, editors: Iterable[Editor]) -> None:
        self.size_bytes = 0
        self.has_media = False
        self._leading = leading
        self._seen: list[Message] = []  # without the leading ones
        self._edited: list[Message] = []  # the whole transcript
        self._changes = [_Changes(editor) for editor in editors]
        self._treatments: dict[str, tuple[Treatment, str]] = {}  # by the name of a tool

    def is_beginning_of(self, messages: Sequence[Message]) -> bool:
        """Whether a transcript begins with the messages seen so far; the leading ones are not compared."""
        return self._seen == list(messages[self._leading : self._leading + len(self._seen)])

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> None:
        """Process the new messages of a transcript. After a LargeWorkError this object must not be used again."""
        start = self._leading + len(self._seen)
        new = messages[start:]
        work.allowance.spend(MESSAGE_CHARS * len(new))
        self._seen += new
        self._edited[: self._leading] = messages[: self._leading]
        self._edited += new
        for message in new:
            self.size_bytes += weigh_message(message)
            self.has_media = self.has_media or bool(message.media)
        found = find_results(messages, policy, start, self._treatments)
        places = [place for place in found if not (place.treatment.is_exempt or messages[place.at].keep)]
        for changes in self._changes:
            for place in places:
                before = self._edited[place.at]
                if not changes.editor.wants(before, place.treatment):
                    continue
                after = self._edited[place.at] = edit_one(before, place, changes.editor, work)
                if after is not before:
                    changes.at.append(place.at)
                    changes.before_tokens += before.tokens
                    changes.after_tokens += after.tokens
                    self.size_bytes += weigh_message(after)

    def apply(self, conversation: Conversation) -> Outcome:
        """The conversation with its changed results. It must consist of exactly the messages seen so far."""
        acted = [changes for changes in self._changes if changes.at]
        if not acted:
            return Outcome(conversation)
        decisions = tuple([changes.decide() for changes in acted])
        changed = tuple([tuple(changes.at) for changes in acted])
        return Outcome(conversation.edit(self._edited), decisions, changed)


def weigh_message(message: Message) -> int:
    """Memory that a message takes, in bytes, roughly: its own bytes, its texts and its objects."""
    size = OBJECT_BYTES + len(message.raw) + sum(map(getsizeof, message.texts))
    for call in message.tool_calls:
        size += OBJECT_BYTES + getsizeof(call.arguments)
    for part in message.media:
        size += len(part.raw)
    return size
