"""Summaries in this process, the least recently used forgotten first."""

from proxy.lru import BytesLRU
from rules.summarise import Summary

MAX_BYTES = 32 * 1024 * 1024
CHARACTER_BYTES = 4
"""Of a text in memory, at most."""


class MemoryStore:
    """A SummaryStore bounded by bytes."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._summaries: BytesLRU[str, Summary] = BytesLRU(
            max_bytes, lambda summary_id, summary: CHARACTER_BYTES * len(summary.text) + len(summary_id)
        )

    async def get(self, summary_id: str) -> Summary | None:
        """The summary under an id, if it is there."""
        return self._summaries.get(summary_id)

    async def put(self, summary_id: str, summary: Summary) -> Summary:
        """Keep a summary unless the id has one; returns the one that is kept."""
        kept = self._summaries.get(summary_id)
        if kept is None:
            self._summaries[summary_id] = summary
        return summary if kept is None else kept
