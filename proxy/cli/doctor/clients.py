"""Findings about the keys of clients."""

import os
import stat
from pathlib import Path

from proxy.cli.doctor.checks import Finding
from proxy.config.schema import Config
from proxy.config.sections.clients import ClientConfig


def find_readable_keys(config: Config) -> list[Finding]:
    """A finding for all key files that every user of this machine can read. It shows names of clients, and no key."""
    clients = config.client_keys if isinstance(config.client_keys, dict) else {}
    files = {name: each.key_file for name, each in clients.items() if isinstance(each, ClientConfig) and each.key_file}
    named = [name for name, key_file in files.items() if _is_readable_by_all(key_file)]
    if not named:
        return []
    found = f"every user of this machine can read the key files of {', '.join(named)}"
    return [Finding("client_keys", "warning", found, "chmod 600; ignore this in a container without other users")]


def _is_readable_by_all(key_file: str) -> bool:
    try:
        return bool(Path(os.path.expanduser(key_file)).stat().st_mode & stat.S_IROTH)  # noqa: PTH111 - as it was read
    except OSError:
        return False
