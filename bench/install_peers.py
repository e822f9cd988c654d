"""Installs the peers, each into an environment of its own: 1.2 GB, a few minutes. Nothing of theirs reaches ours.

Which versions came is written beside them; a peer that cannot be installed is missing in the bench's table.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from peers import PACKAGES, PEERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=PEERS)
    folder: Path = parser.parse_args().folder
    failed = [name for name, package in PACKAGES.items() if not install(folder / name, package)]
    sys.exit(f"not installed: {', '.join(failed)}" if failed else 0)


def install(environment: Path, package: str) -> bool:
    """Whether a package is installed in an environment now; says which version."""
    python = environment / "bin" / "python"
    try:
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", package], check=True)
    except subprocess.CalledProcessError as error:
        print(f"{package}: {error}", file=sys.stderr)
        return False
    frozen = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout
    environment.joinpath("versions.txt").write_text(frozen, encoding="utf-8")
    name = package.partition("[")[0].partition(">")[0]
    print(*(line for line in frozen.splitlines() if line.startswith(f"{name}==")), flush=True)
    return True


if __name__ == "__main__":
    main()
