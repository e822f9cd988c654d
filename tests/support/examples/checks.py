"""Checks a block of the documentation by the rules of its language, without running it."""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
import yaml
from support.authority import Authority
from support.examples.blocks import Block
from support.examples.shell import find_commands, find_fault

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config

CONFIGURATION = re.compile(r"# trimtab(-[\w-]+)?\.yaml\b")
_VARIABLE = re.compile(r"\$\{(\w+)")
BASH = "/bin/bash"
_FILE_KEY = re.compile(r"^(\s*(?:- )?)(ca_file|client_cert_file|client_key_file):[ \t]*[^\s#].*$", re.MULTILINE)
_KEY_FILE = re.compile(r"(?<![a-z_])key_file:[ \t]*[^\s#,}]+")
_STAND_INS = {"REDIS_URL": "redis://127.0.0.1/0", "STORE": "memory", "URL": "http://127.0.0.1:1/v1", "PORT": "8790"}
"""The value of a variable, by the end of its name. Any other variable is an API key."""


def check(block: Block, folder: Path) -> str | None:
    """The problem with a block, or None. `folder`: for the certificates that a configuration names."""
    if block.language in {"yaml", "yml"} and CONFIGURATION.match(block.text):
        return check_configuration(block.text, folder)
    checker = CHECKERS.get(block.language)
    return checker(block.text) if checker else None


def check_configuration(text: str, folder: Path) -> str | None:
    """Check a configuration, with stand-ins for its variables and its certificates."""
    environment = {name: _stand_in(name) for name in _VARIABLE.findall(text)}
    try:
        load_config(_put_keys(_put_files(text, folder), folder), environment=environment)
    except ConfigError as error:
        return str(error)
    return None


def _stand_in(name: str) -> str:
    # Each key is another: two clients must not have the same.
    return next((value for end, value in _STAND_INS.items() if name.endswith(end)), f"sk-of-the-documentation-{name}")


def _put_keys(text: str, folder: Path) -> str:
    """The text with each file of a client's key replaced by one that exists."""

    def write(found: re.Match[str]) -> str:
        file = folder / f"key-{found.start()}"
        file.write_text(f"key-{found.start()}\n", "utf-8")
        return f"key_file: {file}"

    return _KEY_FILE.sub(write, text)


def _put_files(text: str, folder: Path) -> str:
    if not _FILE_KEY.search(text):
        return text
    authority = Authority(folder)
    certificate, key = authority.issue("localhost")
    if "client_key_file" not in text:
        certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
    files = {"ca_file": authority.ca_file, "client_cert_file": certificate, "client_key_file": key}
    return _FILE_KEY.sub(lambda found: f"{found[1]}{found[2]}: {files[found[2]]}", text)


def check_yaml(text: str) -> str | None:
    """Check the syntax of YAML."""
    try:
        list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        return f"not valid YAML: {error}"
    return None


def check_json(text: str) -> str | None:
    """Check the syntax of one JSON value."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return f"not valid JSON: {error}"
    return None


def check_python(text: str) -> str | None:
    """Check the syntax of a Python module."""
    try:
        compile(text, "example", "exec")
    except SyntaxError as error:
        return f"not valid Python: line {error.lineno}: {error.msg}"
    return None


def check_shell(text: str) -> str | None:
    """Check the syntax of shell commands, and the arguments of each `trimtab` command."""
    if re.search(r"^\s*\$ ", text, re.MULTILINE):
        return "a command is written without the prompt `$ `"
    ended = subprocess.run([BASH, "-n"], input=text, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        return f"not valid for bash: {ended.stderr.strip()}"
    try:
        faults = [(arguments, find_fault(arguments)) for arguments in find_commands(text)]
    except ValueError as error:
        return f"the tests cannot split it into words: {error}"
    return next((f"trimtab {' '.join(arguments)}: {fault}" for arguments, fault in faults if fault), None)


CHECKERS: Mapping[str, Callable[[str], str | None]] = {
    "bash": check_shell,
    "json": check_json,
    "python": check_python,
    "sh": check_shell,
    "yaml": check_yaml,
    "yml": check_yaml,
}
