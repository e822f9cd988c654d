"""Takes what requests and summaries cost into the metrics and the books.

Law: both get the same figures. Whoever causes a summary bears its cost: it is added to the model of the request.
"""

import time

from proxy.account.history.kept import History
from proxy.account.statistics.books import Books
from proxy.account.statistics.sums import Sums
from proxy.state.catalogue.costs import NANODOLLARS, Bill, Tokens, price
from proxy.state.catalogue.prices import PriceList
from proxy.telemetry.metrics import Metrics


class Till:
    """Counts money. Without `books`, they are kept in memory. `history`, if there is one, is told of summaries."""

    def __init__(self, metrics: Metrics, books: Books | None = None) -> None:
        self._metrics = metrics
        self.books = books or Books()
        self.history: History | None = None

    def charge(self, model: str, client: str, bill: Bill) -> None:
        """Count an answered request. `model`: its label in the metrics."""
        sums = Sums.of_bill(bill)
        self.books.book(model, client, sums)
        if bill.cost is not None and bill.without_cost is not None:
            cost = bill.cost
            parts = {"fresh": cost.fresh, "cached": cost.cached, "written": cost.written, "completion": cost.completion}
            for part, nanodollars in parts.items():
                self._count(model, part, nanodollars)
            self._metrics.cost_without_usd[model] += bill.without_cost.total / NANODOLLARS

    def charge_summary(
        self, model: str, client: str, tokens: Tokens, prices: PriceList | None, session: str = ""
    ) -> None:
        """Count an answered call for a summary of a session.

        prices: those of the model that wrote it; None if not known.
        """
        cost = None if prices is None else price(tokens, prices)
        self.books.book(model, client, Sums.of_summary(tokens, cost))
        if cost is not None:
            self._count(model, "summary", cost.total)
            if self.history is not None:
                self.history.add_summary(time.time(), cost.total, model, client, session)

    def _count(self, model: str, part: str, nanodollars: int) -> None:
        if nanodollars:
            self._metrics.cost_usd[model, part] += nanodollars / NANODOLLARS
