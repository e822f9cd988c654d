"""What a refusal teaches: the window, the ratio of tokens, or only how much this one request must shrink.

Law: pure. A retry always gets less than what was refused.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from proxy.state.models.calibration import MIN_SAMPLE_TOKENS, clamp
from proxy.state.models.discovery import MAX_WINDOW_TOKENS, MIN_WINDOW_TOKENS
from proxy.state.models.facts import recall
from proxy.state.models.records import ANY_RATIO, MAX_REFUTED, Bounds, Record, Source
from proxy.wire.overflow.classify import Overflow
from proxy.wire.overflow.wordings import Kind
from rules.policy import Policy

MIN_LIMIT_TOKENS = 256
"""A smaller limit is no window."""
SHRINK_SHARE = 0.75
"""What is tried of a prompt that was refused without a word of by how much it was too long."""
ENOUGH_SHARE = 0.97
"""What stays of a figure that may be a little off."""
NOISE_SHARE = 0.02
TEACHING_SHARE = 0.25
"""Of the limit: a smaller prompt says more of the server's own preamble than of the vocabulary."""
MESSAGES_SHARE = 0.9
"""Of the body that messages must be if its size in bytes is to teach anything of its tokens."""
STEPS = 4
"""Guesses are rounded down to quarters of an octave: what one session is refused gives one guess."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What was refused: its prompt as we count it, and the completion that it asked for.

    `is_text`: nothing in it but text that every model reads. `is_counted`: no member of the request is left out of the
    count that a server may read, so that the prompt's tokens tell of the vocabulary. `messages_share` is the share of
    the body that its messages are. `ratios` are those that the model's vocabulary may have.
    """

    prompt_tokens: int
    max_tokens: int | None = None
    is_text: bool = True
    is_counted: bool = True
    messages_share: float = 1.0
    ratios: Bounds = ANY_RATIO


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is to be done about a refusal. Tokens are the model's own.

    `window_tokens` and `ratio` hold from now on, None where they stay, and so does `added_tokens`: the upstream adds
    what the completion may have to the prompt, so much where none is asked for. `ceiling_tokens` is what the prompt may
    have this time. `is_certain`: said in words, and true even if the second attempt fails; else it is a guess.
    `refused_tokens` is what was refused, `source` how the lesson came about. `teaches`: it may be kept; else it is for
    this one request, because the refusal repeats the request's own words.
    """

    window_tokens: int | None = None
    ratio: float | None = None
    ceiling_tokens: int | None = None
    is_certain: bool = True
    added_tokens: int | None = None
    refused_tokens: int = field(default=0, compare=False)
    source: Source = "refused prompt"
    teaches: bool = True

    def given(self, answered_tokens: int) -> "Lesson":
        """The lesson, knowing that a prompt of so many tokens was answered: the window is no smaller than that."""
        if self.window_tokens is None or self.window_tokens >= answered_tokens:
            return self
        is_between = not self.is_certain and self.refused_tokens > answered_tokens
        return replace(self, window_tokens=answered_tokens if is_between else None)

    def apply(self, policy: Policy) -> Policy:
        """The policy by which the request is planned again."""
        return replace(
            policy,
            context_window=self.window_tokens or policy.context_window,
            token_ratio=self.ratio or policy.token_ratio,
            ceiling_tokens=self.ceiling_tokens,
            added_tokens=policy.added_tokens if self.added_tokens is None else self.added_tokens,
        )


def draw_lesson(overflow: Overflow, policy: Policy, sent: Sent) -> Lesson | None:
    """What the refusal of a prompt planned by `policy` teaches; None where a shorter prompt would not help."""
    if overflow.kind in {Kind.COMPLETION, Kind.STRING}:
        return None
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
            # It was let go beyond its limit, as it fit the window by our count. The second attempt must keep to it.
            return replace(lesson, ceiling_tokens=planned.model_limit_tokens(sent.max_tokens))
        return lesson
    # By these numbers it fitted all along. So they are not the whole truth.
    return replace(lesson, ceiling_tokens=_round_down(SHRINK_SHARE * planned.token_ratio * sent.prompt_tokens))


def find_changes(believed_tokens: int, lesson: Lesson, known: Record, *, now: float) -> dict[str, Any]:
    """What a lesson about a window of `believed_tokens` changes of what is known of a model, at a time since 1970."""
    changes: dict[str, Any] = {}
    window_tokens = lesson.window_tokens or 0
    believed_anew = recall(known).correct(believed_tokens)
    is_guess_too_many = not lesson.is_certain and window_tokens > (known.learned_tokens or window_tokens)
    if window_tokens >= MIN_WINDOW_TOKENS and believed_anew != window_tokens and not is_guess_too_many:
        others = tuple(item for item in known.refuted if item != believed_tokens)
        changes |= {"learned_tokens": window_tokens, "refuted": (*others, believed_tokens)[-MAX_REFUTED:]}
        changes |= {"window_source": lesson.source, "window_at": now, "refused_tokens": lesson.refused_tokens or None}
    if lesson.ratio is not None and clamp(lesson.ratio) != known.ratio:
        changes |= {"ratio": clamp(lesson.ratio), "ratio_source": lesson.source, "ratio_at": now, "calibrated": False}
    if lesson.added_tokens is not None and lesson.added_tokens > (known.added_tokens or -1):
        changes["added_tokens"] = lesson.added_tokens
    return changes


def _learn_from_prompt(overflow: Overflow, policy: Policy, sent: Sent) -> Lesson:
    believed_tokens = policy.token_ratio * sent.prompt_tokens
    limit = overflow.limit or 0
    if not MIN_LIMIT_TOKENS <= limit <= MAX_WINDOW_TOKENS:
        return _guess(overflow, believed_tokens, sent)
    scale = (overflow.prompt_tokens or 0) / max(believed_tokens, 1)
    ratio = _choose_ratio(scale, limit, policy, sent)
    added_tokens = overflow.completion_tokens if overflow.completion_tokens != sent.max_tokens else 0
    unexplained = max(scale, 1.0) * policy.token_ratio / (ratio or policy.token_ratio)
    is_unexplained = unexplained > 1 + NOISE_SHARE  # images, a preamble, or a vocabulary beyond all bounds
    ceiling_tokens = int(ENOUGH_SHARE * limit / unexplained) if is_unexplained else None
    return Lesson(limit, ratio, ceiling_tokens, added_tokens=added_tokens if overflow.completion_tokens else None)


def _choose_ratio(scale: float, limit: int, policy: Policy, sent: Sent) -> float | None:
    """The ratio where so many times more was counted upstream than we believed; None where that says nothing of it."""
    is_large = sent.prompt_tokens >= MIN_SAMPLE_TOKENS and scale * sent.prompt_tokens >= TEACHING_SHARE * limit
    if scale <= 1 + NOISE_SHARE or not (sent.is_text and sent.is_counted and is_large):
        return None
    return clamp(policy.token_ratio * scale, sent.ratios)


def _guess(overflow: Overflow, believed_tokens: float, sent: Sent) -> Lesson:
    """A window of what is left where the excess is told, else of three quarters; of text alone only."""
    excess = overflow.excess_tokens or 0
    rest = believed_tokens - excess if 0 < excess < believed_tokens else SHRINK_SHARE * believed_tokens
    window_tokens = _round_down(rest)
    is_window = sent.is_text and window_tokens >= MIN_LIMIT_TOKENS
    return Lesson(window_tokens if is_window else None, ceiling_tokens=window_tokens, is_certain=False)


def _learn_from_size(overflow: Overflow, believed_tokens: float, sent: Sent) -> Lesson:
    """A size says little of windows: it is believed once the second attempt has gone through."""
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
    """The next guess below: 4096, 5120, 6144, 7168, 8192, 10240 and so on."""
    whole = max(int(tokens), 0)
    step = max((1 << whole.bit_length()) // (2 * STEPS), 1)
    return whole // step * step
