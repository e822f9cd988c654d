"""What is known of models: as facts that requests are planned with, and in the store as a chain, one for each change.

Law: a written record never changes. If several processes write the next record at the same time, the first one wins,
so all processes agree. The key of a record is a hash: it does not reveal the model, the upstream or the client.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec

from trimtab.proxy.catalogue.prices import MIN_WINDOW_TOKENS, find_window
from trimtab.proxy.models.discovery import MAX_WINDOW_TOKENS
from trimtab.proxy.store.store import SummaryStore
from trimtab.rules.tokens.families import GENERIC, SILENT, Reading, find_family
from trimtab.rules.tokens.scripts import EVEN, FOREIGN, IS_PLAIN, SAMPLES, Measured, Scale, Weights, fit

Bounds = tuple[float, float]  # Smallest and largest allowed value
MAX_RATIO = 6.0
"""Largest ratio; its inverse is the smallest. A ratio is the number of the model's own tokens for one token of our
count. Chosen: above servers that count bytes, which report about four for one of our tokens."""
ANY_RATIO: Bounds = (1 / MAX_RATIO, MAX_RATIO)
KNOWN_RATIO: Bounds = (0.5, 3.0)
"""Of a known vocabulary. Measured: nine, against o200k_base on eight kinds of text: from 0.86 to 2.04."""
MAX_REFUTED = 8  # The newest windows. Chosen: operators rarely try more for a model; bounds the record.
MAX_CLAIMS = 8  # Claims kept in a record, the newest. Chosen: two are enough to agree; bounds the record.

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

    vocabulary: the vocabulary that we count its tokens by.
    tenant: id of the client whose requests taught the facts; empty for the facts that count for all clients.
    key_id: id of the client key that the request came in with; empty without client keys. Not part of the identity.
    key: the identity in one text.
    of_all: the name of the same model's facts that count for all clients ("of all" wherever it appears).
    """

    base_url: str
    model: str
    vocabulary: str
    tenant: str = ""
    key_id: str = field(default="", compare=False)
    key: str = field(init=False, repr=False, compare=False)
    of_all: "ModelName" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.base_url}\n{self.vocabulary}\n{self.tenant}\n{self.model}")
        of_all = name_for(self.base_url, self.model, self.vocabulary) if self.tenant else self
        object.__setattr__(self, "of_all", of_all)


@lru_cache(maxsize=256)
def name_for(base_url: str, model: str, vocabulary: str, tenant: str = "", key_id: str = "") -> ModelName:
    """The name of a model. Equal arguments mostly return the same object."""
    return ModelName(base_url, model, vocabulary, tenant, key_id)


_Window = Annotated[int, msgspec.Meta(ge=MIN_WINDOW_TOKENS, le=MAX_WINDOW_TOKENS)]


class Claim(msgspec.Struct, frozen=True):
    """What the client with one client key has learned, noted in the record of all.

    If the claims of two client keys agree, what they say counts for all clients. Each key has at most one claim.

    by: id of the client key.
    believed_tokens, learned_tokens: the window that requests were planned with, and the one that a refusal named.
    added_tokens: as in `Record`.
    ratio, weights, measured: as the upstream's usage reports show them.
    """

    by: str
    believed_tokens: int = 0
    learned_tokens: int | None = None
    added_tokens: int | None = None
    ratio: float | None = None
    weights: Weights | None = None
    measured: Annotated[tuple[Measured, ...], msgspec.Meta(max_length=len(SAMPLES))] = ()

    @property
    def shown(self) -> tuple[Measured, ...]:
        """What was measured; in the claim of an older version, the ratio of plain text."""
        return self.measured or (() if self.ratio is None else (Measured(IS_PLAIN, self.ratio),))


class Record(msgspec.Struct, frozen=True):
    """What is known of a model after one change: for one client, or for all clients.

    Prompts and windows are in the model's own tokens. Times are seconds since 1970, 0 if nothing was learned.

    window_tokens: the window that the upstream reports when asked.
    ratio: for plain text. calibrated: it comes from the upstream's usage reports.
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
    weights: of the other kinds of text, as answers show them; None for those of the tokenizer or the family.
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
    reading: Reading = SILENT
    weights: Weights | None = None
    measured: Annotated[tuple[Measured, ...], msgspec.Meta(max_length=len(SAMPLES))] = ()
    claims: Annotated[tuple[Claim, ...], msgspec.Meta(max_length=MAX_CLAIMS)] = ()

    @property
    def shown(self) -> tuple[Measured, ...]:
        """What was measured; of a record that an older version wrote, the ratio of plain text."""
        return self.measured or ((Measured(IS_PLAIN, self.ratio),) if self.calibrated else ())


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model. Fields without a line here are explained at `Record`.

    ratio: the model's own tokens for one token of our count. weights: None for those of the tokenizer or the family.
    window_tokens: the context window that the upstream or the catalogue reports; None if neither does.
    has_ratio: the ratio was learned; else it is the family's.
    is_calibrated: the ratio comes from usage reports of the upstream to this client.
    answered_tokens: the longest answered prompt; it may be longer than a learned window.
    """

    ratio: float
    window_tokens: int | None = None
    from_catalogue: bool = False
    learned_tokens: int | None = None
    added_tokens: int | None = None
    refuted: tuple[int, ...] = ()
    reading: Reading = SILENT
    weights: Weights | None = None
    has_ratio: bool = field(default=False, compare=False)
    is_calibrated: bool = field(default=False, compare=False)
    answered_tokens: int = field(default=0, compare=False)

    def correct(self, window_tokens: int, *, is_configured: bool = False) -> int:
        """The window to plan with: the learned one if this was refuted. A configured window is never enlarged."""
        if self.learned_tokens is None or window_tokens not in self.refuted:
            return window_tokens
        return min(self.learned_tokens, window_tokens) if is_configured else self.learned_tokens

    def has_outgrown(self, window_tokens: int) -> bool:
        return self.answered_tokens > window_tokens

    def forget(self, family_ratio: float) -> "Facts":
        forgotten = replace(self, ratio=family_ratio, weights=None, has_ratio=False)
        return replace(forgotten, learned_tokens=None, added_tokens=None, refuted=())

    def doubt(self, family_ratio: float) -> "Facts":
        """The facts for a test: without lessons, but with a confirmed ratio, or prompts would seem too long."""
        forgotten = self.forget(family_ratio)
        if not self.is_calibrated:
            return forgotten
        return replace(forgotten, ratio=self.ratio, weights=self.weights, has_ratio=True)


class Learned(msgspec.Struct, frozen=True):
    """A window or ratio that was learned. source, at: how, and when in seconds since 1970. for_all: or for a client."""

    source: Source
    at: float
    window_tokens: int | None = None
    ratio: float | None = None
    for_all: bool = False

    def describe(self, now: float) -> dict[str, object]:
        """What was learned, how, how long ago, and for whom it counts: the JSON object that pages show."""
        told = {"window_tokens": self.window_tokens, "token_ratio": self.ratio}
        return {
            **{name: value for name, value in told.items() if value is not None},
            "source": self.source,
            "age_seconds": max(round(now - self.at), 0),
            "counts_for": "all clients" if self.for_all else "one client",
        }


class Known(msgspec.Struct, frozen=True):
    """What may be shown of a model. samples: reports since its ratio was found. mean_error: relative, of our counts."""

    name: ModelName
    facts: Facts
    is_calibrated: bool = False
    samples: int = 0
    mean_error: float = 0.0
    learned: tuple[Learned, ...] = ()


def recall(record: Record) -> Facts:
    return Facts(
        record.ratio,
        record.window_tokens,
        learned_tokens=record.learned_tokens,
        added_tokens=record.added_tokens,
        refuted=record.refuted,
        reading=record.reading,
        weights=record.weights,
        has_ratio=record.calibrated or bool(record.ratio_source),
        is_calibrated=record.calibrated,
        answered_tokens=record.answered_tokens,
    )


def list_learned(record: Record, *, for_all: bool) -> tuple[Learned, ...]:
    found = []
    if record.learned_tokens is not None:
        found.append(Learned(record.window_source, record.window_at, record.learned_tokens, for_all=for_all))
    if record.ratio_source:
        found.append(Learned(record.ratio_source, record.ratio_at, ratio=record.ratio, for_all=for_all))
    return tuple(found)


def complete(name: ModelName, facts: Facts) -> Facts:
    """Add the catalogue's window if the upstream reported none. That window is never written to the store."""
    if facts.window_tokens is not None:
        return facts
    window_tokens = find_window(name.base_url, name.model)
    return replace(facts, window_tokens=window_tokens, from_catalogue=window_tokens is not None)


def find_ratios(model: str) -> Bounds:
    return ANY_RATIO if find_family(model) is GENERIC else KNOWN_RATIO


def clamp(ratio: float, ratios: Bounds = ANY_RATIO) -> float:
    """Limit a ratio to its bounds, and round it to four digits, so that all processes have exactly the same value."""
    least, largest = ratios
    return round(min(max(ratio, least), largest), 4)


def expect_scale(name: ModelName, reading: Reading) -> Scale:
    """The scale of a model of which nothing is learned: as its server's tokenizer shows it, else that of its family."""
    family, vocabulary = find_family(name.model), _name_vocabulary(name)
    told = reading.find_scale(vocabulary)
    if told is None:
        return family.find_scale(vocabulary)
    return Scale(clamp(told.ratio, find_ratios(name.model)), told.weights)


def _name_vocabulary(name: ModelName) -> str:
    return find_family(name.model).vocabulary if name.vocabulary == "auto" else name.vocabulary


def find_scale(name: ModelName, known: "Record | Facts") -> Scale:
    weights = known.weights
    return Scale(known.ratio, expect_scale(name, known.reading).weights if weights is None else weights)


STILL_SHARE = 0.005  # A ratio that moves by less stays. Chosen: each change breaks a prompt cache.
STILL_WEIGHT = 0.01  # The same of a weight. Chosen: about a hundredth of the tokens of a text of that kind.


def take_measured(scale: Scale, known: Record, found: Sequence[Measured], ratios: Bounds) -> dict[str, Any]:
    """The changes to a record whose scale in use is `scale`, after something was measured."""
    rows = {each.kind: each for each in (*known.shown, *found)}
    measured = tuple(rows[kind] for kind in sorted(rows))
    ratio, weights = fit(scale, measured)
    ratio = clamp(ratio, ratios)
    if abs(ratio / scale.ratio - 1) <= STILL_SHARE and all(each.kind != IS_PLAIN for each in found):
        ratio = scale.ratio
    kept = [new if abs(new - old) > STILL_WEIGHT else old for new, old in zip(weights, scale.weights, strict=True)]
    changes = {"ratio": ratio, "measured": measured}
    return changes if tuple(kept) == scale.weights else {**changes, "weights": Weights(*kept)}


def take_prompt(name: ModelName, row: Measured, known: Record) -> dict[str, Any]:
    """The changes to a record after a server counted a prompt. Of the other kinds, its samples still count."""
    shown, ratios = {each.kind: each for each in known.shown}, find_ratios(name.model)
    row = row._replace(tokens=clamp(row.tokens, ratios))
    before = shown.get(row.kind)
    if before is not None and (before == row or (before.is_settled and row.kind not in FOREIGN)):
        return {}
    samples = [each for each in known.reading.measure(_name_vocabulary(name)) if each.kind not in {*shown, row.kind}]
    return take_measured(find_scale(name, known), known, [*samples, row], ratios)


UNMEASURED: dict[str, Any] = {"weights": None, "measured": ()}
"""The changes to a record whose ratio gives way to the expected one."""


class Records:
    def __init__(self, store: SummaryStore) -> None:
        self._store = store

    async def read(self, name: ModelName) -> tuple[int, Record | None]:
        """The number of a model's records, and the last decodable one. All are read, so that the store drops none."""
        generation, record = 0, None
        while (kept := await self._store.get(_record_id(name, generation + 1))) is not None:
            generation, record = generation + 1, _decode(kept) or record
        return generation, record

    async def forget(self, name: ModelName, record: Record) -> bool:
        """Drop what was learned of a model, for all clients; whether anything was known for all."""
        generation, known = await self.read(name.of_all)
        forgotten = 1 + (0 if known is None else known.forgotten)
        await self.append(name.of_all, generation, msgspec.structs.replace(record, forgotten=forgotten))
        return known is not None

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
    try:
        record = msgspec.json.decode(encoded, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if record.weights is None and not record.measured and record.ratio_source == "answers":
        # An older version found one ratio for all kinds of text: the expected weights beside it would count them twice.
        record = msgspec.structs.replace(record, weights=EVEN)
    return record


def _record_id(name: ModelName, generation: int) -> str:
    return f"model-{sha256(name.key.encode('utf-8', 'surrogatepass')).hexdigest()}-{generation}"
