"""The lesson of a refusal: the model's window, its ratio, or only how much shorter this one request must become.

Law: pure. The second attempt of a request always has a lower limit than the prompt that was refused.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from trimtab.proxy.catalogue.prices import MIN_WINDOW_TOKENS
from trimtab.proxy.models.calibration import MIN_SAMPLE_TOKENS
from trimtab.proxy.models.discovery import MAX_WINDOW_TOKENS
from trimtab.proxy.models.records import ANY_RATIO, MAX_REFUTED, Bounds, Record, Source, clamp, recall, take_measured
from trimtab.proxy.wire.overflow import Kind, Overflow
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.scripts import EVEN, NO_CHARS, Chars, Measured, Scale, Weights, judge

MIN_LIMIT_TOKENS = 256  # A smaller number is no window. Chosen: below the window of any chat model.
SHRINK_SHARE = 0.75  # Of a refused prompt, if no excess was told. Chosen: clearly shorter, for there is no third one.
ENOUGH_SHARE = 0.97  # For figures that may be slightly wrong. Chosen: as EXACT_SHARE in rules/policy.py.
NOISE_SHARE = 0.02  # Smaller differences of two counts are ignored. Chosen: as NOISE_SHARE in calibration.py.
TEACHING_SHARE = 0.25
"""Of the limit; a smaller prompt may differ by the server's preamble. Chosen: as URGENT_SHARE in calibration.py."""
MESSAGES_SHARE = 0.9  # Of a body, for a limit in bytes. Chosen: bytes are then nearly proportional to tokens.
STEPS = 4
"""Between two powers of two, to which guesses are rounded down. Chosen: refused prompts of a session differ little."""


class Sent(msgspec.Struct, frozen=True):
    """The request that was refused.

    prompt_tokens: by our count.
    is_text: it contains only text.
    is_counted: our count covers exactly what a server reads of the request. Only then does a different count of the
        upstream say something about the vocabulary.
    messages_share: the messages' share of the body's bytes.
    chars, weights: the characters of the prompt by kind, and what they weigh in `prompt_tokens`.
    """

    prompt_tokens: int
    max_tokens: int | None = None
    is_text: bool = True
    is_counted: bool = True
    messages_share: float = 1.0
    ratios: Bounds = ANY_RATIO
    chars: Chars = NO_CHARS
    weights: Weights = EVEN


@dataclass(frozen=True, slots=True)
class Lesson:
    """What follows from a refusal. Tokens are the model's own.

    window_tokens, ratio: their new values from now on; None if they do not change. The ratio is that of this prompt.
    ceiling_tokens: the most that the prompt of this one request may have; None for no such limit.
    is_certain: the refusal said it in numbers, so it holds even if the second attempt fails. Else the lesson is a
        guess, which is learned only after the second attempt succeeded.
    added_tokens: set if the upstream counts the completion budget against the window, too. The value is the budget
        that it assumes for a request without `max_tokens`.
    sent: the prompt, if it teaches a ratio.
    teaches: it may be kept. Else it is for this one request only, because the text of the refusal also appears in the
        request, and a client could have planted it.
    """

    window_tokens: int | None = None
    ratio: float | None = None
    ceiling_tokens: int | None = None
    is_certain: bool = True
    added_tokens: int | None = None
    refused_tokens: int = field(default=0, compare=False)
    sent: Sent | None = field(default=None, compare=False)
    source: Source = "refused prompt"
    teaches: bool = True

    def given(self, answered_tokens: int) -> "Lesson":
        """The lesson, corrected by the longest answered prompt: a guess becomes that size, other windows go."""
        if self.window_tokens is None or self.window_tokens >= answered_tokens:
            return self
        is_between = not self.is_certain and self.refused_tokens > answered_tokens
        return replace(self, window_tokens=answered_tokens if is_between else None)

    def apply(self, policy: Policy) -> Policy:
        return replace(
            policy,
            context_window=self.window_tokens or policy.context_window,
            token_ratio=self.ratio or policy.token_ratio,
            ceiling_tokens=self.ceiling_tokens,
            added_tokens=policy.added_tokens if self.added_tokens is None else self.added_tokens,
        )


def draw_lesson(overflow: Overflow, policy: Policy, sent: Sent) -> Lesson | None:
    if overflow.kind in {Kind.COMPLETION, Kind.STRING}:
        return None
    # Unlike elsewhere not a window: the size of the refused prompt, in the model's tokens as far as we know.
    believed_tokens = policy.token_ratio * sent.prompt_tokens
    if overflow.kind is Kind.PROMPT:
        lesson = _learn_from_prompt(overflow, policy, sent)
    elif overflow.kind is Kind.SIZE:
        lesson = _learn_from_size(overflow, believed_tokens, sent)
    else:
        lesson = Lesson(ceiling_tokens=_round_down(SHRINK_SHARE * believed_tokens), is_certain=False)
    lesson = replace(lesson, refused_tokens=round(believed_tokens))
    if lesson.ceiling_tokens is not None and lesson.ceiling_tokens < 1:
        return None
    planned = lesson.apply(policy)
    limit_tokens = planned.limit_tokens(sent.max_tokens)
    if limit_tokens < 1:
        return None
    if limit_tokens < ENOUGH_SHARE * sent.prompt_tokens:
        went_beyond = sent.prompt_tokens > policy.limit_tokens(sent.max_tokens)
        if went_beyond and lesson.ceiling_tokens is None:
            # The prompt was above its limit, but was sent because it fit the window by our count. The second attempt
            # must keep to the limit.
            return replace(lesson, ceiling_tokens=planned.model_limit_tokens(sent.max_tokens))
        return lesson
    # By these numbers the refused prompt would have fit. So something else counts, too: shrink by a fixed share.
    return replace(lesson, ceiling_tokens=_round_down(SHRINK_SHARE * planned.token_ratio * sent.prompt_tokens))


def find_changes(believed_tokens: int, lesson: Lesson, known: Record, *, now: float) -> dict[str, Any]:
    """The fields of a record that a lesson changes. believed_tokens: as planned with. now: seconds since 1970."""
    changes: dict[str, Any] = {}
    window_tokens = lesson.window_tokens or 0
    believed_anew = recall(known).correct(believed_tokens)
    # A guess never enlarges a learned window.
    is_guess_too_many = not lesson.is_certain and window_tokens > (known.learned_tokens or window_tokens)
    if window_tokens >= MIN_WINDOW_TOKENS and believed_anew != window_tokens and not is_guess_too_many:
        others = tuple(item for item in known.refuted if item != believed_tokens)
        changes |= {"learned_tokens": window_tokens, "refuted": (*others, believed_tokens)[-MAX_REFUTED:]}
        changes |= {"window_source": lesson.source, "window_at": now, "refused_tokens": lesson.refused_tokens or None}
    if lesson.ratio is not None:
        taught = _find_scale(lesson.ratio, lesson.sent or Sent(1), known)
        if taught["ratio"] != known.ratio or "weights" in taught:
            changes |= {**taught, "ratio_source": lesson.source, "ratio_at": now, "calibrated": False}
    if lesson.added_tokens is not None and lesson.added_tokens > (known.added_tokens or -1):
        changes["added_tokens"] = lesson.added_tokens
    return changes


def _find_scale(ratio: float, sent: Sent, known: Record) -> dict[str, Any]:
    """The changes after a prompt showed this ratio: most of it is that of the prompt's kind of text."""
    tokens, kind, *_ = judge(sent.prompt_tokens, sent.chars, sent.weights, Scale(), Scale())
    chars, shown = Chars(*[each / tokens for each in sent.chars]), ratio * sent.prompt_tokens / tokens
    found = Measured(kind, shown, chars, is_settled=False)
    weights = sent.weights if known.weights is None else known.weights
    return take_measured(Scale(known.ratio, weights), known, [found], ANY_RATIO)


def _learn_from_prompt(overflow: Overflow, policy: Policy, sent: Sent) -> Lesson:
    believed_tokens = policy.token_ratio * sent.prompt_tokens
    limit = overflow.limit or 0
    if not MIN_LIMIT_TOKENS <= limit <= MAX_WINDOW_TOKENS:
        return _guess(overflow, believed_tokens, sent)
    scale = (overflow.prompt_tokens or 0) / max(believed_tokens, 1)
    ratio = _choose_ratio(scale, limit, policy, sent)
    # If the refusal names the request's own maximum, the budget for requests without one remains unknown: 0.
    added_tokens = overflow.completion_tokens if overflow.completion_tokens != sent.max_tokens else 0
    unexplained = max(scale, 1.0) * policy.token_ratio / (ratio or policy.token_ratio)
    is_unexplained = unexplained > 1 + NOISE_SHARE  # by images, the server's preamble, or a ratio out of bounds
    ceiling_tokens = int(ENOUGH_SHARE * limit / unexplained) if is_unexplained else None
    told_tokens = added_tokens if overflow.completion_tokens else None
    return Lesson(limit, ratio, ceiling_tokens, added_tokens=told_tokens, sent=None if ratio is None else sent)


def _choose_ratio(scale: float, limit: int, policy: Policy, sent: Sent) -> float | None:
    """The ratio if the upstream counted `scale` times as many tokens as we did; None if other causes are possible."""
    is_large = sent.prompt_tokens >= MIN_SAMPLE_TOKENS and scale * sent.prompt_tokens >= TEACHING_SHARE * limit
    if scale <= 1 + NOISE_SHARE or not (sent.is_text and sent.is_counted and is_large):
        return None
    return clamp(policy.token_ratio * scale, sent.ratios)


def _guess(overflow: Overflow, believed_tokens: float, sent: Sent) -> Lesson:
    """Guess the window: the prompt less its excess, else SHRINK_SHARE of it; only this request's if not all is text."""
    excess = overflow.excess_tokens or 0
    rest = believed_tokens - excess if 0 < excess < believed_tokens else SHRINK_SHARE * believed_tokens
    window_tokens = _round_down(rest)
    is_window = sent.is_text and window_tokens >= MIN_LIMIT_TOKENS
    return Lesson(window_tokens if is_window else None, ceiling_tokens=window_tokens, is_certain=False)


def _learn_from_size(overflow: Overflow, believed_tokens: float, sent: Sent) -> Lesson:
    """The guess of a limit in bytes, or of a rate limit that this request alone exceeds, which teaches no window."""
    share = SHRINK_SHARE
    limit, requested = overflow.limit, overflow.requested
    if limit and requested and limit < requested:
        completion_tokens = (sent.max_tokens or 0) if overflow.unit == "tokens" else 0
        share = max(limit - completion_tokens, 0) / max(requested - completion_tokens, 1)
    ceiling_tokens = _round_down(ENOUGH_SHARE * share * believed_tokens)
    is_rate = overflow.unit == "tokens" and limit is not None
    is_telling = sent.is_text and sent.messages_share >= MESSAGES_SHARE
    is_window = is_telling and not is_rate and ceiling_tokens >= MIN_LIMIT_TOKENS
    return Lesson(ceiling_tokens if is_window else None, None, ceiling_tokens, is_certain=False)


def _round_down(tokens: float) -> int:
    """Round a guess down to 4096, 5120, 6144, 7168, 8192, 10240 and so on."""
    whole = max(int(tokens), 0)
    step = max((1 << whole.bit_length()) // (2 * STEPS), 1)
    return whole // step * step
