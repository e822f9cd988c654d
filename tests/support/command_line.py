"""Runs `trimtab` in this process, as a shell would."""

import os
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from trimtab.proxy.cli.main import main

SMALL = ("--set", "defaults.count=heuristic", "--set", "defaults.context_window=4000")
"""Settings for a small window, and for token counts without a vocabulary."""
ODD_BODY = b'\n{ "messages" : [ {"role":"user", "content":"\\u00e9"} ] , "seed":%d }\r\n\n' % 10**30


def run_trimtab(*arguments: str | Path, input_bytes: bytes | None = None, **environment: str) -> Result:
    """Run `trimtab` in this process, without the TRIMTAB_ variables of the environment."""
    unset = {
        name: None for name in os.environ if name.startswith("TRIMTAB_")
    }  # click's test runner unsets a variable that is None
    # An exception that nobody expects would have the same exit status as a command that found something.
    return CliRunner().invoke(
        main, list(map(str, arguments)), input=input_bytes, env={**unset, **environment}, catch_exceptions=False
    )


def tell(
    *arguments: str | Path,
    hidden: Mapping[str | Path, str] = {},
    input_bytes: bytes | None = None,
    **environment: str,
) -> str:
    """What a command prints, without click's own lines, and its status, for a golden file.

    hidden: words for texts that vary.
    """
    done = run_trimtab(*arguments, input_bytes=input_bytes, **environment)
    text = f"{done.stdout}{done.stderr}status {done.exit_code}"
    for one, word in hidden.items():
        text = text.replace(str(one), word)
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if not line.startswith(("Usage: main ", "Try 'main ")))
