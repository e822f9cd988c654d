"""The `trimtab` commands in a shell text, parsed as click would. Nothing is run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath

import click

from trimtab.proxy.cli.main import main
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import Slot

_HEREDOC = re.compile(r"<<(-?)\s*(['\"]?)(\w+)\2")
_ASSIGNMENT = re.compile(r"\w+=")
_OPERATOR = re.compile(r"[();<>|&]+")
_BEFORE = {"!", "command", "do", "else", "env", "exec", "if", "nohup", "sudo", "then", "time", "until", "while", "{"}
"""Words that may come before a command."""


def find_commands(text: str) -> Iterator[list[str]]:
    """Find the arguments of each `trimtab` or `python -m trimtab` in a text, with or without a path before it.

    `trimtab` after words of another program counts if a command of trimtab follows: `docker run trimtab serve`.
    """
    for words in _split(text):
        for index, word in enumerate(words):
            rest = words[index + 1 :]
            if word == "-m" and rest[:1] == ["trimtab"] and "python" in PurePath(words[index - 1]).name:
                yield rest[1:]
                break
            is_first = all(before in _BEFORE or _ASSIGNMENT.match(before) for before in words[:index])
            if PurePath(word).name == "trimtab" and (is_first or (rest[:1] and rest[0] in main.commands)):
                yield rest
                break


def _split(text: str) -> Iterator[list[str]]:
    """The words of each simple command, without redirections and heredocs. Raises ValueError for an open quotation."""
    joined = (
        _drop_heredocs(text).replace("\\\n", " ").replace("\n", "\n; ")
    )  # shlex drops a comment with its line break, so add a `;`
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    is_target = False
    for word in lexer:
        if not _OPERATOR.fullmatch(word):
            words += [] if is_target else [word]
            is_target = False
        elif set(word) & set("<>"):
            is_target = True
            if words and words[-1].isdigit():
                words.pop()  # the file descriptor before `>`
        else:
            yield words
            words = []
    yield words


def _drop_heredocs(text: str) -> str:
    lines: list[str] = []
    end: str | None = None
    for line in text.splitlines():
        if end is None:
            lines.append(_HEREDOC.sub("", line))
            found = _HEREDOC.search(line)
            end = found[3] if found else None
        elif line.strip() == end:
            end = None
    return "\n".join(lines)


def find_fault(arguments: list[str]) -> str | None:
    """The problem with a `trimtab` command; None if click accepts it. No file is opened."""
    group = click.Context(main, info_name="trimtab", **main.context_settings)
    if not arguments or arguments[0] in {"-h", "--help", "--version"} or {"-h", "--help"} & set(arguments):
        return None
    try:
        name, command, rest = main.resolve_command(group, list(arguments))
        return _check(command, click.Context(command, info_name=name, parent=group, **command.context_settings), rest)
    except click.UsageError as error:
        return error.format_message()


def _check(command: click.Command, context: click.Context, arguments: list[str]) -> str | None:
    given, left, _ = command.make_parser(context).parse_args(list(arguments))
    if left:
        return f"unexpected argument {left[0]}"
    for parameter in command.get_params(context):
        value = given.get(parameter.name)
        texts = list(value) if isinstance(value, list | tuple) else [value] if isinstance(value, str) else []
        if parameter.required and not texts:
            return f"{parameter.human_readable_name} is missing"
        is_plain = texts and not any("$" in text for text in texts)  # a shell variable may have any value
        if is_plain and not isinstance(parameter.type, click.File | click.Path):
            parameter.type_cast_value(context, value)
        if parameter.name == "settings":
            unknown = next((text for text in texts if not _is_setting(text)), None)
            if unknown is not None:
                return f"--set {unknown}: there is no such key"
    return None


def _is_setting(text: str) -> bool:
    """Whether the text is `dotted.key=value` with an existing key of the configuration."""
    path, equals, _ = text.partition("=")
    slot: Slot | None = Slot.of(Config)
    for step in path.split("."):
        slot = slot.enter(step) if slot else None
    return bool(equals) and slot is not None
