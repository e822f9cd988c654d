"""`trimtab doctor`: whether this configuration will work here, and what to do if it will not."""

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import click
import msgspec
import orjson
import uvloop
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab.proxy.catalogue.prices import PriceList, PriceSource, PriceTier, describe_catalogue
from trimtab.proxy.cli.doctor_checks import (
    MAIN_UPSTREAM,
    Answer,
    CheckLog,
    Finding,
    ask_upstream,
    check_address,
    check_open_files,
    check_sessions,
    check_store,
    check_workers,
)
from trimtab.proxy.cli.options import prints_table, read_key, table_option, takes_config, wrong_use
from trimtab.proxy.cli.tables import print_fitting, safe
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.policy import DEFAULT_CONTEXT_WINDOW
from trimtab.proxy.config.schema import Config, UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.http.tenancy import Tenancy, Tenant
from trimtab.proxy.models.discovery import FEW_SLOTS, Windows
from trimtab.proxy.models.hypotheses import combine
from trimtab.proxy.models.model_policy import ModelView, name_model
from trimtab.proxy.models.records import Record, Records, complete, expect_scale, list_learned, recall
from trimtab.proxy.server.reload import tell_upstreams, warn_of_recording, warn_of_unknown_variables
from trimtab.proxy.store.opening import find_key_file, open_store
from trimtab.proxy.store.store import SummaryStore
from trimtab.rules.tokens.families import HEURISTIC, SILENT, Family, Reading, find_family

MAX_LISTED = 20  # How many models are listed that only upstreams name. Chosen: a table that fits on a screen.
MAX_NAMED = 5  # how many models one finding names at most. Chosen: keeps it readable.
SPARE = ("written", "prompts above", "unit", "entry", "from", "counted by", "ratio", "mode", "cached", "upstream")
"""Columns that a narrow terminal does without, the least important first."""
STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}

LONG_COMPLETION = 32_000  # The completion that clients of long answers ask for. Source: max_tokens of Claude Code 2.1.


class ModelPrices(msgspec.Struct, frozen=True):
    """What tokens cost. entry: PROVIDER/MODEL. unit: usd (per million) or ratio. tiers: the shortest prompts first."""

    source: str
    entry: str
    unit: str
    tiers: tuple[PriceTier, ...]

    @classmethod
    def of(cls, prices: PriceList) -> "ModelPrices":
        return cls(prices.source, prices.entry, "usd" if prices.is_in_dollars else "ratio", prices.tiers)


class ModelFinding(msgspec.Struct, frozen=True):
    """How a model's requests are compacted, for the client whose key `examine` got, or for one without a key."""

    model: str
    upstream: str
    mode: str  # enforce, observe or off; with the share of sessions that is only observed
    window_tokens: int
    window_from: str  # configured, learned, discovered, store, catalogue or default
    vocabulary: str
    token_ratio: float  # the model's own tokens for one token of `vocabulary`
    ratio_from: str  # calibrated, tokenizer (of the server), exact, expected or characters
    learned: tuple[dict[str, object], ...] = ()  # what was learned about the model; first for this client, then for all
    prices: ModelPrices | None = None  # what its tokens cost


class Report(msgspec.Struct, frozen=True):
    findings: tuple[Finding, ...]
    models: tuple[ModelFinding, ...]
    unlisted: int = 0

    @property
    def will_fail(self) -> bool:
        return any(finding.level == "error" for finding in self.findings)

    def write_json(self) -> bytes:
        return orjson.dumps(msgspec.to_builtins(self))

    def print_tables(self, console: Console) -> None:
        """Print the findings and the models. What upstreams say cannot control the terminal."""
        table = Table("", "what", "found", "what to do", show_lines=True)
        for each in self.findings:
            row = (each.subject, each.found, each.advice or "")
            table.add_row(Text(each.level, style=STYLES[each.level]), *map(safe, row))
        print_fitting(console, table)
        table = Table("model", "mode", "window", "from", "counted by", "ratio", "from", "upstream", "learned")
        for one in self.models:
            window = (f"{one.window_tokens:,}", one.window_from)
            counted = (one.vocabulary, f"{one.token_ratio:g}", one.ratio_from)
            learned = "; ".join(
                ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in known.items()) for known in one.learned
            )
            table.add_row(*map(safe, (one.model, one.mode, *window, *counted, one.upstream, learned)))
        prices = make_table()
        for cells in (cells for one in self.models if one.prices for cells in list_rows(one.model, one.prices)):
            prices.add_row(*map(safe, cells))
        for filled in (table, prices):
            if filled.row_count:
                print_fitting(console, filled, SPARE)
        if self.unlisted:
            console.print(f"and {self.unlisted} more that upstreams list; report one with --model")


Answers = dict[tuple[str | None, ...], Answer]


def _identify_upstream(upstream: UpstreamConfig) -> tuple[str | None, ...]:
    """Upstreams that look alike are asked once: another key may see other models, another route may be broken."""
    files = (upstream.ca_file, upstream.client_cert_file, upstream.client_key_file)
    return (upstream.base_url, upstream.shown, upstream.api_key, upstream.proxy, *files)


def _find_windows(config: Config, model: str, answers: Answers) -> Windows:
    return answers[_identify_upstream(config.upstream_for(config.policy_for(model).upstream))].windows


async def examine(config: Config, models: Iterable[str], key: str | None) -> Report:
    """Run all checks. `models` come first; `key` is for the main upstream. Raises ConfigError for an unusable store."""
    log = CheckLog()
    store = open_store(config, lambda _: None, log)  # `log` gets the reason of a failure
    client = UpstreamClient()
    try:
        upstreams = {_identify_upstream(config.upstream): (config.upstream, key, MAIN_UPSTREAM)}
        for other_name, other in config.upstreams.items():
            upstreams.setdefault(_identify_upstream(other), (other, None, f"upstreams.{other_name}"))
        answers = await asyncio.gather(*(ask_upstream(client, *one) for one in upstreams.values()))
        heard_of = dict(zip(upstreams, answers, strict=True))
        listening = await check_address(config)
        chosen, unlisted = _choose_models(config, models, heard_of)
        compactors, counting = await asyncio.to_thread(_check_counting, config, chosen, log)
        tenant = await asyncio.to_thread(_identify, config, key)
        described = [await _describe(config, name, heard_of, (store, tenant), compactors) for name in chosen]
        fallen = await check_sessions(config)
        stored = await check_store(config, store, log)  # last: reading the models' records may fail, too
    finally:
        await store.close()
        await client.close()
    prices = [(one.model, one.prices) for one in described]
    findings = [answer.finding for answer in answers]
    findings += [listening, stored, check_workers(config), check_open_files(config), counting, check_prices(prices)]
    findings += [*_judge_windows(described), *_judge_configured(config, described, heard_of)]
    findings += [*_judge_slots(config, answers), *_judge_templates(answers), *fallen]
    tell_upstreams(config, log)
    warn_of_recording(config, log)
    warn_of_unknown_variables(log)
    findings += log.findings
    return Report(tuple(findings), tuple(described), unlisted)


def _judge_windows(models: Iterable[ModelFinding]) -> Iterator[Finding]:
    listed = tuple(models)
    unknown = [model.model for model in listed if model.window_from == "default"]
    small = [model.model for model in listed if model.window_tokens < 2 * LONG_COMPLETION]
    if unknown:
        advice = f"{DEFAULT_CONTEXT_WINDOW:,} tokens are assumed; set context_window for these models"
        yield Finding("windows", "warning", f"unknown for {_list_names(unknown)}", advice)
    if small:
        found = f"half of the window of {_list_names(small)}, if a client asks for {LONG_COMPLETION:,} tokens"
        yield Finding("reserve", "ok", found, "lower CLAUDE_CODE_MAX_OUTPUT_TOKENS, or the client's max_tokens")


def _judge_configured(config: Config, models: Iterable[ModelFinding], answers: Answers) -> Iterator[Finding]:
    found = []
    for one in models:
        told = _find_windows(config, one.model, answers).find(one.model)
        if told is not None and told < one.window_tokens and one.window_from == "configured":
            found.append(f"{one.model} ({told:,})")
    if found:
        advice = "lower context_window; llama.cpp divides --ctx-size by its slots"
        larger = f"the configured one is larger than the server's for {_list_names(found)}"
        yield Finding("windows", "warning", larger, advice)


def _judge_slots(config: Config, answers: Iterable[Answer]) -> Iterator[Finding]:
    when, slots = config.defaults.summary.when, min((one.windows.slots or inf for one in answers), default=inf)
    found = f"a server works on {'one request' if slots == 1 else 'two requests'} at a time"
    if when == "auto" and slots <= FEW_SLOTS:
        advice = "summaries are written only while no request comes, else cuts get digests; --parallel 3 changes that"
        yield Finding("slots", "warning", found, advice)
    elif when in {"background", "needed"} and slots == 1:
        advice = f"with summary.when: {when}, a turn waits for each summary; idle asks only while no request comes"
        yield Finding("slots", "warning", found, advice)


def _judge_templates(answers: Iterable[Answer]) -> Iterator[Finding]:
    readings = [answer.windows.reading for answer in answers]
    left_out = {
        "tools": any(one.drops_tools for one in readings),
        "calls of tools": any(one.drops_calls for one in readings),
    }
    if what := " and ".join(filter(left_out.get, left_out)):
        found = f"a server's chat template leaves out {what}: the model never sees them, and they are not counted"
        yield Finding("template", "warning", found, "start llama.cpp with a template or a model that supports tools")


def _list_names(names: list[str]) -> str:
    return f"{', '.join(names[:MAX_NAMED])}{' and others' if names[MAX_NAMED:] else ''}"


def _check_counting(config: Config, models: list[str], log: CheckLog) -> tuple[Compactors, Finding]:
    compactors = Compactors(log)
    used = set()
    for model in models or ("",):
        settings = config.policy_for(model)
        compactors.choose(settings, model)
        used.add(compactors.name_vocabulary(settings, model))
    programs = " and ".join(sorted(set(log.engines.values())) or ["tiktoken"])
    return compactors, Finding("counting", "ok", f"by {'characters' if used == {HEURISTIC} else programs}")


def _choose_models(config: Config, asked: Iterable[str], answers: Answers) -> tuple[list[str], int]:
    named = [entry.match for entry in config.models if not set(entry.match) & set("*?[")]
    summarisers = [model for policy in (config.defaults, *config.models) for model in policy.summary.models]
    first = dict.fromkeys([*asked, *named, *filter(None, summarisers)])
    listed = [
        name
        for upstream, answer in answers.items()
        for name in dict.fromkeys([*answer.names, *answer.windows.by_model])
        if _identify_upstream(config.upstream_for(config.policy_for(name).upstream)) == upstream and name not in first
    ]
    return [*first, *listed[:MAX_LISTED]], max(len(listed) - MAX_LISTED, 0)


def _identify(config: Config, key: str | None) -> Tenant:
    """The client with this key, or without one. What was learned from its requests is in the store under its name."""
    key_file = find_key_file(config)
    own_key = key_file.read_bytes() if key_file is not None and key_file.is_file() else b""
    return Tenancy(config.tenant, own_key).identify([("Authorization", f"Bearer {key}")] if key else [])


async def _describe(
    config: Config, model: str, answers: Answers, kept: tuple[SummaryStore, Tenant], compactors: Compactors
) -> ModelFinding:
    settings, family, (store, tenant) = config.policy_for(model), find_family(model), kept
    name = name_model(config, settings, model, tenant)
    windows = _find_windows(config, model, answers)
    told = windows.find(model)
    reading = SILENT if told is None else windows.reading
    records, ratio = Records(store), expect_scale(name, reading).ratio
    (_, own), (_, for_all) = await records.read(name), await records.read(name.of_all)
    of_all = for_all or Record(ratio)
    if own is None or own.forgotten < of_all.forgotten:  # from before the last `trimtab forget`
        own = Record(ratio)
    known = combine(recall(own), recall(of_all))
    facts = replace(known, window_tokens=told or known.window_tokens, reading=reading if told else known.reading)
    facts = await asyncio.to_thread(complete, name, facts)
    view = await asyncio.to_thread(ModelView.of, config, settings, name, facts)
    vocabulary = compactors.name_vocabulary(settings, model)
    return ModelFinding(
        model,
        name.base_url,
        config.tell_mode(settings),
        view.policy.context_window,
        "store" if view.window_from == "discovered" and told is None else view.window_from,
        vocabulary,
        known.ratio,
        "calibrated" if own.calibrated or of_all.calibrated else _name_accuracy(family, vocabulary, facts.reading),
        tuple(
            item.describe(time.time())
            for item in (*list_learned(own, for_all=False), *list_learned(of_all, for_all=True))
        ),
        ModelPrices.of(view.price_list),
    )


def _name_accuracy(family: Family, vocabulary: str, reading: Reading) -> str:
    if reading.samples:
        return "tokenizer"
    if vocabulary == HEURISTIC:
        return "characters"
    # Only OpenAI's models read tools as TypeScript, and so only they are counted exactly.
    return "exact" if family.costs.reads_typescript and vocabulary == family.vocabulary else "expected"


def make_table() -> Table:
    return Table("model", "prices from", "entry", "unit", "prompts above", "input", "cached", "written", "output")


def list_rows(model: str, prices: ModelPrices) -> list[tuple[str, ...]]:
    return [
        (
            *((model, prices.source, prices.entry, prices.unit) if tier is prices.tiers[0] else ("",) * 4),
            f"{tier.above_tokens:,}",
            *(f"{price:.4g}" for price in (tier.input, tier.cached_input, tier.cache_write, tier.output)),
        )
        for tier in prices.tiers
    ]


def check_prices(models: Iterable[tuple[str, ModelPrices | None]]) -> Finding:
    unknown = [model for model, prices in models if prices is not None and prices.source == PriceSource.DEFAULT]
    if not unknown:
        return Finding("prices", "ok", f"from {describe_catalogue()}")
    found = f"from {describe_catalogue()}; unknown for {_list_names(unknown)}"
    return Finding("prices", "warning", found, "the usual ratios are assumed; set prices for these models")


@click.command()
@click.option("--model", "models", multiple=True, metavar="NAME", help="Also report this model. Repeatable.")
@click.option(
    "--key-from-env",
    metavar="NAME",
    help="Environment variable with a key for the main upstream, if clients bring their own keys.",
)
@table_option
@takes_config
def doctor(
    *,
    models: tuple[str, ...],
    key_from_env: str | None,
    as_table: bool | None,
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Check whether the proxy will work here. For each problem, say what to do.

    It checks the upstreams, the models' context windows and prices, how tokens are counted, the listen address, the
    store, the number of processes and the limit of open files. The status is 1 if something will fail, else 0.
    """
    key = None if key_from_env is None else read_key(key_from_env, "--key-from-env")
    with wrong_use():
        report = uvloop.run(examine(load_file(config_path, settings), models, key))
    if prints_table(as_table=as_table):
        report.print_tables(Console())
    else:
        click.echo(report.write_json())
    sys.exit(1 if report.will_fail else 0)
