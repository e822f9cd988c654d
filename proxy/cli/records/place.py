"""Finds the folder of recordings: the one that is named, else that of the configuration, else the usual one."""

from pathlib import Path

import click

from proxy.config.load import load_file
from proxy.state.stores.opening import data_directory

dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the recordings. Default: record.dir of the configuration, else the one of `trimtab record`.",
)


def usual_folder() -> Path:
    """Where `trimtab record` writes if no folder is named."""
    return data_directory() / "recordings"


def find_folder(folder: Path | None, config_path: Path | None, settings: tuple[str, ...]) -> Path:
    """The folder to read from. Raises ConfigError."""
    if folder is not None:
        return folder.expanduser()
    config = load_file(config_path, settings, is_online=False)
    return usual_folder() if config.record is None else Path(config.record.dir).expanduser()
