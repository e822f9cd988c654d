"""`trimtab` run in this process, as from a shell."""

from pathlib import Path

from click.testing import CliRunner, Result

from proxy.cli.main import main

SMALL = ("--set", "defaults.count=heuristic", "--set", "defaults.context_window=4000")
"""Settings for a window that fills soon, and for counts that need no vocabulary."""
ODD_BODY = b'\n{ "messages" : [ {"role":"user", "content":"\\u00e9"} ] , "seed":%d }\r\n\n' % 10**30
_OWN_VARIABLES = (
    "TRIMTAB_CONFIG",
    "TRIMTAB_UPSTREAM",
    "TRIMTAB_LISTEN",
    "TRIMTAB_AUTOCOMPACT_PCT",
    "TRIMTAB_LOG_LEVEL",
    "TRIMTAB_LOG_FORMAT",
)


def run_trimtab(*arguments: str | Path, input_bytes: bytes | None = None, **environment: str) -> Result:
    """Run `trimtab` in this process, without the environment's own settings."""
    unset = dict.fromkeys(_OWN_VARIABLES)  # click's runner unsets what is None
    return CliRunner().invoke(main, list(map(str, arguments)), input=input_bytes, env={**unset, **environment})
