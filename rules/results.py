"""Tool results, each with its own call and its treatment; and the loop that edits them.

Law: what becomes of a result is decided by the result and by its own call, which stands before it. Never longer than
before; little is not worth a change. What was worked out once is remembered, also that nothing was to be done.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from rules.calls import has_argument
from rules.conversation import RESULT_ROLES, Conversation, CountTokens, Decision, Message, Outcome, ToolCall
from rules.failures import says_failure
from rules.policy import Policy
from rules.treatment import Budget, Treatment

MIN_SAVED_SHARE = 0.05
"""Of a result's tokens. A smaller saving does not pay for a text that differs from what the tool said."""


class Place(NamedTuple):
    """Where a tool result stands; the call that it answers, where there is one; and how its tool's are treated.

    `treatment_name` tells treatments apart as their equality does, and is hashed once.
    """

    at: int
    call: ToolCall | None
    treatment: Treatment
    treatment_name: str


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
    """What became of a result's texts: the new ones, and the tokens saved; none saved where it was left alone."""

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

    `memo` may hold what earlier calls worked out. Where more than the `allowance` is not in it, the rules raise
    LargeWorkError; what was done until then stays in the memo.
    """

    count: CountTokens
    memo: Memo | None = None
    allowance: Allowance = UNBOUNDED


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


def find_results(messages: Sequence[Message], policy: Policy) -> list[Place]:
    """Each tool result of a transcript, oldest first, with the last call before it that has the id it answers.

    Results of the legacy kind answer no id: their call is the last one of that name.
    """
    places: list[Place] = []
    calls: dict[str, ToolCall] = {}
    by_name: dict[str, ToolCall] = {}
    treatments: dict[str, tuple[Treatment, str]] = {}
    for index, message in enumerate(messages):
        if message.role not in RESULT_ROLES:
            for call in message.tool_calls:
                calls[call.id] = by_name[call.name] = call
            continue
        is_legacy = message.role != "tool"
        found = by_name.get(message.name or "") if is_legacy else calls.get(message.answers or "")
        name = found.name if found is not None else message.name or ""
        known = treatments.get(name)
        if known is None:
            treatment = policy.find_treatment(name)
            known = treatments[name] = treatment, repr(treatment)
        places.append(Place(index, found, *known))
    return places


def edit_results(conversation: Conversation, policy: Policy, editors: Iterable[Editor], work: Work) -> Outcome:
    """Every result as the editors have it, one after the other. Raises LargeWorkError."""
    messages = list(conversation.messages)
    places = [place for place in find_results(messages, policy) if not place.treatment.is_exempt]
    decisions = []
    for editor in editors:
        changed = []
        before = after = 0
        wanted = editor.wants(messages, places)
        for place, short in zip(wanted, _recall(messages, wanted, editor, work), strict=True):
            if short.saved_tokens <= 0:
                continue
            message = messages[place.at]
            edited = replace(message, texts=short.texts, tokens=message.tokens - short.saved_tokens, edited=True)
            messages[place.at] = edited
            before, after = before + message.tokens, after + edited.tokens
            changed.append(place)
        if changed:
            reason = editor.describe(changed)
            decisions.append(Decision(editor.rule, reason, before, after, len(changed), changed[0].at))
    if not decisions:
        return Outcome(conversation)
    return Outcome(Conversation(tuple(messages), conversation.fixed_tokens), tuple(decisions))


def _recall(messages: Sequence[Message], places: Sequence[Place], editor: Editor, work: Work) -> Iterator[Shortened]:
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
    if call is None:
        return rule, place.treatment_name, said, message.is_error, "", ""
    return rule, place.treatment_name, said, message.is_error, call.name, call.arguments


def _work_out(result: Result, editor: Editor, count: CountTokens) -> Shortened:
    """What becomes of a result; nothing where that would save too little."""
    message = result.message
    texts = message.texts if result.is_exempt else editor.edit(result, count)
    if texts == message.texts:
        return UNTOUCHED
    saved = sum(map(count, message.texts)) - sum(map(count, texts))
    return Shortened(texts, saved) if saved > 0 and saved >= message.tokens * MIN_SAVED_SHARE else UNTOUCHED


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
