"""What a refusal teaches: the window, the ratio of tokens, or only how much this one request must shrink.

Law: pure. A retry always gets less than what was refused.
"""

from dataclasses import dataclass, replace

from proxy.discovery import MAX_WINDOW_TOKENS
from proxy.overflow import Kind, Overflow
from proxy.records import MAX_RATIO
from rules.policy import Policy

MIN_LIMIT_TOKENS = 256
"""A smaller limit is no window."""
SHRINK_SHARE = 0.75
"""What is tried of a prompt that was refused without a word of by how much it was too long."""
ENOUGH_SHARE = 0.97
"""What stays of a figure that may be a little off."""
NOISE_SHARE = 0.02
STEPS = 4
"""Guesses are rounded down to quarters of an octave: what one session is refused gives one guess."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What was refused: its prompt as we count it, and the completion that it asked for.

    `is_text`: nothing in it but text that every model reads, so that its tokens tell of the vocabulary.
    """

    prompt_tokens: int
    max_tokens: int | None = None
    is_text: bool = True


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is to be done about a refusal. Tokens are the model's own.

    `window_tokens` and `ratio` hold from now on, None where they stay, and so does `adds_completion`: the upstream adds
    what the completion may have to the prompt. `ceiling_tokens` is what the prompt may have this time. `is_certain`:
    said in words, and true even if the second attempt fails.
    """

    window_tokens: int | None = None
    ratio: float | None = None
    ceiling_tokens: int | None = None
    is_certain: bool = True
    adds_completion: bool = False

    def apply(self, policy: Policy) -> Policy:
        """The policy by which the request is planned again."""
        return replace(
            policy,
            context_window=self.window_tokens or policy.context_window,
            token_ratio=self.ratio or policy.token_ratio,
            ceiling_tokens=self.ceiling_tokens,
            adds_completion=self.adds_completion or policy.adds_completion,
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
    if lesson.ceiling_tokens is not None and lesson.ceiling_tokens < 1:
        return None
    planned = lesson.apply(policy)
    limit_tokens = planned.limit_tokens(sent.max_tokens)
    if limit_tokens < 1:
        return None
    if limit_tokens < ENOUGH_SHARE * sent.prompt_tokens:
        return lesson
    # By these numbers it fitted all along. So they are not the whole truth.
    return replace(lesson, ceiling_tokens=_round_down(SHRINK_SHARE * planned.token_ratio * sent.prompt_tokens))


def _learn_from_prompt(overflow: Overflow, policy: Policy, sent: Sent) -> Lesson:
    believed_tokens = policy.token_ratio * sent.prompt_tokens
    limit = overflow.limit or 0
    if not MIN_LIMIT_TOKENS <= limit <= MAX_WINDOW_TOKENS:
        excess = overflow.excess_tokens or 0
        rest = believed_tokens - excess if 0 < excess < believed_tokens else SHRINK_SHARE * believed_tokens
        window_tokens = _round_down(rest)
        return Lesson(window_tokens if window_tokens >= MIN_LIMIT_TOKENS else None, ceiling_tokens=window_tokens)
    exact = None if overflow.is_least else overflow.prompt_tokens
    scale = exact / max(believed_tokens, 1) if exact else 1.0
    is_measured = scale > 1 + NOISE_SHARE and sent.is_text
    ratio = min(policy.token_ratio * scale, MAX_RATIO) if is_measured else None
    ceilings = []
    adds_completion = bool(overflow.completion_tokens) and overflow.completion_tokens == sent.max_tokens
    if overflow.completion_tokens and not adds_completion:  # a completion that the server chose
        ceilings.append(ENOUGH_SHARE * (limit - overflow.completion_tokens))
    unexplained = scale * policy.token_ratio / (ratio or policy.token_ratio)
    if unexplained > 1 + NOISE_SHARE:  # images, or a vocabulary beyond all bounds
        ceilings.append(ENOUGH_SHARE * limit / unexplained)
    ceiling_tokens = int(min(ceilings)) if ceilings else None
    return Lesson(limit, ratio, ceiling_tokens, adds_completion=adds_completion)


def _learn_from_size(overflow: Overflow, believed_tokens: float, sent: Sent) -> Lesson:
    """A size says little of windows: it is believed once the second attempt has gone through."""
    share = SHRINK_SHARE
    limit, requested = overflow.limit, overflow.requested
    if limit and requested and limit < requested:
        completion_tokens = (sent.max_tokens or 0) if overflow.unit == "tokens" else 0
        share = max(limit - completion_tokens, 0) / max(requested - completion_tokens, 1)
    ceiling_tokens = _round_down(ENOUGH_SHARE * share * believed_tokens)
    is_rate = overflow.unit == "tokens" and limit is not None
    is_window = not is_rate and ceiling_tokens >= MIN_LIMIT_TOKENS
    return Lesson(ceiling_tokens if is_window else None, None, ceiling_tokens, is_certain=False)


def _round_down(tokens: float) -> int:
    """The next guess below: 4096, 5120, 6144, 7168, 8192, 10240 and so on."""
    whole = max(int(tokens), 0)
    step = max((1 << whole.bit_length()) // (2 * STEPS), 1)
    return whole // step * step
