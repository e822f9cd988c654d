"""The certificate and key files that the configuration names."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.authority import Authority, write_key

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The `upstream` section with the names of files, all of which exist."""
    monkeypatch.chdir(tmp_path)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("me")
    other, other_key = authority.issue("other")
    write_key(tmp_path / "a.key", ec.generate_private_key(ec.SECP256R1()), b"PLANTED")
    (tmp_path / "damaged.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (tmp_path / "text").write_text("hello PLANTED")
    (tmp_path / "both.pem").write_bytes(certificate.read_bytes() + key.read_bytes())
    files = {
        "ca": authority.ca_file, "cert": certificate, "key": key, "other": other, "other_key": other_key,
        "locked": tmp_path / "a.key", "damaged": tmp_path / "damaged.pem", "text": tmp_path / "text",
        "both": tmp_path / "both.pem", "folder": tmp_path, "missing": tmp_path / "missing",
    }  # fmt: skip

    def section(**keys: str) -> str:
        return "upstream:\n" + "".join(f"  {key}: {files[name].relative_to(tmp_path)}\n" for key, name in keys.items())

    return section


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"ca_file": "missing"}, "upstream.ca_file (line 2): 'missing' cannot be read: no such file or directory"),
        ({"ca_file": "folder"}, "upstream.ca_file (line 2): '.' cannot be read: is a directory"),
        ({"ca_file": "text"}, "upstream.ca_file (line 2): 'text' contains no certificate in PEM form"),
        ({"ca_file": "key"}, "upstream.ca_file (line 2): 'An-authority-1.key' contains no certificate in PEM form"),
        ({"ca_file": "damaged"}, "upstream.ca_file (line 2): 'damaged.pem' contains a certificate that cannot be read"),
        (
            {"client_cert_file": "key"},
            "upstream.client_cert_file (line 2): 'An-authority-1.key' contains no certificate in PEM form",
        ),
        (
            {"client_cert_file": "cert"},
            "upstream.client_key_file: null is not enough: client_cert_file contains no private key",
        ),
        (
            {"client_key_file": "key"},
            "upstream.client_key_file (line 2): 'An-authority-1.key' needs client_cert_file too",
        ),
        (
            {"client_cert_file": "cert", "client_key_file": "other_key"},
            "upstream.client_key_file (line 3): 'An-authority-2.key' does not belong to client_cert_file",
        ),
        (
            {"client_cert_file": "cert", "client_key_file": "locked"},
            "upstream.client_key_file (line 3): 'a.key' contains a private key with a passphrase; store it without one",
        ),
        (
            {"client_cert_file": "cert", "client_key_file": "text"},
            "upstream.client_key_file (line 3): 'text' contains no private key in PEM form",
        ),
        (
            {"client_cert_file": "damaged", "client_key_file": "key"},
            "upstream.client_key_file (line 3): 'An-authority-1.key' or its certificate is damaged",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_a_mistake_of_the_configuration(keys, problem, write) -> None:
    """The message has the key's name and line, like any other. Nobody is asked for a passphrase."""
    with pytest.raises(ConfigError) as caught:
        load_config(write(**keys), environment={})
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"ca_file": "ca"},
        {"ca_file": "other"},
        {"client_cert_file": "cert", "client_key_file": "key"},
        {"client_cert_file": "both"},
        {"ca_file": "ca", "client_cert_file": "both", "client_key_file": "key"},
    ],
)
def test_files_that_fit_are_read_at_once(keys, write) -> None:
    """Later changes of the files do not change the TLS settings. Without files, the system's own are used."""
    assert (load_config(write(**keys) if keys else "", environment={}).upstream.tls is not None) == bool(keys)


def test_a_variable_that_is_set_to_nothing_is_no_file() -> None:
    """An empty variable means the same for keys."""
    text = "upstream: {ca_file: '${X:-}', client_cert_file: '${X:-}', client_key_file: '${X:-}', proxy: '${X:-}'}"
    upstream = load_config(text, environment={}).upstream
    assert (upstream.ca_file, upstream.client_cert_file, upstream.client_key_file, upstream.proxy) == (None,) * 4


def test_a_home_directory_is_found(write, tmp_path, monkeypatch) -> None:
    """`~` is the user's home directory."""
    text = write(ca_file="ca")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_config(text.replace("ca_file: ", "ca_file: ~/"), environment={}).upstream.tls is not None


@pytest.mark.parametrize("file", ["~nobody-of-this-name/x", '"a\\0b"', '"\\ud800"'])
def test_a_name_that_no_file_can_have_is_told(file: str) -> None:
    """The message does not depend on the system's own error."""
    with pytest.raises(ConfigError, match=r"\Aupstream\.ca_file \(line 1\): .*cannot be read: \w"):
        load_config(f"upstream: {{ca_file: {file}}}", environment={})
