"""How fast the text of a stream came.

Law: a figure that cannot be known is None. Nobody gets one that no model could have produced.
"""

from dataclasses import dataclass

MIN_SECONDS = 0.05
"""Text that arrives within a shorter time tells how fast buffers are emptied, not how fast a model writes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When the model's text arrived. Times are of the monotonic clock, 0.0 if no text has come.

    `chars` is all text so far, `first_chars` what came with the first chunk that had any: when the writing of that
    began is not known, so it is left out of the rate.
    """

    first_at: float = 0.0
    last_at: float = 0.0
    first_chars: int = 0
    chars: int = 0

    def tokens_per_second(self, tokens: int) -> float | None:
        """The rate at which the text came, which has so many tokens.

        None if the text came in one chunk or at once, or if it cannot have that many tokens: then most of them are
        of something that was not sent (hidden reasoning, say).
        """
        seconds = self.last_at - self.first_at
        late_chars = self.chars - self.first_chars
        if not late_chars or seconds < MIN_SECONDS or not 0 < tokens <= self.chars:
            return None
        return tokens * late_chars / self.chars / seconds
