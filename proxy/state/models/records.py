"""What is known of models, in the store: a chain of records for each, every change a new one.

Law: nothing that was written is changed, and of those that write at once the first wins; so all agree. A record tells
nothing of whose model it is about but to who knows that already.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Literal

import msgspec

from proxy.state.models.discovery import MAX_WINDOW_TOKENS, MIN_WINDOW_TOKENS
from proxy.state.stores import SummaryStore
from rules.tokens.families import GENERIC, find_family

Bounds = tuple[float, float]
"""The least and the largest that something may be."""
MAX_RATIO = 6.0
"""And its inverse the least. Servers that count bytes report some four for one of ours."""
ANY_RATIO: Bounds = (1 / MAX_RATIO, MAX_RATIO)
KNOWN_RATIO: Bounds = (0.5, 3.0)
"""Of a family whose vocabulary is known. Source: of nine vocabularies, measured over o200k_base on eight kinds of text,
the least was 0.86 and the largest 2.04."""
MAX_REFUTED = 8
MAX_CLAIMS = 8

Source = Literal["", "refused prompt", "second attempt", "cut prompts", "answers"]
"""How something was learned: a refusal said it; a shorter prompt went through; prompts were cut short without a word;
the upstream reported the tokens of its prompts."""


@dataclass(frozen=True, slots=True)
class ModelName:
    """Whose model it is, by which of our vocabularies it is counted, and for whom it is known.

    `tenant` is the id of the client whose requests have taught what is known; empty for what counts for all. `key_id`
    is that of the client key that let it in, empty if there are none; nothing is kept under it.
    """

    base_url: str
    model: str
    vocabulary: str
    tenant: str = ""
    key_id: str = field(default="", compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Hashed once: a request looks for its model a dozen times."""
        object.__setattr__(self, "_hash", hash((self.base_url, self.model, self.vocabulary, self.tenant)))

    def __hash__(self) -> int:
        """As its equality tells."""
        return self._hash

    @property
    def of_all(self) -> "ModelName":
        """The same model, as far as it is known to all clients."""
        return name_for(self.base_url, self.model, self.vocabulary) if self.tenant else self


@lru_cache(maxsize=256)
def name_for(base_url: str, model: str, vocabulary: str, tenant: str = "", key_id: str = "") -> ModelName:
    """The name; the same object each time, for a while."""
    return ModelName(base_url, model, vocabulary, tenant, key_id)


_Window = Annotated[int, msgspec.Meta(ge=MIN_WINDOW_TOKENS, le=MAX_WINDOW_TOKENS)]


class Claim(msgspec.Struct, frozen=True):
    """What the tenant behind one client key has met: a window instead of `believed_tokens`, or a ratio.

    `by` is the key's id. Each key has one claim at most.
    """

    by: str
    believed_tokens: int = 0
    learned_tokens: int | None = None
    added_tokens: int | None = None
    ratio: float | None = None


class Record(msgspec.Struct, frozen=True):
    """What was known from one change on; `calibrated` once the ratio is the upstream's own word.

    `window_tokens` is what the upstream says when asked, `learned_tokens` what it holds to when it refuses; that goes
    for every window that it has `refuted`. `refused_tokens` is the shortest prompt that it has
    refused, `answered_tokens` the longest that was answered though a learned window said that it would not be.
    `added_tokens` is set if it adds what the completion may have to the prompt: so much if a request asks for no
    maximum. `failures` is how often in a row a longer prompt was tried in vain. Times are seconds since 1970, 0 if
    nothing was learned. `forgotten` is how often what was learned of the model has been forgotten; a record that was
    written before the last time counts no more. `claims` stand in the record of all: what single clients have met.
    """

    ratio: Annotated[float, msgspec.Meta(ge=1 / MAX_RATIO, le=MAX_RATIO)]
    window_tokens: _Window | None = None
    calibrated: bool = False
    learned_tokens: _Window | None = None
    added_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_WINDOW_TOKENS)] | None = None
    refuted: Annotated[tuple[int, ...], msgspec.Meta(max_length=MAX_REFUTED)] = ()
    refused_tokens: int | None = None
    answered_tokens: int = 0
    failures: int = 0
    window_source: Source = ""
    window_at: float = 0.0
    ratio_source: Source = ""
    ratio_at: float = 0.0
    forgotten: int = 0
    claims: Annotated[tuple[Claim, ...], msgspec.Meta(max_length=MAX_CLAIMS)] = ()


def find_ratios(model: str) -> Bounds:
    """The ratios that a model's vocabulary may have."""
    return ANY_RATIO if find_family(model) is GENERIC else KNOWN_RATIO


class Records:
    """Reads and extends the chains."""

    def __init__(self, store: SummaryStore) -> None:
        self._store = store

    async def read(self, name: ModelName) -> tuple[int, Record | None]:
        """How many records a model has, and the last one that is legible.

        All of them are read, so that none gets too old for the store while others are in use.
        """
        generation, record = 0, None
        while (kept := await self._store.get(_record_id(name, generation + 1))) is not None:
            generation, record = generation + 1, _decode(kept) or record
        return generation, record

    async def forget(self, name: ModelName, record: Record) -> None:
        """Begin a model anew with a record for all: what any client has met before counts no more."""
        generation, known = await self.read(name.of_all)
        forgotten = 1 + (0 if known is None else known.forgotten)
        await self.append(name.of_all, generation, msgspec.structs.replace(record, forgotten=forgotten))

    async def append(self, name: ModelName, generation: int, record: Record) -> tuple[int, Record]:
        """Put a record behind the first `generation` ones; the one that stands there then, by whomever, and its place.

        What stands there and is no record is passed over.
        """
        encoded = msgspec.json.encode(record)
        while True:
            generation += 1
            kept = await self._store.put(_record_id(name, generation), encoded)
            taken_over = record if kept is None else _decode(kept)
            if taken_over is not None:
                return generation, taken_over


def _decode(encoded: bytes) -> Record | None:
    """A record; None for what is none."""
    try:
        return msgspec.json.decode(encoded, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _record_id(name: ModelName, generation: int) -> str:
    told = f"{name.base_url}\n{name.vocabulary}\n{name.tenant}\n{name.model}"
    return f"model-{sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()}-{generation}"
