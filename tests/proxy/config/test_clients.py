"""`client_keys`: a list of keys, or names with keys, key files and limits."""

import stat
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config import find_problems
from support.golden import check_golden

from trimtab.proxy.config.clients import (
    MAX_KEY_FILE_BYTES,
    MAX_KEYS_BYTES,
    MAX_NAME_CHARS,
    ClientConfig,
    Clients,
    divide_clients,
)
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config

PLANTED = "planted-0123456789"
NAMES = st.text(
    st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=MAX_NAME_CHARS
)
KEYS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)


def _load(text: str, **environment: str) -> Config:
    return load_config(text, environment=environment)


@given(named=st.dictionaries(NAMES, KEYS, min_size=1, max_size=5))
def test_a_mapping_gives_each_key_its_name_and_a_list_gives_none(named: dict[str, str]) -> None:
    """A mapping admits the keys that a list of them admits, if each name is right."""
    as_list = Config(client_keys=tuple(named.values())).clients
    assert (as_list.keys, as_list.names, as_list.limits) == (tuple(named.values()), {}, {})
    wrong = {name for name in named if name != name.strip() or name.startswith("sk-")}
    if wrong:
        with pytest.raises(ValueError, match="client_keys"):
            Config(client_keys=named)
        return
    clients = Config(client_keys=named).clients
    assert clients.keys == as_list.keys
    assert clients.names == {key: name for name, key in named.items()}


HASH = f"sha256:{sha256(PLANTED.encode()).hexdigest()}"
FILES = {
    "key": b"\r\n  from-a-file\t\r\n", "keys": b"# note\n\nold expires=2027-01-31\nnew\n", "empty": b" \n",
    "words": b"one\ntwo words", "soon": b"one expires=soon", "hash": b"sha256:00", "many": b"k\n" * MAX_KEYS_BYTES,
    "nul": b"\x00", "long": b"k" * (MAX_KEY_FILE_BYTES + 1), "planted": PLANTED.encode(),
}  # fmt: skip
CONFIGURED = (
    ("{alice: '${ALICE}', bob: {key: '${BOB}', max_concurrent_requests: '3'}, CI of team 7: {key_file: key}}", {}),
    ("{a: {key_file: keys}, b: {key: x, expires: 2027-02-28}}", {}),
    ("{a: {key_file: keys, expires: 2027-01-01}}", {}),
    ("{a: {key: x, tokens_per_day: 5, dollars_per_month: 1.5}, b: {key: y, over_budget: tell}}", {}),
    *((f"{{a: {{key_file: {name}}}}}", {}) for name in (*FILES, "absent", ".", '"\\0"')),
    *((form.format(key), {}) for form in ("['{}']", "{{a: '{}'}}") for key in ("sha256:", f"sha256:{'AB' * 32}", HASH)),
    (f"{{a: {PLANTED}, b: {{key_file: planted}}, c: {PLANTED}, d: {HASH}}}", {}),
    (f"{{{PLANTED}: team, team: {PLANTED}}}", {}),
    ("null", {"ALICE": "123", "BOB": "{key: bb, max_concurrent_requests: 2}", "DORA": "${BOB}"}),
    ("{frank: f}", {"CARL__KEY": "c", "CARL__MAX_CONCURRENT_REQUESTS": "7", "EVE__KEY_FILE": "key"}),
)


def test_clients_are_those_of_the_file_and_of_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """White space, notes and empty lines are no keys. Of two days the first counts. No two clients have one key.

    A key stands as it is, even if YAML would read a number. No problem quotes a key.
    """
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    told = {}
    for text, variables in CONFIGURED:
        given = {f"TRIMTAB_CLIENT_KEYS__{name}": value for name, value in variables.items()}
        given |= {"ALICE": "a", "BOB": "b"}
        problems = find_problems(f"client_keys: {text}", **given)
        assert PLANTED not in "".join(problems)
        found = Clients() if problems else _load(f"client_keys: {text}", **given).clients
        figures = (found.keys, dict(found.names), dict(found.limits), dict(found.ends), dict(found.budgets))
        told[f"{text} {variables or ''}"] = "\n".join(problems or map(str, figures))
    check_golden("config/clients", told)


def test_a_key_file_is_read_each_time_that_the_configuration_is_read(tmp_path: Path) -> None:
    """A configuration keeps the key that it was read with."""
    file = tmp_path / "key"
    found = []
    longest = "k" * MAX_KEY_FILE_BYTES
    for key in ("one", longest):
        file.write_text(key)
        found.append(_load(f"client_keys: {{a: {{key_file: {file}}}}}"))

    assert [config.clients.keys for config in found] == [("one",), (longest,)]
    assert found[0] != found[1]


def test_no_key_stands_in_what_python_says(tmp_path: Path) -> None:
    """Neither one of the file, nor one of a key file."""
    file = tmp_path / "key"
    file.write_text(PLANTED + "-file")
    file.chmod(stat.S_IRUSR)
    config = _load(f"client_keys: {{a: {PLANTED}, b: {{key: {PLANTED}-2}}, c: {{key_file: {file}}}}}")

    assert len(config.clients.keys) == 3
    assert PLANTED not in f"{config!r} {config} {config.client_keys} {config.clients!r} {config.clients}"


@given(limit=st.none() | st.integers(1, 1000), workers=st.integers(1, 256))
def test_workers_together_admit_what_a_client_may_have(limit: int | None, workers: int) -> None:
    """Each worker admits at least one. Keys and names are the same in each."""
    client_keys = {"a": ClientConfig(key="x", max_concurrent_requests=limit), "b": ClientConfig(key="y")}
    config = Config(client_keys=client_keys)
    assert divide_clients(("a", "b"), workers) == ("a", "b")
    assert divide_clients(None, workers) is None
    part = config.as_worker_of(workers).clients

    assert (part.keys, part.names) == (config.clients.keys, config.clients.names)
    assert set(part.limits) == set(config.clients.limits)
    for each in part.limits.values():
        assert (limit or 0) <= workers * each < (limit or 0) + workers


def test_the_clients_are_the_same_object_each_time() -> None:
    """So a request does not make them anew."""
    config = _load("client_keys: {a: x}")
    assert config.clients is config.clients
    with pytest.raises(ConfigError):
        _load("client_keys: {a: x, b: x}")
