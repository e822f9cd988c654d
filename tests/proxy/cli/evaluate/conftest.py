"""For the tests of `trimtab evaluate`: a model that takes exams, and the session that they are about."""

import pytest
from upstreams.examinee import Examinee, make_session
from upstreams.recording import FakeUpstream

from trimtab.proxy.cli.evaluate.rehearsal import Rehearsal, read_session, rehearse
from trimtab.proxy.compaction import load_compactor
from trimtab.proxy.compaction.engine import Variant
from trimtab.rules.policy import OverflowStrategy, Policy

POLICY = Policy(context_window=16_000, completion_reserve=2000, overflow_strategy=OverflowStrategy.SUMMARIZE)
"""Without pruning, so that every cut needs a summary."""


@pytest.fixture
def examinee(upstream: FakeUpstream) -> Examinee:
    """The model behind the upstream."""
    examinee = Examinee()
    upstream.answer = examinee.answer
    return examinee


@pytest.fixture(scope="session")
def rehearsal() -> Rehearsal:
    """A session of several cuts, planned."""
    return rehearse(read_session(make_session(60)), Variant(load_compactor("m", vocabulary="heuristic"), POLICY))
