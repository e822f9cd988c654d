"""What is wrong now, in sentences: each alarm says what happens, how often, and what to do about it.

Law: an alarm is found from the newest requests and the metrics alone, so every place that tells it tells the same. It
quotes nothing that a client or an upstream has written, but a model's name.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from trimtab.proxy.account.history.table import Query, list_requests, name_mark
from trimtab.proxy.account.outcome import HEAD_REMEDY, Outcome, read_head
from trimtab.proxy.telemetry.savings import Samples, count
from trimtab.proxy.wire.answering import PROMPT_TOO_LONG

NEWEST = 200  # Requests looked at. Chosen: some minutes of a team, hours of a person; read within milliseconds.
RECENT_SECONDS = 3600.0  # Older requests say nothing of now. Chosen: a person has mended it by then, or has gone.
MIN_SHARE = 0.05  # Share of requests from which failures are an alarm. Chosen: a refusal a day is none.
MOST_KINDS = 3  # Kinds of failures that are told. Chosen: the first one is often the reason of the others.
MIN_CUT = 8  # Requests with a cut from which thrash is spoken of. Chosen: a session may begin with two or three moves.
THRASH_SHARE = 0.5  # Chosen: a cut that moves in every second request never pays
SUMMARY_SHARE = 0.25
"""Share of calls for summaries without a summary. Chosen: a second try is usual, and each of them may need one."""

_KEY = "the upstream does not accept the key; look at the client's key, or at upstream.api_key"
_OUT = "is the upstream running, and upstream.base_url right?"
_STATUSES: Mapping[int, str] = {
    0: "the upstream breaks its answers off; look at its log, and at proxies between",
    400: "the upstream does not take these requests; its answer, which passes unchanged, says why",
    401: _KEY,
    403: _KEY,
    404: "the upstream does not know the model or the path; look at the client's model, and at upstream.base_url",
    413: "the upstream takes no body of this size",
    429: "the upstream limits the rate, or the account is out of money; its answer says which",
}
"""What to do about answers of an upstream; 0 for those that broke off."""
_CODES: Mapping[str, str] = {
    PROMPT_TOO_LONG: "nothing makes them fit; the answer and the request's page say what fills the prompt: raise"
    " context_window, send fewer tools (drop_tools), or set on_exceeded: forward",
    "upstream_unreachable": _OUT,
    "upstream_timeout": _OUT,
    "upstream_invalid": "something else than a model's API answers at upstream.base_url",
    "invalid_api_key": "these clients send none of client_keys",
    "client_limit_reached": "the client has more requests in flight than its own limit allows",
    "overloaded": "there is more work than limits allows; raise them, or start more workers",
}
"""What to do about refusals of trimtab's own."""
_SUMMARIES: Mapping[str, str] = {
    "rejected": "the model writes no note that is worth keeping; name a better one in summary.model",
    "empty": "the model writes no text; name another one in summary.model, or lower its reasoning",
    "refused": "the upstream refuses the call; look at summary.model and at the status in the log's event summary",
    "busy": "the upstream has no time; name a second model in summary.model",
    "timed_out": "the model takes too long; raise summary.timeout_seconds, or name a faster one in summary.model",
    "failed": "the answers cannot be read; look at summary.upstream and at the log's event summary",
}


class Alarm(NamedTuple):
    """What is wrong, and the remedy. kind: in a word, for the page."""

    kind: str
    reason: str
    remedy: str

    def describe(self) -> str:
        return f"{self.reason}: {self.remedy}"


def read_recent(connection: sqlite3.Connection, since: float) -> list[Outcome]:
    """The newest requests after a time, oldest first."""
    listed, _ = list_requests(connection, Query(NEWEST)) or ([], False)
    return [turn.event for turn in reversed(listed) if turn.event.at >= since]


def find_alarms(recent: Sequence[Outcome], samples: Samples) -> list[Alarm]:
    """What is wrong, the worst first. recent: the newest requests, oldest first."""
    return [*_find_failures(recent), *_find_summaries(samples), *_find_thrash(recent), *_find_heads(recent)]


def _find_failures(recent: Sequence[Outcome]) -> Iterator[Alarm]:
    failed = [one for one in recent if one.has_failed]
    if not failed or len(failed) < MIN_SHARE * len(recent):
        return
    kinds = Counter((one.error, 0 if one.outcome == "broken" else one.status) for one in failed)
    for (code, status), number in kinds.most_common(MOST_KINDS):
        share = f"{number:,} of the newest {count(len(recent), 'request')}"
        if code:
            yield Alarm("refused", f"{share} got the error {code}", _CODES.get(code, "the answer says why"))
        else:
            how = f"failed with status {status}" if status else "broke off"
            yield Alarm("upstream", f"{share} {how}", _STATUSES.get(status, "the upstream is out of order"))


def _find_summaries(samples: Samples) -> Iterator[Alarm]:
    name = "summary_seconds_count"
    bad = Counter({result: samples.count(name, result=result) for result in _SUMMARIES})
    calls = samples.count(name)
    if bad.total() and bad.total() >= SUMMARY_SHARE * calls:
        told = ", ".join(f"{result} {number:,}" for result, number in bad.most_common() if number)
        reason = f"{bad.total():,} of {count(calls, 'call')} for summaries gave none ({told})"
        yield Alarm("summaries", reason, _SUMMARIES[bad.most_common(1)[0][0]])


def _find_thrash(recent: Sequence[Outcome]) -> Iterator[Alarm]:
    """The first mark of a session may be older than these requests, so it is no move."""
    seen: dict[str, set[str]] = {}
    cut = moved = 0
    for one in recent:
        mark = name_mark(one)
        if mark and one.session:
            known = seen.setdefault(one.session, {mark})
            cut += 1
            moved += mark not in known
            known.add(mark)
    if cut >= MIN_CUT and moved >= THRASH_SHARE * cut:
        reason = f"The cut moved in {moved:,} of the newest {count(cut, 'request')} with a cut, so no cache helps"
        remedy = "give the conversation room: raise context_window, lower completion_reserve, or set a lower low_water"
        yield Alarm("thrash", reason, remedy)


def _find_heads(recent: Sequence[Outcome]) -> Iterator[Alarm]:
    newest = {one.model: one for one in recent if one.original_sections and one.limit_tokens}
    for model, one in newest.items():
        if share := read_head(one.original_sections, one.limit_tokens):
            yield Alarm("head", f"Instructions and tools fill {share:.0%} of the limit of {model}", HEAD_REMEDY)
