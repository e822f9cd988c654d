"""The cache that finds the longest common prefix by itself, in whole blocks.

Sources: OpenAI before GPT-5.6 (128 tokens, from 1,024 on), DeepSeek (64 tokens), Gemini's, xAI's, Moonshot's and Groq's
implicit caches, of which only the price is documented in detail (../shared/notes/field.md, 2.1 and 2.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.sessions.caches.cache import MINIMUM_TOKENS, Node, Reading, is_alive
from bench.sessions.marks import Marks
from bench.sessions.prompts import Part, count_common_text, count_parts


@dataclass(frozen=True, slots=True)
class LongestPrefix:
    """The longest common prefix with any earlier prompt of the session.

    Whole parts (model and tools, then each message) are compared; in the first part that differs, the common text
    counts, too. Prefixes of less than `minimum_tokens` are not cached. A prefix that is sent again lives on for
    `lifetime_seconds`.
    """

    block_tokens: int = 128
    minimum_tokens: int = MINIMUM_TOKENS
    lifetime_seconds: float | None = None

    @property
    def is_shared(self) -> bool:
        """Nobody pushes anybody out."""
        return False

    def open(self) -> "LongestPrefixCache":
        """An empty cache of this kind."""
        return LongestPrefixCache(self)


@dataclass(slots=True)
class LongestPrefixCache:
    """The prompts of one session."""

    kind: LongestPrefix
    _root: Node = field(default_factory=Node)

    def read(self, parts: Sequence[Part], _: Marks, now_seconds: float) -> Reading:
        """Read the longest known prefix. From now on the prompt itself is known."""
        node, known, alive, depth, lives = self._root, 0, 0, 0, True
        while depth < len(parts) and parts[depth] in node.children:
            node = node.children[parts[depth]]
            lives = lives and is_alive(node.used_at, now_seconds, self.kind.lifetime_seconds)
            node.used_at = now_seconds
            known += parts[depth].tokens
            alive = known if lives else alive
            depth += 1
        if depth < len(parts):
            common, living = self._compare(node, parts[depth], now_seconds)
            known += common
            alive += living if lives else 0
        for part in parts[depth:]:
            node = node.children.setdefault(part, Node(used_at=now_seconds))
        prompt_tokens, cached = count_parts(parts), self._round(alive)
        written = prompt_tokens - cached if prompt_tokens >= self.kind.minimum_tokens else 0
        return Reading(cached, written, self._round(known) - cached)

    def _compare(self, node: Node, part: Part, now_seconds: float) -> tuple[int, int]:
        """The most tokens at the front that the part shares with one that stood there: with any, and with a living."""
        known = living = 0
        for other, child in node.children.items():
            common = count_common_text(other, part)
            known = max(known, common)
            if is_alive(child.used_at, now_seconds, self.kind.lifetime_seconds):
                living = max(living, common)
        return known, living

    def _round(self, tokens: int) -> int:
        return tokens - tokens % self.kind.block_tokens if tokens >= self.kind.minimum_tokens else 0
