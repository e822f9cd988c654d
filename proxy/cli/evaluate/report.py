"""What an evaluation prints: its price before it starts, its result and what it has cost after it.

Law: it shows what was measured, and computes only sums and shares of that. Text of the session or of a model is shown
only on request, and without control characters. Tokens are the model's own, as far as its ratio is known. A completion
counts with its maximum length. Dollars are named only if the price of this model at this upstream is known in dollars.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import orjson
from rich.console import Console
from rich.table import Table

from trimtab.proxy.catalogue.prices import PriceList, PriceSource
from trimtab.proxy.cli.evaluate.asking import ArmResult, Tokens
from trimtab.proxy.cli.evaluate.exam import ExamQuestion
from trimtab.proxy.cli.tables import print_fitting, safe

MILLION = 1_000_000
"""Source: prices in dollars are those of a million tokens."""


@dataclass(frozen=True, slots=True)
class Item:
    """The most that one kind of call costs.

    what: summaries, questions, answers or grades.
    model, prices: the model that is called, and what its tokens cost.
    """

    what: str
    model: str
    prices: PriceList
    tokens: Tokens


def add_up(items: Iterable[Item]) -> Tokens:
    everything = Tokens()
    for item in items:
        everything.add(item.tokens.prompt, item.tokens.completion, item.tokens.calls)
    return everything


def weigh(tokens: Tokens, prices: PriceList) -> int:
    return round(tokens.prompt + tokens.completion * prices.to_ratios().output)


def find_dollars(items: Iterable[Item]) -> float | None:
    dollars = [_find_price(item) for item in items if item.tokens.calls]
    known = [price for price in dollars if price is not None]
    return sum(known) if len(known) == len(dollars) else None


def _find_price(item: Item) -> float | None:
    if not item.prices.is_in_dollars:
        return None
    tokens = item.tokens
    tier = item.prices.at(tokens.prompt // tokens.calls)
    return (tokens.prompt * tier.input + tokens.completion * tier.output) / MILLION


@dataclass(frozen=True, slots=True)
class Result:
    """An evaluation's result. Tokens are the model's own, as far as its ratio is known.

    wanted, questions: how many questions were requested, and how many each arm was asked.
    summaries: how many summaries a model was asked for.
    failures: why some of them were not written. The digest replaces those.
    """

    model: str
    judge: str
    window_tokens: int
    original_tokens: int
    removed_messages: int
    wanted: int
    questions: int
    summaries: int
    failures: tuple[str, ...]
    arms: tuple[ArmResult, ...]
    spent: Tokens

    def write_json(self, *, details: bool) -> bytes:
        told = {**asdict(self), "arms": [_describe(arm, details=details) for arm in self.arms]}
        return orjson.dumps(told)

    def print_table(self, console: Console, *, details: bool) -> None:
        title = (
            f"{self.questions} questions about {self.removed_messages} removed messages, window {self.window_tokens:,}"
        )
        table = Table("arm", title=title, title_justify="left")
        for name in ("recall", "tokens", "of all", "right", "partly", "missed", "no grade"):
            table.add_column(name, justify="right")
        for arm in self.arms:
            table.add_row(arm.name, *self._count(arm))
        print_fitting(console, table, ("no grade", "of all", "partly", "missed"))
        for arm in self.arms:
            for problem in arm.problems:
                console.print(safe(f"{arm.name}: {problem}"))
        if self.questions < self.wanted:
            console.print(f"{self.wanted - self.questions} of {self.wanted} questions could not be used.")
        if self.failures:
            reasons = ", ".join(dict.fromkeys(self.failures))
            console.print(safe(f"{len(self.failures)} of {self.summaries} summaries failed and are digests: {reasons}"))
        console.print(f"Spent: {tell_tokens(self.spent)}.")
        if details:
            self._print_details(console)

    def _count(self, arm: ArmResult) -> list[str]:
        share = f"{arm.tokens / self.original_tokens:.1%}" if self.original_tokens else ""
        if arm.recall is None:
            return ["", f"{arm.tokens:,}", share, "", "", "", f"{len(arm.answered) or ''}"]
        counted = [str(arm.grades.count(grade)) for grade in (2, 1, 0)]
        return [f"{arm.recall:.1%}", f"{arm.tokens:,}", share, *counted, str(len(arm.answered) - len(arm.grades))]

    def _print_details(self, console: Console) -> None:
        asked: dict[ExamQuestion, list[str]] = {one.question: [] for arm in self.arms for one in arm.answered}
        for arm in self.arms:
            for one in arm.answered:
                grade = "-" if one.grade is None else str(one.grade)
                asked[one.question].append(f"  {grade} {arm.name}: {one.answer or one.problem or '(nothing)'}")
        for question, lines in asked.items():
            head = f"{question.question}  [{question.answer}] at {question.depth:.0%} of what was removed"
            console.print(safe(head), *map(safe, lines), sep="\n")


def _describe(arm: ArmResult, *, details: bool) -> dict[str, object]:
    described: dict[str, object] = {
        "name": arm.name,
        "tokens": arm.tokens,
        "recall": arm.recall,
        "right": arm.grades.count(2),
        "partly": arm.grades.count(1),
        "missed": arm.grades.count(0),
        "without_grade": len(arm.answered) - len(arm.grades),
        "problems": arm.problems,
    }
    return {**described, "answers": [asdict(one) for one in arm.answered]} if details else described


def print_price(console: Console, items: Sequence[Item], prices: PriceList) -> None:
    """Print what will be asked, and what it costs if every completion has its maximum length.

    prices: those of the model that is evaluated.
    """
    table = Table("what", "model", title="What will be asked", title_justify="left")
    for name in ("calls", "prompt tokens", "completion tokens"):
        table.add_column(name, justify="right")
    everything = add_up(items)
    for item in items:
        if item.tokens.calls:
            table.add_row(item.what, safe(item.model), *_row(item.tokens))
    table.add_section()
    table.add_row("all", "", *_row(everything))
    console.print(table)
    ratios = f"input 1, output {prices.to_ratios().output:g}"
    whose = f"{_WHOSE[prices.source]} ({ratios})"
    console.print(f"This costs as much as {weigh(everything, prices):,} prompt tokens at {whose}.")
    dollars = find_dollars(items)
    if dollars is not None:
        console.print(f"About ${dollars:.2f} at these prices; less if the upstream's prompt cache helps.")
    console.print("It costs more if a model thinks before it answers, or refuses a question at first.")


_WHOSE = {
    PriceSource.CONFIGURED: "the configured prices",
    PriceSource.CATALOGUE: "the catalogue's prices",
    PriceSource.LOCAL: "the prices of a local server",
    PriceSource.DEFAULT: "the default prices",
}


def tell_tokens(tokens: Tokens) -> str:
    return f"{tokens.calls} calls, {tokens.prompt:,} prompt tokens, {tokens.completion:,} completion tokens"


def _row(tokens: Tokens) -> tuple[str, str, str]:
    return f"{tokens.calls:,}", f"{tokens.prompt:,}", f"{tokens.completion:,}"
