"""Each wording has a sample, and means what the sample says."""

import re

import pytest

from trimtab.proxy.wire.overflow import FIGURES, MEANINGS, Kind, Wording


def _name(wording: Wording) -> str:
    return f"{wording.server}: {wording.sample}"


@pytest.mark.parametrize("wording", [*MEANINGS, *FIGURES], ids=_name)
def test_each_row_matches_its_own_sample(wording: Wording) -> None:
    assert wording.server
    assert wording.pattern.search(wording.sample)


@pytest.mark.parametrize("wording", MEANINGS, ids=_name)
def test_no_row_above_takes_a_sample_for_something_else(wording: Wording) -> None:
    """The first row that matches decides what a text is about, so the order of the table matters."""
    first = next(row for row in MEANINGS if row.pattern.search(wording.sample))
    assert first.kind is wording.kind


@pytest.mark.parametrize("wording", FIGURES, ids=_name)
def test_each_figure_is_read_from_its_own_sample(wording: Wording) -> None:
    """Every number that a row can read is in its sample."""
    match = wording.pattern.search(wording.sample)
    assert match is not None
    assert match.groupdict()
    assert set(match.groupdict().values()) <= set(re.findall(r"\d+", wording.sample))


def test_every_kind_has_a_wording() -> None:
    assert {wording.kind for wording in MEANINGS} == {*Kind, None}


@pytest.mark.parametrize("wording", [*MEANINGS, *FIGURES], ids=_name)
def test_no_pattern_repeats_without_a_bound(wording: Wording) -> None:
    """A hostile text can have any length."""
    bare = re.sub(r"\\.|\[[^\]]*\]", "", wording.pattern.pattern)
    assert not re.search(r"[^}][*+]|\{\d+,\}", bare)
