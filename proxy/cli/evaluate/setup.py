"""Everything that an evaluation needs before a model is asked: the model, the replayed session, parts, the price.

Law: the upstream is asked for the model's window (which is free) only if none is configured. The user's key goes to an
upstream only if a client's key would. In the price, tokens are the model's own, as far as its ratio is known, and a
completion counts with its maximum length. Dollars are named only if the price of this model at this upstream is known
in dollars.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from trimtab.proxy.catalogue.prices import PriceList, PriceSource, find_price_list
from trimtab.proxy.cli.evaluate import exam
from trimtab.proxy.cli.evaluate.asking import Asker, Calls
from trimtab.proxy.cli.evaluate.exam import PART_TOKENS, Part, find_removed, split_removed
from trimtab.proxy.cli.evaluate.rehearsal import Arm, Rehearsal, Tokens, WantedSummary, make_arm, rehearse
from trimtab.proxy.compaction.engine import Variant
from trimtab.proxy.config.schema import Config, UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.http.headers import Headers, write_key
from trimtab.proxy.models.discovery import discover
from trimtab.proxy.models.model_policy import ModelView, name_model
from trimtab.proxy.models.records import Facts, complete, expect_scale
from trimtab.proxy.wire.codec import Request
from trimtab.rules.tokens.families import SILENT

MILLION = 1_000_000  # source: prices in dollars are those of a million tokens
_WHOSE = {
    PriceSource.CONFIGURED: "the configured prices",
    PriceSource.CATALOGUE: "the catalogue's prices",
    PriceSource.LOCAL: "the prices of a local server",
    PriceSource.DEFAULT: "the default prices",
}
PROMPT_TOKENS = 400  # Of a prompt apart from its text. Chosen: above the 263 tokens (o200k_base) of the longest one.
GRADE_PROMPT_TOKENS = 500  # Chosen: 200 for its own text (o200k_base), and room for question and answers.
PART_SHARE = 0.5  # Largest part that questions are made of, of the model's window. Chosen: leaves room for them.


class Item(msgspec.Struct, frozen=True):
    """The most that one kind of call costs. what: summaries, questions, answers or grades."""

    what: str
    model: str
    prices: PriceList
    tokens: Tokens

    def weigh(self, *, in_dollars: bool) -> float:
        """What it costs, in dollars or in prompt tokens, if no prompt is read from a cache."""
        told = self.tokens
        tier = self.prices.at(told.prompt // told.calls)
        cost = told.prompt * tier.input + told.completion * tier.output
        return cost / MILLION if in_dollars else cost / (tier.input or 1.0)


def tell_price(items: Sequence[Item], prices: PriceList) -> Iterator[str]:
    """What will be asked, and what it costs at most. prices: those of the model that is evaluated."""
    asked = [item for item in items if item.tokens.calls]
    for item in asked:
        yield f"{item.what}, by {item.model}: {item.tokens.describe()}"
    in_dollars = all(item.prices.is_in_dollars for item in asked)
    cost = sum(item.weigh(in_dollars=in_dollars) for item in asked)
    ratios = "" if in_dollars else f" (input 1, output {prices.to_ratios().output:g})"
    amount = f"about ${cost:.2f}" if in_dollars else f"as much as {cost:,.0f} prompt tokens"
    yield f"This costs {amount} at {_WHOSE[prices.source]}{ratios}, or less if the upstream's prompt cache helps."
    yield "It costs more if a model thinks before it answers, or refuses a question at first."


def add_up(items: Iterable[Item]) -> int:
    return sum(item.tokens.calls for item in items)


@dataclass(frozen=True, slots=True)
class Options:
    """What the user wants; see the help of the command. `key` goes to upstreams that get a client's key."""

    judge: str | None
    arms: tuple[str, ...]
    questions: int
    key: str | None = field(repr=False)
    model: str | None = None
    window: int | None = None
    yes: bool = False
    details: bool = False
    as_table: bool | None = None


class Setup(msgspec.Struct, frozen=True):
    """Everything known before a model is asked. room_tokens: for a prompt."""

    config: Config
    options: Options
    view: ModelView
    room_tokens: int
    rehearsal: Rehearsal
    removed: int
    parts: tuple[Part, ...]

    @property
    def model(self) -> str:
        return self.view.name.model

    @property
    def judge(self) -> str:
        return self.options.judge or self.model

    def find_upstream(self, model: str) -> UpstreamConfig:
        return self.config.upstream_for(self.config.policy_for(model).upstream)

    def make_asker(self, model: str, calls: Calls) -> Asker:
        upstream = self.find_upstream(model)
        return Asker(upstream, model, show_key(upstream, self.options.key), calls)

    @property
    def original_tokens(self) -> int:
        return self.rehearsal.last.compacted.original_tokens

    @property
    def summaries(self) -> list[WantedSummary]:
        return (
            [one for one in self.rehearsal.wanted if one.request.asks_model] if "trimtab" in self.options.arms else []
        )

    def make_arms(self, compacted: bytes | None = None) -> list[Arm]:
        """The arms in the order in which the user named them. compacted: as for `make_arm`."""
        return [make_arm(name, self.rehearsal, compacted, self.room_tokens) for name in self.options.arms]

    def estimate(self, arms: Sequence[Arm]) -> list[Item]:
        """The most that each kind of call costs: every completion counts with its maximum length."""
        ratio, number = self.view.policy.token_ratio, self.options.questions
        summaries, making, answers, grades = Tokens(), Tokens(), Tokens(), Tokens()
        for one in self.summaries:
            summaries.add(round(ratio * one.prompt_tokens), round(ratio * one.request.max_tokens))
        for part in self.parts:
            tokens = self.rehearsal.variant.compactor.count(part.text) + PROMPT_TOKENS
            making.add(round(ratio * tokens), part.questions * exam.QUESTION_TOKENS)
        # A summary may be longer than the digest that stands for it here.
        reserved = round(ratio * self.rehearsal.last.original_plan.reserved_tokens)
        for arm in arms:
            if arm.problem is None:
                tokens = max(arm.tokens, reserved) if arm.name in {"trimtab", "truncate"} else arm.tokens
                answers.add(number * (tokens + PROMPT_TOKENS), number * exam.ANSWER_TOKENS, number)
                grades.add(number * GRADE_PROMPT_TOKENS, number * exam.GRADE_TOKENS, number)
        settings = self.view.settings.summary
        writer = self.view.settings.upstream if settings.upstream is None else settings.upstream
        model, asked = self.model, self.find_upstream(self.model)
        by_model = (
            ("summaries", next(iter(settings.models), model), self.config.upstream_for(writer), summaries),
            ("questions", model, asked, making),
            ("answers", model, asked, answers),
            ("grades", self.judge, self.find_upstream(self.judge), grades),
        )
        return [
            Item(what, model, find_price_list(self.config, self.config.policy_for(model), model, upstream), tokens)
            for what, model, upstream, tokens in by_model
        ]


def show_key(upstream: UpstreamConfig, key: str | None) -> Headers:
    return write_key(key, upstream) if key and upstream.shown == "client" else []


async def find_view(config: Config, model: str, window_tokens: int | None, key: str | None) -> ModelView:
    """The model as the proxy would serve it, or in this window. The window that is reported is in its facts anyway."""
    settings = config.policy_for(model)
    expected = expect_scale(name_model(config, settings, model), SILENT)
    facts, upstream = Facts(expected.ratio), config.upstream_for(settings.upstream)
    if settings.context_window == "auto":
        client = UpstreamClient()
        try:
            windows = await discover(client, upstream, show_key(upstream, key))
        finally:
            await client.close()
        facts = replace(facts, window_tokens=windows.find(model))
    if window_tokens is not None:
        settings = settings.model_copy(update={"context_window": window_tokens})
    name = name_model(config, settings, model)
    return ModelView.of(config, settings, name, complete(name, facts))


def prepare(config: Config, options: Options, view: ModelView, session: Request, variant: Variant) -> Setup:
    rehearsal = rehearse(session, variant)
    window_tokens = max(view.facts.window_tokens or 0, view.policy.context_window)
    part_tokens = min(PART_TOKENS, int(window_tokens * PART_SHARE / view.policy.token_ratio))
    removed = find_removed(rehearsal.last)
    parts = split_removed(removed, options.questions, count=variant.compactor.count, part_tokens=part_tokens)
    room_tokens = window_tokens - exam.ANSWER_TOKENS - PROMPT_TOKENS
    return Setup(config, options, view, room_tokens, rehearsal, len(removed), tuple(parts))
