"""What compaction removes from a session, in the form in which a model gets it to write questions.

Law: pure. A message counts as removed if it is before the cut or was pruned, and its text is in no message that stays.
The text is data: lines named by its hash enclose it, so that no text can forge them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil

from rules.conversation import CountTokens, Message, Role, count_leading
from rules.pipeline.plan import Plan
from rules.text.head_tail import truncate_text
from rules.window.prune import is_prunable

ITEM_TOKENS = 2000
"""Longest text of one message; of a longer one, its beginning and end are shown. The same as for summaries."""
PART_TOKENS = 8000
"""Largest part. Chosen: in a larger one, small models ask only about the beginning and the end."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of what was removed.

    text: the stretch, or its beginning if it is too long.
    questions: how many are wanted about it.
    depth: the position of its middle among everything removed, from 0 (oldest) to 1 (newest).
    """

    text: str
    questions: int
    depth: float

    @property
    def fence(self) -> str:
        """The name of the lines that enclose the text."""
        return f"transcript-{sha256(self.text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def find_removed(plan: Plan) -> list[Message]:
    """The client's own messages that a plan removes, oldest first, whatever text takes their place."""
    messages, window = plan.conversation.messages, plan.window
    leading, at = count_leading(messages), window.cut.at if window.cut else 0
    kept = (*window.cut.kept, *window.cut.kept_systems, window.cut.opening) if window.cut else ()
    steps = window.cut.kept_steps if window.cut else ()
    stays = {*range(leading), window.task, *kept, *(index for step in steps for index in range(*step))}
    pruned = set(window.pruned)
    gone, left = set[bytes](), list[str]()
    for index, message in enumerate(messages):
        is_cut = index < at and index not in stays
        if is_cut or (index in pruned and is_prunable(message)):
            gone.add(message.digest)
        else:
            left.extend(_texts(message))
    words = "\n".join(left)
    return [
        message
        for message in plan.original.messages
        if message.digest in gone and not all(text in words for text in _texts(message))
    ]


def split_removed(
    messages: Sequence[Message], questions: int, *, count: CountTokens, part_tokens: int = PART_TOKENS
) -> list[Part]:
    """Split what was removed into parts of at most about `part_tokens`, spread over its whole depth.

    There are at most as many parts as questions. If they cannot hold everything, each holds the beginning of its
    stretch.
    """
    items = [_render(message, count) for message in messages]
    sizes = [count(item) for item in items]
    total = sum(sizes)
    number = min(ceil(total / part_tokens), questions)
    stretches: list[list[int]] = [[] for _ in range(number)]
    before = 0
    for index, size in enumerate(sizes):
        stretches[min(before * number // max(total, 1), number - 1)].append(index)
        before += size
    stretches = [stretch for stretch in stretches if stretch]
    parts: list[Part] = []
    start = 0
    for place, stretch in enumerate(stretches):
        tokens = sum(sizes[index] for index in stretch)
        text = "\n\n".join(items[index] for index in _take(stretch, sizes, part_tokens))
        wanted = questions // len(stretches) + (place < questions % len(stretches))
        parts.append(Part(text, wanted, (start + tokens / 2) / total))
        start += tokens
    return parts


def _take(stretch: Sequence[int], sizes: Sequence[int], max_tokens: int) -> list[int]:
    """Indexes of the first messages that fit; at least one."""
    taken: list[int] = []
    for index in stretch:
        max_tokens -= sizes[index]
        if taken and max_tokens < 0:
            break
        taken.append(index)
    return taken


def _texts(message: Message) -> list[str]:
    return [*(text for text in message.texts if text.strip()), *(call.arguments for call in message.tool_calls)]


def _render(message: Message, count: CountTokens) -> str:
    title = "TOOL RESULT" if message.role is Role.TOOL else message.role_name.upper()
    lines = [f"[{title}]"]
    if message.text:
        lines.append(truncate_text(message.text, ITEM_TOKENS, count))
    lines.extend(
        "CALL " + truncate_text(f"{call.name} {call.arguments}", ITEM_TOKENS, count) for call in message.tool_calls
    )
    return "\n".join(lines)
