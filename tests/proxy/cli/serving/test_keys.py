"""`trimtab keys`: keys of a client are made, listed and revoked; the file has their hashes only."""

import os
import re
import resource
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from support.command_line import run_trimtab

from trimtab.proxy.cli.serving.keys import _write
from trimtab.proxy.config.load import load_config
from trimtab.proxy.http.headers import find_key


def keys_of(file: Path) -> tuple[str, ...]:
    return load_config(settings=[f"client_keys={{alice: {{key_file: {file}}}}}"], environment={}).clients.keys


def make(file: Path, *options: str) -> str:
    done = run_trimtab("keys", "add", str(file), *options)
    assert done.exit_code == 0, done.output
    return re.search("sk-trimtab-[0-9a-f]{48}", done.output)[0]


def test_a_key_is_shown_once_and_admits_its_client(tmp_path: Path) -> None:
    """The file has its hash, which admits nobody. Two keys of a client work at the same time."""
    file = tmp_path / "alice"
    old, new = make(file), make(file, "--expires", "2999-01-31")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert old not in file.read_text()
    known = keys_of(file)
    hashes = [f"sha256:{sha256(key.encode()).hexdigest()}" for key in (old, new)]
    assert list(known) == hashes
    for key, digest in zip((old, new), hashes, strict=True):
        assert find_key(known, [("Authorization", f"Bearer {key}")]) == digest
        assert find_key(known, [("Authorization", f"Bearer {digest}")]) is None


def test_a_revoked_key_admits_nobody(tmp_path: Path) -> None:
    """Also if it was the only one: then the client has no key, and the configuration stays valid."""
    file = tmp_path / "alice"
    file.touch(0o640)
    file.chmod(0o640)
    key = make(file)
    listed = run_trimtab("keys", "list", str(file)).output
    name = sha256(key.encode()).hexdigest()[:8]
    assert listed.startswith(f"{name}  made 20")
    assert "does not end" in listed
    assert run_trimtab("keys", "revoke", str(file), name).exit_code == 0
    assert keys_of(file) == ()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert f"{name} revoked 20" in file.read_text()
    assert run_trimtab("keys", "list", str(file)).output == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_that_root_changes_stays_that_of_its_user(tmp_path: Path) -> None:
    """Or the proxy could not read it any more, would keep its old configuration, and admit who was revoked."""
    file = tmp_path / "alice"
    key = make(file)
    os.chown(file, 10001, 10002)
    make(file)
    name = sha256(key.encode()).hexdigest()[:8]
    assert run_trimtab("keys", "revoke", str(file), name).exit_code == 0
    found = file.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (10001, 10002, 0o600)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("20200131", "ended 2020-01-31"),
        ("29990131", "ends 2999-01-31"),
        ("soon", "ends on no date (soon), so the configuration is refused"),
    ],
)
def test_keys_that_stand_in_the_file_themselves_are_listed_by_hash(end: str, told: str, tmp_path: Path) -> None:
    """Their ends are compared as dates, in each form that the proxy reads."""
    file = tmp_path / "alice"
    file.write_text(f"PLANTED-KEY expires={end}\n")
    listed = run_trimtab("keys", "list", str(file)).output
    assert listed.split(maxsplit=1) == [sha256(b"PLANTED-KEY").hexdigest()[:8], f"{told}\n"]


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no part of the new one is left beside it."""
    file = tmp_path / "file"
    file.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(SystemExit):
            _write(file, ["x" * 100])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "too large" in capsys.readouterr().err.lower()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]
