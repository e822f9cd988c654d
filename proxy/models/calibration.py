"""Calibration: compares the prompt tokens that an upstream reports with our count.

It finds the model's scale (its own tokens for one of ours, by kinds of text), and whether the upstream silently cuts
prompts short.

Law: no I/O and no clock. The same reports in the same order lead to the same findings.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from trimtab.proxy.models.records import ANY_RATIO, MAX_RATIO, Bounds, clamp
from trimtab.rules.tokens.scripts import EVEN, FOREIGN, NO_CHARS, SAMPLES, Chars, Measured, Scale, Weights, judge

MIN_SAMPLE_TOKENS = 500  # Smaller reports are ignored. Chosen: the frame of the messages weighs too much in them.
MAX_SAMPLE_RATIO = 20.0  # More for one of ours is ignored. Chosen: servers that count bytes report about 4.
MIN_SAMPLE_RATIO = 0.5
"""Reports below this share of the expected tokens are ignored. Chosen: no vocabulary makes so few tokens of a text.
Such a server leaves out cached tokens, cuts prompts short, or always reports the same number. If trimtab believed it,
prompts could grow to twice the window."""
WARM_UP_SAMPLES = 8  # Whose median is the first measure of a kind. Chosen: three outliers hardly move it.
LEAST_SAMPLES = 3  # For each kind, if there are several new ones. Chosen: one outlier does not move the median.
URGENT_SAMPLES = 2
URGENT_RATIO = 1.5
URGENT_SHARE = 4
"""A kind's first ratio is used before the end of warm-up if it is more than URGENT_RATIO times the current one: prompts
could overflow the window meanwhile. One report is enough; if its ratio is above MAX_RATIO, URGENT_SAMPLES are needed.
Only prompts of at least 1 / URGENT_SHARE of the limit count: for a smaller one, the server's own preamble may explain
the difference. All three are chosen."""
KEPT_SAMPLES = 64  # The last reports, which may change a measure. Chosen: eight times the warm-up, so that is rare.
KEPT_SHARE = 0.10  # By which their median must differ for that. Chosen: each change breaks a prompt cache.
NOISE_SHARE = 0.02  # By which that of the warm-up must differ. Chosen: each change breaks a prompt cache.
LEAST_ASKED_TOKENS, MOST_ASKED_TOKENS, ASKED_GROWTH = 64, 4096, 2
"""Prompts that a server counts itself: from 64 tokens on, and again those that are twice as long as the one before,
until one had 4,096. Chosen: a shorter one shows no language, and what is sent of a longer one has no more."""
ERROR_WEIGHT = 0.2  # Weight of the newest report in the mean error. Chosen: about the last five reports count.
WARNED_ERROR = 0.15  # A larger mean error is logged. Chosen: above KEPT_SHARE, which calibration accepts.
CUT_ANSWERS = 4  # In a row, before a window is learned. Chosen: a few odd reports must not suffice.
CUT_SHARE = 1.25  # By which such a prompt exceeds the largest report. Chosen: clear even if our count is too large.
IN_FULL_SHARE = 0.75  # Of the expected tokens. Chosen: the ratio of the model's family may be too large by a third.
BLOCK_TOKENS = 256  # Windows are multiples of it. Another repeated number does not count tokens, and teaches none.
FULL_SHARE = 0.875  # Of a power of two, which is then the window. Chosen: who drops whole messages leaves a part empty.


class Report(msgspec.Struct, frozen=True):
    """The usage that an upstream reported for one prompt, and what was sent.

    counted_tokens: our own count of the prompt, with `weights`.
    reported_tokens: the upstream's count, with cached tokens.
    limit_tokens: the limit of the prompt, in the model's tokens.
    believed_tokens: the window that the limit was derived from (see model_policy.py); 0 if unknown.
    cached_tokens: the part of the prompt that the upstream read from its prompt cache.
    """

    counted_tokens: int
    reported_tokens: int
    limit_tokens: int
    believed_tokens: int = 0
    cached_tokens: int = 0
    chars: Chars = NO_CHARS
    weights: Weights = EVEN


class _Samples:
    def __init__(self) -> None:
        self.last: deque[float] = deque(maxlen=KEPT_SAMPLES)
        self.urgent: deque[float] = deque(maxlen=WARM_UP_SAMPLES)
        self._chars = [0.0] * len(NO_CHARS)
        self._number = 0

    def add(self, sample: float, tokens: float, chars: Chars, *, is_urgent: bool) -> None:
        self.last.append(sample)
        self._number += 1
        for place, each in enumerate(chars):
            self._chars[place] += each / tokens
        if is_urgent:
            self.urgent.append(sample)

    @property
    def chars(self) -> Chars:
        """For one token of ours, in the mean."""
        return Chars(*[each / max(self._number, 1) for each in self._chars])

    def measure(self, sample: float, kind: int, scale: Scale, ratios: Bounds, *, is_settled: bool = True) -> Measured:
        chars = self.chars
        tokens = sample * scale.predict(1.0, chars)
        return Measured(kind, tokens if sample == 1 else clamp(tokens, ratios), chars, is_settled)

    def rescale(self, before: Scale, after: Scale) -> None:
        factor = before.predict(1.0, self.chars) / after.predict(1.0, self.chars)
        for samples in (self.last, self.urgent):
            known = [sample * factor for sample in samples]
            samples.clear()
            samples.extend(known)


class Calibration:
    """The usage reports on one model since its scale was found. number: of those since then, or since a change.

    error: moving mean of our relative error. most_reported: the longest answered prompt, in the model's tokens.
    """

    def __init__(self) -> None:
        self._samples = [_Samples() for _ in SAMPLES]
        self._settled: Sequence[int] = ()
        self._asked: dict[int, int] = {}
        self.unanswered: set[int] = set()  # kinds of prompts that the server did not count in time
        self._newest = self._new = self.number = 0
        self.error = 0.0
        self._cut: deque[int] = deque(maxlen=CUT_ANSWERS)
        self._answers_off = 0
        self.most_reported = 0
        self._most_in_full = 0

    def add(self, report: Report, scale: Scale, expected: Scale) -> bool:
        """Add a report; whether there may be something to measure. expected: the tokenizer's or family's scale."""
        chars, reported = report.chars, report.reported_tokens
        counted, weights = report.counted_tokens, report.weights
        tokens, kind, predicted, expected_tokens = judge(counted, chars, weights, scale, expected)
        sample = reported / predicted
        self.error += (min(abs(sample - 1), 1.0) - self.error) * ERROR_WEIGHT
        self._answers_off = self._answers_off + 1 if self.error > WARNED_ERROR else 0
        self._watch_cuts(report, expected_tokens)
        if not MIN_SAMPLE_RATIO * expected_tokens <= reported <= MAX_SAMPLE_RATIO * tokens:
            return False
        is_urgent, samples = reported * URGENT_SHARE >= report.limit_tokens, self._samples[kind]
        samples.add(sample, tokens, chars, is_urgent=is_urgent)
        self._newest = kind
        self.number += 1
        if kind in self._settled:
            return len(samples.last) == KEPT_SAMPLES
        self._new += 1
        return self._new >= WARM_UP_SAMPLES or is_urgent

    def take_question(self, kind: int, tokens: int, *, is_first: bool = False) -> float | None:
        """By what share a server's own count of such a prompt must differ to be used; None if it is not to be asked.

        It is, which is noted, if the prompt's kind is not settled. A longer one of the same kind shows more; a few are
        enough. The first prompt of a session may be in another language of its kind, which differs by much.
        """
        if tokens < LEAST_ASKED_TOKENS:
            return None
        asked_tokens = self._asked.get(kind, 0)
        if kind not in self._settled and tokens >= ASKED_GROWTH * asked_tokens:
            self._asked[kind] = tokens
            if asked_tokens < MOST_ASKED_TOKENS:
                return NOISE_SHARE
        return KEPT_SHARE if is_first and kind in FOREIGN and kind not in self.unanswered else None

    def measure(self, scale: Scale, ratios: Bounds = ANY_RATIO) -> list[Measured]:
        """What the reports show, within `ratios`; nothing without a reason to decide. Warm-up may confirm `scale`."""
        newest = self._samples[self._newest]
        if self._newest not in self._settled:
            return list(self._measure_new(scale, ratios, is_warm=self._new >= WARM_UP_SAMPLES))
        if len(newest.last) < KEPT_SAMPLES:
            return []
        row = newest.measure(median(newest.last), self._newest, scale, ratios)
        return [row] if abs(row.tokens / scale.predict(1.0, row.chars) - 1) > KEPT_SHARE else []

    def _measure_new(self, scale: Scale, ratios: Bounds, *, is_warm: bool) -> Iterator[Measured]:
        for kind, samples in enumerate(self._samples):
            if kind in self._settled:
                continue
            if is_warm and len(samples.last) >= LEAST_SAMPLES:
                middle = median(samples.last)
                sample = 1.0 if abs(middle - 1) <= NOISE_SHARE else middle
                yield samples.measure(sample, kind, scale, ratios)
            elif samples.urgent and (urgent := _find_urgent(samples, kind, scale, ratios)):
                yield urgent

    def find_window(self) -> int | None:
        if len(self._cut) < CUT_ANSWERS or (len(set(self._cut)) == 1 and self.most_reported % BLOCK_TOKENS):
            return None
        whole = 1 << (self.most_reported - 1).bit_length()
        return whole if self.most_reported > FULL_SHARE * whole else self.most_reported

    @property
    def cuts_short(self) -> bool:
        return bool(self._cut)

    def stays_off(self, *, is_calibrated: bool) -> bool:
        """Whether our counts stay wrong although calibration has done what it can. Never during warm-up."""
        is_settled = is_calibrated or not self.number
        return is_settled and self._answers_off >= WARM_UP_SAMPLES

    def restart(self, before: Scale, after: Scale, settled: Sequence[int] = ()) -> None:
        """Start again with another scale or window. Samples of kinds not `settled` stay: their median decides."""
        self.error, self._answers_off = 0.0, 0
        self._cut.clear()
        self._settled = settled
        for kind, samples in enumerate(self._samples):
            if kind in settled:
                self._samples[kind] = _Samples()
            else:
                samples.rescale(before, after)
        self._new = self.number = sum(len(samples.last) for samples in self._samples)

    def _watch_cuts(self, report: Report, expected_tokens: float) -> None:
        """Note whether the prompt looks cut short: its report is at most the largest one, but above half of it."""
        reported, most = report.reported_tokens, self.most_reported
        self.most_reported = max(most, reported)
        if reported >= IN_FULL_SHARE * expected_tokens:
            self._most_in_full = max(self._most_in_full, reported)
        if expected_tokens <= CUT_SHARE * most:
            return
        is_cut = reported < MIN_SAMPLE_RATIO * expected_tokens and 2 * reported > most >= reported
        # A server that never reported a prompt in full does not report prompt sizes, so it proves no cut.
        if is_cut and 2 * self._most_in_full > most and not report.cached_tokens:
            self._cut.append(reported)
        else:
            self._cut.clear()


def _find_urgent(samples: _Samples, kind: int, scale: Scale, ratios: Bounds) -> Measured | None:
    """What the reports on nearly full prompts show, if prompts could overflow the window meanwhile."""
    urgent = samples.urgent
    if len(urgent) < URGENT_SAMPLES and urgent[0] * scale.predict(1.0, samples.chars) > MAX_RATIO:
        return None
    least = samples.measure(min(urgent), kind, scale, ratios, is_settled=False)
    return least if least.tokens > URGENT_RATIO * scale.predict(1.0, least.chars) else None
