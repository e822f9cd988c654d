"""What `trimtab doctor` finds: whether this configuration will work here, and what to do where it will not."""

import asyncio
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
    find_bare_credentials,
)
from proxy.compaction.pool import HEURISTIC, Compactors
from proxy.config.schema import DEFAULT_CONTEXT_WINDOW, Config, UpstreamConfig
from proxy.http.client import UpstreamClient
from proxy.state.models.facts import complete, recall
from proxy.state.models.model_policy import ModelView, name_model
from proxy.state.models.records import Record, Records
from proxy.state.stores import SummaryStore, open_store
from rules.tokens.families import Family, find_family

MAX_LISTED = 20
"""Models that an upstream lists and nobody asked for."""
MAX_NAMED = 5
STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


@dataclass(frozen=True, slots=True)
class ModelFinding:
    """What a model's requests are compacted by, and where its window comes from."""

    model: str
    upstream: str
    window_tokens: int
    window_from: str
    vocabulary: str
    token_ratio: float
    ratio_from: str


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
        table = Table("model", "window", "from", "counted by", "ratio", "from", "upstream")
        for one in self.models:
            window = (f"{one.window_tokens:,}", one.window_from)
            counted = (one.vocabulary, f"{one.token_ratio:g}", one.ratio_from)
            table.add_row(*map(_show, (one.model, *window, *counted, one.upstream)))
        if self.models:
            console.print(table)
        if self.unlisted:
            console.print(f"and {self.unlisted} more that upstreams list; name one with --model")


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
    failures: list[str] = []
    store = open_store(config, failures.append, heard)
    client = UpstreamClient()
    try:
        upstreams = {_tell_apart(config.upstream): (config.upstream, key, MAIN_UPSTREAM)}
        for other_name, other in config.upstreams.items():
            upstreams.setdefault(_tell_apart(other), (other, None, f"upstreams.{other_name}"))
        answers = await asyncio.gather(*(ask_upstream(client, *one) for one in upstreams.values()))
        heard_of = dict(zip(upstreams, answers, strict=True))
        listening = await check_address(config)
        stored = await check_store(config, store, failures)
        chosen, unlisted = _choose_models(config, models, heard_of)
        compactors, counting = await asyncio.to_thread(_check_counting, config, chosen, heard)
        described = [await _describe(config, name, heard_of, store, compactors) for name in chosen]
    finally:
        await store.close()
        await client.close()
    findings = [*(answer.finding for answer in answers), listening, stored, check_open_files(config), counting]
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


async def _describe(
    config: Config, model: str, answers: dict[_Asked, Answer], store: SummaryStore, compactors: Compactors
) -> ModelFinding:
    settings, family = config.policy_for(model), find_family(model)
    name = name_model(config, settings, model)
    _, record = await Records(store).read(name)
    kept = record or Record(family.ratio)
    told = answers[_tell_apart(config.upstream_for(settings.upstream))].windows.find(model)
    facts = await asyncio.to_thread(complete, name, replace(recall(kept), window_tokens=told or kept.window_tokens))
    view = ModelView.of(config, settings, name, facts)
    vocabulary = compactors.name_vocabulary(settings, model)
    return ModelFinding(
        model,
        name.base_url,
        view.policy.context_window,
        "store" if view.window_from == "discovered" and told is None else view.window_from,
        vocabulary,
        kept.ratio,
        "calibrated" if kept.calibrated else _name_accuracy(family, vocabulary),
    )


def _name_accuracy(family: Family, vocabulary: str) -> str:
    """How good counts are before an upstream has reported any."""
    if vocabulary == HEURISTIC:
        return "characters"
    # OpenAI's alone read tools as TypeScript.
    return "exact" if family.costs.reads_typescript and vocabulary == family.vocabulary else "expected"
