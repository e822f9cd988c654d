"""What a request's last span tells of it: the figures that declare an attribute.

Law: the names are those of the conventions for generative AI, and trimtab's own. The values may
be logged.
"""

from proxy.account.outcome import FIGURES, Line, Outcome
from proxy.catalogue.prices import NANODOLLARS
from proxy.telemetry.spans import Attributes

FAILED = frozenset({"broken", "aborted"})
"""Outcomes of requests whose answer did not arrive as a whole; the word also names the kind of error."""
STATUS = "http.response.status_code"
_LINE = Line({name: shown.span for name, shown in FIGURES.items() if shown.span and not shown.of_prompt})
_PROMPT_LINE = Line({name: shown.span for name, shown in FIGURES.items() if shown.span and shown.of_prompt})


def name_error(outcome: Outcome) -> str:
    """The kind of error of a request in one word; empty for none."""
    return outcome.error or (outcome.outcome if outcome.outcome in FAILED else "")


def describe(outcome: Outcome) -> Attributes:
    """The attributes. As the conventions want it, what is false is left out."""
    told = _LINE.write(outcome)
    if not outcome.status:
        del told[STATUS]
    bill = outcome.bill
    if bill is not None and bill.cost is not None and bill.without_cost is not None:
        told["trimtab.cost_usd"] = bill.cost.total / NANODOLLARS
        told["trimtab.cost_without_usd"] = bill.without_cost.total / NANODOLLARS
    if outcome.has_prompt:
        saved = outcome.original_tokens - outcome.sent_tokens if outcome.sent_tokens else 0
        told |= _PROMPT_LINE.write(outcome)
        told["trimtab.tokens.saved"] = max(saved, 0)
        told["trimtab.rules"] = tuple(dict.fromkeys(decision.rule for decision in outcome.planned))
    return told
