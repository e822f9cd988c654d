"""The JSON of requests, sessions, minutes, texts and totals, and of the curve.

Law: figures and names that may be logged, and texts that are kept. Money is in US dollars. Bounded time. Every total is
a sum over series of the metrics page, or the mean of one of its histograms. The curve, what the economies and a few
thresholds would have cost and kept, is computed by another process (`trimtab replay --curve`), one at a time, from the
newest recordings, within a time, and only if somebody asks.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from difflib import SequenceMatcher
from tempfile import TemporaryFile
from typing import Any

import msgspec
import orjson

from trimtab.proxy.account.books import DAY_SECONDS, NO_CLIENT, Place, Sums
from trimtab.proxy.account.history.sessions import Session
from trimtab.proxy.account.history.table import FIGURES, STEP_SECONDS, Turn
from trimtab.proxy.account.history.texts import unpack_text
from trimtab.proxy.account.outcome import Outcome, keep
from trimtab.proxy.catalogue.prices import to_dollars
from trimtab.proxy.config.schema import Config
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.telemetry.ledger import COLD_CACHE, COMPACT_NOW, TOO_SHORT
from trimtab.proxy.telemetry.savings import Samples
from trimtab.rules.pipeline.story import tell_decision
from trimtab.rules.tokens.sections import Sections

Json = dict[str, Any]
Line = dict[str, str]
StepSums = tuple[int, str, str, list[int]]
"""The time of a step, `models`, `clients` or nothing for all, the name of one, and its FIGURES."""
MAX_PAIRS = 50_000  # Pairs of equal lines that are compared. Chosen: some tenths of a second in the worst case.
NEAR_HIGH = 0.9  # Of high water, which then counts as reached. Chosen: estimates lack what was shortened.
MAX_BUCKETS = 120  # buckets of a timeline. Chosen: as many as a picture can show.


def shape_request(turn: Turn) -> Json:
    """A request. Without kept sentences, its story is written from its decisions."""
    event = turn.event
    shaped = shape_event(event)
    shaped["cut_moved"], shaped["cut_tokens"] = turn.cut_moved, turn.cut_tokens
    shaped["cut_cost_usd"] = to_dollars(turn.cut_cost)
    shaped["worker"] = turn.worker
    why = shaped["cut_why"] = tell_why(event, turn.cut_from_tokens) if turn.cut_moved else ""
    brief = [*([f"The cut moved: {why}."] if why else []), *tell_briefly(event)]
    shaped["story"] = brief if turn.sentences is None else list(turn.sentences)
    return shaped


def tell_why(event: Outcome, uncut_tokens: int | None) -> str:
    """Why the cut has moved at a request, in words. `uncut_tokens`: about what would have been forwarded else."""
    rules = {one.rule: one.reason for one in event.decisions}
    if (asked := rules.get(COMPACT_NOW)) is not None and asked != TOO_SHORT:
        return "somebody asked for it"
    if (cold := rules.get(COLD_CACHE)) is not None:
        return f"{cold}, so a cut broke no cache"
    if event.retry:
        return "the upstream refused the prompt as too long"
    size, high = uncut_tokens or 0, 0 if event.window is None else event.window.high_tokens
    if size > event.limit_tokens:
        return f"about {size:,} tokens did not fit the limit of {event.limit_tokens:,}"
    if size >= high * NEAR_HIGH:
        return f"with about {size:,} tokens it had reached high water ({high:,}), and a cut paid"
    return "a limit of the configuration was reached" if size else ""


def shape_event(event: Outcome) -> Json:
    """The figures of a request, with sections by name and money in dollars; no section if it was not counted."""
    shaped = keep(event)
    for name in ("original_sections", "sent_sections"):
        shaped[name] = dict(zip(Sections._fields, shaped[name], strict=False))
    return shaped | {"cost_usd": to_dollars(shaped.pop("cost")), "without_usd": to_dollars(shaped.pop("without_cost"))}


def tell_briefly(event: Outcome) -> list[str]:
    again = "In the second attempt: "
    return [f"{again if one.attempt > 1 else ''}{tell_decision(one)}" for one in event.decisions]


_OF_LAST = ("model", "client", "messages", "original_tokens", "sent_tokens", "limit_tokens")  # of the newest request


def shape_session(session: Session) -> Json:
    """A session. `cost_usd` includes its summaries, if the price of a request is known."""
    last, cost = session.last, session.cost
    has_summaries = cost is not None or session.summary_cost
    return {
        "id": session.name,
        "title": session.title,
        "header": session.header,
        "first_at": session.first_at,
        "last_at": last.at,
        "requests": session.requests,
        **{name: getattr(last, name) for name in _OF_LAST},
        "saved_tokens": session.saved_tokens,
        "cost_usd": None if cost is None else to_dollars(cost + session.summary_cost),
        "without_usd": to_dollars(session.without_cost),
        "summary_usd": to_dollars(session.summary_cost) if has_summaries else None,
        "last_outcome": last.outcome,
        "digest_instead": last.summary_instead,
        "has_text": bool(session.has_text),
        "cuts": session.cuts,
    }


def choose_step(minutes: int) -> int:
    return STEP_SECONDS * max(1, -(-minutes // MAX_BUCKETS))


def shape_timeline(sums: Iterable[StepSums], start: int, stop: int, step_seconds: int) -> Json:
    nothing = dict.fromkeys(FIGURES, 0)
    buckets = {
        at: {"at": float(at), **_show_money(nothing), **dict[str, Any](models={}, clients={})}
        for at in range(start, stop, step_seconds)
    }
    for at, kind, name, figures in sums:
        shown = _show_money(dict(zip(FIGURES, figures, strict=True)))
        if not kind:
            buckets[at].update(shown)
        else:
            del shown["cached_tokens"], shown["fail_opens"]
            buckets[at][kind][name] = shown
    return {"step_seconds": step_seconds, "buckets": list(buckets.values())}


def shape_days(rows: Iterable[tuple[Place, Sums]], first_day: str, last_day: str) -> Json:
    """The timeline of some days in UTC, as the books have them. They know no requests that failed."""
    kept: dict[tuple[int, str, str], Sums] = {}
    for (day, model, client), sums in rows:
        for kind, name in (("", ""), ("models", model), ("clients", client)):
            if name != NO_CLIENT:
                place = _find_start(day), kind, name
                kept[place] = kept.get(place, Sums()) + sums
    steps = []
    for place, sums in kept.items():
        priced = sums.requests - sums.unpriced_requests + sums.summaries - sums.unpriced_summaries
        figures = [sums.requests, sums.original_tokens, sums.sent_tokens, sums.cached_tokens, 0, 0, priced]
        steps.append((*place, [*figures, sums.cost_nanodollars, sums.without_nanodollars]))
    return shape_timeline(steps, _find_start(first_day), _find_start(last_day) + DAY_SECONDS, DAY_SECONDS)


def _find_start(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_SECONDS


def _show_money(figures: Json) -> Json:
    """The figures with money in dollars. It is not known if there were requests, and none of them has a known price."""
    shown = dict(figures)
    priced, cost, without = (shown.pop(name) for name in ("priced", "cost", "without_cost"))
    is_known = priced or not figures["requests"]
    amounts = {"cost_usd": cost, "without_usd": without, "saved_usd": without - cost}
    return shown | {name: to_dollars(amount) if is_known else None for name, amount in amounts.items()}


def shape_text(pack: bytes) -> Json:
    text = unpack_text(pack)
    # The changes are written at once: a dictionary for each line of all texts would be freed on the event loop.
    changes = [
        orjson.Fragment(orjson.dumps(one.describe(with_texts=True) | {"lines": diff_lines(one.before, one.after)}))
        for one in text.changes
    ]
    return {"sentences": text.sentences, "changes": changes, "summary": text.summary}


def diff_lines(before: str, after: str) -> list[Line]:
    """The lines of both texts: same, removed or added. What would take long is shown as removed and added."""
    old, new = before.splitlines(), after.splitlines()
    counts = Counter(new)
    if not old or not new or sum(counts[line] for line in old) > MAX_PAIRS:
        return [*_mark("removed", old), *_mark("added", new)]
    lines: list[Line] = []
    for kind, old_start, old_stop, new_start, new_stop in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            lines += _mark("same", old[old_start:old_stop])
        else:
            lines += _mark("removed", old[old_start:old_stop])
            lines += _mark("added", new[new_start:new_stop])
    return lines


def _mark(kind: str, lines: list[str]) -> Iterator[Line]:
    return ({"kind": kind, "text": line} for line in lines)


_NOT_BY_MODEL = ("fail_opens", "in_flight")
SUMMARIES: Mapping[str, tuple[str, ...]] = {
    "summaries": ("made", "prefetched"),
    "summaries_reused": ("hit", "joined"),
    "digests": ("digest",),
}
"""The results that each number of summaries adds up. Source: docs/reference/metrics.md."""
CUTS = {"cuts_pruned": "prune", "cuts_summarised": "summarise", "cuts_digested": "digest"}
"""The kind of each number of cuts. A request may have cuts of two kinds, so no sum of them counts requests."""


def read_totals(samples: Samples) -> Json:
    whole = _read(samples)
    return whole | {"fail_opens": samples.count("fail_open_total"), "in_flight": samples.count("requests_in_flight")}


def read_models(samples: Samples) -> list[Json]:
    """The totals of each model, most requests first. Faults and requests in flight have no model: they are None."""
    names = samples.list_values("requests_total", "model")
    models = [{"name": name} | _read(samples, model=name) | dict.fromkeys(_NOT_BY_MODEL) for name in names]
    return sorted(models, key=lambda one: -one["requests"])


def read_clients(samples: Samples) -> list[Json]:
    clients = []
    for name in samples.list_values("client_requests_total", "client"):
        clients.append({"name": name, "requests": samples.count("client_requests_total", client=name)})
        for stage in ("original", "sent", "completion"):
            clients[-1][f"{stage}_tokens"] = samples.count("client_tokens_total", client=name, stage=stage)
    return sorted(clients, key=lambda one: -one["requests"])


def _read(samples: Samples, **of: str) -> Json:
    count = samples.count
    calls = count("summary_seconds_count", **of)
    cached_tokens, reported = count("cached_prompt_tokens_total", **of), count("cache_reported_tokens_total", **of)
    return {
        "requests": count("requests_total", **of),
        "failed": samples.count_failed(**of),
        "answered": count("answered_requests_total", **of),
        "original_tokens": count("prompt_tokens_total", stage="original", **of),
        "sent_tokens": count("prompt_tokens_total", stage="sent", **of),
        "saved_tokens": count("tokens_saved_total", **of),
        "added_tokens": count("tokens_added_total", **of),
        "completion_tokens": count("completion_tokens_total", **of),
        "cached_tokens": cached_tokens,
        "written_tokens": count("cache_write_tokens_total", **of),
        "summary_prompt_tokens": count("summary_tokens_total", kind="prompt", **of),
        "summary_completion_tokens": count("summary_tokens_total", kind="completion", **of),
        "summary_calls": calls,
        "summaries_failed": calls - count("summary_seconds_count", result="written", **of),
        **_read_money(samples, **of),
        "prefix_kept": samples.mean("prefix_kept_ratio", **of),
        "cached_share": cached_tokens / reported if reported else None,
        "estimate_error": samples.mean("estimate_error_ratio", **of),
        # Only summaries that were written count as such.
        **{
            name: sum(count("summaries_total", result=one, **of) for one in results)
            for name, results in SUMMARIES.items()
        },
        "sessions_without_summaries": count("sessions_without_summaries_total", **of),
        **{name: count("cuts_total", kind=kind, **of) for name, kind in CUTS.items()},
        "recoveries": count("overflow_retries_total", result="recovered", **of),
        "overflow_refusals": count("overflow_retries_total", **of),
    }


def _read_money(samples: Samples, **of: str) -> Json:
    summary, cost = samples.sum("cost_usd_total", part="summary", **of), samples.sum("cost_usd_total", **of)
    without = samples.sum("cost_without_usd_total", **of)
    if not cost and not without:
        return dict.fromkeys(("cost_usd", "without_usd", "summary_usd", "net_usd"))
    return {"cost_usd": cost, "without_usd": without, "summary_usd": summary, "net_usd": without - cost}


NEWEST = 500  # recordings that are replayed. Chosen: several long sessions, in less than a minute.
MOST_SECONDS = 180.0  # chosen: with seven settings, 500 long requests take half of it on a busy machine
KEPT_SECONDS = 900.0  # chosen: it changes slowly, and costs a minute of one core
NICENESS = 10  # chosen: requests go first
_HIDDEN = {"upstream": True, "prices": True, "summary": {"upstream", "model"}}
"""Keys of a policy that name other parts of a configuration. They decide nothing here: prices are as recorded."""


class Curve(msgspec.Struct):
    _answer: dict[str, Any] = msgspec.field(default_factory=dict)
    _made_at: float = 0.0
    _task: asyncio.Task[None] | None = None

    def show(self, config: Config, background: Tasks) -> dict[str, Any]:
        """What is known; begins to compute what is not, or too old. `state`: off, running, ready or failed."""
        if config.record is None:
            return {"state": "off"}
        if self._task is not None and not self._task.done():
            return {"state": "running"}
        if not self._answer or time.monotonic() - self._made_at > KEPT_SECONDS:
            self._answer = {}
            self._task = background.start(self._compute(config, str(config.record.dir)))
            return {"state": "running"}
        return self._answer

    async def _compute(self, config: Config, folder: str) -> None:
        try:
            async with asyncio.timeout(MOST_SECONDS):
                found = await _replay(config, folder)
        except (TimeoutError, OSError, orjson.JSONDecodeError):
            found = {}
        self._made_at = time.monotonic()
        is_ready = "curve" in found
        self._answer = {
            "state": "ready" if is_ready else "failed",
            "at": time.time(),
            "requests": found["input"]["requests"] if is_ready else 0,
            "points": found["curve"] if is_ready else [],
            "notes": found["notes"] if is_ready else [],
        }


async def _replay(config: Config, folder: str) -> dict[str, Any]:
    """The report of the other process; without a curve if it has failed."""
    arguments = ("replay", folder, "--curve", "--json", "--newest", str(NEWEST), "--config", "/dev/stdin")
    # A file, because an event loop may connect a process by sockets, which cannot be opened by a path.
    with TemporaryFile() as policies:
        defaults, *models = (
            one.model_dump(mode="json", exclude_unset=True, exclude=_HIDDEN)  # type: ignore[arg-type]
            for one in (config.defaults, *config.models)
        )
        policies.write(orjson.dumps({"defaults": defaults, "models": models}))
        policies.seek(0)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "trimtab",
            *arguments,
            stdin=policies,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    try:
        os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        written, _ = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    found: dict[str, Any] = orjson.loads(written) if process.returncode == 0 else {}
    return found
