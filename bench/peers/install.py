"""Installs the peers, each into its own environment: 1.2 GB, a few minutes. trimtab's environment stays unchanged.

    python -m bench.peers.install --only litellm

The installed versions are written beside the packages. A peer that cannot be installed is missing in the tables.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from bench.peers.environments import PEERS

_ROOT = Path(__file__).parents[2]
ENVIRONMENTS = {
    "langchain": ("langchain>=1.4,<2",),
    "litellm": ("litellm>=1.106,<2",),
    "headroom": ("headroom-ai[proxy]>=0.42,<0.43",),
    "litellm-proxy": ("litellm[proxy]>=1.106,<2",),
    "sglang": ("sglang-router>=0.3.2,<0.4",),
    "tensorzero": ("tensorzero>=2026.6,<2027",),
    "engines": (f"{_ROOT}[speed]", "tiktoken", "bpe-openai", "quicktok-v1>=0.4,<0.5"),
}
"""Packages by the name of their environment."""
ON_DEMAND = {"llmlingua": ("llmlingua>=0.2.2,<0.3", "torch>=2.6,<=2.13.0")}
"""Gigabytes, and useless without a model: installed only if it is named."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=PEERS)
    parser.add_argument(
        "--only",
        choices=(*ENVIRONMENTS, *ON_DEMAND),
        action="append",
        help="only these (default: all except llmlingua)",
    )
    arguments = parser.parse_args()
    names = arguments.only or ENVIRONMENTS
    known = {**ENVIRONMENTS, **ON_DEMAND}
    failed = [name for name in names if not install(arguments.folder / name, *known[name])]
    sys.exit(f"not installed: {', '.join(failed)}" if failed else 0)


def install(environment: Path, *packages: str) -> bool:
    """Install packages into an environment; print their versions and return whether it worked."""
    python = environment / "bin" / "python"
    try:
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", *packages], check=True)
    except subprocess.CalledProcessError as error:
        print(f"{', '.join(packages)}: {error}", file=sys.stderr)
        return False
    frozen = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout
    environment.joinpath("versions.txt").write_text(frozen, encoding="utf-8")
    names = {package.partition("[")[0].partition(">")[0] for package in packages}
    print(*(line for line in frozen.splitlines() if line.partition("==")[0] in names), flush=True)
    return True


if __name__ == "__main__":
    main()
