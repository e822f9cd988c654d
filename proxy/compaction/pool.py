"""One compactor for each way of counting.

Law: a vocabulary is loaded once, and only when a model needs it; what cannot be loaded has a fallback, said once.
"""

import asyncio
import threading
from typing import Any

from proxy.compaction.caches import Caches
from proxy.compaction.compactor import Compactor
from proxy.compaction.tokenizers.exact import (
    VocabularyError,
    count_by_heuristic,
    count_pieces,
    load_encoding,
    make_counter,
)
from proxy.compaction.tokenizers.optional import find_engine
from proxy.config.schema import PolicyConfig
from rules.conversation import CountTokens
from rules.tokens.families import O200K, Costs, find_family

HEURISTIC = "heuristic"


class Compactors:
    """Makes compactors as models need them. o200k_base is loaded when this is made. Thread-safe."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._caches = Caches()
        self._counts: dict[str, CountTokens] = {HEURISTIC: count_by_heuristic}
        self._stand_ins: dict[str, str] = {}
        self._made: dict[tuple[str, Costs], Compactor] = {}
        self._load(O200K)

    async def get(self, settings: PolicyConfig, model: str) -> Compactor:
        """The same as `choose`, for the event loop: a vocabulary is loaded in a thread."""
        made = self._made.get(_choose_counting(settings.count, model))
        return made if made is not None else await asyncio.to_thread(self.choose, settings, model)

    def choose(self, settings: PolicyConfig, model: str) -> Compactor:
        """The compactor that counts as the policy says and the model does. May load a vocabulary, for 0.2 s or so."""
        counting = vocabulary, costs = _choose_counting(settings.count, model)
        made = self._made.get(counting)
        if made is None:
            with self._lock:
                compactor = Compactor(self._load(vocabulary), costs, caches=self._caches, number=len(self._made))
                made = self._made.setdefault(counting, compactor)
        return made

    def name_vocabulary(self, settings: PolicyConfig, model: str) -> str:
        """What counts a model's texts: its vocabulary, or what stands in for one that could not be loaded.

        A vocabulary that `choose` did not need yet is assumed to be there. Loads nothing.
        """
        vocabulary, _ = _choose_counting(settings.count, model)
        while vocabulary in self._stand_ins:
            vocabulary = self._stand_ins[vocabulary]
        return vocabulary

    def _load(self, vocabulary: str) -> CountTokens:
        """The count by a vocabulary; by o200k_base, or by characters, where that cannot be had."""
        count = self._counts.get(vocabulary)
        if count is not None:
            return count
        try:
            count = make_counter(find_engine(vocabulary, self._log) or count_pieces(load_encoding(vocabulary)))
        except VocabularyError as error:
            instead = HEURISTIC if vocabulary == O200K else O200K
            self._log.warning("vocabulary_missing", vocabulary=vocabulary, reason=str(error), instead=instead)
            count = self._load(instead)
            self._stand_ins[vocabulary] = instead
        self._counts[vocabulary] = count
        return count


def load_compactor(model: str, *, vocabulary: str = "auto") -> Compactor:
    """A compactor that counts as a model does, with caches of its own. Loads a vocabulary, which takes 0.2 s or so.

    `vocabulary` is `auto`, `o200k_base`, `cl100k_base` or `heuristic`. Raises VocabularyError.
    """
    name, costs = _choose_counting(vocabulary, model)
    return Compactor(
        count_by_heuristic if name == HEURISTIC else make_counter(count_pieces(load_encoding(name))), costs
    )


def _choose_counting(count: str, model: str) -> tuple[str, Costs]:
    """The vocabulary and the costs of a model, of which `count` is what the configuration says."""
    family = find_family(model)
    return family.vocabulary if count == "auto" else count, family.costs
