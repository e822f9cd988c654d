"""Tool results, each with its own call and its treatment; and the loop that edits them.

Law: what becomes of a result is decided by the result and by its own call, which stands before it. Never longer than
before; little is not worth a change. What was worked out once is remembered, also that nothing was to be done.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rules.calls import has_argument
from rules.conversation import RESULT_ROLES, Conversation, CountTokens, Decision, Message, Outcome, ToolCall
from rules.failures import says_failure
from rules.policy import Policy
from rules.treatment import Budget, Treatment

MIN_SAVED_SHARE = 0.05
"""Of a result's tokens. A smaller saving does not pay for a text that differs from what the tool said."""


@dataclass(frozen=True, slots=True)
class Result:
    """One tool result at its place; the call that it answers, where there is one; and how it is to be treated."""

    index: int
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

MemoKey = tuple[str, bytes | tuple[str, ...], bool, str, str, str]
"""All that an outcome depends on: the rule, what the result says, whether it is an error, name and arguments of its
call, and the treatment."""


class Memo(Protocol):
    """What became of results. Only a matter of speed: what it forgets is worked out again."""

    def get(self, key: MemoKey, /) -> Shortened | None:
        """What was kept under `key`, if anything."""

    def __setitem__(self, key: MemoKey, shortened: Shortened, /) -> None:
        """Keep it for as long as there is room."""


class LargeWorkError(Exception):
    """There is more text to work through than the caller allowed for."""


@dataclass(slots=True)
class Work:
    """What the rules on results work with.

    `memo` may hold what earlier calls worked out. Where more than `max_chars` of results are not in it, the rules
    raise LargeWorkError; what was done until then stays in the memo.
    """

    count: CountTokens
    memo: Memo | None = None
    max_chars: int | None = None

    def begin(self, message: Message) -> None:
        """A result is about to be worked through. Raises LargeWorkError."""
        if self.max_chars is not None:
            self.max_chars -= sum(map(len, message.texts))
            if self.max_chars < 0:
                raise LargeWorkError


Edit = Callable[[Result], tuple[str, ...]]
"""The texts that a result should have; its own where nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Editor:
    """One rule on results. `wants` tells quickly whether it could have to do with a message at all."""

    rule: str
    wants: Callable[[Message, Treatment], bool]
    edit: Edit


def find_results(messages: Sequence[Message], policy: Policy) -> Iterator[Result]:
    """Each tool result of a transcript, oldest first, with the last call before it that has the id it answers.

    Results of the legacy kind answer no id: their call is the last one of that name.
    """
    calls: dict[str, ToolCall] = {}
    by_name: dict[str, ToolCall] = {}
    treatments: dict[str, Treatment] = {}
    for index, message in enumerate(messages):
        if message.role not in RESULT_ROLES:
            for call in message.tool_calls:
                calls[call.id] = by_name[call.name] = call
            continue
        is_legacy = message.role != "tool"
        found = by_name.get(message.name or "") if is_legacy else calls.get(message.answers or "")
        name = found.name if found is not None else message.name or ""
        treatment = treatments.get(name)
        if treatment is None:
            treatment = treatments[name] = policy.find_treatment(name)
        yield Result(index, message, found, treatment)


def edit_results(
    conversation: Conversation, policy: Policy, editor: Editor, work: Work
) -> tuple[Outcome, list[Result]]:
    """Every result as the editor has it; and those that it changed, as they were. Raises LargeWorkError."""
    messages = list(conversation.messages)
    changed: list[Result] = []
    names: dict[int, str] = {}
    for result in find_results(messages, policy):
        message, treatment = result.message, result.treatment
        if treatment.is_exempt or not editor.wants(message, treatment):
            continue
        name = names.get(id(treatment))
        if name is None:
            name = names[id(treatment)] = repr(treatment)
        short = _recall(result, name, editor, work)
        if short.saved_tokens > 0:
            messages[result.index] = replace(
                message, texts=short.texts, tokens=message.tokens - short.saved_tokens, edited=True
            )
            changed.append(result)
    if not changed:
        return Outcome(conversation), changed
    before = sum(result.message.tokens for result in changed)
    after = sum(messages[result.index].tokens for result in changed)
    decision = Decision(editor.rule, "", before, after, len(changed), changed[0].index)
    return Outcome(Conversation(tuple(messages), conversation.fixed_tokens), (decision,)), changed


def _recall(result: Result, treatment_name: str, editor: Editor, work: Work) -> Shortened:
    """What becomes of a result: remembered, or worked out and then remembered."""
    message, call, memo = result.message, result.call, work.memo
    if memo is None:
        work.begin(message)
        return _work_out(result, editor, work.count)
    said = message.texts if message.edited or not message.digest else message.digest
    name, arguments = (call.name, call.arguments) if call is not None else ("", "")
    key = (editor.rule, said, message.is_error, name, arguments, treatment_name)
    shortened = memo.get(key)
    if shortened is None:
        work.begin(message)
        shortened = memo[key] = _work_out(result, editor, work.count)
    return shortened


def _work_out(result: Result, editor: Editor, count: CountTokens) -> Shortened:
    """What becomes of a result; nothing where that would save too little."""
    message = result.message
    texts = message.texts if result.is_exempt else editor.edit(result)
    if texts == message.texts:
        return UNTOUCHED
    saved = sum(map(count, message.texts)) - sum(map(count, texts))
    return Shortened(texts, saved) if saved > 0 and saved >= message.tokens * MIN_SAVED_SHARE else UNTOUCHED
