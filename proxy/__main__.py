"""`python -m proxy` is `trimtab`, whose script begins here, too."""

import os
import signal
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
"""As shells have it."""


def main() -> None:
    """Run the command line. Ctrl-C ends it without a word, unless a command's loop takes the signal itself."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as by a shell's `&`
        signal.signal(signal.SIGINT, _end)
    from proxy.cli.main import main as run  # noqa: PLC0415 - takes half a second, in which Ctrl-C must end it, too

    run(prog_name="trimtab")


def _end(_number: int, _frame: Any) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
