"""YAML as plain data: the place of each key, keys as written, and why a text cannot be read."""

import pytest
from support.config import find_problems

from trimtab.proxy.config.document import Document
from trimtab.proxy.config.load import load_config


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


@pytest.mark.parametrize("key", ["0x1F", "true", "null", "2024-13-45", "9" * 500])
def test_a_key_is_the_text_that_is_written(key: str) -> None:
    """The name of a profile or an upstream may be a number."""
    config = load_config(f"profiles:\n  {key}: {{protect_turns: 1}}", environment={})
    assert list(config.profiles) == [key]


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
        "a: " + "1" * 5000,
        "mode: trueish",
        "Falsehood: 1",
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


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 1500, _bomb("[{}]"), _bomb("{{<<: [{}]}}")], ids=["deep", "list", "merge"]
)
def test_no_text_takes_for_ever(text: str) -> None:
    assert find_problems(text)


@pytest.mark.parametrize(
    "text",
    [
        "listen: %s",
        "defaults: {high_water: %s}",
    ],
)
def test_a_number_that_python_would_not_write_out_is_a_mistake_like_any_other(text: str) -> None:
    """The law holds for every notation of the number."""
    for number in ("0x" + "f" * 4000, "-0x" + "f" * 4000, "0b" + "1" * 20_000, "9" * 5000):
        (problem,) = find_problems(text % number)
        assert problem.startswith("not valid YAML: ")
