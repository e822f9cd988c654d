"""vLLM's cache: whole blocks of 16 tokens, as many as fit into memory, the least recently used of them evicted first.

Sources: vLLM's design of automatic prefix caching: a block is known by its tokens and all before it; only full blocks
are kept; at least one token of a prompt is computed; a request's blocks are freed from its last one on, so that of
blocks used at the same time the later ones in the prompt are evicted first. Blocks of answers are left out, as the
other kinds leave them out.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bench.sessions.caches.cache import Reading
from bench.sessions.marks import Marks
from bench.sessions.prompts import Part, count_common_text, count_parts

BLOCK_TOKENS = 16
"""Source: vLLM's default on GPUs."""
CAPACITY_TOKENS = 400_000
"""Chosen: about what an 80 GB GPU has left beside a model of 30 billion parameters in 8 bits (128 kB a token)."""


@dataclass(frozen=True, slots=True)
class BlockLru:
    """Blocks of one server that several sessions share. Nothing expires; `capacity_tokens` is all that is kept."""

    capacity_tokens: int = CAPACITY_TOKENS
    block_tokens: int = BLOCK_TOKENS

    @property
    def is_shared(self) -> bool:
        """Sessions push each other's blocks out."""
        return True

    def open(self) -> "BlockCache":
        """An empty cache of this kind."""
        return BlockCache(self)


Block = tuple[int, int]
"""The number of the node in which a block ends, and the block's number in the prompt."""


@dataclass(slots=True, eq=False)
class _Node:
    """A prefix. `twin` is the sibling with most text in common, up to `common_tokens` from the prompt's beginning."""

    number: int
    end_tokens: int
    twin: "_Node | None" = None
    common_tokens: int = 0
    children: dict[Part, "_Node"] = field(default_factory=dict)

    def name(self, stop_tokens: int) -> int:
        """The node by which a block that ends here is known: the first that had its text."""
        node = self
        while node.twin is not None and stop_tokens <= node.common_tokens:
            node = node.twin
        return node.number


@dataclass(slots=True)
class BlockCache:
    """One server's blocks, the least recently used first."""

    kind: BlockLru
    _blocks: OrderedDict[Block, None] = field(default_factory=OrderedDict)
    _root: _Node = field(default_factory=lambda: _Node(0, 0))
    _nodes: int = 0
    _seen: set[Block] = field(default_factory=set)

    def read(self, parts: Sequence[Part], _: Marks, __: float) -> Reading:
        """Read the blocks at the front that are there; then all of the prompt's full blocks are."""
        names, prompt_tokens = list(self._name_blocks(parts)), count_parts(parts)
        readable = min(len(names), (prompt_tokens - 1) // self.kind.block_tokens)
        cached = _count_leading(names[:readable], self._blocks)
        known = _count_leading(names[:readable], self._seen)
        self._seen.update(names)
        for name in reversed(names):
            self._blocks[name] = None
            self._blocks.move_to_end(name)
        while len(self._blocks) > self.kind.capacity_tokens // self.kind.block_tokens:
            self._blocks.popitem(last=False)
        size = self.kind.block_tokens
        return Reading(cached * size, (len(names) - cached) * size, (known - cached) * size)

    def _name_blocks(self, parts: Sequence[Part]) -> Iterator[Block]:
        node, number, size = self._root, 0, self.kind.block_tokens
        for part in parts:
            node = node.children.get(part) or self._add(node, part)
            while (number + 1) * size <= node.end_tokens:
                yield node.name((number + 1) * size), number
                number += 1

    def _add(self, before: _Node, part: Part) -> _Node:
        self._nodes += 1
        node = _Node(self._nodes, before.end_tokens + part.tokens)
        for other, sibling in before.children.items():
            common = before.end_tokens + count_common_text(other, part)
            if common > max(node.common_tokens, before.end_tokens):
                node.twin, node.common_tokens = sibling, common
        before.children[part] = node
        return node


def _count_leading(names: Sequence[Block], known: "OrderedDict[Block, None] | set[Block]") -> int:
    return next((number for number, name in enumerate(names) if name not in known), len(names))
