"""Made-up answers of the dashboard's API: some sessions of coding agents, with all that the page can show.

Law: the same in every run, except that times are counted back from `now`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
DOLLARS = (2.5e-6, 0.25e-6, 10e-6)
"""Prices of a fresh, a cached and a completion token."""
HEAD_TOKENS = 6400


@dataclass
class Session:
    """A session that grows, and is cut when it reaches high water."""

    id: str
    model: str
    client: str
    requests: int
    window_tokens: int
    end: float
    title: str = ""
    header: str = ""
    turns: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limit = self.window_tokens * 7 // 8
        room = self.limit - HEAD_TOKENS
        self.high, self.low = HEAD_TOKENS + room * 3 // 4, HEAD_TOKENS + room * 3 // 10
        self.cuts: list[dict[str, Any]] = []
        self.kind = ""
        self.prune_stop = 0
        original = sent = HEAD_TOKENS + 400
        for index in range(self.requests):
            grown = 260 + (index * 7919) % 1700 + (5200 if index % 17 == 11 else 0)
            original, sent, kept = original + grown, sent + grown * 9 // 10, sent
            moved = sent >= self.high
            if moved:
                sent = self._cut(index, sent)
                kept = HEAD_TOKENS
            self.turns.append(self._event(index, original, sent, kept if index else 0, moved=moved))

    def _cut(self, index: int, sent: int) -> int:
        """The size after a cut: pruning at first, then summaries, and a digest once."""
        messages = 2 + 2 * index
        number = len(self.cuts)
        self.prune_stop = messages - 24
        if number == 0 and not self.turns[-1]["window"]["prune_stop"]:
            return sent * 7 // 10
        self.kind = "digest" if number == 2 else "summarise"
        self.cuts.append({"kind": "summarise", "at": messages - 30, "made_at": messages})
        return self.low

    def _event(self, index: int, original: int, sent: int, kept: int, *, moved: bool) -> dict[str, Any]:
        summary = 1900 if self.cuts else 0
        current = 320 + index % 7
        completion = 180 + (index * 37) % 420
        fresh, cached, written = DOLLARS
        cost = (sent - kept) * fresh + kept * cached + completion * written
        without = original * 0.1 * fresh + original * 0.9 * cached + completion * written
        return {
            "request_id": f"{self.id[:4]}{index:04d}f00d{index * 97 % 9973:04d}",
            "at": self.end - (self.requests - index) * 19.0,
            "seconds": 2.1 + index % 5 * 1.3,
            "method": "POST",
            "path": "/v1/chat/completions",
            "status": 200,
            "outcome": "compacted" if sent != original else "unchanged",
            "session": self.id,
            "label": self.model,
            "model": self.model,
            "upstream": "api.openai.com",
            "client": self.client,
            "mode": "enforce",
            "messages": 2 + 2 * index,
            "original_tokens": original,
            "sent_tokens": sent,
            "limit_tokens": self.limit,
            "original_sections": _divide(original, 0, current),
            "sent_sections": _divide(sent, summary, current),
            "decisions": list(self._decide(original, sent)),
            "window": {
                "high_tokens": self.high,
                "low_tokens": self.low,
                "prune_stop": self.prune_stop,
                "cuts": list(self.cuts),
            },
            "prompt_tokens": sent + 14,
            "cached_tokens": kept * 97 // 100,
            "written_tokens": None,
            "completion_tokens": completion,
            "is_estimated": False,
            "prefix_kept": kept / sent,
            "cache_miss": "cut" if moved else "",
            "summary_id": "3f9a6c21d07b44e5" if summary else "",
            "summary_kind": self.kind if summary else "",
            "summary_messages": self.cuts[-1]["at"] - 2 if summary else 0,
            "summary_instead": "refused" if summary and self.kind == "digest" else "",
            "retry": "",
            "overhead_seconds": 0.0021,
            "first_token_seconds": 0.74,
            "cost_usd": cost,
            "without_usd": without,
            "error": "",
            "reason": "",
            "worker": 1,
            "cut_moved": moved,
            "cut_why": f"with about {self.high + sent % 700:,} tokens it had reached high water" if moved else "",
            "cut_tokens": sent - kept if moved else None,
            "cut_cost_usd": (sent - kept) * (fresh - cached) if moved else None,
            "story": _tell(self.cuts, original, sent),
        }

    def _decide(self, original: int, sent: int) -> Iterator[dict[str, Any]]:
        size = original
        steps = [("truncate", "4 tool results longer than 4,000 tokens", original * 97 // 100, 4, 8)]
        if self.prune_stop:
            middle = sent if not self.cuts else (original * 2 + sent) // 3
            steps.append(("prune", f"results before message {self.prune_stop}", middle, self.prune_stop // 2, 3))
        if self.cuts:
            steps.append((self.kind, f"cut before message {self.cuts[-1]['at']}", sent, 64, 2))
        else:
            steps[-1] = (*steps[-1][:2], sent, *steps[-1][3:])
        for rule, reason, after, messages, first in steps:
            yield {
                "rule": rule,
                "reason": reason,
                "attempt": 1,
                "limit_tokens": self.limit,
                "tokens_before": size,
                "tokens_after": after,
                "messages": messages,
                "first_changed": first,
            }
            size = after

    def show(self) -> dict[str, Any]:
        """The session as in the list."""
        last = self.turns[-1]
        sums = {key: sum(turn[key] or 0 for turn in self.turns) for key in ("cost_usd", "without_usd")}
        same = {key: last[key] for key in ("model", "client", "messages", "original_tokens", "sent_tokens")}
        return {
            "id": self.id,
            "title": self.title,
            "header": self.header,
            "first_at": self.turns[0]["at"],
            "last_at": last["at"],
            "requests": len(self.turns),
            "limit_tokens": self.limit,
            "cuts": len(self.cuts),
            "last_outcome": last["outcome"],
            "has_text": True,
            **same,
            **sums,
            "cost_usd": sums["cost_usd"] + 0.0312,
            "summary_usd": 0.0312,
        }


def _divide(total: int, summary: int, current: int) -> dict[str, int]:
    system, memory = 6100, 640
    recent = total - system - memory - summary - current
    return {"system": system, "summary": summary, "memory": memory, "recent": recent, "current": current}


def _tell(cuts: list[dict[str, Any]], original: int, sent: int) -> list[str]:
    if original == sent:
        return ["Nothing was changed: the prompt fits the window."]
    told = ["4 tool results of read_file and shell were shortened, because each was longer than 4,000 tokens."]
    if cuts:
        at = cuts[-1]["at"]
        told.append(
            f"Messages 3 to {at} were replaced by a summary, because the conversation had reached high water"
            f" when it had {cuts[-1]['made_at']} messages. The task statement and your last message stay word for word."
        )
    return [*told, f"{original:,} tokens became {sent:,}."]


CHANGES = [
    {
        "at": 1,
        "role": "user",
        "tool": "",
        "fate": "added",
        "rules": ["summarise"],
        "tokens_before": 0,
        "tokens_after": 1912,
        "before": "",
        "after": "## 1. Progress and decisions\nThe parser of ports is rewritten; 41 of 43 tests pass.\n",
        "lines": [],
    },
    {
        "at": 2,
        "role": "assistant",
        "tool": "",
        "fate": "removed",
        "rules": ["summarise"],
        "tokens_before": 88,
        "tokens_after": 0,
        "before": "I will look at the tests first.",
        "after": "",
        "lines": [{"kind": "removed", "text": "I will look at the tests first."}],
    },
    {
        "at": 8,
        "role": "tool",
        "tool": "read_file",
        "fate": "shortened",
        "rules": ["tidy", "truncate"],
        "tokens_before": 9120,
        "tokens_after": 3988,
        "before": "\n".join(["def parse(port):", *(f"    step_{n}()" for n in range(40)), "    return port"]),
        "after": "def parse(port):\n    step_0()\n[trimtab: omitted lines 3-41 (~5000 tokens)]\n    return port",
        "lines": [
            {"kind": "same", "text": "def parse(port):"},
            *({"kind": "same", "text": f"    before_{n}()"} for n in range(12)),
            *({"kind": "removed", "text": f"    step_{n}()"} for n in range(1, 8)),
            {
                "kind": "added",
                "text": "[trimtab: omitted lines 3-41 (~5000 tokens); call the tool again for these lines]",
            },
            {"kind": "same", "text": "    return port"},
        ],
    },
    {
        "at": 12,
        "role": "tool",
        "tool": "shell",
        "fate": "pruned",
        "rules": ["prune"],
        "tokens_before": 2140,
        "tokens_after": 21,
        "before": "FAILED tests/test_port.py::test_range - AssertionError",
        "after": "[trimtab: tool result of 2140 tokens removed; call the tool again if needed]",
        "lines": [
            {"kind": "removed", "text": "FAILED tests/test_port.py::test_range - AssertionError"},
            {"kind": "added", "text": "[trimtab: tool result of 2140 tokens removed; call the tool again if needed]"},
        ],
    },
]


def make_sessions(now: float) -> list[Session]:
    """Some sessions, the newest first."""
    return [
        Session(
            "9c1f6a7be2d04c53",
            "gpt-5.1-codex",
            "ana",
            148,
            65_536,
            now - 4,
            "Rewrite the parser of ports, and make all tests of the folder net pass",
        ),
        Session(
            "41d0c5e977ab1f20",
            "gpt-5.1-codex",
            "ben",
            61,
            65_536,
            now - 190,
            "",
            "019abc12-58f2-7c33-9d0e-2f1f6d1f0c11",
        ),
        Session("b7e3a8d95c6f0214", "claude-sonnet-4-5", "ana", 34, 131_072, now - 1400),
        Session("0f52e6b1c8d97a34", "qwen3-coder-30b", "", 12, 32_768, now - 2300),
    ]


def sum_up(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """The totals of some requests."""
    add = {
        key: sum(turn[key] or 0 for turn in turns)
        for key in ("original_tokens", "sent_tokens", "completion_tokens", "cached_tokens", "cost_usd", "without_usd")
    }
    cost = add["cost_usd"] + 0.0312
    return {
        **add,
        "requests": len(turns),
        "answered": len(turns),
        "failed": 0,
        "written_tokens": 0,
        "summary_prompt_tokens": 84_211,
        "summary_completion_tokens": 7_544,
        "cost_usd": cost,
        "summary_usd": 0.0312,
        "net_usd": add["without_usd"] - cost,
        "prefix_kept": sum(turn["prefix_kept"] for turn in turns) / max(len(turns), 1),
        "cached_share": add["cached_tokens"] / max(add["sent_tokens"], 1),
        "estimate_error": 1.0041,
        "summaries": 9,
        "summary_calls": 14,
        "summaries_reused": 111,
        "summaries_failed": 1,
        "digests": 2,
        "sessions_without_summaries": 1,
        "cuts_pruned": 64,
        "cuts_summarised": 54,
        "cuts_digested": 2,
        "recoveries": 1,
        "overflow_refusals": 1,
        "fail_opens": 0,
        "in_flight": 2,
    }


def make_timeline(now: float, turns: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
    """What the turns add up to in each of sixty steps, or in each day."""
    steps, step = (int(query["days"]), 86400) if "days" in query else (60, int(query.get("minutes", "60")))
    first = (now // step - steps + 1) * step
    buckets = []
    for at in (first + index * step for index in range(steps)):
        inside = [turn for turn in turns if at <= turn["at"] < at + step]
        sums = _add(inside)
        parts = {
            part: {
                name: _add([turn for turn in inside if turn[key] == name])
                for name in {turn[key] for turn in inside}
                if name
            }
            for part, key in (("models", "model"), ("clients", "client"))
        }
        buckets.append({"at": at, **sums, "fail_opens": 0, **parts})
    return {"step_seconds": step, "buckets": buckets}


def _add(turns: list[dict[str, Any]]) -> dict[str, Any]:
    sums = {key: sum(turn[key] for turn in turns) for key in ("original_tokens", "sent_tokens", "cached_tokens")}
    priced = [turn for turn in turns if turn["cost_usd"] is not None]
    is_known = priced or not turns
    money = {key: sum(turn[key] for turn in priced) if is_known else None for key in ("cost_usd", "without_usd")}
    saved = money["without_usd"] - money["cost_usd"] if is_known else None
    return {"requests": len(turns), **sums, **money, "saved_usd": saved}
