"""Which globs never take effect, because an earlier one matches all that they match."""

from fnmatch import fnmatchcase

from hypothesis import example, given
from hypothesis import strategies as st

from trimtab.proxy.config.validation import covers

UNITS = st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[a]", "!", "]", "[]]", "[!]", "[[]", "[b-a]"])
GLOBS = st.lists(UNITS, max_size=6).map("".join)
NAMES = st.text("ab![]", max_size=6)


@given(GLOBS, GLOBS, st.lists(NAMES, min_size=5, max_size=20))
@example("?", "*", ["", "ab"])
@example("[!a]*", "?b", ["ab"])
@example("*b]c", "[ab]c", ["ac"])
def test_what_a_glob_covers_it_matches(earlier: str, later: str, names: list[str]) -> None:
    """No name that the later one matches escapes the earlier one."""
    if covers(earlier, later):
        assert [name for name in names if fnmatchcase(name, later) and not fnmatchcase(name, earlier)] == []


@given(GLOBS, st.lists(UNITS.filter(lambda unit: "[" not in unit), max_size=3).map("".join))
def test_what_is_surely_covered_is_seen(glob: str, more: str) -> None:
    """Such globs are the glob itself, a star, and the beginning of the glob with a star after it."""
    assert covers(glob, glob)
    assert covers("*", glob)
    if "[" not in glob:
        assert covers(glob + "*", glob + more)
