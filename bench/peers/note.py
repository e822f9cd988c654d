"""A text instead of a model's summary, made of the prompt's own words.

Law: the same prompt makes the same note. It needs only the standard library, so that the peers' environments can import
it.
"""

import re

CHARS_PER_TOKEN = 5
"""Characters of the chosen words for each token, approximately: more than in prose."""
_HEADINGS = ("Progress and decisions", "Constraints and preferences", "Remaining", "Exact data")
_LEAST_WORDS = 16
"""Chosen: so that there is text under each heading."""
_WORDS_A_LINE = 14
_WORD = re.compile(r"[A-Za-z_./-]{3,24}|[\u4e00-\u9fff]{2,8}")


def write_note(prompt: str, tokens: int) -> str:
    """A note of about `tokens`: words of the prompt at even distances, under the headings of a handoff note."""
    words = _WORD.findall(prompt) or ["nothing"]
    wanted = max(tokens * CHARS_PER_TOKEN // 7, _LEAST_WORDS)
    picked = [words[index * len(words) // wanted] for index in range(wanted)]
    lines: list[str] = []
    for number, heading in enumerate(_HEADINGS):
        part = picked[number * wanted // len(_HEADINGS) : (number + 1) * wanted // len(_HEADINGS)]
        lines.append(f"## {number + 1}. {heading}")
        lines += (f"- {' '.join(part[at : at + _WORDS_A_LINE])}." for at in range(0, len(part), _WORDS_A_LINE))
    return "\n".join(lines)
