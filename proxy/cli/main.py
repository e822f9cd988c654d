"""The command line: `trimtab serve`, `check`, `doctor`, `compact`, `evaluate` and others.

Law: a command's module is imported only when that command is called, because all of them together take a second. Wrong
arguments and a wrong configuration end a command with status 2 and with messages that say what is allowed.
"""

import gc
import os
from collections.abc import Iterator, Mapping
from importlib import import_module

import click

COMMANDS: Mapping[str, tuple[str, str]] = {
    "check": ("check", "Validate the configuration in FILE and report every error."),
    "compact": ("bodies", "Compact the request body in FILE (or standard input)."),
    "compact-session": ("stored", "Have a session cut at its next request."),
    "count": ("bodies", "Count the tokens of a request body, by section."),
    "demo": ("demo", "Replay a long agent session to a simulated upstream."),
    "doctor": ("doctor", "Check whether the proxy will work here."),
    "evaluate": ("evaluate.command", "Measure what a model still knows after compaction."),
    "forget": ("stored", "Forget what trimtab learned about MODEL."),
    "healthcheck": ("healthcheck", "Ask the proxy on this machine whether it accepts requests."),
    "init": ("init", "Write a configuration file, after a look at the server."),
    "inspect": ("records.inspect", "Show what trimtab did to a request."),
    "keys": ("serving.keys", "Make, list and revoke the keys in FILE, the key_file of a client."),
    "record": ("serving.serve", "Run the proxy, and record every request."),
    "replay": (
        "records.replay",
        "Replay recorded requests: what trimtab has saved, and what another configuration would save.",
    ),
    "schema": ("check", "Print the JSON Schema of the configuration."),
    "serve": ("serving.serve", "Run the proxy until a signal stops it."),
    "stats": ("stats", "Show what requests have cost, and what trimtab has saved."),
    "summary": ("stored", "Print the text of a stored summary."),
    "wrap": ("serving.wrap", "Run COMMAND with the proxy in front of its models."),
}
"""The module of each command, and the first sentence of its help."""
UNUSED = {"SSL_CERT_FILE": os.devnull, "PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""Variables for the time of an import. aiohttp makes two contexts for TLS, which takes a tenth of the start; ours makes
the one that it needs when it needs it (http/aiohttp_fixes/tunnels.py), so these two look for no authorities. Pydantic
looks through all installed packages for plugins of its own."""


class _Commands(Mapping[str, click.Command]):
    def __getitem__(self, name: str) -> click.Command:
        module = COMMANDS[name][0]
        # What a module makes lives as long as the process. To search it for garbage, 30 times while it is made, takes a
        # sixth of the start, and a hundredth of a second in each full collection from then on.
        gc.disable()
        own = {name: os.environ.get(name) for name in UNUSED}
        os.environ |= UNUSED
        try:
            command: click.Command = getattr(import_module(f"trimtab.proxy.cli.{module}"), name.replace("-", "_"))
        finally:
            for variable, value in own.items():
                del os.environ[variable]
                os.environ |= {} if value is None else {variable: value}
            gc.freeze()
            gc.enable()
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


OTHERS: Mapping[str, str] = {
    "explain": "`trimtab compact --explain FILE` for a body, `trimtab inspect ID` for a recorded request",
    "start": "`trimtab serve`",
    "run": "`trimtab serve`, or `trimtab wrap COMMAND`",
    "proxy": "`trimtab serve`",
    "validate": "`trimtab check FILE`",
    "config": "`trimtab check FILE`, or `trimtab init` for a new one",
    "sessions": "`trimtab inspect --sessions`",
    "logs": "`trimtab inspect`",
}
"""What people call a command that has another name."""


class _Group(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in OTHERS:
            ctx.fail(f"No such command {args[0]!r}. Try {OTHERS[args[0]]}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, COMMANDS))  # as click itself does it
        rows = [
            (name, click.Command(name, help=COMMANDS[name][1]).get_short_help_str(limit))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=_Group, commands=_Commands(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="trimtab", prog_name="trimtab")
def main() -> None:
    """A proxy that keeps long LLM sessions inside the context window.

    Start it with `trimtab serve` and point OPENAI_BASE_URL at it. If a request need not be shortened, it passes
    unchanged, byte for byte.
    """
