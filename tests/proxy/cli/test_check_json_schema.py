"""The JSON Schema of the configuration, beside the loader."""

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.command_line import run_trimtab

from trimtab.proxy.cli.check import DIALECT, make_schema
from trimtab.proxy.config.document import ConfigError, Document
from trimtab.proxy.config.load import load_config

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "config.example.yaml").read_text()
SCHEMA = make_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
TEXTS = {"variable", "number", "switch"}
NEEDS_FILES = {"ca_file", "client_cert_file", "client_key_file", "key_file"}


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """The section that a property refers to, itself or as one of its variants; else the property."""
    for variant in [schema, *schema.get("anyOf", [])]:
        name = variant.get("$ref", "").removeprefix("#/$defs/")
        if name and name not in TEXTS:
            return SCHEMA["$defs"][name]
    return schema


def _list_keys(schema: dict[str, Any] = SCHEMA, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Each key of the configuration with its path, and what the schema says of it. Names and indexes are made up."""
    for name, inner in schema["properties"].items():
        yield (*path, name), inner
        section, below = _resolve(inner), (*path, name)
        if "additionalProperties" in section and "properties" not in section:
            section, below = _resolve(section["additionalProperties"]), (*below, "name")
        elif "items" in section:
            section, below = _resolve(section["items"]), (*below, 0)
        if "properties" in section:
            yield from _list_keys(section, below)


KEYS = dict(_list_keys())
each_section = pytest.mark.parametrize(
    "paths", [pytest.param([path for path in KEYS if path[0] == name], id=name) for name in SCHEMA["properties"]]
)
LEAVES = [path for path, schema in KEYS.items() if "properties" not in _resolve(schema) and path[-1] != "match"]


def _build(path: tuple[str | int, ...], value: Any) -> Any:
    """A configuration with one key; an entry of `models` has a match, recordings have a folder, and windows tokens."""
    if path[0] == "record" and path[-1] != "dir" and len(path) > 1:
        value = {"dir": "x", path[-1]: value}
        path = path[:-1]
    if path[-2:-1] == (0,) and path[-3] == "context_windows":
        value = [{"endpoint": "chat", "header": "h", "tokens": 4096, path[-1]: value}]
        path = path[:-2]
    for step in reversed(path):
        value = [{"match": "m*", **value}] if step == 0 else {step: value}
    return value


def _loads(data: Any, **environment: str) -> bool:
    try:
        load_config(yaml.safe_dump(data, allow_unicode=True), environment=environment)
    except ConfigError:
        return False
    return True


def _find_examples() -> Iterator[str]:
    """The YAML blocks of all pages that are configurations: by their first line, or by their keys."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
            try:
                data = Document.parse(block).data
            except ConfigError:
                continue
            is_ours = isinstance(data, dict) and data.keys() <= SCHEMA["properties"].keys()
            if is_ours or block.startswith("# trimtab.yaml"):
                yield block


def test_the_published_file_is_what_the_command_prints() -> None:
    """The command `trimtab schema > docs/reference/trimtab.schema.json` has written it. The example names it."""
    result = run_trimtab("schema")
    assert result.exit_code == 0
    assert orjson.loads(result.stdout_bytes) == SCHEMA
    assert orjson.loads((ROOT / "docs/reference/trimtab.schema.json").read_bytes()) == SCHEMA
    assert EXAMPLE.startswith("# yaml-language-server: $schema=docs/reference/trimtab.schema.json\n")


def test_it_is_a_schema_with_a_name() -> None:
    """It is valid by its own dialect, and named for the program's version.

    Every key but `match`, `record.dir` and the tokens of a window has a default.
    """
    Draft202012Validator.check_schema(SCHEMA)
    assert (SCHEMA["$schema"], SCHEMA["$id"]) == (DIALECT, f"urn:trimtab:config:{version('trimtab')}")
    required = {name: section["required"] for name, section in SCHEMA["$defs"].items() if "required" in section}
    assert ("required" in SCHEMA, required) == (
        False,
        {"ModelConfig": ["match"], "RecordConfig": ["dir"], "WindowConfig": ["tokens"]},
    )


def test_patterns_are_valid_in_editors() -> None:
    """They read ECMAScript with the flag `u`, which refuses every escape that has no meaning, such as of a quote."""
    patterns = [
        orjson.loads(text) for text in re.findall(r'"pattern":("(?:[^"\\]|\\.)*")', orjson.dumps(SCHEMA).decode())
    ]
    assert len(patterns) > len(TEXTS)
    for pattern in patterns:
        assert set(re.findall(r"\\(.)", pattern)) <= set(r"^$\.*+?()[]{}|/sSx"), pattern


def test_every_key_is_described_in_sentences() -> None:
    """A description begins with a capital letter and ends with a full stop. pydantic's titles are left out."""
    sections = {name: section for name, section in SCHEMA["$defs"].items() if "properties" in section}
    for name, schema in (KEYS | sections).items():
        assert re.fullmatch(r"[A-Z/].*\.", schema["description"], re.DOTALL), name
        assert "title" not in schema, name


def test_every_example_is_accepted() -> None:
    """That of the package, unchanged and with its commented lines uncommented, and those of all pages."""
    taken_in = re.sub(
        r"^((?:models|profiles|  tools|  context_windows):) (?:\[\]|\{\})", r"\1", EXAMPLE, flags=re.MULTILINE
    )
    examples = [EXAMPLE, re.sub(r"^#  ", "  ", taken_in, flags=re.MULTILINE), *_find_examples()]
    assert len(examples) > 2
    for text in examples:
        assert list(VALIDATOR.iter_errors(Document.parse(text).data)) == [], text


@each_section
def test_every_default_and_example_of_a_key_is_accepted(paths: Sequence[Any]) -> None:
    """The schema accepts all. The loader accepts all examples except those that name files or another key."""
    for path in paths:
        examples = KEYS[path].get("examples", [])
        for value in examples + ([KEYS[path]["default"]] if "default" in KEYS[path] else []):
            assert list(VALIDATOR.iter_errors(_build(path, value))) == [], path
        for value in examples:
            if path[-1] not in NEEDS_FILES and value != "local":
                names = {name: f"x-{name}" for name in re.findall(r"\$\{(\w+)\}", str(value))}
                whole = _build(path, value)
                if path[:2] == ("client_keys", "name") and path[2:] != ("key",):
                    whole["client_keys"]["name"]["key"] = "x"
                assert _loads(whole, **names), (path, value)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3_000)
    | st.sampled_from([1023, 1024, 2**29 - 1, 2**29, 65_536, 10**9])
    | st.floats(-0.5, 3.5).filter(lambda number: not number.is_integer())
)
CHOICES = {
    word for found in re.findall(r'"enum":(\[.*?\])', orjson.dumps(SCHEMA).decode()) for word in orjson.loads(found)
}
STORES = ("memory", "sqlite:///x", "redis://h:1/0", "valkeys://h", "rediss+sentinel://h/s/0", "redis+cluster://h,i")
ADDRESSES = (
    "direct",
    "http://h:1",
    "HTTPS://H/v1",
    "h:1",
    "h:65535",
    "h:65536",
    "[::1]:80",
    "/m",
    "/a/*",
    "header:x-a",
)
NUMBERS = ("5", "0.5", ".5", "1e2", "-1", "1_000", "true", "Off", "yEs", "n", "nothing", "")
WORDS = st.sampled_from([*sorted(map(str, CHOICES)), *STORES, *ADDRESSES, *NUMBERS])
VARIABLES = st.builds("{}${{{}}}{}".format, st.sampled_from(["", "1"]), st.just("V"), st.sampled_from(["", "0"]))
TEXTS_IN_LISTS = st.lists(st.sampled_from(["a", "*.md", "/p/*"]) | SCALARS, max_size=2)


@given(path=st.sampled_from(LEAVES), value=SCALARS | WORDS | VARIABLES | TEXTS_IN_LISTS, variable=WORDS)
@example(path=("limits", "max_body_bytes"), value="${V}", variable="2048")
@example(path=("defaults", "tidy"), value="${V}", variable="off")
def test_what_the_loader_accepts_the_schema_accepts(path: Any, value: Any, variable: str) -> None:
    """The law holds for any value of a variable, so an editor never flags a valid file."""
    data = _build(path, value)
    if _loads(data, V=variable):
        assert list(VALIDATOR.iter_errors(data)) == []


@given(path=st.sampled_from(LEAVES), value=SCALARS)
def test_wrong_types_and_numbers_out_of_range_are_refused(path: Any, value: Any) -> None:
    """For null, switches and numbers, the schema accepts exactly what the loader accepts."""
    data = _build(path, value)
    assert VALIDATOR.is_valid(data) is _loads(data)


@each_section
def test_unknown_keys_and_collections_in_the_wrong_place_are_refused(paths: Sequence[Any]) -> None:
    """They are placed next to every key of the configuration, and in its place."""
    for path in paths:
        wrong = ((*path[:-1], "no_such_key"), 1), (path, [[]]), (path, {"no such key": 1})
        assert not any(VALIDATOR.is_valid(_build(*one)) for one in wrong), path
