"""Regular expressions that are compiled when they are first used: 300 of them take a tenth of the start.

Law: beside that, the same as `re.compile`. A pattern that is wrong is found by `compile_all`, which a test calls. The
words that patterns are made of may be in a table beside the code, which is read once, as the code is.

In all patterns of rules and proxy, a group that is repeated possessively ends with an empty choice: `(?:a|b|)*+`.
Before 3.11.5, Python goes on behind a last repetition that failed half way; the empty choice takes it back.
"""

import re
from functools import cache
from pkgutil import get_data
from typing import Any, AnyStr, cast


class _Late:
    """Stands for a pattern. Its methods become those of the compiled pattern one by one, when they are asked for."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if "compiled" not in self.__dict__:
            self.__dict__["compiled"] = re.compile(*self._source)
        found = self.__dict__[name] = getattr(self.__dict__["compiled"], name)
        return found


_ALL: list[_Late] = []


def compile_late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The pattern, as from `re.compile`. It must not be handed to the functions of `re`, which take no other object."""
    _ALL.append(_Late(pattern, flags))
    return cast("re.Pattern[AnyStr]", _ALL[-1])


def compile_all() -> None:
    """Compile every pattern, so that no request waits for one. Takes about 0.1 s."""
    for one in _ALL:
        one.__getattr__("pattern")


@cache
def read_table(module: str) -> dict[str, str]:
    """The sections of words.txt beside a module, by name: a line `[name] comment`, then the lines up to a blank one."""
    table = (get_data(module.rpartition(".")[0], "words.txt") or b"").decode()
    return dict(re.findall(r"^\[([^\]\n]+)\].*\n((?:.+\n)+)", table, re.MULTILINE))
