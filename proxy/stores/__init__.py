"""Where summaries are kept."""

from typing import Protocol

from rules.summarise import Summary


class SummaryStore(Protocol):
    """Summaries by id. The first writer wins: what was forwarded once for an id never changes."""

    async def get(self, summary_id: str) -> Summary | None:
        """The summary under an id, if it is there."""

    async def put(self, summary_id: str, summary: Summary) -> Summary:
        """Keep a summary unless the id has one; returns the one that is kept."""
