"""What `trimtab stats` shows: the sums of some days, by model, client or day."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.account.statistics.books import Rows, Sums, name_day
from proxy.account.statistics.store import open_statistics
from proxy.catalogue.prices import NANODOLLARS
from proxy.cli.store.since import find_first_day
from proxy.config.schema import Config
from proxy.store.store import StoreError
from proxy.telemetry.logs import configure_log, get_log

GROUPS = ("model", "client", "day")


class NothingKeptError(Exception):
    """There is nothing to read, or it cannot be read. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """The sums of some days, by the names of a group, and all together."""

    first_day: str
    last_day: str
    by: str
    groups: tuple[tuple[str, Sums], ...]
    total: Sums


async def read_statistics(config: Config, since: str, by: str, clock: Callable[[], float] = time.time) -> Statistics:
    """The sums since a time. Raises ValueError for a wrong `since`, NothingKeptError, ConfigError."""
    today = name_day(clock())
    first_day = find_first_day(since, today)
    if config.store == "memory":
        message = "store: memory keeps nothing that another process can read; see /metrics of the running proxy"
        raise NothingKeptError(message)
    configure_log("error")
    store = open_statistics(config, get_log())
    try:
        rows = await store.read(first_day, today)
        await store.close()
    except StoreError as error:
        message = f"{error}; trimtab doctor says more"
        raise NothingKeptError(message) from error
    return gather(rows, first_day, today, by)


def gather(rows: Rows, first_day: str, last_day: str, by: str) -> Statistics:
    """Add up sums by model, client or day: days in order, others by what they have cost."""
    groups: dict[str, Sums] = {}
    for place, sums in rows.items():
        name = getattr(place, by)
        groups[name] = groups.get(name, Sums()) + sums
    order: Callable[[tuple[str, Sums]], Any] = (lambda each: each[0]) if by == "day" else _rank
    return Statistics(first_day, last_day, by, tuple(sorted(groups.items(), key=order)), sum(rows.values(), Sums()))


def _rank(group: tuple[str, Sums]) -> tuple[int, int, str]:
    return -group[1].cost_nanodollars, -group[1].requests, group[0]


def describe(statistics: Statistics) -> dict[str, Any]:
    """The statistics as JSON."""
    by = statistics.by
    return {
        "since": statistics.first_day,
        "until": statistics.last_day,
        "by": by,
        "rows": [{by: name, **_describe_sums(sums)} for name, sums in statistics.groups],
        "total": _describe_sums(statistics.total),
    }


def _describe_sums(sums: Sums) -> dict[str, int | float | None]:
    """The sums; money is null if no price of any request is known, and that of summaries if none of theirs is."""
    figures = sums.to_dict()
    figures |= {"cost_nanodollars": sums.cost_nanodollars, "saved_nanodollars": sums.saved_nanodollars}
    counts = {name: amount for name, amount in figures.items() if not name.endswith("_nanodollars")}
    money = {name: amount for name, amount in figures.items() if name.endswith("_nanodollars")}
    told: dict[str, float | None] = {
        name.replace("nanodollars", "usd"): None if sums.is_unpriced else amount / NANODOLLARS
        for name, amount in money.items()
    }
    is_unpriced = 0 < sums.summaries == sums.unpriced_summaries
    told["summary_usd"] = None if is_unpriced else sums.summary_nanodollars / NANODOLLARS
    return counts | told
