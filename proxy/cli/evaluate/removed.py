"""What a client's messages lost on their way, as a model is shown it to make questions of.

Law: pure. A message counts as removed if it stands before the cut, or was pruned, and its text is in no message that
stays. What is shown is data: a name encloses it that is made of its hash, so that no text can forge it.
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
"""Of one message; longer ones are shown with head and tail. The same as what a summariser is shown."""
PART_TOKENS = 8000
"""Of what is shown at a time: more, and small models ask about its beginning and its end alone."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of what was removed, as it is shown. `questions` are wanted of it.

    `depth` is where its middle stands among all that was removed: 0 for the oldest, 1 for the newest.
    """

    text: str
    questions: int
    depth: float

    @property
    def fence(self) -> str:
        """The name of the lines that enclose the text."""
        return f"transcript-{sha256(self.text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def find_removed(plan: Plan) -> list[Message]:
    """The client's own messages that give way by a plan, oldest first, whatever text comes in their place."""
    messages, window = plan.conversation.messages, plan.window
    leading, at = count_leading(messages), window.cut.at if window.cut else 0
    stays = {*range(leading), window.task, *(window.cut.kept if window.cut else ())}
    gone, kept = set[bytes](), list[str]()
    for index, message in enumerate(messages):
        is_cut = index < at and index not in stays and message.role is not Role.SYSTEM
        if is_cut or (at <= index < window.prune_stop and is_prunable(message)):
            gone.add(message.digest)
        else:
            kept.extend(_texts(message))
    words = "\n".join(kept)
    return [
        message
        for message in plan.original.messages
        if message.digest in gone and not all(text in words for text in _texts(message))
    ]


def split_removed(
    messages: Sequence[Message], questions: int, *, count: CountTokens, part_tokens: int = PART_TOKENS
) -> list[Part]:
    """What was removed in parts of about `part_tokens` at most, spread over its whole depth.

    There are at most as many parts as questions; if these cannot hold everything, each begins at its own depth.
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
    """The first messages that fit; never none."""
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
