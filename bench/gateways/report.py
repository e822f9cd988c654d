"""Rows into tables: medians over rounds, and ratios to the bare aiohttp proxy in the same round.

Law: a ratio is computed within one round, and the median is taken after that; a missing figure is a dash.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.figures import print_table
from bench.gateways.samples import MAX_FOREIGN, Memory, Sample
from bench.gateways.targets import TARGETS, YARDSTICK

MISSING = "-"
Read = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table: a figure of one scenario."""

    heading: str
    scenario: str
    read: Read
    form: str = ".2f"


def read_cost_ms(sample: Sample) -> float | None:
    """Processor time for each answer, in milliseconds."""
    return None if sample.cost_us is None else sample.cost_us / 1000


def read_cost_us(sample: Sample) -> float | None:
    """Processor time for each answer or event, in microseconds."""
    return sample.cost_us


COLUMNS = (
    Column("small, CPU ms", "small", read_cost_ms, ".3f"),
    Column("small, req/s", "small", lambda sample: sample.per_second, ",.0f"),
    Column("404 KB known, CPU ms", "known", read_cost_ms),
    Column("404 KB all new, CPU ms", "new", read_cost_ms),
    Column("first event, ms after idle", "first", lambda sample: sample.first_ms),
    Column("SSE, CPU us a chunk", "events", read_cost_us, ".1f"),
    Column("with usage", "events_usage", read_cost_us, ".1f"),
)
RATIOS = tuple(column for column in COLUMNS if column.read in {read_cost_ms, read_cost_us})


def find_median(samples: Iterable[Sample], read: Read) -> float | None:
    """The median over rounds, without missing values; None if all are missing."""
    values = [value for sample in samples if (value := read(sample)) is not None]
    return statistics.median(values) if values else None


def find_ratio(samples: Iterable[Sample], yardstick: Iterable[Sample], read: Read) -> float | None:
    """The median of the ratios, each within one round; None if there is none."""
    of_round = {sample.round: read(sample) for sample in yardstick}
    pairs = ((read(sample), of_round.get(sample.round)) for sample in samples)
    ratios = [value / base for value, base in pairs if value is not None and base]
    return statistics.median(ratios) if ratios else None


def show(samples: Sequence[Sample], memories: Sequence[Memory]) -> None:
    """Print both tables, and how much other programs disturbed the run."""
    by_place: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        by_place.setdefault((sample.target, sample.scenario), []).append(sample)
    headings = [column.heading for column in COLUMNS]
    rows = list(_write_figures(by_place, memories))
    print_table("Medians over rounds; processor time is the gateway's.", ["", *headings, "RSS MB", "ready s"], rows)
    ratio_headings = [column.heading.partition(", CPU")[0] for column in RATIOS]
    title = "Processor time, as a multiple of the bare aiohttp proxy's in the same round."
    print_table(title, ["", *ratio_headings], list(_write_ratios(by_place)))
    print(f"\n{describe_noise(samples)}")


def _write_figures(
    by_place: Mapping[tuple[str, str], Sequence[Sample]], memories: Sequence[Memory]
) -> Iterable[Sequence[str]]:
    for target in TARGETS:
        if not any(name == target.name for name, _ in by_place):
            continue
        cells = []
        for column in COLUMNS:
            found = by_place.get((target.name, column.scenario), ())
            failed = sum(sample.failed for sample in found)
            cells.append(
                write(find_median(found, column.read), column.form) + (f" ({failed} failed)" if failed else "")
            )
        own = [memory for memory in memories if memory.target == target.name]
        yield target.label, *cells, *_write_memory(own)


def _write_memory(memories: Sequence[Memory]) -> tuple[str, str]:
    if not memories:
        return MISSING, MISSING
    before, after, ready = (
        statistics.median(values)
        for values in zip(*((one.before_mb, one.after_mb, one.ready_seconds) for one in memories), strict=True)
    )
    return f"{before:.0f}-{after:.0f}", f"{ready:.1f}"


def _write_ratios(by_place: Mapping[tuple[str, str], Sequence[Sample]]) -> Iterable[Sequence[str]]:
    for target in TARGETS:
        ratios = [
            find_ratio(
                by_place.get((target.name, column.scenario), ()),
                by_place.get((YARDSTICK, column.scenario), ()),
                column.read,
            )
            for column in RATIOS
        ]
        if any(ratio is not None for ratio in ratios):
            yield target.label, *(write(ratio, ".2f") for ratio in ratios)


def write(value: float | None, form: str) -> str:
    """A figure, or a dash if it is missing."""
    return MISSING if value is None else f"{value:{form}}"


def describe_noise(samples: Sequence[Sample]) -> str:
    """How much processor time other programs used while samples were taken."""
    if not samples:
        return "no samples"
    shares = sorted(sample.foreign for sample in samples)
    over = sum(share > MAX_FOREIGN for share in shares)
    return (
        f"Other programs used {statistics.median(shares):.2f} of a core at the median and {shares[-1]:.2f} at most; "
        f"{over} of {len(shares)} samples were disturbed (over {MAX_FOREIGN:g})."
    )
