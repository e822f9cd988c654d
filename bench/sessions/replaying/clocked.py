"""`trimtab` with a clock that the bench moves, so that a session can be silent for an hour without waiting.

    python -m bench.sessions.replaying.clocked FILE serve --listen ...

FILE has the seconds by which the clock is ahead; the bench writes it between two requests. The clock is given to
`trimtab.proxy.summaries.cold_cuts.ColdCuts`, if it takes one. All else is the program that users start.
"""

import inspect
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trimtab.proxy.cli.main import main
from trimtab.proxy.server import app
from trimtab.proxy.summaries.cold_cuts import ColdCuts

CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class FileClock:
    """Seconds since 1970, ahead by as many as the file says."""

    file: Path

    def __call__(self) -> float:
        """The time now."""
        return time.time() + float(self.file.read_text("ascii"))

    def advance(self, seconds: float) -> None:
        """Move the clock; all processes that read the file have the new time at once."""
        ahead = float(self.file.read_text("ascii")) if self.file.exists() else 0.0
        self.file.write_text(repr(ahead + seconds), "ascii")


def takes_clock() -> bool:
    """Whether this version of trimtab can be given a clock."""
    return CLOCK in inspect.signature(ColdCuts).parameters


if __name__ == "__main__":
    own_clock = FileClock(Path(sys.argv.pop(1)))
    if takes_clock():
        program: Any = app
        program.ColdCuts = partial(ColdCuts, clock=own_clock)
    main()
