"""The fenced blocks of a Markdown file, with the marks that say how to test them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from markdown_it import MarkdownIt
from markdown_it.token import Token

RUN, OUTPUT = "<!-- run -->", "<!-- output -->"
RUNNABLE = {"sh", "python"}
_FENCE = re.compile(r"\s*(```|~~~)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a file.

    line: the line of its opening fence, from 1.
    is_run: a test runs it.
    output: the text that the run must print; None if any output is accepted.
    """

    file: str
    line: int
    language: str
    text: str
    is_run: bool = False
    output: str | None = None

    @property
    def place(self) -> str:
        """File and line, in the form that editors open."""
        return f"{self.file}:{self.line}"


class WrongMarkError(Exception):
    """A block without a language, a block that tests cannot see, or a mark without a block."""


def find_blocks(text: str, file: str) -> list[Block]:
    """Find the blocks of a file, in order. Raises WrongMarkError."""
    tokens = MarkdownIt("commonmark").parse(text)
    _check_all_seen(text, file, tokens)
    found: list[Block] = []
    for mark, token in zip(["", *map(_read_mark, tokens)], [*tokens, None], strict=True):
        if token is not None and token.type == "fence":
            _add(found, mark, _read_block(token, file, is_run=mark == RUN))
        elif mark:
            message = f"{file}:{_line(tokens, token) - 1}: {mark} must be right before a fenced block"
            raise WrongMarkError(message)
    return found


def _add(found: list[Block], mark: str, block: Block) -> None:
    if mark == OUTPUT:
        last = next((index for index in reversed(range(len(found))) if found[index].is_run), None)
        if block.language != "text" or last is None or found[last].output is not None:
            message = f"{block.place}: {OUTPUT} must be before a text block, once after a block with {RUN}"
            raise WrongMarkError(message)
        found[last] = replace(found[last], output=block.text)
    found.append(block)


def _read_block(token: Token, file: str, *, is_run: bool) -> Block:
    block = Block(file, _first_line(token), token.info.partition(" ")[0], token.content, is_run)
    if not block.language:
        message = f"{block.place}: a fenced block needs a language; use text for anything else"
        raise WrongMarkError(message)
    if is_run and block.language not in RUNNABLE:
        message = f"{block.place}: {RUN} is for {' and '.join(sorted(RUNNABLE))}, not for {block.language}"
        raise WrongMarkError(message)
    return block


def _read_mark(token: Token) -> str:
    return token.content.strip() if token.type == "html_block" and token.content.strip() in {RUN, OUTPUT} else ""


def _line(tokens: list[Token], token: Token | None) -> int:
    return _first_line(tokens[-1] if token is None else token)


def _first_line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 1


def _check_all_seen(text: str, file: str, tokens: list[Token]) -> None:
    """A block in an admonition is indented, so the parser does not see it and it would remain untested."""
    seen = {line for token in tokens if token.type == "fence" and token.map for line in range(*token.map)}
    for number in _list_fences(text):
        if number not in seen:
            message = f"{file}:{number + 1}: no test can see this block; move it out of its admonition or list"
            raise WrongMarkError(message)


def _list_fences(text: str) -> Iterator[int]:
    return (number for number, line in enumerate(text.splitlines()) if _FENCE.match(line))
