"""The text that stands where a model would have written a summary: made of the prompt's own words.

Law: the same prompt makes the same note. Needs nothing but the standard library, so that the peers' own environments
can import it.
"""

import re

CHARS_PER_TOKEN = 5
"""Of the words below, about: names cost more than prose."""
_HEADINGS = ("Task", "Done", "Found", "Files", "Open")
_WORDS_A_LINE = 14
_WORD = re.compile(r"[A-Za-z_./-]{3,24}|[\u4e00-\u9fff]{2,8}")


def write_note(prompt: str, tokens: int) -> str:
    """A note of about `tokens`: words of the prompt, taken at even distances, under headings."""
    words = _WORD.findall(prompt) or ["nothing"]
    wanted = max(tokens * CHARS_PER_TOKEN // 7, 1)
    picked = [words[index * len(words) // wanted] for index in range(wanted)]
    lines = [
        f"{_HEADINGS[start // _WORDS_A_LINE % len(_HEADINGS)]}: {' '.join(picked[start : start + _WORDS_A_LINE])}."
        for start in range(0, wanted, _WORDS_A_LINE)
    ]
    return "\n".join(lines)
