"""`python -m trimtab` does the same as `trimtab`: the script `trimtab` calls `main` here."""

import os
import signal
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C, as in shells."""


def main() -> None:
    """Run the command line. Ctrl-C ends it quietly, unless a command handles the signal itself."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored: a shell's `&` does that
        signal.signal(signal.SIGINT, _end)
    from trimtab.proxy.cli.main import main as run  # noqa: PLC0415 - takes half a second, in which Ctrl-C must end it, too

    run(prog_name="trimtab")


def _end(_number: int, _frame: Any) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
