"""Measures what tidying tool results saves in recorded sessions, and what deduplication adds. Nothing is truncated.

Law: every result of a session counts once, in its form in the session's last request.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.figures import print_table
from bench.harness.counting import Codec, read_body
from bench.material.workload import RECORDED, Session, load_sessions
from bench.retention.shorteners import (
    DEFAULT_BUDGET_TOKENS,
    dedupe_ours,
    is_reading,
    list_switches,
    load_counter,
    tidy_worthwhile,
)
from trimtab.rules.conversation import Conversation, Role, ToolCall
from trimtab.rules.policy import Tidying

GOAL_SHARE = 0.08


@dataclass(frozen=True, slots=True)
class Saved:
    """Tokens of the results' texts: unchanged, tidied, and deduplicated after that; and the number of results."""

    results: int
    tokens: int
    tidied_tokens: int
    deduped_tokens: int

    def __add__(self, other: "Saved") -> "Saved":
        return Saved(
            self.results + other.results,
            self.tokens + other.tokens,
            self.tidied_tokens + other.tidied_tokens,
            self.deduped_tokens + other.deduped_tokens,
        )

    @property
    def tidied_share(self) -> float:
        """The share of the unchanged tokens that tidying removes."""
        return 1 - self.tidied_tokens / self.tokens if self.tokens else 0.0

    @property
    def deduped_share(self) -> float:
        """The share that both remove."""
        return 1 - self.deduped_tokens / self.tokens if self.tokens else 0.0


NOTHING = Saved(0, 0, 0, 0)


def show_savings() -> None:
    """Print the savings by file, and by the part that is switched off."""
    switches = list_switches()
    transcripts = _load_transcripts()
    by_switch = {name: _measure_files(transcripts, tidying) for name, tidying in switches.items()}
    whole = by_switch[""]
    total = sum(whole.values(), NOTHING)
    print_table(
        "Savings: tokens of tool results in recorded sessions, nothing truncated",
        ("sessions", "results", "tokens", "saved by tidying", "and deduplication"),
        [_describe(name, saved) for name, saved in (*whole.items(), ("all", total))],
    )
    rows = _describe_switches(by_switch, total)
    print_table("What each part of tidying saves", ("switched off", "saved by tidying", "its part"), rows)
    verdict = "met" if total.deduped_share >= GOAL_SHARE else "MISSED"
    print(f"\ntidying and deduplication save {total.deduped_share:.1%}, goal {GOAL_SHARE:.0%}: {verdict}", flush=True)


def _load_transcripts() -> Mapping[str, list[Conversation]]:
    files = sorted(RECORDED.glob("*.jsonl"))
    if not files:
        return {"made up": list(map(_decode, load_sessions([])))}
    return {file.stem: list(map(_decode, load_sessions([file]))) for file in files}


def _decode(session: Session) -> Conversation:
    return Codec(load_counter()).decode(read_body(session.body(len(session.messages))))


def _measure_files(transcripts: Mapping[str, Sequence[Conversation]], tidying: Tidying) -> dict[str, Saved]:
    return {
        name: sum((_measure(conversation, tidying) for conversation in conversations), NOTHING)
        for name, conversations in transcripts.items()
    }


def _measure(conversation: Conversation, tidying: Tidying) -> Saved:
    tidied = _tidy(conversation, tidying)
    deduped = dedupe_ours(tidied, load_counter())
    sizes = [_count_results(each) for each in (conversation, tidied, deduped)]
    results = sum(message.role is Role.TOOL for message in conversation.messages)
    return Saved(results, *sizes)


def _tidy(conversation: Conversation, tidying: Tidying) -> Conversation:
    """Tidy each result, with the call that it answers."""
    count = load_counter()
    calls: dict[str, ToolCall] = {}
    messages = []
    for message in conversation.messages:
        calls.update((call.id, call) for call in message.tool_calls)
        if message.role is not Role.TOOL:
            messages.append(message)
            continue
        is_file = is_reading(calls.get(message.answers or ""))
        texts = tuple(
            tidy_worthwhile(text, DEFAULT_BUDGET_TOKENS, count, is_file=is_file, tidying=tidying)
            for text in message.texts
        )
        saved = sum(map(count, message.texts)) - sum(map(count, texts))
        short = replace(message, texts=texts, tokens=message.tokens - saved, edited=True)
        messages.append(short if saved > 0 else message)
    return replace(conversation, messages=tuple(messages))


def _count_results(conversation: Conversation) -> int:
    count = load_counter()
    results = (message for message in conversation.messages if message.role is Role.TOOL)
    return sum(count(text) for message in results for text in message.texts)


def _describe(name: str, saved: Saved) -> list[str]:
    shares = (f"{saved.tidied_share:.1%}", f"{saved.deduped_share:.1%}")
    return [name, f"{saved.results:,}", f"{saved.tokens:,}", *shares]


def _describe_switches(by_switch: Mapping[str, Mapping[str, Saved]], total: Saved) -> Iterator[list[str]]:
    yield ["nothing", f"{total.tidied_share:.2%}", ""]
    for name, files in by_switch.items():
        if name:
            share = sum(files.values(), NOTHING).tidied_share
            yield [name, f"{share:.2%}", f"{total.tidied_share - share:.2%}"]
