"""Each planted fact can be found by its value alone, and only in its own message."""

import random

import pytest

from bench.material.workload import make_sessions
from bench.retention.needed.cases import TRIMTAB, Case
from bench.retention.needed.facts import make_facts
from bench.retention.needed.planted import CHAT_TURNS, DEPTHS, make_chat, measure_planted, plant
from bench.sessions.report import Window


@pytest.mark.parametrize("seed", range(3))
def test_no_value_stands_in_another_fact(seed: int) -> None:
    facts = make_facts(random.Random(seed), CHAT_TURNS)  # noqa: S311 - no secret
    assert len({fact.topic for fact in facts}) == CHAT_TURNS
    for fact in facts:
        assert [other for other in facts if fact.value in other.sentence] == [fact]


def test_a_planted_value_is_in_one_message_and_its_topic_in_the_tail_only_if_it_is_shared() -> None:
    session, cut = make_sessions()[1], 30
    sown, planted = plant(session, cut, random.Random(1))  # noqa: S311 - no secret
    assert len(planted) == 2 * len(DEPTHS)
    for one in planted:
        holding = [index for index, raw in enumerate(sown.messages) if one.fact.value.encode() in raw]
        assert holding == [one.at]
        assert one.at < cut
        tail = b"".join(sown.messages[cut:])
        assert (one.fact.topic.encode() in tail) == one.is_shared


def test_behind_no_cut_every_fact_is_there() -> None:
    """Otherwise a missing fact could have another cause than a cut."""
    survival = measure_planted(make_sessions()[4], Case(TRIMTAB, Window(16_000, 2000), "none"))
    assert survival.planted
    assert survival.share(is_shared=True, cuts=0) == survival.share(is_shared=False, cuts=0) == 1.0


def test_a_chat_tells_each_fact_once_half_of_them_by_the_user() -> None:
    session, users, assistants = make_chat(0)
    assert len(users) == len(assistants) == CHAT_TURNS // 2
    for role, facts in ((b'"user"', users), (b'"assistant"', assistants)):
        for fact in facts:
            (told,) = (raw for raw in session.messages if fact.value.encode() in raw)
            assert role in told
