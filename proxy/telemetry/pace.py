"""The speed of a streamed text.

Law: a rate that cannot be known is None. An impossible rate is never reported.
"""

import msgspec

MIN_SECONDS = 0.05
"""A text that arrives in less time has no rate. Chosen: its rate would show how fast buffers are emptied, not how fast
the model writes."""


class Pace(msgspec.Struct, frozen=True):
    """When the model's text arrived.

    first_at, last_at: time of the first and the last text on the monotonic clock; 0.0 if there is none.
    first_chars: characters of the first chunk with text. It is left out of the rate, because the start of its writing
        is not known.
    chars: all characters so far.
    """

    first_at: float = 0.0
    last_at: float = 0.0
    first_chars: int = 0
    chars: int = 0

    def tokens_per_second(self, tokens: int) -> float | None:
        """The rate of a text with this many tokens.

        None if the text came in one chunk or within MIN_SECONDS. None also if it has fewer characters than tokens: then
        most tokens belong to something that was not sent, such as hidden reasoning.
        """
        seconds = self.last_at - self.first_at
        late_chars = self.chars - self.first_chars
        if not late_chars or seconds < MIN_SECONDS or not 0 < tokens <= self.chars:
            return None
        return tokens * late_chars / self.chars / seconds
