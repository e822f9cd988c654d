"""What the prompt tokens that an upstream reports tell of a model: its ratio, and whether it cuts prompts short.

Law: no I/O and no clock. The same reports in the same order lead to the same findings.
"""

from collections import deque
from dataclasses import dataclass
from statistics import median

from proxy.state.models.records import ANY_RATIO, MAX_RATIO, Bounds

MIN_SAMPLE_TOKENS = 500
"""A smaller request says more of its frame than of the vocabulary."""
MAX_SAMPLE_RATIO = 20.0
MIN_SAMPLE_RATIO = 0.5
"""Of what is expected. No vocabulary makes so few of a text: such a server leaves out what it had cached, or cuts
prompts short, or always says the same. To go by it would fill windows twice over."""
WARM_UP_SAMPLES = 8
URGENT_SAMPLES = 2
URGENT_RATIO = 1.5
URGENT_SHARE = 4
"""A model that reports so much more than expected is not left until it overflows: one answer is enough, of beyond
MAX_RATIO two. What is small beside the limit, a quarter of it or less, may be the server's own preamble: it waits."""
KEPT_SAMPLES = 64
KEPT_SHARE = 0.10
"""A ratio once found is kept until the median of the last samples is further off than this."""
NOISE_SHARE = 0.02
"""What warm-up finds nearer to the expected ratio than this changes nothing: each change breaks a prompt cache."""
ERROR_WEIGHT = 0.2
WARNED_ERROR = 0.15
CUT_ANSWERS = 4
"""In a row: so many prompts that were longer than the longest reported, and of which no more was reported than that."""
CUT_SHARE = 1.25
IN_FULL_SHARE = 0.75
BLOCK_TOKENS = 256
"""Windows are multiples of this. What is always the same, and none, is no count at all."""
FULL_SHARE = 0.875
"""What is reported of a prompt cut short fills the window but for a message: beyond this share of a power of two."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an upstream reported of one prompt, beside what was sent.

    `counted_tokens` is our own count, without images and the like. `limit_tokens` is what the model's prompts may have,
    by a window that was `believed_tokens`. `cached_tokens` is what the upstream says that it had read before.
    """

    counted_tokens: int
    reported_tokens: int
    limit_tokens: int
    believed_tokens: int = 0
    cached_tokens: int = 0


class Calibration:
    """The reports on one model since its ratio was found; `error` is the mean of what was off in its counts.

    `most_reported` is the longest prompt that was answered, in the model's tokens.
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
        """Take in a report; `ratio` is the one in use, `expected_ratio` the family's."""
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
        """The ratio to go by from now on, one of `ratios`; None where nothing is to change."""
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
        """The window in tokens of a model whose prompts are cut short without a word; None where they are not."""
        always_the_same = len(set(self._cut)) == 1 and self.most_reported % BLOCK_TOKENS
        if len(self._cut) < CUT_ANSWERS or always_the_same:
            return None
        whole = 1 << (self.most_reported - 1).bit_length()
        return whole if self.most_reported > FULL_SHARE * whole else self.most_reported

    @property
    def cuts_short(self) -> bool:
        """Whether the last prompt seems to have been cut short."""
        return bool(self._cut)

    def stays_off(self, *, is_calibrated: bool) -> bool:
        """Whether counts are wrong, whatever is done about it; not while warm-up is under way."""
        is_settled = is_calibrated or not self.samples
        return is_settled and self._answers_off >= WARM_UP_SAMPLES

    def restart(self, *, is_calibrated: bool) -> None:
        """Another ratio, or another window, is in use from now on."""
        self.error, self._answers_off = 0.0, 0
        self._cut.clear()
        if is_calibrated:
            self.samples.clear()
            self._urgent.clear()

    def _watch_cuts(self, report: Report, expected_tokens: float) -> None:
        """Note whether no more of a prompt was reported than of much shorter ones, nor much less."""
        reported, most = report.reported_tokens, self.most_reported
        self.most_reported = max(most, reported)
        if reported >= IN_FULL_SHARE * expected_tokens:
            self._most_in_full = max(self._most_in_full, reported)
        if expected_tokens <= CUT_SHARE * most:
            return
        is_cut = reported < MIN_SAMPLE_RATIO * expected_tokens and 2 * reported > most >= reported
        # A server that never reports a prompt in full reports something else.
        if is_cut and 2 * self._most_in_full > most and not report.cached_tokens:
            self._cut.append(reported)
        else:
            self._cut.clear()


def clamp(ratio: float, ratios: Bounds = ANY_RATIO) -> float:
    """Within what a ratio may be, and short enough to be the same everywhere."""
    least, largest = ratios
    return round(min(max(ratio, least), largest), 4)
