"""One compactor for each tenant and way of counting.

Law: a vocabulary is loaded once, when a model first needs it. Until then, its list of tokens counts the texts of small
requests, with the same result. If it cannot be loaded, a fallback counts, which is logged once. Texts are remembered
for one tenant only.
"""

import asyncio
import itertools
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import cache, partial
from math import inf
from typing import Any

import msgspec

from trimtab.proxy.compaction.caches import ALL_BYTES, Caches
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.tokenizers.exact import (
    LARGE_MEMO_BYTES,
    MEMO_BYTES,
    VOCABULARIES,
    CountMemos,
    VocabularyError,
    count_by_heuristic,
    count_by_part,
    count_pieces,
    load_encoding,
    make_counter,
    read_vocabulary,
)
from trimtab.proxy.compaction.tokenizers.optional import find_engine
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.wire.transcript.body import KeptBodies
from trimtab.rules.conversation import CountTokens
from trimtab.rules.tokens.families import HEURISTIC, O200K, SILENT, Costs, Reading, find_family, read_costs
from trimtab.rules.tokens.scripts import Weights, weigh

CACHES_BYTES = ALL_BYTES + len(VOCABULARIES) * (MEMO_BYTES + LARGE_MEMO_BYTES)
"""The usual bound of all caches."""
EARLY_BYTES, EARLY_REQUESTS = 512, 2
"""A first request and its answer do not wait until a vocabulary is loaded, if they are small. Chosen: a text takes 4 ms
then, in a thread, one long word of this size 34, and the vocabulary 200."""
MAX_COUNTINGS = 256
"""Ways of counting for which a tenant's compactors are kept. Chosen: more than the models of one client; answers show
new weights of a model again and again."""
MAX_TENANTS = 1024
"""Tenants whose caches are kept. Chosen: each costs some 20 kB even when empty, and credentials can be invented."""


class _Vocabulary(msgspec.Struct, frozen=True):
    """A loaded vocabulary. `memos` stays empty; each tenant gets a share of its bound."""

    name: str
    count_piece: CountTokens
    memos: CountMemos


class _Early:
    """Counts by the tokens of a vocabulary until it is loaded, and by it from then on: caches may keep this counter."""

    def __init__(self, vocabulary: str) -> None:
        self.ranks: dict[bytes, int] | None = read_vocabulary(vocabulary)
        self.count: CountTokens = partial(count_by_part, vocabulary, self.ranks)

    def __call__(self, text: str) -> int:
        return self.count(text)


class _Holder:
    def __init__(self, caches: Caches) -> None:
        self.caches = caches
        self.memos: dict[str, CountMemos] = {}
        self.counts: dict[str, CountTokens] = {}
        self.made: dict[tuple[str, Costs], Compactor] = {}
        self.numbers = itertools.count()
        self.newest: tuple[str, str, Reading, Weights | None, Compactor] | None = None
        """The compactor that was asked for last, and by what. To compare this costs less than to look it up."""

    def count_by(self, vocabulary: _Vocabulary | None) -> CountTokens:
        """The counter of a vocabulary, with this tenant's memo; None counts characters."""
        if vocabulary is None:
            return count_by_heuristic
        count = self.counts.get(vocabulary.name)
        if count is None:
            memos = self.memos[vocabulary.name] = vocabulary.memos.share()
            count = self.counts[vocabulary.name] = make_counter(vocabulary.count_piece, memos)
        return count

    def make(self, measure: CountTokens, costs: Costs, *, is_early: bool = False) -> Compactor:
        weighed, number = weigh(measure, costs.weights), next(self.numbers)
        return Compactor(weighed, costs, caches=self.caches, number=number, measure=measure, is_early=is_early)

    def close(self) -> None:
        """Forget everything, and remember nothing from now on; requests in flight go on without caches."""
        self.caches.close()
        for memos in self.memos.values():
            memos.close()


class Compactors:
    """Makes compactors when models need them, separate for each tenant.

    Each vocabulary is loaded when it is first needed; `load` loads the usual one before that, and `read` reads its list
    of tokens, which suffices for small requests. All caches together take at most `caches_bytes`. Thread-safe.
    """

    def __init__(self, log: Any, *, caches_bytes: int = CACHES_BYTES) -> None:
        self._log = log
        self._scale = caches_bytes / CACHES_BYTES
        self._lock = threading.Lock()
        self._caches = Caches(self._scale)
        self._vocabularies: dict[str, _Vocabulary] = {}
        self._early: dict[str, _Early] = {}
        self._early_left = EARLY_REQUESTS
        self._stand_ins: dict[str, str] = {}
        self._holders: OrderedDict[str, _Holder] = OrderedDict()
        self._holders_lock = threading.Lock()

    def rebound(self, caches_bytes: int) -> None:
        """Bound all caches again, at once."""
        self._scale = scale = caches_bytes / CACHES_BYTES
        with self._holders_lock:
            for caches in (self._caches, *(holder.caches for holder in self._holders.values())):
                caches.scale(scale)
        for vocabulary in tuple(self._vocabularies.values()):
            vocabulary.memos.scale(scale)

    def load(self) -> None:
        """Load o200k_base, which most models need. Takes about 0.2 s, and other threads get a turn only in between."""
        with self._lock:
            self._load(O200K)

    def read(self) -> None:
        """Read the tokens of o200k_base, for small requests before `load`. Takes 0.06 s."""
        with self._lock:
            self._read(O200K)

    def is_ready(self, settings: PolicyConfig, model: str) -> bool:
        return self._is_loaded(_choose_counting(settings.count, model)[0])

    async def get(
        self,
        settings: PolicyConfig,
        model: str,
        tenant_id: str = "",
        reading: Reading = SILENT,
        weights: Weights | None = None,
        *,
        size_bytes: float = inf,
    ) -> Compactor:
        """As `choose`, for the event loop: a vocabulary is loaded in a thread."""
        holder = self._hold(tenant_id)
        newest = holder.newest
        is_asked = newest is not None and newest[2] is reading and newest[3] is weights
        if newest is not None and is_asked and newest[1] == model and newest[0] == settings.count:
            return newest[4]
        counting = _choose_counting(settings.count, model, reading, weights)
        made = holder.made.get(counting)
        if made is not None:
            holder.newest = settings.count, model, reading, weights, made
            return made
        if self._is_loaded(counting[0]):
            return self.choose(settings, model, tenant_id, reading, weights)
        choose = partial(self.choose, settings, model, tenant_id, reading, weights, size_bytes=size_bytes)
        return await asyncio.to_thread(choose)

    def choose(
        self,
        settings: PolicyConfig,
        model: str,
        tenant_id: str = "",
        reading: Reading = SILENT,
        weights: Weights | None = None,
        *,
        size_bytes: float = inf,
    ) -> Compactor:
        """The tenant's compactor for a model, counting as the policy, the model's server and its answers say.

        May load a vocabulary, which takes about 0.3 s; for texts of at most EARLY_BYTES, it is only read.
        """
        counting = vocabulary, costs = _choose_counting(settings.count, model, reading, weights)
        holder = self._hold(tenant_id)
        made = holder.made.get(counting)
        if made is not None:
            return made
        if not self._is_loaded(vocabulary):
            with self._lock:
                is_early = size_bytes <= EARLY_BYTES and self._early_left > 0
                early = self._read(vocabulary) if is_early else None
                if early is None:
                    self._load(vocabulary)
            if early is not None:
                self._early_left -= 1
                return holder.make(make_counter(early), costs, is_early=True)
        found = self._load(vocabulary)
        if vocabulary in self._stand_ins:
            costs = read_costs(model, HEURISTIC if found is None else found.name, reading, weights)
        with self._holders_lock:
            compactor = holder.make(holder.count_by(found), costs)
            if len(holder.made) >= MAX_COUNTINGS:
                del holder.made[next(iter(holder.made))]
            return holder.made.setdefault(counting, compactor)

    def find_kept_bodies(self, tenant_id: str) -> KeptBodies:
        return self._hold(tenant_id).caches.kept_bodies

    def _hold(self, tenant_id: str) -> _Holder:
        """The caches of a tenant; above MAX_TENANTS, the least recently seen tenant is forgotten."""
        holder = self._holders.get(tenant_id)
        if holder is not None:
            try:  # noqa: SIM105 - it costs three calls more
                self._holders.move_to_end(tenant_id)
            except KeyError:  # another thread has forgotten it in between
                pass
            return holder
        with self._holders_lock:
            holder = self._holders.get(tenant_id) or _Holder(self._caches.share())
            self._holders[tenant_id] = holder
            oldest = self._holders.popitem(last=False)[1] if len(self._holders) > MAX_TENANTS else None
        if oldest is not None:
            oldest.close()
        return holder

    def name_vocabulary(self, settings: PolicyConfig, model: str) -> str:
        """Name the vocabulary that counts a model's texts, or its fallback if it could not be loaded.

        A vocabulary that was not needed yet is assumed to be available. Loads nothing.
        """
        vocabulary, _ = _choose_counting(settings.count, model)
        while vocabulary in self._stand_ins:
            vocabulary = self._stand_ins[vocabulary]
        return vocabulary

    def _is_loaded(self, vocabulary: str) -> bool:
        return vocabulary == HEURISTIC or vocabulary in self._vocabularies or vocabulary in self._stand_ins

    def _read(self, vocabulary: str) -> _Early | None:
        """What counts before a vocabulary is loaded; None if it is loaded, or must be."""
        if not self._is_loaded(vocabulary) and vocabulary not in self._early:
            with suppress(VocabularyError):  # `_load` says so
                self._early[vocabulary] = _Early(vocabulary)
        return self._early.get(vocabulary)

    def _load(self, vocabulary: str) -> _Vocabulary | None:
        """Load a vocabulary; o200k_base if it is not available; None if characters are counted instead."""
        if vocabulary == HEURISTIC or self._stand_ins.get(vocabulary) == HEURISTIC:
            return None
        found = self._vocabularies.get(self._stand_ins.get(vocabulary, vocabulary))
        if found is not None or vocabulary in self._stand_ins:
            return found
        try:
            early = self._early.pop(vocabulary, None)
            ranks = None if early is None else early.ranks
            count_piece = find_engine(vocabulary, self._log) or count_pieces(load_encoding(vocabulary, ranks))
            if early is not None:
                early.ranks, early.count = None, count_piece
        except VocabularyError as error:
            instead = HEURISTIC if vocabulary == O200K else O200K
            self._log.warning("vocabulary_missing", vocabulary=vocabulary, reason=str(error), instead=instead)
            self._stand_ins[vocabulary] = instead
            return self._load(instead)
        found = self._vocabularies[vocabulary] = _Vocabulary(vocabulary, count_piece, CountMemos(self._scale))
        return found


def load_compactor(model: str, *, vocabulary: str = "auto") -> Compactor:
    """Make a compactor for a model, with its own caches. The first one loads a vocabulary, which takes about 0.2 s.

    vocabulary: `auto`, `o200k_base`, `cl100k_base` or `heuristic`.

    Raises VocabularyError.
    """
    name, costs = _choose_counting(vocabulary, model)
    measure = count_by_heuristic if name == HEURISTIC else make_counter(_load_once(name))
    return Compactor(weigh(measure, costs.weights), costs, measure=measure)


@cache
def _load_once(vocabulary: str) -> CountTokens:
    return count_pieces(load_encoding(vocabulary))


def _choose_counting(
    count: str, model: str, reading: Reading = SILENT, weights: Weights | None = None
) -> tuple[str, Costs]:
    """The vocabulary and the costs of a model; `count` is the configured way of counting."""
    family = find_family(model)
    vocabulary = family.vocabulary if count == "auto" else count
    if reading == SILENT and weights is None and vocabulary == family.vocabulary:
        return vocabulary, family.costs
    return vocabulary, read_costs(model, vocabulary, reading, weights)
