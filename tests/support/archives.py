"""An index of passages without a database, for the laws of the rules."""

from collections.abc import Sequence


class WordArchive:
    """A passage is found if a rare term stands in it; the one with the most terms is the best."""

    def __init__(self) -> None:
        self._passages: list[str] = []

    def add(self, passages: Sequence[str]) -> None:
        """Add passages behind the others."""
        self._passages += [passage.lower() for passage in passages]

    def search(self, terms: Sequence[str], *, most: int) -> Sequence[int]:
        """The numbers of the best passages."""
        found = [[at for at, passage in enumerate(self._passages) if term.lower() in passage] for term in terms]
        rare = [places for places in found if 0 < len(places) <= 8]
        places = sorted({at for places in rare for at in places})
        return sorted(places, key=lambda at: -sum(at in one for one in rare))[:most]
