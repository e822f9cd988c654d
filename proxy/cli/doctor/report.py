"""What `trimtab doctor` finds: whether this configuration will work here, and what to do where it will not."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.cli.doctor.checks import (
    MAIN_UPSTREAM,
    Answer,
    Finding,
    Heard,
    ask_upstream,
    check_address,
    check_open_files,
    check_store,
    check_workers,
    find_bare_credentials,
)
from proxy.compaction.pool import HEURISTIC, Compactors
from proxy.config.policies.policy import DEFAULT_CONTEXT_WINDOW
from proxy.config.schema import Config, UpstreamConfig
from proxy.http.client import UpstreamClient
from proxy.state.models.facts import complete, list_learned, recall
from proxy.state.models.hypotheses import combine
from proxy.state.models.model_policy import ModelView, name_model
from proxy.state.models.records import ModelName, Record, Records
from proxy.state.stores import SummaryStore, find_key_file, open_store
from proxy.state.tenancy import Tenancy, Tenant
from rules.tokens.families import Family, find_family

MAX_LISTED = 20
"""Models that an upstream lists and nobody asked for."""
MAX_NAMED = 5
STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


@dataclass(frozen=True, slots=True)
class ModelFinding:
    """What a model's requests are compacted by, where its window comes from, and what of it was learned.

    Of a client that shows the key which `examine` is given, or none.
    """

    model: str
    upstream: str
    window_tokens: int
    window_from: str
    vocabulary: str
    token_ratio: float
    ratio_from: str
    learned: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found; `unlisted` models were left out."""

    findings: tuple[Finding, ...]
    models: tuple[ModelFinding, ...]
    unlisted: int = 0

    @property
    def will_fail(self) -> bool:
        """Whether something will not work."""
        return any(finding.level == "error" for finding in self.findings)

    def write_json(self) -> bytes:
        """All of it, as one line of JSON."""
        return orjson.dumps(asdict(self))

    def print_tables(self, console: Console) -> None:
        """What was found, and the models; what upstreams say is shown without what moves a terminal's cursor."""
        table = Table("", "what", "found", "what to do", show_lines=True)
        for each in self.findings:
            row = (each.subject, each.found, each.advice or "")
            table.add_row(Text(each.level, style=STYLES[each.level]), *map(_show, row))
        console.print(table)
        table = Table("model", "window", "from", "counted by", "ratio", "from", "upstream", "learned")
        for one in self.models:
            window = (f"{one.window_tokens:,}", one.window_from)
            counted = (one.vocabulary, f"{one.token_ratio:g}", one.ratio_from)
            learned = "; ".join(map(_tell, one.learned))
            table.add_row(*map(_show, (one.model, *window, *counted, one.upstream, learned)))
        if self.models:
            console.print(table)
        if self.unlisted:
            console.print(f"and {self.unlisted} more that upstreams list; name one with --model")


def _tell(learned: dict[str, object]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in learned.items())


def _show(text: str) -> Text:
    return Text("".join(char if char.isprintable() else "?" for char in text))


_Asked = tuple[str | None, ...]


def _tell_apart(upstream: UpstreamConfig) -> _Asked:
    """By its address, the key that it is shown and the way to it: each key has its own models, and may be wrong."""
    files = (upstream.ca_file, upstream.client_cert_file, upstream.client_key_file)
    return (upstream.base_url, upstream.shown, upstream.api_key, upstream.proxy, *files)


async def examine(config: Config, models: Iterable[str], key: str | None) -> Report:
    """Look at everything. Raises ConfigError for a store that cannot be.

    `models` are described first; `key` is shown to the main upstream where the configuration has none for it.
    """
    heard = Heard()
    store = open_store(config, lambda _: None, heard)  # its first failure is heard, too
    client = UpstreamClient()
    try:
        upstreams = {_tell_apart(config.upstream): (config.upstream, key, MAIN_UPSTREAM)}
        for other_name, other in config.upstreams.items():
            upstreams.setdefault(_tell_apart(other), (other, None, f"upstreams.{other_name}"))
        answers = await asyncio.gather(*(ask_upstream(client, *one) for one in upstreams.values()))
        heard_of = dict(zip(upstreams, answers, strict=True))
        listening = await check_address(config)
        chosen, unlisted = _choose_models(config, models, heard_of)
        compactors, counting = await asyncio.to_thread(_check_counting, config, chosen, heard)
        tenant = await asyncio.to_thread(_identify, config, key)
        described = [await _describe(config, name, heard_of, Kept(store, tenant), compactors) for name in chosen]
        stored = await check_store(config, store, heard)  # last: reading the models' records may fail, too
    finally:
        await store.close()
        await client.close()
    system = (check_workers(config), check_open_files(config))
    findings = [*(answer.finding for answer in answers), listening, stored, *system, counting]
    findings += [*find_bare_credentials(config), *_judge_windows(described), *heard.findings]
    return Report(tuple(findings), tuple(described), unlisted)


def _judge_windows(models: Iterable[ModelFinding]) -> list[Finding]:
    unknown = [model.model for model in models if model.window_from == "default"]
    if not unknown:
        return []
    found = f"not known of {', '.join(unknown[:MAX_NAMED])}{' and others' if unknown[MAX_NAMED:] else ''}"
    advice = f"{DEFAULT_CONTEXT_WINDOW:,} tokens are taken; say context_window for them"
    return [Finding("windows", "warning", found, advice)]


def _check_counting(config: Config, models: list[str], heard: Heard) -> tuple[Compactors, Finding]:
    """What counts for these models, and which program does; that a vocabulary is missing is heard."""
    compactors = Compactors(heard)
    used = set()
    for model in models or ("",):
        settings = config.policy_for(model)
        compactors.choose(settings, model)
        used.add(compactors.name_vocabulary(settings, model))
    programs = " and ".join(sorted(set(heard.engines.values())) or ["tiktoken"])
    return compactors, Finding("counting", "ok", f"by {'characters' if used == {HEURISTIC} else programs}")


def _choose_models(config: Config, asked: Iterable[str], answers: dict[_Asked, Answer]) -> tuple[list[str], int]:
    """Those asked for, those that the configuration names, and some of those that the upstreams list; and the rest."""
    named = [entry.match for entry in config.models if not set(entry.match) & set("*?[")]
    summarisers = [policy.summary.model for policy in (config.defaults, *config.models)]
    first = dict.fromkeys([*asked, *named, *filter(None, summarisers)])
    listed = [
        name
        for upstream, answer in answers.items()
        for name in dict.fromkeys([*answer.names, *answer.windows.by_model])
        if _tell_apart(config.upstream_for(config.policy_for(name).upstream)) == upstream and name not in first
    ]
    return [*first, *listed[:MAX_LISTED]], max(len(listed) - MAX_LISTED, 0)


def _identify(config: Config, key: str | None) -> Tenant:
    """The client that shows this key, or none: what it has met is in the store under its name."""
    key_file = find_key_file(config)
    own_key = key_file.read_bytes() if key_file is not None and key_file.is_file() else b""
    headers = [("Authorization", f"Bearer {key}")] if key else []
    return Tenancy(config.tenant, own_key).identify(headers)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of models for all, and for one client."""

    store: SummaryStore
    tenant: Tenant

    async def read(self, name: ModelName, ratio: float) -> tuple[Record, Record]:
        """The records of a model, of the client and of all; `ratio` is its family's."""
        records = Records(self.store)
        (_, own), (_, of_all) = await records.read(name), await records.read(name.of_all)
        of_all = of_all or Record(ratio)
        return own if own is not None and own.forgotten >= of_all.forgotten else Record(ratio), of_all


async def _describe(
    config: Config, model: str, answers: dict[_Asked, Answer], kept: Kept, compactors: Compactors
) -> ModelFinding:
    settings, family = config.policy_for(model), find_family(model)
    name = name_model(config, settings, model, kept.tenant)
    own, of_all = await kept.read(name, family.ratio)
    known = combine(recall(own), recall(of_all))
    told = answers[_tell_apart(config.upstream_for(settings.upstream))].windows.find(model)
    facts = await asyncio.to_thread(complete, name, replace(known, window_tokens=told or known.window_tokens))
    view = ModelView.of(config, settings, name, facts)
    vocabulary = compactors.name_vocabulary(settings, model)
    return ModelFinding(
        model,
        name.base_url,
        view.policy.context_window,
        "store" if view.window_from == "discovered" and told is None else view.window_from,
        vocabulary,
        known.ratio,
        "calibrated" if own.calibrated or of_all.calibrated else _name_accuracy(family, vocabulary),
        tuple(
            item.describe(time.time())
            for item in (*list_learned(own, for_all=False), *list_learned(of_all, for_all=True))
        ),
    )


def _name_accuracy(family: Family, vocabulary: str) -> str:
    """How good counts are before an upstream has reported any."""
    if vocabulary == HEURISTIC:
        return "characters"
    # OpenAI's alone read tools as TypeScript.
    return "exact" if family.costs.reads_typescript and vocabulary == family.vocabulary else "expected"
