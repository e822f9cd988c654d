"""The generated pages match the code, and the generator's own statements are true."""

import re
from pathlib import Path

import pytest
import yaml
from handbook.reference import COMMAND, PAGES, commands, configuration, metrics, write_page
from handbook.reference.examples import find_example
from handbook.reference.queries import LABELS, QUERIES
from support.examples.checks import check_configuration

from trimtab.proxy.cli.main import main
from trimtab.proxy.telemetry.metrics import Metrics

NEIGHBOURS = {
    "upstream.allowed_paths": {"api_key": "key"},
    "upstream.client_key_file": {"client_cert_file": "client.pem"},
}
"""Other keys of `upstream` without which a key is refused."""
DOCS = Path(__file__).parents[2] / "docs"


def list_all_keys(keys: list[configuration.Key] | None = None) -> list[configuration.Key]:
    """Every key that holds a value. The keys of `upstreams`, `models` and `profiles` are listed once."""
    found: dict[str, configuration.Key] = {}
    for key in configuration.list_keys() if keys is None else keys:
        if key.keys is None:
            found[key.path] = key
        elif key.name not in {"upstreams", "models", "profiles"}:
            inner = configuration.list_keys(key.keys, configuration.name_inside(key))
            found |= {one.path: one for one in list_all_keys(inner)}
    return list(found.values())


@pytest.mark.parametrize("path", PAGES)
def test_a_generated_page_is_up_to_date(path: str) -> None:
    page = DOCS / path
    is_current = page.is_file() and page.read_text("utf-8") == write_page(path)
    assert is_current, f"docs/{path} is not what the code says; run: {COMMAND}"


@pytest.mark.parametrize("key", list_all_keys(), ids=lambda key: key.path)
def test_the_example_of_a_key_is_valid(key: configuration.Key, tmp_path: Path) -> None:
    example = find_example(key.path, key.field, key.said, key.slot)
    assert example is not None or key.default is None, f"{key.path}: give the field examples=[...]"
    value = yaml.safe_load(configuration.show(example))
    for name in reversed(key.path.replace("*", "read_*").split(".")):
        value = {name: value}
        if name == "context_windows" and isinstance(value[name], dict):
            value[name] = [{"tokens": 4096} | value[name]["read_*"]]
        if key.path.startswith("client_keys.*.") and name == key.name not in {"key", "key_file"}:
            value["key"] = "k"
    section = NEIGHBOURS.get(key.path, {}) | value.get("upstream", {})
    whole = {"upstreams": {"local": {}}, "upstream": section} | {k: v for k, v in value.items() if k != "upstream"}
    assert check_configuration(yaml.safe_dump(whole), tmp_path) is None


def test_every_command_has_its_exit_statuses() -> None:
    assert set(commands.EXITS) == set(main.commands)
    assert all(0 in dict(statuses) for statuses in commands.EXITS.values())


def test_every_label_has_its_values() -> None:
    """LABELS describes each label of each metric, and no other label."""
    collectors = metrics.list_collectors(Metrics())
    told = {(one.name, label.name) for one in collectors for label in LABELS if label.metric in {None, one.name}}
    used = {(one.name, label) for one in collectors for label in one.labels}
    assert used <= told
    assert all(any(one.name == label.metric or label.metric is None for one in collectors) for label in LABELS)
    assert {label.name for label in LABELS} == {label for _, label in used}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.title)
def test_a_query_names_metrics_and_labels_that_exist(query) -> None:
    labels = {
        f"{one.name}{end}": {*one.labels, *(["le"] if end == "_bucket" else [])}
        for one in metrics.list_collectors(Metrics())
        for end in ("_bucket", "_sum", "_count", "") if (end == "") != (one.kind == "histogram")
    }  # fmt: skip
    names = re.findall(r"trimtab_\w+", query.text)
    asked = re.findall(r"by \(([^)]*)\)", query.text)
    assert names
    assert set(names) <= set(labels)
    assert all({label.strip() for part in asked for label in part.split(",")} <= labels[name] for name in names)
    assert all(label in labels[name] for name, label in re.findall(r"(trimtab_\w+)\{(\w+)=", query.text))
