"""What clients with a budget have spent: in this minute, on this day, in this month.

Law: only answers spend, as the books count them; what a request might cost is never guessed, so it never refuses. What
other processes have spent is read from the store of statistics. While that is out, what was known and what this process
spends counts. Without a budget in the configuration, nothing here runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trimtab.proxy.account.statistics.books import Books, Place, Sums, name_day
from trimtab.proxy.catalogue.prices import NANODOLLARS
from trimtab.proxy.config.sections.clients import Budget
from trimtab.proxy.store.store import StoreError

MINUTE_SECONDS = 60  # source: the clock
_LIMITS = (
    ("tokens_per_minute", "tokens a minute"),
    ("tokens_per_day", "tokens a day"),
    ("tokens_per_month", "tokens a month"),
    ("dollars_per_day", "dollars a day"),
    ("dollars_per_month", "dollars a month"),
)


@dataclass(frozen=True, slots=True)
class Spent:
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
        self._days: dict[tuple[str, str], Sums] = {}
        self._minutes: dict[str, tuple[int, int]] = {}
        self._told: dict[tuple[str, str], datetime] = {}
        self.budgets: Mapping[str, Budget] = {}
        self.adopt(budgets or {})

    def adopt(self, budgets: Mapping[str, Budget]) -> None:
        """Heed these budgets from now on. What other processes have spent is known after the next writing."""
        self.budgets = budgets
        self._books.on_booked = self._note if budgets else None
        self._books.after_writing = self.refresh if budgets else None

    async def refresh(self) -> None:
        """Read what all processes have spent in this month."""
        if not self.budgets:
            return
        first_day = f"{name_day(self._books.clock())[:7]}-01"
        try:
            rows = await self._books.read_rows(first_day)
        except StoreError:  # its fault is counted and logged by the writing
            return
        days: dict[tuple[str, str], Sums] = {}
        for place, sums in rows:
            if place.client in self.budgets:
                days[place.client, place.day] = days.get((place.client, place.day), Sums()) + sums
        self._days = days

    def _note(self, place: Place, sums: Sums) -> None:
        if place.client not in self.budgets:
            return
        key = (place.client, place.day)
        self._days[key] = self._days.get(key, Sums()) + sums
        minute = int(self._books.clock() // MINUTE_SECONDS)
        known, tokens = self._minutes.get(place.client, (minute, 0))
        self._minutes[place.client] = (minute, (tokens if known == minute else 0) + _count_tokens([sums]))

    def check(self, client: str) -> Spent | None:
        """The budget that a client has spent; None if it has none, or something of each is left.

        Of several, the one that is new last. It is logged once.
        """
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
        today = self._days.get((client, day), Sums())
        month = [sums for (name, one), sums in self._days.items() if name == client and one[:7] == day[:7]]
        known, tokens = self._minutes.get(client, (minute, 0))
        return {
            "tokens_per_minute": tokens if known == minute else 0,
            "tokens_per_day": _count_tokens([today]),
            "tokens_per_month": _count_tokens(month),
            "dollars_per_day": today.cost_nanodollars / NANODOLLARS,
            "dollars_per_month": sum(sums.cost_nanodollars for sums in month) / NANODOLLARS,
        }


def _count_tokens(sums: Iterable[Sums]) -> int:
    return sum(one.sent_tokens + one.completion_tokens + one.summary_tokens for one in sums)


def _tell(limit: float, name: str, now: datetime, *, refuses: bool) -> Spent:
    until = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    if not name.endswith("minute"):
        until = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    if name.endswith("month"):
        until = (until.replace(day=1) + timedelta(days=32)).replace(day=1) if until.day != 1 else until
    return Spent(limit, name, until, max(int((until - now).total_seconds()) + 1, 1), refuses)
