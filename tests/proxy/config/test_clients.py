"""`client_keys`: a list of keys, or names with keys, key files and limits."""

import stat
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config import find_problems

from trimtab.proxy.config.clients import (
    MAX_KEY_FILE_BYTES,
    MAX_KEYS_BYTES,
    MAX_NAME_CHARS,
    ClientConfig,
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


def test_a_client_has_a_key_or_a_key_file_and_perhaps_a_limit(tmp_path: Path) -> None:
    """White space around the key in a file does not count."""
    (tmp_path / "key").write_bytes(b"\r\n  from-a-file\t\r\n")
    text = f"""
client_keys:
  alice: ${{ALICE}}
  bob: {{key: "${{BOB}}", max_concurrent_requests: "3"}}
  CI of team 7: {{key_file: {tmp_path / "key"}, max_concurrent_requests: 5}}
"""
    clients = _load(text, ALICE="a", BOB="b").clients

    assert clients.keys == ("a", "b", "from-a-file")
    assert clients.names == {"a": "alice", "b": "bob", "from-a-file": "CI of team 7"}
    assert clients.limits == {"bob": 3, "CI of team 7": 5}


def test_a_key_file_is_read_each_time_that_the_configuration_is_read(tmp_path: Path) -> None:
    """A configuration keeps the key that it was read with."""
    file = tmp_path / "key"
    found = []
    for key in ("one", "two"):
        file.write_text(key)
        found.append(_load(f"client_keys: {{a: {{key_file: {file}}}}}"))

    assert [config.clients.keys for config in found] == [("one",), ("two",)]
    assert found[0] != found[1]


def test_a_client_has_several_keys_and_each_may_end(tmp_path: Path) -> None:
    """Of two days, that of the client and that of its key, the first counts. Notes and empty lines are no keys."""
    (tmp_path / "key").write_text("# note\n\nold expires=2027-01-31\nnew\n")
    clients = _load(f"client_keys: {{a: {{key_file: {tmp_path / 'key'}}}, b: {{key: x, expires: 2027-02-28}}}}").clients
    assert clients.keys == ("old", "new", "x")
    assert clients.ends == {"old": "2027-01-31", "x": "2027-02-28"}
    both = _load(f"client_keys: {{a: {{key_file: {tmp_path / 'key'}, expires: 2027-01-01}}}}").clients
    assert both.ends == {"old": "2027-01-01", "new": "2027-01-01"}
    assert both.budgets == {}


def test_a_budget_belongs_to_a_name() -> None:
    """Without any limit there is none, whatever would happen at it."""
    text = "client_keys: {a: {key: x, tokens_per_day: 5, dollars_per_month: 1.5}, b: {key: y, over_budget: tell}}"
    ((name, budget),) = _load(text).clients.budgets.items()
    assert (name, budget.tokens_per_day, budget.dollars_per_month, budget.refuses) == ("a", 5, 1.5, True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b" \n", "key_file is empty"),
        (b"one\ntwo words", "key_file must contain one key a line: one word of printable ASCII"),
        (b"one expires=soon", "key_file must have a date after expires=, such as 2027-01-31"),
        (b"sha256:00", "key_file must have 64 digits after sha256:"),
        (b"k\n" * MAX_KEYS_BYTES, "key_file is too long"),
        (b"\x00", "key_file must contain one key a line: one word of printable ASCII"),
        (b"k" * (MAX_KEY_FILE_BYTES + 1), "key_file must contain one key a line: one word of printable ASCII"),
        (None, "key_file cannot be read: no such file or directory"),
    ],
)
def test_a_key_file_without_one_key_is_a_problem(tmp_path: Path, content: bytes | None, words: str) -> None:
    """An empty file must not let a client in that shows an empty key."""
    file = tmp_path / PLANTED
    if content is not None:
        file.write_bytes(content)

    assert find_problems(f"client_keys:\n  alice:\n    key_file: {file}\n") == [f"client_keys (line 2): {words}"]


def test_a_key_that_looks_like_a_hash_and_is_none_is_a_problem() -> None:
    """Nobody could send it."""
    for setting in ("client_keys: ['{}']", "client_keys: {{a: '{}'}}", "admin_token: '{}'"):
        for key in ("sha256:", f"sha256:{'AB' * 32}"):
            (problem,) = find_problems(setting.format(key))
            assert "must have 64 digits after sha256:" in problem
        assert find_problems(setting.format(f"sha256:{'ab' * 32}")) == []


def test_a_folder_or_a_name_that_no_file_can_have_is_a_problem(tmp_path: Path) -> None:
    """Both are told like a file that does not exist."""
    for path, reason in ((str(tmp_path), "is a directory"), ('"\\0"', "no file can have this name")):
        (problem,) = find_problems(f"client_keys: {{a: {{key_file: {path}}}}}")
        assert problem == f"client_keys (line 1): key_file cannot be read: {reason}"


def test_two_clients_never_have_one_key(tmp_path: Path) -> None:
    """The key is not quoted, wherever it is from. A name that is a key shows that the two are exchanged."""
    (tmp_path / "key").write_text(PLANTED)
    same = "has the same key as another client; each needs a key of its own"
    text = f"client_keys:\n  a: {PLANTED}\n  b: {{key_file: {tmp_path / 'key'}}}\n  c: {PLANTED}\n"
    assert find_problems(text) == [f"client_keys (line 3): {same}", f"client_keys (line 4): {same}"]
    text += f"  d: sha256:{sha256(PLANTED.encode()).hexdigest()}\n"
    assert find_problems(text)[-1] == f"client_keys (line 5): {same}"
    exchanged = f"client_keys:\n  {PLANTED}: team\n  team: {PLANTED}\n"
    assert find_problems(exchanged) == [
        f"client_keys (line {line}): has a key as its name; write NAME: KEY" for line in (2, 3)
    ]


def test_variables_set_clients_by_name(tmp_path: Path) -> None:
    """A key stands as it is, even if YAML would read a number. A mapping in braces is read as YAML."""
    (tmp_path / "key").write_text("e")
    environment = {
        "TRIMTAB_CLIENT_KEYS__ALICE": "123",
        "TRIMTAB_CLIENT_KEYS__BOB": "{key: b, max_concurrent_requests: 2}",
        "TRIMTAB_CLIENT_KEYS__CARL__KEY": "c",
        "TRIMTAB_CLIENT_KEYS__CARL__MAX_CONCURRENT_REQUESTS": "7",
        "TRIMTAB_CLIENT_KEYS__DORA": "${DORA}",
        "TRIMTAB_CLIENT_KEYS__EVE__KEY_FILE": str(tmp_path / "key"),
        "DORA": "d",
    }
    for text in ("client_keys: null", "client_keys: {frank: f}", ""):
        clients = _load(text, **environment).clients
        assert clients.names == ({"f": "frank"} if "frank" in text else {}) | {
            "123": "alice",
            "b": "bob",
            "c": "carl",
            "d": "dora",
            "e": "eve",
        }
        assert clients.limits == {"bob": 2, "carl": 7}
    assert _load("", TRIMTAB_CLIENT_KEYS="{a: x}").clients.names == {"x": "a"}
    assert _load("", TRIMTAB_CLIENT_KEYS="[x, y]").clients.keys == ("x", "y")


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
