"""What upstreams have refused among the things that trimtab adds for their prompt caches.

Law: only what an upstream has refused by name, and what it did not refuse without it, is kept. Each client learns for
itself. What is forgotten costs one refused request, which the client never sees.
"""

from collections import OrderedDict

from proxy.wire.content.cache_help import Addition

MAX_KEPT = 1024
"""Entries kept; with more, the oldest is forgotten. Chosen: more than the clients and models of one process."""

Asked = tuple[str, str, str]
"""The id of a tenant, the base URL of an upstream, and a model."""


class RefusedAdditions:
    """What is not added any more, by tenant, upstream and model; for one process. Used on the event loop only."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Asked, frozenset[Addition]] = OrderedDict()

    def find(self, asked: Asked) -> frozenset[Addition]:
        """What was refused."""
        return self._kept.get(asked, frozenset())

    def keep(self, asked: Asked, refused: frozenset[Addition]) -> None:
        """Note what was refused, in addition to what is known."""
        self._kept[asked] = self.find(asked) | refused
        self._kept.move_to_end(asked)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
