"""`trimtab record`: `trimtab serve` with recordings.

Law: it only sets the keys of `record`; everything else is the command `serve`.
"""

from pathlib import Path
from typing import Any

import click
import orjson

from trimtab.proxy.cli.options import usual_recordings
from trimtab.proxy.cli.serving.serve import serve
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_file


def _run(folder: Path | None, keep: int | None, max_bytes: int | None, **given: Any) -> None:
    """Run the proxy, and record every request.

    Recordings contain the text of messages, but no keys. They are files that only their owner can read, in --dir. Look
    at them with `trimtab inspect`, or play them again with `trimtab replay`. All other options are those of
    `trimtab serve`.
    """
    if folder is None and not _names_folder(given["config_path"], given["settings"]):
        folder = usual_recordings()
    wanted = {"dir": folder and str(folder), "keep": keep, "max_bytes": max_bytes}
    # As JSON, which is YAML, too: a path may look like another value.
    added = tuple(f"record.{key}={orjson.dumps(value).decode()}" for key, value in wanted.items() if value is not None)
    click.get_current_context().invoke(serve, **given | {"settings": (*given["settings"], *added)})


def _names_folder(config_path: Path | None, settings: tuple[str, ...]) -> bool:
    """Whether the configuration has `record.dir`. If it has an error, it has not: that may be the missing folder."""
    try:
        return load_file(config_path, settings, is_online=False).record is not None
    except ConfigError:
        return False


_OPTIONS = [
    click.Option(
        ["--dir", "folder"],
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of the recordings; short for --set record.dir=DIR. Default: record.dir of the configuration, "
        "else the folder recordings in the user's data directory.",
    ),
    click.Option(
        ["--keep"],
        type=click.IntRange(min=1),
        help="Number of newest requests that are kept; short for --set record.keep=N. Default: 10000.",
    ),
    click.Option(
        ["--max-bytes"],
        type=click.IntRange(min=1024 * 1024),
        help="Size in bytes that all recordings together may have; short for --set record.max_bytes=N. Default: 1 GiB.",
    ),
]

record = click.Command("record", params=[*_OPTIONS, *serve.params], callback=_run, help=_run.__doc__)
