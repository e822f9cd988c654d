"""What is known of models, in the store: a chain of records for each, every change a new one.

Law: nothing that was written is changed, and of those that write at once the first wins; so all agree. A record tells
nothing of whose model it is about but to who knows that already.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

import msgspec

from proxy.state.models.discovery import MAX_WINDOW_TOKENS, MIN_WINDOW_TOKENS
from proxy.state.stores import SummaryStore

MAX_RATIO = 6.0
"""And its inverse the least. Servers that count bytes report some four for one of ours."""
MAX_REFUTED = 8


@dataclass(frozen=True, slots=True)
class ModelName:
    """Whose model it is, and by which of our vocabularies it is counted."""

    base_url: str
    model: str
    vocabulary: str


_Window = Annotated[int, msgspec.Meta(ge=MIN_WINDOW_TOKENS, le=MAX_WINDOW_TOKENS)]


class Record(msgspec.Struct, frozen=True):
    """What was known from one change on; `calibrated` once the ratio is the upstream's own word.

    `window_tokens` is what the upstream says when asked, `learned_tokens` what it holds to when it refuses; that goes
    for every window that it has `refuted`. `added_tokens` is set where it adds what the completion may have
    to the prompt: so much where a request asks for no maximum.
    """

    ratio: Annotated[float, msgspec.Meta(ge=1 / MAX_RATIO, le=MAX_RATIO)]
    window_tokens: _Window | None = None
    calibrated: bool = False
    learned_tokens: _Window | None = None
    added_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_WINDOW_TOKENS)] | None = None
    refuted: Annotated[tuple[int, ...], msgspec.Meta(max_length=MAX_REFUTED)] = ()


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
    digest = sha256(f"{name.base_url}\n{name.vocabulary}\n{name.model}".encode("utf-8", "surrogatepass"))
    return f"model-{digest.hexdigest()}-{generation}"
