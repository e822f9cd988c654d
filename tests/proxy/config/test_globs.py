"""What a glob can match."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.config.errors import ConfigError
from proxy.config.globs import covers
from proxy.config.load import load_config

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


@pytest.mark.parametrize(
    ("globs", "shadowed"),
    [
        (["gpt-4o", "gpt-4o"], {1: "gpt-4o"}),
        (["*", "gpt-4o", "x*"], {1: '"*"', 2: '"*"'}),
        (["gpt-*", "gpt-4o*", "gpt-4o-mini"], {1: '"gpt-*"', 2: '"gpt-*"'}),
        (["gpt-4o*", "gpt-*"], {}),
        (["[Rr]ead*", "read_file", "[Rr]ead_it"], {1: '"[Rr]ead*"', 2: '"[Rr]ead*"'}),
        (["Read*", "read*"], {}),
        (["a?", "ab", "a*"], {1: '"a?"'}),
        (["**", "?"], {1: '"**"'}),
    ],
)
@pytest.mark.parametrize(
    "place", ["models[{}].match", "defaults.tools.{}", "profiles.p.tools.{}", "models[0].tools.{}"]
)
def test_a_glob_behind_one_that_matches_all_of_it_is_named(globs: list[str], shadowed: dict, place: str) -> None:
    """The law holds for models and for tools. The first match wins, so the later glob never takes effect."""
    if len(set(globs)) < len(globs) and not place.startswith("models[{}]"):
        return  # a repeated key of a mapping is another error
    tools = "{" + ", ".join(f"'{glob}': {{}}" for glob in globs) + "}"
    text = {
        "models[{}].match": "models: [" + ", ".join(f"{{match: '{glob}'}}" for glob in globs) + "]",
        "defaults.tools.{}": f"defaults: {{tools: {tools}}}",
        "profiles.p.tools.{}": f"profiles: {{p: {{tools: {tools}}}}}",
        "models[0].tools.{}": f"models: [{{match: m, tools: {tools}}}]",
    }[place]
    said = []
    try:
        load_config(text, environment={})
    except ConfigError as error:
        said = [line.partition(" (line 1): ")[2] for line in str(error).splitlines()]
    assert said == [f"never matches: {first} above it matches first" for first in shadowed.values()]


@pytest.mark.parametrize(
    ("glob", "words"),
    [
        ("[]", "has a [ without its ]; write a literal [ as [[]"),
        ("[!]x", "has a [ without its ]; write a literal [ as [[]"),
        ("read[a-", "has a [ without its ]; write a literal [ as [[]"),
        ("x[z-a]", "never matches: one of its [...] contains no character"),
        ("?" * 257, "never matches: a name has at most 256 characters"),
        ("*" + "[a]" * 257, "never matches: a name has at most 256 characters"),
        ("", "must be a glob of printable characters that is not empty"),
        ("a\\tb", "must be a glob of printable characters that is not empty"),
    ],
)
@pytest.mark.parametrize("text", ['models: [{match: "%s"}]', 'defaults: {tools: {"%s": {}}}'])
def test_a_glob_that_can_match_nothing_is_refused(text: str, glob: str, words: str) -> None:
    """It is refused by itself, whatever precedes it."""
    with pytest.raises(ConfigError) as caught:
        load_config(text % glob, environment={})
    (said,) = str(caught.value).splitlines()
    assert said.endswith(words)


@pytest.mark.parametrize("glob", ["[[]", "[]]", "[!]]x", "[!z-a]", "*" * 300, "?" * 256, "[a]" * 256, "a]", "[a-]"])
def test_other_globs_are_taken(glob: str) -> None:
    """They are odd, but each of them matches something."""
    load_config(
        f"models: [{{match: '{glob}'}}]\ndefaults: {{tools: {{'{glob}': {{exclude: ['{glob}']}}}}}}", environment={}
    )


def test_an_argument_may_be_longer_than_a_name() -> None:
    """A path is an example. Its brackets must be closed, too."""
    load_config(f"defaults: {{tools: {{a: {{exclude: ['{'x' * 300}']}}}}}}", environment={})
    with pytest.raises(ConfigError, match="write a literal"):
        load_config("defaults: {tools: {a: {exclude: ['*/[id/page']}}}", environment={})
