"""The rules on tool results, and the loop that edits them.

Law: what becomes of a result is decided by the result and by its own call, which stands before it. Never longer than
before; little is not worth a change. What was worked out once is remembered, also that nothing was to be done.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from rules.conversation import (
    Conversation,
    CountTokens,
    Decision,
    Message,
    Outcome,
    ToolCall,
    count_leading,
)
from rules.policy import Policy
from rules.prefix import hash_prefixes
from rules.results.calls import Place, find_results
from rules.results.incremental import SeenMemo, keep_seen, take_seen, weigh_message
from rules.results.tools.arguments import has_argument
from rules.results.tools.exit_status import says_failure
from rules.text.head_tail import measure_bytes
from rules.treatment import Budget, Treatment

MIN_SAVED_SHARE = 0.05
"""Of a result's texts: in tokens, or in bytes where there are too many of these. A smaller saving does not pay for a
text that differs from what the tool said."""
HASH_BYTES = 80
"""What 32 bytes in a list cost."""


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
    def budget(self) -> Budget:
        """What it may cost: twice as much for an error, said by the client or by the result's own text."""
        message, budget = self.message, self.treatment.budget
        is_error = message.is_error or any(map(says_failure, message.texts))
        return budget.for_error() if is_error else budget


@dataclass(frozen=True, slots=True)
class Shortened:
    """What became of a result's texts: the new ones, and the tokens saved; no texts where it was left alone."""

    texts: tuple[str, ...]
    saved_tokens: int


UNTOUCHED = Shortened((), 0)

MemoKey = tuple[str, str, bytes | tuple[str, ...], bool, str, str]
"""All that an outcome depends on: the rule, the treatment, what the result says, whether it is an error, and name and
arguments of its call."""


class Memo(Protocol):
    """What became of results. Only a matter of speed: what it forgets is worked out again."""

    def get_many(self, keys: Sequence[MemoKey], /) -> Sequence[Shortened | None]:
        """What was kept under each key, if anything."""

    def __setitem__(self, key: MemoKey, shortened: Shortened, /) -> None:
        """Keep it for as long as there is room."""


class LargeWorkError(Exception):
    """There is more text to work through than the caller allowed for."""


class Allowance:
    """How many characters may be worked through; None for any number."""

    def __init__(self, max_chars: int | None = None) -> None:
        self._left = max_chars

    def spend(self, chars: int) -> None:
        """So many are about to be worked through. Raises LargeWorkError."""
        if self._left is not None:
            self._left -= chars
            if self._left < 0:
                raise LargeWorkError


UNBOUNDED = Allowance()


@dataclass(frozen=True, slots=True)
class Work:
    """What the rules on results work with.

    `memo` may hold what earlier calls worked out, `seen` what they made of whole transcripts. Where more than the
    `allowance` is in neither, the rules raise LargeWorkError; what was done until then stays in the memo.
    """

    count: CountTokens
    memo: Memo | None = None
    allowance: Allowance = UNBOUNDED
    seen: "SeenMemo[Edits] | None" = None


@dataclass(frozen=True, slots=True)
class Editor:
    """One rule on results.

    `wants` are the places that it could have to do with, quickly told; `edit` says which texts a result should have,
    its own where nothing is to be done; `describe` gives the reason where these were changed.
    """

    rule: str
    wants: Callable[[Sequence[Message], Sequence[Place]], list[Place]]
    edit: Callable[[Result, CountTokens], tuple[str, ...]]
    describe: Callable[[Sequence[Place]], str]


def edit_results(conversation: Conversation, policy: Policy, editors: Sequence[Editor], work: Work) -> Outcome:
    """Every result as the editors have it, one after the other. Raises LargeWorkError."""
    return edit_and_hash(conversation, policy, editors, work)[0]


def edit_and_hash(
    conversation: Conversation, policy: Policy, editors: Sequence[Editor], work: Work
) -> tuple[Outcome, Sequence[bytes]]:
    """The same, and the hashes of the prefixes (prefix.py), which no edit changes. Raises LargeWorkError."""
    messages = conversation.messages
    leading = count_leading(messages)
    if work.seen is None:
        edits = Edits(leading, editors).extend(messages, policy, work)
        return edits.apply(conversation), edits.hashes
    rules = [editor.rule for editor in editors]
    context = sha256(repr((rules, leading, policy.treatments(), policy.tools)).encode()).digest()
    edits = take_seen(work.seen, context, messages, leading) or Edits(leading, editors)
    edits.extend(messages, policy, work)
    done = edits.apply(conversation), edits.hashes
    keep_seen(work.seen, context, edits)
    return done


@dataclass(slots=True, eq=False)
class _Tally:
    """What an editor has done: the places that it changed, and the tokens of these before and after."""

    editor: Editor
    changed: list[Place]
    before: int = 0
    after: int = 0

    def note(self, place: Place, before: int, after: int) -> None:
        self.changed.append(place)
        self.before += before
        self.after += after

    def decide(self) -> Decision:
        reason = self.editor.describe(self.changed)
        changed = self.changed
        return Decision(self.editor.rule, reason, self.before, self.after, len(changed), changed[0].at)


class Edits:
    """What editors made of a transcript's results so far: a fold over `messages`, those behind the leading ones.

    `hashes` are those of the prefixes.
    """

    def __init__(self, leading: int, editors: Iterable[Editor]) -> None:
        self.messages: list[Message] = []
        self.hashes: Sequence[bytes] = ()
        self.size_bytes = 0
        self._leading = leading
        self._edited: list[Message] = []  # of the whole transcript
        self._tallies = [_Tally(editor, []) for editor in editors]

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> "Edits":
        """Go on to the end of a transcript. Where this raises LargeWorkError, what was found is of no use any more."""
        start = self._leading + len(self.messages)
        new = messages[start:]
        self.messages += new
        self._edited[: self._leading] = messages[: self._leading]
        self._edited += new
        self.hashes = hash_prefixes(messages, self.hashes)
        self.size_bytes += sum(map(weigh_message, new)) + HASH_BYTES * len(new)
        places = [place for place in find_results(messages, policy, start) if not place.treatment.is_exempt]
        for tally in self._tallies:
            self._edit(tally, places, work)
        return self

    def _edit(self, tally: _Tally, places: Sequence[Place], work: Work) -> None:
        messages = self._edited
        wanted = tally.editor.wants(messages, places)
        for place, short in zip(wanted, _recall(messages, wanted, tally.editor, work), strict=True):
            if short.texts:
                message = messages[place.at]
                edited = messages[place.at] = message.shorten(short.texts, short.saved_tokens)
                tally.note(place, message.tokens, edited.tokens)
                self.size_bytes += weigh_message(edited)

    def apply(self, conversation: Conversation) -> Outcome:
        """What was made of the conversation whose messages these are."""
        decisions = tuple(tally.decide() for tally in self._tallies if tally.changed)
        if not decisions:
            return Outcome(conversation)
        return Outcome(conversation.edit(self._edited), decisions)


def edit_one(message: Message, place: Place, editor: Editor, work: Work) -> Message:
    """One result as the editor has it; the same message if there is nothing to do. Raises LargeWorkError."""
    (short,) = _recall({place.at: message}, [place], editor, work)
    return message.shorten(short.texts, short.saved_tokens) if short.texts else message


def _recall(
    messages: Sequence[Message] | Mapping[int, Message], places: Sequence[Place], editor: Editor, work: Work
) -> Iterator[Shortened]:
    """What becomes of each result: remembered, or worked out and then remembered."""
    memo = work.memo
    keys = [] if memo is None else [_name(messages[place.at], place, editor.rule) for place in places]
    known = [None] * len(places) if memo is None else memo.get_many(keys)
    for number, place in enumerate(places):
        shortened = known[number]
        if shortened is None:
            message = messages[place.at]
            work.allowance.spend(sum(map(len, message.texts)))
            shortened = _work_out(Result(message, place.call, place.treatment), editor, work.count)
            if memo is not None:
                memo[keys[number]] = shortened
        yield shortened


def _name(message: Message, place: Place, rule: str) -> MemoKey:
    call = place.call
    said = message.texts if message.edited or not message.digest else message.digest
    name, arguments = ("", "") if call is None else (call.name, call.arguments)
    return rule, place.treatment_name, said, message.is_error, name, arguments


def _work_out(result: Result, editor: Editor, count: CountTokens) -> Shortened:
    """What becomes of a result; nothing where that would save too little."""
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


class KeptResults:
    """Which results of a transcript stand as they are, whatever else repeats them."""

    def __init__(self, messages: Sequence[Message], policy: Policy) -> None:
        self._messages = messages
        self._policy = policy
        self._places: dict[int, Place] | None = None

    def is_kept(self, index: int) -> bool:
        """Whether the result at an index is exempt, or its tool's are not deduplicated."""
        if not self._policy.tools:
            return not self._policy.dedupe
        if self._places is None:
            self._places = {place.at: place for place in find_results(self._messages, self._policy)}
        place = self._places[index]
        return not place.treatment.dedupe or Result(self._messages[index], place.call, place.treatment).is_exempt
