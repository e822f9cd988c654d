"""Calibration: compares the prompt tokens that an upstream reports with our count.

It finds the model's ratio (its own tokens for one of ours), and whether the upstream silently cuts prompts short.

Law: no I/O and no clock. The same reports in the same order lead to the same findings.
"""

from collections import deque
from dataclasses import dataclass
from statistics import median

from trimtab.proxy.models.records import ANY_RATIO, MAX_RATIO, Bounds, clamp

MIN_SAMPLE_TOKENS = 500
"""Reports on smaller requests are ignored. Chosen: in a small request, the frame of the messages weighs too much."""
MAX_SAMPLE_RATIO = 20.0
"""Reports of more tokens than this for one of ours are ignored. Chosen: servers that count bytes report about 4."""
MIN_SAMPLE_RATIO = 0.5
"""Reports below this share of the expected tokens are ignored. Chosen: no vocabulary makes so few tokens of a text.
Such a server leaves out cached tokens, cuts prompts short, or always reports the same number. If trimtab believed it,
prompts could grow to twice the window."""
WARM_UP_SAMPLES = 8
"""A model's first ratio is the median of this many reports. Chosen: three outliers hardly move the median."""
URGENT_SAMPLES = 2
URGENT_RATIO = 1.5
URGENT_SHARE = 4
"""The first ratio is used before the end of warm-up if it is more than URGENT_RATIO times the current one: prompts
could overflow the window meanwhile. One report is enough; if its ratio is above MAX_RATIO, URGENT_SAMPLES are needed.
Only prompts of at least 1 / URGENT_SHARE of the limit count: for a smaller one, the server's own preamble may explain
the difference. All three are chosen."""
KEPT_SAMPLES = 64
"""The number of last reports whose median may replace a ratio. Chosen: eight times the warm-up, so changes are rare."""
KEPT_SHARE = 0.10
"""A ratio is kept until that median differs by more than this share. Chosen: each change breaks a prompt cache."""
NOISE_SHARE = 0.02
"""Warm-up keeps the expected ratio if its median differs by this share or less. Chosen: each change breaks a prompt
cache."""
ERROR_WEIGHT = 0.2
"""Weight of the newest report in the mean error. Chosen: about the last five reports count."""
WARNED_ERROR = 0.15
"""A larger mean error is reported in the log. Chosen: above KEPT_SHARE, because calibration accepts smaller errors."""
CUT_ANSWERS = 4
"""Prompts in a row that must look cut short before a window is learned. Chosen: a few odd reports must not suffice."""
CUT_SHARE = 1.25
"""A prompt can look cut short only if it is longer than the largest report by this factor. Chosen: such a prompt is
clearly longer, even if our count is somewhat too large."""
IN_FULL_SHARE = 0.75
"""A report of at least this share of the expected tokens means that the prompt was read in full. Chosen: the
ratio of the model's family may be too large by a third."""
BLOCK_TOKENS = 256
"""Context windows are multiples of 256. If an upstream keeps reporting one other number, it does not count tokens, and
no window is learned from it."""
FULL_SHARE = 0.875
"""If the largest report exceeds this share of a power of two, that power of two is the window. Chosen: a server that
drops whole messages leaves a part of the window empty."""


@dataclass(frozen=True, slots=True)
class Report:
    """The usage that an upstream reported for one prompt, and what was sent.

    counted_tokens: our own count of the prompt.
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


class Calibration:
    """The usage reports on one model since its ratio was found.

    samples: reported tokens for one counted token, one figure for each report.
    error: moving mean of the relative error of our counts.
    most_reported: the longest prompt that was answered, in the model's tokens.
    """

    def __init__(self) -> None:
        self.samples: deque[float] = deque(maxlen=KEPT_SAMPLES)
        self.error = 0.0
        self._cut: deque[int] = deque(maxlen=CUT_ANSWERS)
        self._urgent: deque[float] = deque(maxlen=WARM_UP_SAMPLES)
        self._answers_off = 0
        self.most_reported = 0
        self._most_in_full = 0

    def add(self, report: Report, ratio: float, expected_ratio: float) -> None:
        """Add a report. `ratio` is the one in use, `expected_ratio` that of the model's family."""
        sample = report.reported_tokens / max(report.counted_tokens, 1)
        self.error += (min(abs(sample / ratio - 1), 1.0) - self.error) * ERROR_WEIGHT
        self._answers_off = self._answers_off + 1 if self.error > WARNED_ERROR else 0
        self._watch_cuts(report, expected_ratio * report.counted_tokens)
        if not MIN_SAMPLE_RATIO * expected_ratio <= sample <= MAX_SAMPLE_RATIO:
            return
        self.samples.append(sample)
        if report.reported_tokens * URGENT_SHARE >= report.limit_tokens:
            self._urgent.append(sample)

    def choose_ratio(self, current: float, *, is_calibrated: bool, ratios: Bounds = ANY_RATIO) -> float | None:
        """Choose the ratio to use from now on, within `ratios`; None if there is no reason to decide yet or again.

        At the end of warm-up it may return the current ratio, which confirms it.
        """
        samples, urgent = self.samples, self._urgent
        if is_calibrated:
            if len(samples) < KEPT_SAMPLES:
                return None
            found = clamp(median(samples), ratios)
            return found if abs(found / current - 1) > KEPT_SHARE else None
        if len(samples) >= WARM_UP_SAMPLES:
            found = clamp(median(samples), ratios)
            return found if abs(found / current - 1) > NOISE_SHARE else current
        if not urgent or (len(urgent) < URGENT_SAMPLES and urgent[0] > MAX_RATIO):
            return None
        least = clamp(min(urgent), ratios)
        return least if least > URGENT_RATIO * current else None

    def find_window(self) -> int | None:
        """Find the window in tokens, if the upstream silently cuts prompts short; None if it does not."""
        always_the_same = len(set(self._cut)) == 1 and self.most_reported % BLOCK_TOKENS
        if len(self._cut) < CUT_ANSWERS or always_the_same:
            return None
        whole = 1 << (self.most_reported - 1).bit_length()
        return whole if self.most_reported > FULL_SHARE * whole else self.most_reported

    @property
    def cuts_short(self) -> bool:
        return bool(self._cut)

    def stays_off(self, *, is_calibrated: bool) -> bool:
        """Whether our counts stay wrong although calibration has done what it can. Never during warm-up."""
        is_settled = is_calibrated or not self.samples
        return is_settled and self._answers_off >= WARM_UP_SAMPLES

    def restart(self, *, is_calibrated: bool) -> None:
        """Start again, because another ratio or window is in use from now on.

        During warm-up the samples are kept, so that their median still decides.
        """
        self.error, self._answers_off = 0.0, 0
        self._cut.clear()
        if is_calibrated:
            self.samples.clear()
            self._urgent.clear()

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
