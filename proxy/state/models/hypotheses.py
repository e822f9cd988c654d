"""What was learned of a model is a hypothesis: for whom it counts, what contradicts it, and when it is tested.

Law: pure. What one client can provoke changes nothing for another.

- What a client meets counts for it at once, and for nobody else.
- It counts for all only when two clients have met the same, whom `client_keys` tell apart. Without client keys it never
  does: anybody can invent a credential if the upstream checks none.
- A success says that prompts up to its size fit, and nothing of the limit. A longer prompt that is answered contradicts
  a learned window. Beyond what was refused the window is given up; below that it becomes what was answered.
- A learned window is tested again: of a client's requests that it would cut, one in so many goes out as if it had not
  been learned. Each test that fails doubles that number; what a refusal said in numbers is tested seldom.
- No request is refused by us because of it.
"""

from dataclasses import replace
from typing import Any

import msgspec

from proxy.state.models.calibration import KEPT_SHARE
from proxy.state.models.facts import Facts
from proxy.state.models.records import MAX_CLAIMS, MAX_REFUTED, Claim, Record

FIRST_TEST = 32
"""Requests that a guess has cut, of which the last is let through."""
FIRST_TEST_OF_NUMBERS = 512
"""The same of a window that a refusal said in numbers."""
MAX_FAILURES = 8
"""After which the number grows no more."""


def is_test_due(own: Record, of_all: Record, cut_requests: int) -> bool:
    """Whether the last of so many requests that something learned has cut is to test it.

    A server that cuts prompts short without a word gives a worse answer to a test: it is tested as seldom as numbers.
    """
    source = own.window_source if own.learned_tokens is not None else of_all.window_source
    first = FIRST_TEST if source == "second attempt" else FIRST_TEST_OF_NUMBERS
    return cut_requests >= first << min(own.failures, MAX_FAILURES)


def contradict(known: Record, of_all: Record, answered_tokens: int) -> dict[str, Any]:
    """What the answer to a prompt of so many tokens changes: nothing, unless it is longer than a learned window.

    Be that the client's own, or that of all: then the client goes by it no more.
    """
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
    """What it changes that a prompt was answered for which a ratio that no answer has confirmed left no room."""
    if known.calibrated or not (known.ratio_source or of_all.ratio_source):
        return {}
    return {"ratio": family_ratio, "ratio_source": "second attempt"}


def combine(own: Facts, of_all: Facts) -> Facts:
    """What a client's requests are planned by: what it has met itself, and where it has met nothing, what all have."""
    if of_all.window_tokens is not None and own.window_tokens is None:
        own = replace(own, window_tokens=of_all.window_tokens)
    if of_all.learned_tokens is not None and own.learned_tokens is None and not own.has_outgrown(of_all.learned_tokens):
        own = replace(own, learned_tokens=of_all.learned_tokens, refuted=of_all.refuted)
    if own.added_tokens is None:
        own = replace(own, added_tokens=of_all.added_tokens)
    return own if own.has_ratio or not of_all.has_ratio else replace(own, ratio=of_all.ratio, has_ratio=True)


def claim(met: Claim, of_all: Record, *, now: float) -> dict[str, Any]:
    """What it changes for all that the client behind one key has met something, at a time in seconds since 1970.

    Its claim takes the place of the one before; what another key's claim says, too, holds for all.
    """
    before = next((each for each in of_all.claims if each.by == met.by), Claim(met.by))
    told = {key: value for key, value in msgspec.structs.asdict(met).items() if value}
    mine = msgspec.structs.replace(before, **told)
    others = tuple(each for each in of_all.claims if each.by != met.by)
    if mine == before and before in of_all.claims:
        return {}
    changes: dict[str, Any] = {"claims": (*others, mine)[-MAX_CLAIMS:]}
    for other in others:
        changes |= _agree(of_all, mine, other, now)
    return changes


def retract(by: str, of_all: Record) -> dict[str, Any]:
    """What it changes for all that the client behind one key has been answered more than it had claimed.

    A window that fewer than two still claim counts for all no more.
    """
    left = tuple(each for each in of_all.claims if each.by != by)
    if left == of_all.claims:
        return {}
    agreed = sum(each.learned_tokens == of_all.learned_tokens for each in left)
    dropped = {"learned_tokens": None, "added_tokens": None, "refuted": ()} if agreed < 2 else {}
    return {"claims": left, **dropped}


def _agree(of_all: Record, mine: Claim, other: Claim, now: float) -> dict[str, Any]:
    """What two clients have met alike."""
    found: dict[str, Any] = {}
    window = (mine.believed_tokens, mine.learned_tokens)
    if mine.learned_tokens is not None and window == (other.believed_tokens, other.learned_tokens):
        refuted = dict.fromkeys((*of_all.refuted, mine.believed_tokens))
        found |= {"learned_tokens": mine.learned_tokens, "refuted": tuple(refuted)[-MAX_REFUTED:]}
        found |= {"window_source": "refused prompt", "window_at": now}
        if mine.added_tokens is not None and mine.added_tokens == other.added_tokens:
            found["added_tokens"] = mine.added_tokens
    if mine.ratio is not None and other.ratio is not None and abs(mine.ratio / other.ratio - 1) <= KEPT_SHARE:
        found |= {"ratio": other.ratio, "calibrated": True, "ratio_source": "answers", "ratio_at": now}
    return found
