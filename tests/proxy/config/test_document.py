"""YAML as plain data: the place of each key, keys as written, and why a text cannot be read."""

import pytest
from support.config import find_problems

from trimtab.proxy.config.document import Document, name_path
from trimtab.proxy.config.load import load_config

STARRED = "a key or value that begins with * needs quotes, unless it is the alias of an anchor above it"
UNREADABLE = "a value is not the date or number that it looks like, or does not fit its tag"


def test_the_document_knows_the_place_of_every_key() -> None:
    """Lines and columns count from 1. The items of lists have places, too."""
    text = "a: 1\nb:\n  - c: 2\n  - d\ne: {f: 3}\n"

    assert Document.parse(text) == Document(
        {"a": 1, "b": [{"c": 2}, "d"], "e": {"f": 3}},
        {
            ("a",): (1, 1),
            ("b",): (2, 1),
            ("b", 0): (3, 5),
            ("b", 0, "c"): (3, 5),
            ("b", 1): (4, 5),
            ("e",): (5, 1),
            ("e", "f"): (5, 5),
        },
    )


@pytest.mark.parametrize(
    ("path", "name"),
    [(("a",), "a"), (("a", 0, "b"), "a[0].b"), (("a", "b", 1, 2), "a.b[1][2]"), ((), ""), (("a", "b.c"), 'a."b.c"')],
)
def test_a_path_is_named_as_it_would_be_written(path: tuple[str | int, ...], name: str) -> None:
    """There are dots between keys, and brackets around indexes."""
    assert name_path(path) == name


@pytest.mark.parametrize("key", ["1", "0x1F", "1.5", "true", "null", "2024-01-01", "2024-13-45", "~", "9" * 500])
def test_a_key_is_the_text_that_is_written(key: str) -> None:
    """The name of a profile or an upstream may be a number."""
    config = load_config(f"profiles:\n  {key}: {{protect_turns: 1}}", environment={})
    assert list(config.profiles) == [key]


def test_anchors_and_merges_lead_to_the_text() -> None:
    """A merged key is named at the place where it applies, with its own line. An alias's error is reported once."""
    text = """\
profiles:
  a: &base
    protect_turns: -1
    tools: &tools
      "[x]": {dedupe: 7}
  b:
    <<: *base
    low_water: 3
  c: {<<: [{high_water: 4}, *base], protect_turns: 1}
  d: {tools: *tools, nope: 1}
"""
    unknown = "profiles.d.nope (line 10): unknown key; did you mean dedupe?"
    assert [line.partition(": unknown")[0] for line in find_problems(text)] == [
        "profiles.a.protect_turns (line 3): -1 must be a whole number, 0 or more",
        'profiles.a.tools."[x]".dedupe (line 5): 7 must be true, false or null',
        "profiles.b.low_water (line 8): 3 must be auto, or a number above 0 and at most 1",
        "profiles.c.high_water (line 9): 4 must be auto, or a number above 0 and at most 1",
        unknown.partition(": unknown")[0],
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("profiles: {a: &x {protect_turns: 5, high_water: 0.7}, b: {<<: *x, high_water: 0.6}}", (5, 0.6)),
        (
            "profiles: {a: &x {protect_turns: 5}, c: &y {protect_turns: 6, high_water: 0.6}, b: {<<: [*x, *y]}}",
            (5, 0.6),
        ),
        ("profiles: {a: &x {protect_turns: 5, high_water: 0.6}, b: *x}", (5, 0.6)),
    ],
)
def test_merges_are_as_yaml_has_them(text: str, values: tuple[int, float]) -> None:
    """A mapping's own keys win, then the first of the mappings that are merged in."""
    policy = load_config(text, environment={}).profiles["b"]
    assert (policy.protect_turns, policy.high_water) == values


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a:\n\tb: 1", "line 2: it is indented with a tab; YAML needs spaces there"),
        ("limits:\n  a: 1\n\tb: 2", "line 3: it is indented with a tab; YAML needs spaces there"),
        ("mode: \t@", "line 1: there is a tab where YAML needs a space, or quotes around the text"),
        ("mode: @", "line 1: found character '@' that cannot start any token"),
        ("models:\n- match: *gpt", f"line 2: {STARRED}"),
        ("a: 1\n*read*: 2", f"line 2: {STARRED}"),
        ("a: {*: 2}", f"line 1: {STARRED}"),
        ("a: ['x', *.md]", f"line 1: {STARRED}"),
        ("a: &*", "line 1: expected alphabetic or numeric character, but found '*'"),
        ("mode: 'x\n\ty", "line 2: found unexpected end of stream"),
        ("a: [\t,\n\t`]", "line 1: there is a tab where YAML needs a space, or quotes around the text"),
        ("-\t- a\n- b: \tc:\n", None),
        ("a: \x00", "line 1: the character U+0000 is not allowed"),
        ("a: 1\r\nb: \x07", "line 2: the character U+0007 is not allowed"),
        ('a: "\\UFFFFFFFF"', "an escape is no valid character"),
        ("a: 1\nb: !foo {}", "line 2: a tag that has no meaning here"),
        ("a: 1\n? [b]\n: 1", "line 2: a key must be a single text"),
        ('a: 1\nupstreams: {"\\ud800": 3}', "line 2: a key contains half a character (a lone surrogate)"),
        ("a: 1\n<<: 3", "line 2: << needs a mapping or a list of mappings"),
        ("\nlisten: 2024-13-45", f"line 2: {UNREADABLE}"),
    ],
)  # fmt: skip
def test_what_is_no_yaml_is_told_whole(text: str, problem: str | None) -> None:
    """The message has the line and the advice. Tabs matter most, because nobody sees them."""
    (said,) = find_problems(text)
    assert said == f"not valid YAML: {problem}" if problem else said.startswith("not valid YAML: line ")
    assert not said.endswith("found character")


def _bomb(form: str) -> str:
    """Twenty lines that expand to 10**20 items."""
    aliases = (form.format(", ".join([f"*a{number}"] * 10)) for number in range(20))
    return "a0: &a0 {x: 1}\n" + "".join(f"a{number}: &a{number} {text}\n" for number, text in enumerate(aliases, 1))


@pytest.mark.parametrize(
    "text",
    [
        "a: b: c",
        "listen: 2024-13-45",
        "a: *unknown",
        "a: !!python/object:os.system x",
        "? [a]\n: b",
        "models: &a [*a]",
        "a: " + "[" * 3000,
        "a: " + "1" * 5000,
        "mode: trueish",
        "Falsehood: 1",
        _bomb("[{}]"),
        _bomb("{{<<: [{}]}}"),
        "a: \x00",
        "a: 1\n---\na: 2",
        "1: 2",
        "null: 2",
    ],
    ids=lambda text: text[:30],
)
def test_no_text_raises_anything_else(text: str) -> None:
    """Whatever the file contains, the error is a ConfigError."""
    assert find_problems(text)


@pytest.mark.parametrize("number", ["0x" + "f" * 4000, "-0x" + "f" * 4000, "0b" + "1" * 20_000, "9" * 5000])
@pytest.mark.parametrize(
    "text",
    [
        "listen: %s",
        "defaults: {high_water: %s}",
        "defaults: {context_window: %s}",
        "limits: {drain_seconds: %s}",
        "limits: {max_body_bytes: %s}",
        "profiles: {a: {protect_turns: %s}}",
        "upstream: {base_url: %s}",
    ],
)
def test_a_number_that_python_would_not_write_out_is_a_mistake_like_any_other(text: str, number: str) -> None:
    """The law holds for every notation of the number."""
    (problem,) = find_problems(text % number)

    assert problem.startswith("not valid YAML: ")
