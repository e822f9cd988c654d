"""One session through trimtab in this process, as `trimtab.proxy.exchange` serves it.

Law: plan, apply, prompts and the acceptance of notes are the program's own. Only waiting is replaced, after the model
of proxy/exchange/summary.py and proxy/summaries/service.py: a text that was asked for is in the
store at the next request, because a model's turn takes seconds. Nothing is sent, so nothing is learned of the model.
`--check` compares all of this with the proxy itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

from msgspec import structs

from bench.sessions.ledger import SessionLedger
from bench.sessions.marks import Marks, split_marked
from bench.sessions.prompts import Part
from bench.sessions.replaying.cold import Silences
from bench.sessions.replaying.summarisers import Summarise
from trimtab.proxy.compaction import Compacted, Compactor, Planned, read_request
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.summaries.calls import NoSummaryError, accept_note
from trimtab.proxy.summaries.service import MAX_PAUSE_SECONDS, PAUSE_SECONDS, SlidingWatch
from trimtab.proxy.summaries.summariser import MOST_PARTS
from trimtab.proxy.wire.answering import Completion, Question
from trimtab.proxy.wire.answers.usage import Usage
from trimtab.proxy.wire.codec import Request
from trimtab.rules.conversation import Conversation, count_leading
from trimtab.rules.pipeline.exceeded import LimitExceededError
from trimtab.rules.policy import Policy
from trimtab.rules.summary.facts import list_sources, mark_unverified
from trimtab.rules.summary.prompts import fit_inline, split_request, write_prompt
from trimtab.rules.summary.request import Summary, SummaryRequest, make_digest
from trimtab.rules.text.head_tail import truncate_text
from trimtab.rules.window.state import Cut

TURN_SECONDS = 6.0
"""Chosen: seconds of a model's turn, to measure the pause after a failed summary."""
CLIENT = ""

WriteInline = Callable[[Question], bytes | None]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The plan to carry out, its text, and the text that is to be written after the request is sent."""

    planned: Planned
    text: Summary | None = None
    later: SummaryRequest | None = None


def _take_leading(conversation: Conversation) -> Conversation:
    number = count_leading(conversation.messages)
    return replace(conversation, messages=conversation.messages[:number], origins=conversation.origins[:number])


@dataclass(slots=True)
class Shell:
    """The state that the proxy keeps of one session: its texts, its pause, and what it knows of clients that slide.

    Calls for summaries are entered into the `ledger`. Without `summarise` each cut gets the digest. `cuts` are those of
    the last request, oldest first. `split` gives the parts and marks of a body in the `dialect`. `silences`
    makes cold cuts.
    """

    compactor: Compactor
    settings: PolicyConfig
    policy: Policy
    ledger: SessionLedger
    summarise: Summarise | None
    cuts: tuple[Cut, ...] = ()
    dialect: str = "chat"
    split: Callable[[bytes], tuple[Sequence[Part], Marks]] = split_marked
    silences: Silences = field(default_factory=Silences)
    _texts: dict[str, Summary] = field(default_factory=dict)
    _leading: Conversation | None = None  # the client's own system messages, which a question on its own keeps
    _sliding: SlidingWatch = field(default_factory=SlidingWatch)
    _notes: int = 0
    _turns: int = 0
    _failures: int = 0
    _paused_until_seconds: float = 0.0

    def send(self, body: bytes) -> tuple[Compacted | None, Callable[[], None]]:
        """What is forwarded of a request (None if it is refused), and what to do after it is sent."""
        self._turns += 1
        request = read_request(body, self.dialect)
        try:
            planned = self._plan(request)
            self._leading = _take_leading(planned.plan.conversation)
            chosen = self._choose(request, planned)
            compacted = self.compactor.apply(chosen.planned, chosen.text)
        except LimitExceededError:
            return None, lambda: None
        self.cuts = chosen.planned.plan.window.cuts
        self.silences.note(chosen.planned, self.ledger.now_seconds)
        return compacted, lambda: self._write_ahead(request, chosen, compacted)

    def _plan(self, request: Request) -> Planned:
        """The plan, with a cut if the upstream's cache is cold now."""
        planned = self.compactor.plan(request, self.policy, cold=self.silences.cuts)
        if not self.silences.is_cold(planned, self.ledger.now_seconds):
            return planned
        return self.silences.cut(
            planned,
            lambda cold: self.compactor.plan(request, self.policy, cold=cold),
            lambda trial, may_ask: self._has_text(request, trial, may_ask=may_ask),
        )

    def _has_text(self, request: Request, planned: Planned, *, may_ask: bool) -> bool:
        """Whether the summary of a cut at a cold cache is there; `may_ask`: it may be asked for now."""
        wanted = planned.plan.request
        if wanted is None:
            return False
        slides = self._sliding.slides(CLIENT, planned.plan)
        if may_ask and wanted.key not in self._texts and not slides and not self._is_paused:
            self._ask(request, wanted, None)
        return wanted.key in self._texts

    @property
    def _is_paused(self) -> bool:
        return self.summarise is None or self._turns * TURN_SECONDS < self._paused_until_seconds

    def _choose(self, request: Request, planned: Planned) -> _Chosen:
        """Use the text if it is there, else the earlier plan, else wait for the text."""
        wanted, prefetch = planned.plan.request, planned.plan.prefetch
        if wanted is None:
            return _Chosen(planned, None, prefetch)
        text = self._texts.get(wanted.key)
        if text is not None:
            self._sliding.use(CLIENT, wanted)
            return _Chosen(planned, text, prefetch)
        slides = self._sliding.slides(CLIENT, planned.plan)
        if slides:
            self._sliding.note(CLIENT, wanted)
        if slides or self._is_paused or not wanted.asks_model:
            return _Chosen(planned, self._digest(wanted), prefetch)
        earlier, inline = self._put_off(planned), None
        if earlier is not None:
            if earlier.planned.plan.reserved_tokens <= planned.plan.fitting:
                return replace(earlier, later=wanted)
            compacted = self.compactor.apply(earlier.planned, earlier.text)
            if compacted.forwarded.tokens <= planned.plan.fitting:
                return replace(earlier, later=wanted)
            inline = self._write_inline(request, wanted, earlier.planned, compacted)
        self._sliding.note(CLIENT, wanted)
        self._ask(request, wanted, inline)
        return _Chosen(planned, self._texts.get(wanted.key) or self._digest(wanted))

    def _put_off(self, planned: Planned) -> _Chosen | None:
        """The plan without its last cuts, back to one whose text is there; None if nothing was cut."""
        plan, text = planned.plan.put_off(), None
        while plan is not None and plan.request is not None:
            text = self._texts.get(plan.request.key)
            if text is not None:
                break
            plan = plan.put_off()
        if plan is None:
            return None
        return _Chosen(structs.replace(planned, plan=plan), text)

    def _write_ahead(self, request: Request, chosen: _Chosen, compacted: Compacted) -> None:
        later = chosen.later
        if later is None or self._sliding.slides(CLIENT, chosen.planned.plan) or self._is_paused:
            return
        inline = self._write_inline(request, later, chosen.planned, compacted)
        self._ask(request, later, inline)
        self._sliding.note(CLIENT, later)

    def _write_inline(
        self, request: Request, wanted: SummaryRequest, planned: Planned, compacted: Compacted
    ) -> WriteInline | None:
        """The question after the forwarded messages; None if the transcript must be written into the prompt."""
        prefix = planned.plan.find_prefix(compacted.forwarded, wanted.at)
        if prefix is None or self.settings.summary.request == "transcript":
            return None
        fitted = fit_inline(wanted, prefix, planned.policy, self.compactor.count)
        if fitted is None:
            return None
        return partial(self.compactor.ask_behind, request, prefix, fitted[0])

    def _ask(self, request: Request, wanted: SummaryRequest, inline: WriteInline | None) -> None:
        """Have a text written if there is none. If the first answer is not a note, ask again in the other form."""
        if wanted.key in self._texts:
            return
        question = Question(request.model, ceil(wanted.max_tokens * self.policy.token_ratio))
        body = None if inline is None else inline(question)
        text = None if body is None else self._read_note(body, wanted, question.max_tokens)
        if text is None:
            text = self._ask_in_parts(request, wanted, question)
        if text is None:
            self._pause()
            return
        self._failures = 0
        base = self._find_base(wanted)
        sources = list_sources(wanted, base.text if base and base.by_model else None)
        self._texts[wanted.key] = Summary(mark_unverified(text, sources), by_model=True)

    def _ask_in_parts(self, request: Request, wanted: SummaryRequest, question: Question) -> str | None:
        """The note on a transcript in the prompt, part by part. None if one of the notes is refused."""
        base = self._find_base(wanted)
        text = base.text if base and base.by_model else None
        count = self.compactor.count
        leading_tokens = sum(message.tokens for message in self._leading.messages) if self._leading else 0
        tokens = self.policy.limit_tokens(self.policy.summary_max_tokens) - leading_tokens
        for part in split_request(wanted, base_text=text, max_tokens=tokens, most=MOST_PARTS, count=count):
            prompt = write_prompt(part, base_text=text, max_tokens=tokens, count=count)
            leading, body = self._leading, None
            if leading:
                body = request.codec.ask_behind(request, leading, question, prompt, is_apart=True)
            text = self._read_note(body or request.codec.ask(question, prompt), part, question.max_tokens)
            if text is None:
                return None
        return text

    def _read_note(self, body: bytes, wanted: SummaryRequest, max_tokens: int) -> str | None:
        """The summariser's answer, entered into the ledger; None if it is not accepted."""
        if self.summarise is None:
            return None
        (parts, marks), count = self.split(body), self.compactor.count
        self._notes += 1
        note = self.summarise("\n".join(part.text for part in parts[1:]), self._notes, max_tokens)
        self.ledger.add_summary(parts, count(note), marks)
        covered_tokens = sum(message.tokens for message in (*wanted.earlier, *wanted.span))
        try:
            text = accept_note(Completion(note, Usage()), covered_tokens, count)
        except NoSummaryError:
            return None
        return truncate_text(text, wanted.max_tokens, count)

    def _pause(self) -> None:
        seconds = min(PAUSE_SECONDS * 2**self._failures, MAX_PAUSE_SECONDS)
        self._failures += 1
        self._paused_until_seconds = self._turns * TURN_SECONDS + seconds

    def _digest(self, wanted: SummaryRequest) -> Summary:
        """The text without a model. It stays from now on."""
        text = make_digest(wanted, base=self._find_base(wanted), count=self.compactor.count)
        return self._texts.setdefault(wanted.key, Summary(text, by_model=False))

    def _find_base(self, wanted: SummaryRequest) -> Summary | None:
        return None if wanted.base is None else self._texts.get(wanted.base)
