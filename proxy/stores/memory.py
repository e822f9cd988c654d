"""Summaries in this process, the least recently used forgotten first."""

from proxy.lru import BytesLRU

MAX_BYTES = 32 * 1024 * 1024


class MemoryStore:
    """A SummaryStore bounded by bytes."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._texts: BytesLRU[str, str] = BytesLRU(max_bytes, lambda summary_id, text: 4 * len(text) + len(summary_id))

    async def get(self, summary_id: str) -> str | None:
        """The text under an id, if it is there."""
        return self._texts.get(summary_id)

    async def put(self, summary_id: str, text: str) -> str:
        """Keep a text unless the id has one; returns the text that is kept."""
        kept = self._texts.get(summary_id)
        if kept is None:
            self._texts[summary_id] = text
        return text if kept is None else kept
