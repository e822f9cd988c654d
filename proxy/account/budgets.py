"""What clients with a budget have spent: in this minute, on this day, in this month.

Law: only answers spend, as the books count them; what a request might cost is never guessed, so it never refuses. What
other processes have spent is read from the store of statistics. While that is out, what was known and what this process
spends counts. Without a budget in the configuration, nothing here runs.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from trimtab.proxy.account.books import Books, Place, Sums, go_back, name_day
from trimtab.proxy.catalogue.prices import NANODOLLARS
from trimtab.proxy.config.clients import Budget
from trimtab.proxy.store.store import StoreError

MINUTE_SECONDS = 60  # source: the clock
WHOLE_SECONDS = 3600
"""The whole month is read again after this: a late process writes of earlier days. Chosen: a page for each sum."""
_LIMITS = (
    ("tokens_per_minute", "tokens a minute"),
    ("tokens_per_day", "tokens a day"),
    ("tokens_per_month", "tokens a month"),
    ("dollars_per_day", "dollars a day"),
    ("dollars_per_month", "dollars a month"),
)
_Days = defaultdict[str, dict[str, "_Sum"]]  # By client and day


class _Sum(NamedTuple):
    tokens: int = 0
    nanodollars: int = 0

    def add(self, sums: Sums) -> "_Sum":
        tokens = sums.sent_tokens + sums.completion_tokens + sums.summary_tokens
        return _Sum(self.tokens + tokens, self.nanodollars + sums.cost_nanodollars)


class Spent(msgspec.Struct, frozen=True):
    """A budget that is spent. until: when it is new, in UTC. seconds: until then. refuses: or only tells."""

    limit: float
    name: str
    until: datetime
    seconds: int
    refuses: bool

    @property
    def header(self) -> str:
        """The value of the header `x-trimtab-budget`: an item of RFC 9651."""
        return f'spent;limit={self.limit:.15g};of="{self.name}";reset={self.seconds}'

    @property
    def message(self) -> str:
        until = self.until.strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"this client has spent its budget of {self.limit:,} {self.name} (client_keys); it is new at {until}"


class Budgets:
    """What the clients have spent, by name. `budgets`: those of the configuration."""

    def __init__(self, books: Books, log: Any, budgets: Mapping[str, Budget] | None = None) -> None:
        self._books, self._log = books, log
        self._days: _Days = defaultdict(dict)
        self._newest: list[tuple[Place, Sums]] | None = None  # what is booked while the store's rows are added up
        self._month = ""  # the month that was read as a whole, and when
        self._whole_at = 0.0
        self._minutes: dict[str, tuple[int, int]] = {}
        self._told: dict[tuple[str, str], datetime] = {}
        self.budgets: Mapping[str, Budget] = {}
        self.adopt(budgets or {})

    def adopt(self, budgets: Mapping[str, Budget]) -> None:
        """Heed these budgets from now on. What other processes have spent is known after the next writing."""
        self.budgets, self._month = budgets, ""
        self._books.on_booked = self._note if budgets else None
        self._books.after_writing = self.refresh if budgets else None

    async def refresh(self) -> None:
        if not self.budgets or self._books.is_out:  # what waits to be written may be in the store, or not
            return
        now = self._books.clock()
        today = name_day(now)
        month, budgets = f"{today[:7]}-01", self.budgets
        is_whole = month != self._month or now - self._whole_at >= WHOLE_SECONDS
        first_day = month if is_whole else max(month, go_back(today, 1))
        try:
            rows = await self._books.read_rows(first_day)
        except StoreError:  # its fault is counted and logged by the writing
            return
        newest: list[tuple[Place, Sums]] = []
        self._newest = newest
        days = await asyncio.to_thread(_add_up, rows, budgets.keys())  # of many clients and models
        for place, sums in newest:
            _add(days, place, sums)
        for client, spent in self._days.items():
            days[client].update({day: one for day, one in spent.items() if month <= day < first_day})
        self._days, self._newest = days, None
        self._month = month if budgets is self.budgets else ""
        self._whole_at = now if is_whole else self._whole_at

    def _note(self, place: Place, sums: Sums) -> None:
        if place.client not in self.budgets:
            return
        _add(self._days, place, sums)
        if self._newest is not None:
            self._newest.append((place, sums))
        minute = int(self._books.clock() // MINUTE_SECONDS)
        known, tokens = self._minutes.get(place.client, (minute, 0))
        self._minutes[place.client] = (minute, (tokens if known == minute else 0) + _Sum().add(sums).tokens)

    def check(self, client: str) -> Spent | None:
        """A client's spent budget, logged once, of several the one that is new last; None if some of each is left."""
        budget = self.budgets.get(client)
        if budget is None:
            return None
        now = datetime.fromtimestamp(self._books.clock(), UTC)
        spent = self._measure(client, now)
        over = [
            _tell(getattr(budget, key), name, now, refuses=budget.refuses)
            for key, name in _LIMITS
            if (getattr(budget, key) or float("inf")) <= spent[key]
        ]
        if not over:
            return None
        last = max(over, key=lambda one: one.until)
        if self._told.get((client, last.name)) != last.until:
            self._told[client, last.name] = last.until
            until = last.until.isoformat()
            self._log.warning(
                "budget_spent", client=client, limit=last.limit, of=last.name, until=until, refuses=last.refuses
            )
        return last

    def _measure(self, client: str, now: datetime) -> dict[str, float]:
        day, minute = now.date().isoformat(), int(now.timestamp() // MINUTE_SECONDS)
        days = self._days.get(client, {})
        today = days.get(day, _Sum())
        month = [spent for one, spent in days.items() if one[:7] == day[:7]]
        known, tokens = self._minutes.get(client, (minute, 0))
        return {
            "tokens_per_minute": tokens if known == minute else 0,
            "tokens_per_day": today.tokens,
            "tokens_per_month": sum(spent.tokens for spent in month),
            "dollars_per_day": today.nanodollars / NANODOLLARS,
            "dollars_per_month": sum(spent.nanodollars for spent in month) / NANODOLLARS,
        }


def _add(days: _Days, place: Place, sums: Sums) -> None:
    spent = days[place.client]
    spent[place.day] = spent.get(place.day, _Sum()).add(sums)


def _add_up(rows: Iterable[tuple[Place, Sums]], clients: Collection[str]) -> _Days:
    days: _Days = defaultdict(dict)
    for place, sums in rows:
        if place.client in clients:
            _add(days, place, sums)
    return days


def _tell(limit: float, name: str, now: datetime, *, refuses: bool) -> Spent:
    until = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    if not name.endswith("minute"):
        until = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    if name.endswith("month"):
        until = (until.replace(day=1) + timedelta(days=32)).replace(day=1) if until.day != 1 else until
    return Spent(limit, name, until, max(int((until - now).total_seconds()) + 1, 1), refuses)
