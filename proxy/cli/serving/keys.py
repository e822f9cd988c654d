"""`trimtab keys`: makes, lists and revokes the keys in a client's key file, which has only their hashes.

Law: a key is shown once, when it is made, and written nowhere. The file is replaced as a whole, or not at all.
"""

import os
import secrets
import shutil
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

import click

from trimtab.proxy.cli.options import StoppedError, give_up, wrong_use
from trimtab.proxy.config.values import HASHED, KEY_ID_CHARS, name_key

KEY_BYTES = 24  # chosen: nobody can guess 192 bits, so a plain hash of them suffices
PREFIX = "sk-trimtab-"  # some clients accept only keys that begin with `sk-`


@click.command()
@click.argument("action", type=click.Choice(("add", "list", "revoke")))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("key_id", metavar="[ID]", required=False)
@click.option(
    "--expires", metavar="DATE", help="With add: the day (UTC) from which on the key is refused, as 2027-01-31."
)
def keys(action: str, file: Path, key_id: str | None, *, expires: str | None) -> None:
    """Make, list and revoke the keys in FILE, the key_file of a client.

    `add` prints a new key once and writes its hash. `list` prints a line for each key: its ID, its end, and when it was
    made. `revoke` removes the key with this ID. A running proxy heeds the file after a reload.
    """
    with wrong_use():
        if expires is not None and action != "add":
            raise click.UsageError("only add takes --expires")
        if action == "add":
            if key_id is not None:
                raise click.UsageError("add takes no ID: it makes one")
            _add(file, expires)
        elif action == "list":
            _list(file)
        elif key_id is None:
            raise click.UsageError("revoke needs the ID of a key; trimtab keys list shows them")
        else:
            _revoke(file, key_id)


def _add(file: Path, expires: str | None) -> None:
    try:
        end = "" if expires is None else f" expires={date.fromisoformat(expires).isoformat()}"
    except ValueError:
        raise click.BadParameter("must be a date, such as 2027-01-31", param_hint="--expires") from None
    if end and end.partition("=")[2] <= _today():
        message = f"{expires} is not in the future: the key would be refused from the beginning"
        raise click.BadParameter(message, param_hint="--expires")
    key = f"{PREFIX}{secrets.token_hex(KEY_BYTES)}"
    digest = sha256(key.encode()).hexdigest()
    _write(file, [*_read(file, may_lack=True), f"# {digest[:KEY_ID_CHARS]} made {_today()}", f"{HASHED}{digest}{end}"])
    click.echo(key)
    click.echo(f"trimtab: key {digest[:KEY_ID_CHARS]} is in {file}; it is shown only now", err=True)


def _list(file: Path) -> None:
    lines, today = _read(file), _today()
    made = {line.split()[1]: line.split()[-1] for line in lines if line.startswith("# ") and " made " in line}
    for line in lines:
        if line and not line.startswith("#"):
            name = name_key(line.split()[0])
            click.echo("  ".join((name, f"made {made[name]}" if name in made else "", _tell_end(line, today))))


def _tell_end(line: str, today: str) -> str:
    end = line.partition("expires=")[2].strip()
    if not end:
        return "does not end"
    try:
        day = date.fromisoformat(end).isoformat()
    except ValueError:
        return f"ends on no date ({end}), so the configuration is refused"
    return f"ended {day}" if day <= today else f"ends {day}"


def _revoke(file: Path, key_id: str) -> None:
    lines = _read(file)
    kept = [line for line in lines if line.startswith("#") or not line or name_key(line.split()[0]) != key_id]
    if len(kept) == len(lines):
        raise StoppedError(f"{file}: there is no key {key_id}; trimtab keys list shows those that there are")
    _write(file, [*kept, f"# {key_id} revoked {_today()}"])
    click.echo(f"key {key_id} is revoked; a running proxy refuses it after a reload")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _read(file: Path, *, may_lack: bool = False) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        if may_lack:
            return []
        give_up(f"{file}: no such file")
    except (OSError, UnicodeDecodeError) as error:
        give_up(f"{file}: {error.strerror if isinstance(error, OSError) else 'it is no text'}")


def _write(file: Path, lines: list[str]) -> None:
    """Write the file as a whole, or not at all. It keeps its owner and rights; a new one is only for its owner."""
    try:
        written = NamedTemporaryFile("wb", dir=file.parent, prefix=f".{file.name}.", delete=False)  # noqa: SIM115
        draft = Path(written.name)
        try:
            with written:
                written.write("\n".join((*lines, "")).encode())
            if file.exists():
                found = file.stat()
                os.chown(draft, found.st_uid, found.st_gid)
                shutil.copymode(file, draft)
            draft.replace(file)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        give_up(f"{file}: cannot be written: {error.strerror}")
