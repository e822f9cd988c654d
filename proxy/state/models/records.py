"""What is known of models, in the store: a chain of records for each model. Every change appends a record.

Law: a written record never changes. If several processes write the next record at the same time, the first one wins,
so all processes agree. The key of a record is a hash: it does not reveal the model, the upstream or the client.
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
"""Smallest and largest allowed value."""
MAX_RATIO = 6.0
"""Largest ratio; its inverse is the smallest. A ratio is the number of the model's own tokens for one token of our
count. Chosen: above servers that count bytes, which report about four for one of our tokens."""
ANY_RATIO: Bounds = (1 / MAX_RATIO, MAX_RATIO)
KNOWN_RATIO: Bounds = (0.5, 3.0)
"""Bounds for a family whose vocabulary is known. Nine vocabularies were measured against o200k_base on eight kinds of
text: the smallest ratio was 0.86, the largest 2.04."""
MAX_REFUTED = 8
"""Refuted windows kept in a record, the newest. Chosen: operators rarely try more for a model; bounds the record."""
MAX_CLAIMS = 8
"""Claims kept in a record, the newest. Chosen: two are enough to agree; bounds the record."""

Source = Literal["", "refused prompt", "second attempt", "cut prompts", "answers"]
"""How something was learned:

refused prompt: a refusal contained the numbers.
second attempt: a refusal had no usable numbers, and a shorter prompt succeeded. For a ratio: a test succeeded, so the
    ratio of the family is used again.
cut prompts: the upstream silently dropped a part of long prompts.
answers: the upstream reported prompt tokens in its usage.
empty: nothing was learned.
"""


@dataclass(frozen=True, slots=True)
class ModelName:
    """The name under which facts about a model are kept.

    base_url, model: the upstream, and the model's name in requests.
    vocabulary: the vocabulary that we count its tokens by.
    tenant: id of the client whose requests taught the facts; empty for the facts that count for all clients.
    key_id: id of the client key that the request came in with; empty without client keys. Not part of the identity.
    """

    base_url: str
    model: str
    vocabulary: str
    tenant: str = ""
    key_id: str = field(default="", compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash once, because a request looks its model up a dozen times."""
        object.__setattr__(self, "_hash", hash((self.base_url, self.model, self.vocabulary, self.tenant)))

    def __hash__(self) -> int:
        """The hash of the fields that are compared."""
        return self._hash

    @property
    def of_all(self) -> "ModelName":
        """The name of the same model's facts that count for all clients ("of all" wherever it appears)."""
        return name_for(self.base_url, self.model, self.vocabulary) if self.tenant else self


@lru_cache(maxsize=256)
def name_for(base_url: str, model: str, vocabulary: str, tenant: str = "", key_id: str = "") -> ModelName:
    """The name of a model. Equal arguments mostly return the same object, so its hash is computed once."""
    return ModelName(base_url, model, vocabulary, tenant, key_id)


_Window = Annotated[int, msgspec.Meta(ge=MIN_WINDOW_TOKENS, le=MAX_WINDOW_TOKENS)]


class Claim(msgspec.Struct, frozen=True):
    """What the client with one client key has learned, noted in the record of all.

    If the claims of two client keys agree, what they say counts for all clients. Each key has at most one claim.

    by: id of the client key.
    believed_tokens, learned_tokens: the window that requests were planned with, and the one that a refusal named.
    added_tokens: as in `Record`.
    ratio: as the upstream's usage reports show it.
    """

    by: str
    believed_tokens: int = 0
    learned_tokens: int | None = None
    added_tokens: int | None = None
    ratio: float | None = None


class Record(msgspec.Struct, frozen=True):
    """What is known of a model after one change: for one client, or for all clients.

    Prompts and windows are in the model's own tokens. Times are seconds since 1970, 0 if nothing was learned.

    window_tokens: the window that the upstream reports when asked.
    calibrated: the ratio comes from the upstream's usage reports.
    learned_tokens: the window that the upstream really has, instead of each one in `refuted`.
    refuted: windows that requests were planned with until the upstream's behaviour showed them to be wrong. Any other
        window, configured later, is tried.
    added_tokens: set if the upstream counts the completion budget against the window, too. The value is the budget
        that it assumes for a request without `max_tokens`.
    refused_tokens: the prompt whose refusal taught `learned_tokens`; None if no refusal did.
    answered_tokens: the longest prompt that was answered although a learned window ruled it out.
    failures: failed tests in a row (see hypotheses.py).
    window_source, window_at, ratio_source, ratio_at: how and when the window and the ratio were learned.
    forgotten: how often an operator had the model forgotten. A record with a smaller number than the record of all is
        out of date and is ignored.
    claims: only in the record of all.
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
    """The bounds of a model's ratio: narrower if its family is known."""
    return ANY_RATIO if find_family(model) is GENERIC else KNOWN_RATIO


class Records:
    """Reads and extends the chains of records in the store."""

    def __init__(self, store: SummaryStore) -> None:
        self._store = store

    async def read(self, name: ModelName) -> tuple[int, Record | None]:
        """The number of a model's records, and the last one that can be decoded; None if there is none.

        Reads every record, because a store drops records that were not read for long, and one gap would end the chain.
        """
        generation, record = 0, None
        while (kept := await self._store.get(_record_id(name, generation + 1))) is not None:
            generation, record = generation + 1, _decode(kept) or record
        return generation, record

    async def forget(self, name: ModelName, record: Record) -> None:
        """Drop what was learned of a model, for all clients, by a new record of all with a higher `forgotten`."""
        generation, known = await self.read(name.of_all)
        forgotten = 1 + (0 if known is None else known.forgotten)
        await self.append(name.of_all, generation, msgspec.structs.replace(record, forgotten=forgotten))

    async def append(self, name: ModelName, generation: int, record: Record) -> tuple[int, Record]:
        """Append a record after the first `generation` ones. Returns the number and the record that is there now.

        It may be the record of another process that was faster. An entry that cannot be decoded is skipped.
        """
        encoded = msgspec.json.encode(record)
        while True:
            generation += 1
            kept = await self._store.put(_record_id(name, generation), encoded)
            taken_over = record if kept is None else _decode(kept)
            if taken_over is not None:
                return generation, taken_over


def _decode(encoded: bytes) -> Record | None:
    """Decode a record; None if it is damaged."""
    try:
        return msgspec.json.decode(encoded, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _record_id(name: ModelName, generation: int) -> str:
    told = f"{name.base_url}\n{name.vocabulary}\n{name.tenant}\n{name.model}"
    return f"model-{sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()}-{generation}"
