"""A lesson (anything learned of a model) is a hypothesis: for whom it counts, what contradicts it, when it is tested.

Law: pure. Nothing that one client can provoke changes anything for another client.

- What a client's requests teach counts for this client at once, and for no other.
- It counts for all clients only if two clients with different `client_keys` have learned the same. Without client keys
  it never does: if the upstream does not check credentials, anybody can invent them.
- An answered prompt contradicts a learned window that is smaller. If the prompt is shorter than the one whose refusal
  taught the window, the window becomes as large as the answered prompt. Else the window is dropped.
- An answered prompt that fits a learned window proves nothing about the limit.
- A test is a request of the client that is sent as if nothing had been learned. It is one of those that a lesson would
  cut: the 32nd if the lesson is a guess, else the 512th. Each failed test doubles the number.
- trimtab never refuses a request because of a hypothesis.
"""

from dataclasses import replace
from typing import Any

import msgspec

from trimtab.proxy.models.calibration import KEPT_SHARE
from trimtab.proxy.models.records import (
    ANY_RATIO,
    MAX_CLAIMS,
    MAX_REFUTED,
    UNMEASURED,
    Claim,
    Facts,
    Record,
    take_measured,
)
from trimtab.rules.tokens.families import SILENT
from trimtab.rules.tokens.scripts import Scale

FIRST_TEST = 32
"""The test's place among requests cut by a guess. Chosen: a wrong one ends soon, a right one costs one call in 32."""
FIRST_TEST_OF_NUMBERS = 512  # Of other lessons. Chosen: rarely wrong, and each failed test costs a call.
MAX_FAILURES = 8
"""In a row that double the number. Chosen: it is then 256 times the first; without a bound, tests would stop."""
EXPECTED = Scale()


def is_test_due(own: Record, of_all: Record, cut_requests: int) -> bool:
    """Whether to send this request as a test. cut_requests: by a lesson since the last test, with this one."""
    source = own.window_source if own.learned_tokens is not None else of_all.window_source
    # "cut prompts" is tested rarely, too: a server that silently drops a part of a prompt gives a worse answer.
    first = FIRST_TEST if source == "second attempt" else FIRST_TEST_OF_NUMBERS
    return cut_requests >= first << min(own.failures, MAX_FAILURES)


def contradict(known: Record, of_all: Record, answered_tokens: int) -> dict[str, Any]:
    """What an answer to a prompt beyond a learned window changes in `known`: that window, or that of all, goes."""
    if known.learned_tokens is None:
        is_news = of_all.learned_tokens is not None and answered_tokens > of_all.learned_tokens
        return {"answered_tokens": answered_tokens} if is_news and answered_tokens > known.answered_tokens else {}
    if answered_tokens <= known.learned_tokens:
        return {}
    if known.refused_tokens is not None and answered_tokens < known.refused_tokens:
        return {"learned_tokens": answered_tokens, "answered_tokens": answered_tokens, "failures": 0}
    told: dict[str, Any] = {"answered_tokens": answered_tokens, "failures": 0}
    return told | {"learned_tokens": None, "added_tokens": None, "refuted": (), "refused_tokens": None}


def doubt_ratio(known: Record, of_all: Record, family_ratio: float) -> dict[str, Any]:
    """What a successful test changes in a client's record: an unconfirmed ratio gives way to the family's."""
    if known.calibrated or not (known.ratio_source or of_all.ratio_source):
        return {}
    return {"ratio": family_ratio, "ratio_source": "second attempt", **UNMEASURED}


def combine(own: Facts, of_all: Facts) -> Facts:
    """The facts for a client's requests: what it learned itself, completed by what counts for all."""
    if of_all.window_tokens is not None and own.window_tokens is None:
        own = replace(own, window_tokens=of_all.window_tokens)
    if own.reading == SILENT != of_all.reading:
        own = replace(own, reading=of_all.reading, **({} if own.has_ratio else _tell_scale(of_all)))
    if of_all.learned_tokens is not None and own.learned_tokens is None and not own.has_outgrown(of_all.learned_tokens):
        own = replace(own, learned_tokens=of_all.learned_tokens, refuted=of_all.refuted)
    if own.added_tokens is None:
        own = replace(own, added_tokens=of_all.added_tokens)
    return own if own.has_ratio or not of_all.has_ratio else replace(own, **_tell_scale(of_all), has_ratio=True)


def _tell_scale(facts: Facts) -> dict[str, Any]:
    return {"ratio": facts.ratio, "weights": facts.weights}


def claim(met: Claim, of_all: Record, *, now: float, expected: Scale = EXPECTED) -> dict[str, Any]:
    """What a new claim changes in the record of all. `now` is in seconds since 1970.

    expected: the scale of a model of which nothing is learned.

    The claim updates the earlier one of the same client key. What it has in common with another key's claim counts for
    all from now on.
    """
    before = next((each for each in of_all.claims if each.by == met.by), Claim(met.by))
    told = {key: value for key, value in msgspec.structs.asdict(met).items() if value}
    mine = msgspec.structs.replace(before, **told)
    others = tuple(each for each in of_all.claims if each.by != met.by)
    if mine == before and before in of_all.claims:
        return {}
    changes: dict[str, Any] = {"claims": (*others, mine)[-MAX_CLAIMS:]}
    for other in others:
        changes |= _agree(of_all, mine, other, now, expected)
    return changes


def retract(by: str, of_all: Record) -> dict[str, Any]:
    """What changes in the record of all when an answer contradicts this key's lesson: its claim goes.

    A window that fewer than two remaining claims contain no longer counts for all.
    """
    left = tuple(each for each in of_all.claims if each.by != by)
    if left == of_all.claims:
        return {}
    agreed = sum(each.learned_tokens == of_all.learned_tokens for each in left)
    dropped = {"learned_tokens": None, "added_tokens": None, "refuted": ()} if agreed < 2 else {}
    return {"claims": left, **dropped}


def _agree(of_all: Record, mine: Claim, other: Claim, now: float, expected: Scale) -> dict[str, Any]:
    """What two claims agree on: the same window for the same one, or nearly the same measure of a kind of text."""
    found: dict[str, Any] = {}
    window = (mine.believed_tokens, mine.learned_tokens)
    if mine.learned_tokens is not None and window == (other.believed_tokens, other.learned_tokens):
        refuted = dict.fromkeys((*of_all.refuted, mine.believed_tokens))
        found |= {"learned_tokens": mine.learned_tokens, "refuted": tuple(refuted)[-MAX_REFUTED:]}
        found |= {"window_source": "refused prompt", "window_at": now}
        if mine.added_tokens is not None and mine.added_tokens == other.added_tokens:
            found["added_tokens"] = mine.added_tokens
    scale = Scale(other.ratio or 1.0, expected.weights if other.weights is None else other.weights)
    told = {each.kind: each for each in other.shown}
    near = [one for one in mine.shown if abs(one.tokens / scale.predict(1.0, one.chars) - 1) <= KEPT_SHARE]
    if agreed := [told[one.kind] for one in near if one.kind in told]:
        weights = expected.weights if of_all.weights is None else of_all.weights
        found |= take_measured(Scale(of_all.ratio, weights), of_all, agreed, ANY_RATIO)
        found |= {"calibrated": True, "ratio_source": "answers", "ratio_at": now}
    return found
