"""Facts that are planted, and the sentences that contain them.

Law: seeded; the same dice make the same facts. A fact's value appears nowhere else, so that finding it in a body means
finding the fact. Its topic is a word that can be mentioned again without the value.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_BIRDS = (
    "kestrel", "heron", "plover", "merlin", "osprey", "avocet", "dunlin", "godwit", "curlew", "fulmar", "gannet",
    "lapwing", "linnet", "magpie", "nuthatch", "oriole", "pipit", "redstart", "sandpiper", "shrike", "siskin",
    "starling", "stonechat", "swift", "tern", "treecreeper", "turnstone", "wagtail", "waxwing", "whimbrel", "wigeon",
    "woodcock", "wren", "yellowhammer", "bittern", "bunting", "buzzard", "chaffinch", "cormorant", "crossbill",
)  # fmt: skip
_PARTS = ("api", "batch", "ledger", "mailer", "portal", "queue", "search", "vault", "worker", "mirror", "billing")
_DOMAINS = ("corp.example", "infra.example", "lab.example", "ops.example")
_PEOPLE = ("a.lindqvist", "b.okafor", "c.moreau", "d.haas", "e.tanaka", "f.nowak", "g.silva", "h.berg")
_FOLDERS = ("etc", "srv", "opt", "var/lib")
_REGIONS = ("north", "south", "east", "west")

Value = Callable[[random.Random, str], str]


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: its topic, its exact value, and a sentence with both."""

    topic: str
    value: str
    sentence: str


def _host(dice: random.Random, topic: str) -> str:
    return f"{topic}-db-{dice.getrandbits(16):04x}.{dice.choice(_DOMAINS)}"


def _port(dice: random.Random, _: str) -> str:
    return str(dice.randrange(10_240, 65_000))


def _ticket(dice: random.Random, _: str) -> str:
    return f"OPS-{dice.randrange(10_000, 99_999)}"


def _path(dice: random.Random, topic: str) -> str:
    return f"/{dice.choice(_FOLDERS)}/{topic}/{dice.choice(_REGIONS)}_{dice.randrange(100, 999)}.toml"


def _day(dice: random.Random, _: str) -> str:
    return f"20{dice.randrange(27, 99)}-{dice.randrange(1, 13):02d}-{dice.randrange(1, 29):02d}"


def _hash(dice: random.Random, _: str) -> str:
    return f"{dice.getrandbits(48):012x}"


def _mail(dice: random.Random, _: str) -> str:
    return f"{dice.choice(_PEOPLE)}{dice.randrange(100, 999)}@{dice.choice(_DOMAINS)}"


def _url(dice: random.Random, topic: str) -> str:
    return f"https://{dice.choice(_REGIONS)}{dice.randrange(100, 999)}.{dice.choice(_DOMAINS)}/{topic}"


def _setting(dice: random.Random, topic: str) -> str:
    return f"{topic.replace('-', '_')}_limit_{dice.randrange(1000, 9999)}"


_KINDS: tuple[tuple[Value, tuple[str, ...]], ...] = (
    (_host, ("The staging database of {0} is called {1}.", "For {0} the database host is {1}, not the old one.")),
    (_port, ("In production {0} listens on port {1}.", "{0} was moved to port {1} last week.")),
    (_ticket, ("The open ticket about {0} is {1}.", "What is left to do for {0} is tracked in {1}.")),
    (_path, ("The settings of {0} are read from {1}.", "{0} keeps its configuration in {1}.")),
    (_day, ("The certificate of {0} runs out on {1}.", "The contract for {0} ends on {1}, the lawyers say.")),
    (_hash, ("The last good build of {0} is {1}.", "We pinned {0} to commit {1} until the review is done.")),
    (_mail, ("If {0} fails at night, {1} is on call.", "The owner of {0} is {1} since the reorganisation.")),
    (_url, ("The dashboard of {0} is at {1}.", "{0} answers health checks at {1}.")),
    (_setting, ("The quota of {0} is set by {1}.", "The flag that turns {0} on is named {1}.")),
)


def make_facts(dice: random.Random, number: int) -> list[Fact]:
    """Several facts; no topic and no value appears twice."""
    topics = [f"{bird}-{part}" for bird in _BIRDS for part in _PARTS]
    chosen = dice.sample(topics, number)
    facts: dict[str, Fact] = {}
    for place, topic in enumerate(chosen):
        make, sentences = _KINDS[place % len(_KINDS)]
        value = make(dice, topic)
        while value in facts:
            value = make(dice, topic)
        facts[value] = Fact(topic, value, dice.choice(sentences).format(topic, value))
    return list(facts.values())


_SMALL_TALK = (
    "I went through the notes of yesterday once more and they mostly make sense to me now.",
    "Before we go on, let us think about what the people in support will ask first.",
    "There is no hurry with this, but it would be good to have it settled this month.",
    "My impression is that the team likes the new way of working better than the old one.",
    "We tried something like it two years ago and gave up, because nobody had the time.",
    "Could you keep the explanation short, since I have to pass it on to my manager?",
    "It reminds me of the migration that we did in spring, only with fewer surprises.",
    "What worries me is less the software than the people who have to look after it.",
)
_ANSWERS = (
    "That is a sensible order of things, since the risky part comes while everybody is still in the office.",
    "I would start with the smallest change that can be taken back, watch it for a day, and only then go on.",
    "Support usually asks whether anything changes for customers; the honest answer here is that little does.",
    "If the load grows as it did last year, the present setup lasts for some months, and then needs a second look.",
    "Two people should know each part, so that a holiday does not become an incident.",
    "A short page that says what was decided and why saves more time later than it costs now.",
    "The costs are mostly in testing, and a good rehearsal makes that cheaper the second time.",
    "You can tell your manager that the plan is the same as before, only with the steps in another order.",
    "Logs would show it first, then the error rate, and the customers a while after that.",
    "It helps to agree in advance on the point at which we stop and go back.",
)
_QUESTIONS = (
    "How would you go about {0}?", "What should we watch out for with {0}?", "Is {0} worth the trouble this quarter?",
    "Who ought to be asked before we touch {0}?", "What happens to {0} if we wait?",
    "Can we explain {0} to a newcomer in a minute?",
)  # fmt: skip
_MATTERS = (
    "the backup plan", "the release calendar", "alerting at night", "the access rules", "the old importer",
    "the load test", "the style of the error messages", "the handover to operations", "the retry policy",
    "the cleanup of stale accounts", "the price list", "the onboarding guide",
)  # fmt: skip


def write_question(dice: random.Random, told: Sequence[str]) -> str:
    """A user's text in one turn of a chat; it contains the given sentences."""
    sentences = [*dice.sample(_SMALL_TALK, 2), dice.choice(_QUESTIONS).format(dice.choice(_MATTERS))]
    return _mix(dice, sentences, told)


def write_answer(dice: random.Random, told: Sequence[str]) -> str:
    """An assistant's answer; it contains the given sentences."""
    return _mix(dice, dice.sample(_ANSWERS, 5), told)


def _mix(dice: random.Random, sentences: list[str], told: Sequence[str]) -> str:
    for sentence in told:
        sentences.insert(dice.randrange(len(sentences)), sentence)
    return " ".join(sentences)
