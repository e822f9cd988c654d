"""Where summaries are kept."""

from typing import Protocol


class SummaryStore(Protocol):
    """Texts by id. The first writer wins: what was forwarded once for an id never changes."""

    async def get(self, summary_id: str) -> str | None:
        """The text under an id, if it is there."""

    async def put(self, summary_id: str, text: str) -> str:
        """Keep a text unless the id has one; returns the text that is kept."""
