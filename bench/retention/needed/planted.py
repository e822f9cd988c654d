"""Plants facts and looks for them after the cuts: in recorded sessions, and in a long chat.

    python -m bench.retention.needed --planted

Law: a fact is found if its exact value is in the forwarded body. A depth is a share of what the first cut removes, so
that each fact goes through every cut that follows.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from bench.material.workload import Session
from bench.retention.needed.cases import RULES, TRIMTAB, Case, Sent, run_case
from bench.retention.needed.facts import Fact, make_facts, write_answer, write_question
from bench.sessions.ledger import SessionLedger
from bench.sessions.report import Window

DEPTHS = tuple(range(10, 100, 10))
"""Per cent of the messages between the head and the first cut."""
MOST_CUTS = 5
SEED = 16
MENTION_EVERY = 2
"""One of this many assistant messages names the shared topics, so that each tail has such a message. Measured at
16,000: with two, 225 of 225 tails had one; with four, 207."""
CHAT_TURNS = 150
CHAT_WINDOW = Window(8000, 1000)
CHATS = 3


@dataclass(frozen=True, slots=True)
class Planted:
    """A fact, its message and its depth. `is_shared`: the tail mentions its topic."""

    fact: Fact
    at: int
    depth: int
    is_shared: bool


@dataclass(slots=True)
class Survival:
    """How many facts were planted and found, by (is shared, depth, cuts). After zero cuts all should be found."""

    planted: Counter[tuple[bool, int, int]] = field(default_factory=Counter)
    found: Counter[tuple[bool, int, int]] = field(default_factory=Counter)

    def add(self, other: "Survival") -> None:
        """Add the counts of another."""
        self.planted += other.planted
        self.found += other.found

    def share(self, *, is_shared: bool, depth: int | None = None, cuts: int | None = None) -> float | None:
        """Found divided by planted; None if none were planted."""
        keys = [
            key for key in self.planted if key[0] is is_shared and depth in {None, key[1]} and cuts in {None, key[2]}
        ]
        planted = sum(self.planted[key] for key in keys)
        return sum(self.found[key] for key in keys) / planted if planted else None


def measure_planted(session: Session, case: Case) -> Survival:
    """Plant facts in a session and look for them after each cut; count nothing if it has too few cuts."""
    cuts = find_cuts(session, case)
    survival = Survival()
    if len(cuts) < MOST_CUTS:
        return survival
    dice = random.Random(f"{SEED} {session.id}")  # noqa: S311 - no secret: the same facts in every run
    sown, planted = plant(session, cuts[0], dice)
    seen: set[tuple[int, int]] = set()
    for sent in _run(sown, case):
        body = b"\n".join(sent.messages or ())
        for number, one in enumerate(planted):
            passed = sum(at > one.at for at in sent.cuts)
            if one.at < sent.stop and passed <= MOST_CUTS and (number, passed) not in seen:
                seen.add((number, passed))
                key = one.is_shared, one.depth, passed
                survival.planted[key] += 1
                survival.found[key] += _holds(body, one.fact)
    return survival


def find_cuts(session: Session, case: Case) -> tuple[int, ...]:
    """Where a session is cut, in the order of the cuts."""
    return max((sent.cuts for sent in _run(session, case)), key=len, default=())


def _run(session: Session, case: Case) -> Iterator[Sent]:
    return run_case(case, session, SessionLedger(RULES))


def _holds(body: bytes, fact: Fact) -> bool:
    # No value has a character that JSON escapes.
    return fact.value.encode() in body


def plant(session: Session, cut: int, dice: random.Random) -> tuple[Session, list[Planted]]:
    """The session with two facts at each depth; later messages mention the topic of one of them.

    A fact is the last line of a tool result or of an assistant message, alternating if both exist.
    """
    messages: list[dict[str, Any]] = [orjson.loads(raw) for raw in session.messages]
    facts = make_facts(dice, 2 * len(DEPTHS))
    planted: list[Planted] = []
    for number, fact in enumerate(facts):
        depth = DEPTHS[number // 2]
        at = _find_place(messages, cut, depth, "tool" if number // 2 % 2 else "assistant")
        _append(messages[at], fact.sentence)
        planted.append(Planted(fact, at, depth, is_shared=bool(number % 2)))
    _mention(messages, [one.fact.topic for one in planted if one.is_shared], cut // 2)
    return replace(session, messages=tuple(map(orjson.dumps, messages))), planted


def _find_place(messages: Sequence[dict[str, Any]], cut: int, depth: int, role: str) -> int:
    """The message nearest to a depth that has text, if possible with this role; neither head nor task."""
    roles = [message["role"] for message in messages[:cut]]
    first = roles.index("user") + 1 if "user" in roles else 1
    wanted = first + (cut - first) * depth / 100
    fitting = [index for index in range(first, cut) if _says_text(messages[index])]
    chosen = [index for index in fitting if messages[index]["role"] == role] or fitting or list(range(first, cut))
    return min(chosen, key=lambda index: abs(index - wanted))


def _says_text(message: dict[str, Any]) -> bool:
    return message["role"] in {"tool", "assistant"} and bool(message.get("content"))


def _append(message: dict[str, Any], sentence: str) -> None:
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = [*content, {"type": "text", "text": sentence}]
    else:
        message["content"] = f"{content}\n{sentence}" if content else sentence


def _mention(messages: Sequence[dict[str, Any]], topics: Iterable[str], start: int) -> None:
    """Let the assistant mention topics, but never a value, repeatedly from a message on."""
    line = f"Still to be looked at: {', '.join(topics)}."
    said = [message for message in messages[start:] if message["role"] == "assistant"]
    for message in said[::MENTION_EVERY]:
        _append(message, line)


def make_chat(number: int) -> tuple[Session, list[Fact], list[Fact]]:
    """A chat with one new fact in each turn, alternately from the user and from the assistant."""
    dice = random.Random(f"{SEED} chat {number}")  # noqa: S311 - no secret
    facts = make_facts(dice, CHAT_TURNS)
    messages: list[dict[str, str]] = [
        {"role": "system", "content": "You are a patient adviser of a small operations team. Answer in plain English."}
    ]
    for turn, fact in enumerate(facts):
        by_user, by_assistant = ([fact.sentence], []) if turn % 2 == 0 else ([], [fact.sentence])
        messages.append({"role": "user", "content": write_question(dice, by_user)})
        messages.append({"role": "assistant", "content": write_answer(dice, by_assistant)})
    messages.append({"role": "user", "content": "Thank you. What do you remember of all this?"})
    stops = tuple(index for index, message in enumerate(messages) if index and message["role"] == "assistant")
    session = Session(f"chat-{number}", tuple(map(orjson.dumps, messages)), b"", (*stops, len(messages)))
    return session, facts[::2], facts[1::2]


@dataclass(frozen=True, slots=True)
class ChatFound:
    """The facts of a chat that are in the last body, and how often the chat was cut."""

    by_user: int
    by_assistant: int
    told: int
    cuts: int


def measure_chat(number: int, case: Case) -> ChatFound:
    """Put facts into a chat, and look for them in its last request."""
    session, users, assistants = make_chat(number)
    last = list(_run(session, case))[-1]
    body = b"\n".join(last.messages or ())
    return ChatFound(
        sum(_holds(body, fact) for fact in users),
        sum(_holds(body, fact) for fact in assistants),
        len(users) + len(assistants),
        len(last.cuts),
    )


def make_chat_case(summariser: str, settings: tuple[str, ...]) -> Case:
    """The case for a chat."""
    return Case(TRIMTAB, CHAT_WINDOW, summariser, settings)


@dataclass(frozen=True, slots=True)
class PlantedGoals:
    """Shares of facts, from issue 16: after five cuts with the topic in the tail; in the last request of a chat."""

    shared: float = 0.80
    chat: float = 0.50
