"""docs/reference/commands.md, from click's definition of the command line and the exit status of each command."""

import inspect
from collections.abc import Iterator

import click

from handbook.tables import code, plain, write_table
from trimtab.proxy.cli.main import main

INTRODUCTION = """\
# Commands

This page lists every command of `trimtab` with its arguments, options and exit status.

`python -m trimtab` is the same program. An option overrides the environment variable for the same value.
"""
WRONG_USE = "The arguments or the configuration are wrong. Nothing was done."
EXITS: dict[str, tuple[tuple[int, str], ...]] = {
    "serve": (
        (0, "SIGTERM or Ctrl-C stopped it, and the requests in flight have ended."),
        (
            1,
            "It cannot listen at the address. With several workers: a worker could not start, or did not end properly.",
        ),
        (130, "A second Ctrl-C ended the process at once, or Ctrl-C came before the proxy listened."),
        (143, "A second SIGTERM ended the process at once."),
    ),
    "check": ((0, "The file is valid."),),
    "compact": ((0, "Every request was compacted."), (1, "A request cannot be read or does not fit the window.")),
    "compact-session": (
        (0, "The session is cut at its next request."),
        (1, "The store is `memory`, or it cannot be opened, read or written."),
    ),
    "count": ((0, "Every request was counted."), (1, "A request cannot be read.")),
    "demo": ((0, "The replay ended."),),
    "doctor": ((0, "The proxy will work here, perhaps with warnings."), (1, "Something will fail.")),
    "evaluate": (
        (0, "At least one of the `--arms` was measured."),
        (1, "Nothing was measured."),
        (130, "Ctrl-C."),
    ),
    "forget": (
        (0, "What was learned is forgotten."),
        (1, "The store is `memory`, or it cannot be opened, read or written."),
    ),
    "healthcheck": (
        (0, "The proxy accepts requests."),
        (1, "The proxy does not accept requests, or the configuration is wrong."),
        (2, "The arguments are wrong."),
    ),
    "init": (
        (0, "The file was written."),
        (1, "No file was written: it exists, cannot be written, or the server cannot be reached."),
    ),
    "keys": (
        (0, "The key was made or revoked, or the keys were listed."),
        (1, "There is no such file or key, or the file cannot be read or written."),
    ),
    "inspect": (
        (0, "The request or the table was printed."),
        (1, "It is not recorded, or its file is broken, or the wanted body was not recorded."),
    ),
    "record": (
        (0, "SIGTERM or Ctrl-C stopped it, and the requests in flight have ended."),
        (1, "As for `trimtab serve`."),
        (130, "As for `trimtab serve`."),
        (143, "As for `trimtab serve`."),
    ),
    "replay": (
        (0, "The report was printed."),
        (1, "With `--check`: a request differs or cannot be read. Or the picture cannot be drawn."),
        (130, "Ctrl-C."),
    ),
    "summary": (
        (0, "The text was printed."),
        (1, "No summary with this id can be read with this credential, or the store cannot be read."),
    ),
    "stats": (
        (0, "The statistics were printed, even if there were no requests."),
        (1, "The store is `memory`, or it cannot be opened or read."),
    ),
    "wrap": (
        (0, "COMMAND ended with this status; any other status of COMMAND is handed on, too."),
        (1, "The proxy cannot listen, or COMMAND ended with this status."),
        (126, "COMMAND cannot be run."),
        (127, "COMMAND was not found."),
    ),
    "schema": ((0, "The schema was printed."), (2, "The arguments are wrong.")),
}
"""By command. Status 2 means WRONG_USE if a command has no entry for it. A test demands an entry for each command."""


def write() -> str:
    """The page."""
    context = click.Context(main, info_name="trimtab", **main.context_settings)
    commands = [main.commands[name] for name in main.list_commands(context)]
    rows = [(f"[{code(f'trimtab {one.name}')}](#trimtab-{one.name})", one.get_short_help_str(200)) for one in commands]
    parts = [INTRODUCTION, write_table(("Command", "Purpose"), rows), *_write_general(context)]
    return "\n".join([*parts, *(_write_command(command, context) for command in commands)])


def _write_general(context: click.Context) -> Iterator[str]:
    yield "## `trimtab`\n"
    yield from (_read_help(main), _write_usage(context), _write_options(main, context))


def _write_command(command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=command.name, parent=parent)
    exits = {2: WRONG_USE} | dict(EXITS[str(command.name)])
    statuses = write_table(("Exit status", "Meaning"), [(str(status), exits[status]) for status in sorted(exits)])
    arguments = "".join(map(_write_argument, command.params))
    parts = (_read_help(command), _write_usage(context), arguments, _write_options(command, context), statuses)
    return "\n".join((f"## `trimtab {command.name}`\n", *parts))


def _read_help(command: click.Command) -> str:
    text = inspect.cleandoc(command.help or "")
    paragraphs = (" ".join(part.split()) for part in text.partition("\f")[0].split("\n\n"))
    return "\n\n".join(map(plain, paragraphs)) + "\n"


def _write_usage(context: click.Context) -> str:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return f"```text\n{context.command_path} {pieces}\n```\n"


def _write_argument(parameter: click.Parameter) -> str:
    if not isinstance(parameter, click.Argument):
        return ""
    name = code(parameter.human_readable_name)
    if isinstance(parameter.type, click.File):
        return f"{name} is a file; `-`, the default, is standard input.\n"
    return f"{name} is required.\n" if parameter.required else ""


def _write_options(command: click.Command, context: click.Context) -> str:
    """The options, each with the environment variable that sets it."""
    options = [one for one in command.get_params(context) if isinstance(one, click.Option) and not one.hidden]
    rows = [_write_option(option, context) for option in options]
    return write_table(("Option", "Meaning", "Environment variable"), rows)


def _write_option(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    names, meaning = option.get_help_record(context) or (", ".join(option.opts), "")
    variable = option.envvar if isinstance(option.envvar, str) else ", ".join(option.envvar or ())
    return code(names), plain(meaning), code(variable)
