"""What a shell's command line prints: whether it is a file of code or data, letter for letter.

Law: linear, and total on any text. A command line is read as its words, quotes respected; nothing is expanded.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MAX_DEPTH = 3
"""Of command lines within command lines."""
MAX_RUNNER_WORDS = 24
"""Of a command that runs another one: the other stands among these."""

_PRINTERS = frozenset(
    {"cat", "head", "tail", "nl", "less", "more", "bat", "batcat", "tac", "type", "get-content", "gc"}
)
_EDITORS = frozenset({"sed", "gsed", "awk", "gawk", "mawk"})
"""They print what they are given, unless they change it in place."""
_SHELLS = frozenset(
    {"bash", "sh", "zsh", "dash", "ash", "ksh", "fish", "ssh", "su", "docker", "podman", "kubectl", "oc", "tmux",
     "send-keys", "wsl", "powershell", "pwsh", "vagrant"}
)  # fmt: skip
"""They take a command line as one word, or as the rest of theirs."""
_RUNNERS = _SHELLS | {
    "sudo", "doas", "command", "builtin", "exec", "time", "env", "nohup", "nice", "ionice", "stdbuf", "timeout",
    "xargs", "find", "then", "do", "else", "if", "while", "!", "{", "docker-compose", "chroot", "unbuffer", "setsid",
}  # fmt: skip
"""Words before a program's name that change nothing about what it prints."""
_EXTENSIONS = frozenset(
    {"ac", "ada", "adb", "adoc", "am", "asm", "astro", "awk", "babelrc", "bash", "bashrc", "bat", "bazel", "bzl", "c",
     "cc", "cfg", "cjs", "clj", "cls", "cmake", "conf", "cpp", "cr", "cs", "cshtml", "csproj", "css", "csv", "cts",
     "cu", "cxx", "d", "dart", "editorconfig", "el", "elm", "env", "erb", "erl", "eslintrc", "ex", "exs", "f90", "f95",
     "fish", "frag", "fs", "fsx", "gitignore", "glsl", "go", "gql", "gradle", "graphql", "groovy", "h", "hbs", "hcl",
     "hh", "hpp", "hrl", "hs", "htm", "html", "hxx", "i", "in", "ini", "ino", "ipp", "ipynb", "j2", "java", "jinja",
     "jinja2", "jl", "js", "json", "json5", "jsonc", "jsonl", "jsx", "kt", "kts", "less", "lisp", "lock", "lua", "m",
     "make", "markdown", "md", "mdx", "mjs", "mk", "ml", "mli", "mm", "mod", "mts", "nim", "nix", "npmrc", "nu", "org",
     "pas", "patch", "php", "pl", "plist", "pm", "po", "pp", "prettierrc", "prisma", "properties", "props", "proto",
     "ps1", "psm1", "py", "pyi", "pyx", "r", "razor", "rb", "rkt", "rs", "rst", "s", "sass", "sbt", "scala", "scm",
     "scss", "service", "sh", "sln", "sol", "sql", "sum", "sv", "svelte", "svg", "swift", "tcl", "tex", "tf", "tfstate",
     "tfvars", "thrift", "tmpl", "toml", "ts", "tsv", "tsx", "v", "vb", "vert", "vhd", "vhdl", "vim", "vue", "wat",
     "xaml", "xml", "xsd", "xsl", "yaml", "yml", "zig", "zsh", "zshrc"}
)  # fmt: skip
"""Of files that are edited by hand: what an agent reads there it may copy into an edit, letter for letter."""
_FILE_NAMES = frozenset(
    {"makefile", "gnumakefile", "dockerfile", "containerfile", "gemfile", "rakefile", "jenkinsfile", "justfile",
     "vagrantfile", "procfile", "cmakelists.txt", "requirements.txt", "build", "workspace"}
)  # fmt: skip
_FILE_PREFIXES = ("dockerfile.", "containerfile.", "makefile.", "jenkinsfile.", ".env.")

_TOKENS = re.compile(
    r"""
    (?P<redirect>[\d&]?(?:>>?|<<<?-?|<)(?:\||&(?:\d|-)?)?)
    | (?P<end>&&|\|[|&]?|[;\n&()`])
    | (?P<word>(?:[^\s"'\\;|&<>()`]++|\\[\s\S]|'[^']*+'|"(?:[^"\\]++|\\[\s\S])*+"|["'\\])++)
    """,
    re.VERBOSE,
)
_QUOTED = re.compile(r"""'([^']*+)'|"((?:[^"\\]++|\\[\s\S])*+)"|\\([\s\S])""")
_ESCAPED = re.compile(r"""\\(["\\$`])""")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_IN_PLACE = re.compile(r"-[A-Za-z]*i|--in-place")
_LINES_BEHIND = re.compile(r"(?<=.)(?::\d[\d,:-]*|#L\d[\dL-]*)\Z")
"""What some tools take behind a path: `a.py:10-20`, `a.py#L10`."""
_OPENED = re.compile(r"""(?:\bopen|\bPath)\(\s{0,9}[rb]?\\?["']([^"'\\\n]{1,300})\\?["']""")


@dataclass(slots=True)
class _Command:
    """One program's words; `writes` says that what it prints goes elsewhere, or that it is given its text."""

    words: list[str] = field(default_factory=list)
    writes: bool = False


def without_lines(path: str) -> str:
    """A path without the lines that some tools take behind it: `a.py:10-20`, `a.py#L10`."""
    return _LINES_BEHIND.sub("", path)


def names_code(text: str) -> bool:
    """Whether a text is the path of a file of code or data: no address, with an extension that says so."""
    path = without_lines(text.strip())
    if "\n" in path or "://" in path:
        return False
    name = re.split(r"[/\\]", path)[-1].lower()
    is_known = name in _FILE_NAMES or name.startswith(_FILE_PREFIXES)
    return is_known or ("." in name and name.rpartition(".")[2] in _EXTENSIONS)


def prints_code(text: str) -> bool:
    """Whether a command line, or a few lines of Python, print such a file, and do not write it elsewhere."""
    if "open(" in text or "Path(" in text:
        prints = "print(" in text and ".read" in text and ".write" not in text
        if prints and any(map(names_code, _OPENED.findall(text))):
            return True
    return _prints(text, MAX_DEPTH)


def _prints(text: str, depth: int) -> bool:
    commands = list(_split(text))
    named = any(names_code(word) for command in commands for word in command.words)
    return any(_is_print(command, depth, is_named=named) for command in commands)


def _split(text: str) -> Iterator[_Command]:
    """The simple commands of a command line."""
    command = _Command()
    redirect = ""
    for token in _TOKENS.finditer(text):
        found = token.group()
        if token.lastgroup == "end":
            yield command
            command, redirect = _Command(), ""
        elif token.lastgroup == "redirect":
            command.writes |= found.startswith("<<")
            redirect = "" if found[-1].isdigit() or found[-1] == "-" else found
        else:
            word = _unquote(found)
            is_output = ">" in redirect
            command.writes |= is_output and redirect[0] in ">1&" and word not in {"/dev/stdout", "/dev/stderr"}
            if not is_output:
                command.words.append(word)
            redirect = ""
    yield command


def _unquote(word: str) -> str:
    return _QUOTED.sub(lambda match: _ESCAPED.sub(r"\1", match[1] or match[2] or match[3] or ""), word)


def _is_print(command: _Command, depth: int, *, is_named: bool) -> bool:
    """Whether a command prints a file of code; `is_named` says that its line has the name of one."""
    if command.writes:
        return False
    words, runners = _strip_runners(command.words)
    if depth > 0 and not runners.isdisjoint(_SHELLS):
        inner = [word for word in command.words if " " in word]
        if any(_prints(word, depth - 1) for word in inner):
            return True
    program, arguments = (_find_program(words[0]), words[1:]) if words else ("", ())
    if program == "git":
        reads = "show" in arguments or "cat-file" in arguments
        return reads and any(names_code(word.partition(":")[2]) for word in arguments)
    if program not in _PRINTERS | _EDITORS or (program in _EDITORS and any(map(_IN_PLACE.match, arguments))):
        return False
    is_elsewhere = not runners.isdisjoint({"xargs", "find"}) or any("$" in word for word in arguments)
    return (is_named and is_elsewhere) or any(not word.startswith("-") and names_code(word) for word in arguments)


def _strip_runners(words: Sequence[str]) -> tuple[Sequence[str], set[str]]:
    """A program and its arguments, and the names of what runs it."""
    runners: set[str] = set()
    for index, word in enumerate(words[:MAX_RUNNER_WORDS]):
        program = _find_program(word)
        if program in _RUNNERS:
            runners.add(program)
        elif program in _PRINTERS | _EDITORS | {"git"} or not (runners or _ASSIGNMENT.match(word)):
            return words[index:], runners
    return (), runners


def _find_program(word: str) -> str:
    return re.split(r"[/\\]", word)[-1].lower().lstrip("!")
