"""What a tool call asks for, which result answers it, whether it failed, and how results of its tool are treated.

Laws: linear time, and no error whatever the arguments are: no JSON, megabytes long, deeply nested. Only the beginning
of very long arguments is read, and only the first and last lines of a result: the text between them is what the tool
has read, and so is a long text that begins like an error. In doubt, nothing is concluded. Only earlier messages of the
same step decide which call a result answers.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from trimtab.rules.conversation import Message, Role, ToolCall, count_leading
from trimtab.rules.policy import Policy, Treatment
from trimtab.rules.text.late import compile_late

MAX_ARGUMENT_CHARS = 4096  # Of one argument that are read. Chosen: no path is longer (PATH_MAX of Linux).
MAX_ARGUMENTS_CHARS = 256 * 1024  # Longer arguments are not decoded. Chosen: they usually carry a file to be written.
MAX_STRINGS = 256  # Strings of one call's arguments that are read. Chosen: more than real calls have.
MAX_DEPTH = 6  # Deepest level of nested arguments that is read. Chosen: deeper than the arguments of real tools.

_READING = frozenset({"read", "view", "cat", "open"})
_FILE = frozenset({"file", "files", "contents", "source", "code", "symbol", "resource", "notebook"})
_JSON_FILE = compile_late(
    r"\.(?:\w*json\w*|\w+rc|avsc|code-workspace|gltf|har|importmap|ipynb|lock|map|tfstate|tfvars|webmanifest)\Z",
    re.IGNORECASE,
)
"""The end of a path whose file usually holds JSON."""

_NAME_PARTS = compile_late(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_WORDS = compile_late(r"[^\s\"'`;|&<>()]+")
_LINES_BEHIND = compile_late(r"(?<=.)(?::\d[\d,:-]*|#L\d[\dL-]*)\Z")

_decode = msgspec.json.Decoder().decode


def decode(text: str) -> Any:
    """Decode a JSON text; None if it is not JSON."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def reads_json_file(call: ToolCall) -> bool:
    """Whether JSON in the result may be a file's content: the tool reads files, or an argument names a JSON file."""
    # Names are short; the slice only bounds the work on a hostile one.
    parts = {part.lower() for part in _NAME_PARTS.findall(call.name[:MAX_STRINGS])}
    if not parts.isdisjoint(_FILE) or (parts and parts <= _READING):
        return True
    words = (word for text in _find_strings(_read_arguments(call)) for word in _WORDS.findall(text))
    return any("://" not in word and _JSON_FILE.search(_without_lines(word)) for word in words)


def has_argument(call: ToolCall, globs: Iterable[str]) -> bool:
    """Whether a glob matches a string in the arguments or a word of one; a path also without its line numbers."""
    texts = list(_find_strings(_read_arguments(call)))
    words = (word for text in texts for word in _WORDS.findall(text))
    # Here the constant bounds the number of strings and words.
    wanted = dict.fromkeys(islice((*texts, *words), MAX_ARGUMENT_CHARS))
    wanted |= dict.fromkeys(map(_without_lines, wanted))
    return any(fnmatchcase(value, glob) for glob in globs for value in wanted)


def _without_lines(path: str) -> str:
    """A path without the line numbers that some tools accept after it: `a.py:10-20`, `a.py#L10`."""
    return _LINES_BEHIND.sub("", path)


def _read_arguments(call: ToolCall) -> Any:
    """The arguments, decoded; a list of their text and its words if they are not JSON."""
    if len(call.arguments) > MAX_ARGUMENTS_CHARS:
        return ""
    value = decode(call.arguments)
    if value is not None:
        return value
    text = call.arguments[:MAX_ARGUMENT_CHARS]
    return [text, *_WORDS.findall(text)]


def _find_strings(value: Any) -> Iterator[str]:
    """The strings in decoded arguments, in order. A list of strings also yields them joined, as a command line."""
    return islice(_walk(value, MAX_DEPTH), MAX_STRINGS)


def _walk(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:MAX_ARGUMENT_CHARS]
    elif depth > 0 and isinstance(value, dict):
        for item in value.values():
            yield from _walk(item, depth - 1)
    elif depth > 0 and isinstance(value, list):
        words = [item for item in value[:MAX_STRINGS] if isinstance(item, str)]
        if len(words) > 1:
            yield " ".join(words)[:MAX_ARGUMENT_CHARS]
        for item in value[:MAX_STRINGS]:
            yield from _walk(item, depth - 1)


EDGE_CHARS = 600  # At each end that are searched. Chosen: harnesses and shells report there how a command ended.

_NUMBER = r"-?(?:0x0{0,8}[1-9a-f][0-9a-f]{0,8}|0{0,8}[1-9][0-9]{0,10})(?![\w-]|\.\d)"
_RETURNED = r"-?0{0,8}(?:[1-9][0-9]?|1[0-9]{2}|2[4-9][0-9])(?![\w-]|\.\d)"
"""Numbers from 1 to 299, except 200 to 239: such a "return code" is usually an HTTP status."""
_IS = r"""["']?[ \t]{0,2}[:=>]?[ \t]{0,2}["']?"""
_CODE = rf"(?:exit[ _-]?(?:code|status|value){_IS}{_NUMBER}|return[ _-]?(?:code|status){_IS}{_RETURNED})"
_LABEL = rf"""
    (?:^|[\[({{<>"'`,;|:] ?)                                   # at the start of a line, or after a sign
    (?:process[ ]|command[ ]|shell[ ]|with[ ]|non-?zero[ ])?
    {_CODE}
    (?=["'`]?[ \t]*(?:$|[\])}}<>,;|]|\.(?:[ \t\])}}<"']|$)     # and nothing after it: prose would continue
        |\([^()\n]{{1,40}}\)[ \t]*$))
"""
_SENTENCE = rf"""
    \b(?:(?:exited|failed|terminated|died)[ ](?:(?:abnormally|unexpectedly)[ ])?(?:with[ ])?(?:an?[ ])?(?:error[ ])?
          (?:non-?zero[ ])?(?:(?:exit|return|status)[ _-]?)?(?:code|status|value)
        |(?:finished|completed|ended|stopped|returned)[ ](?:with[ ])?(?:an?[ ])?(?:non-?zero[ ])?
          (?:exit[ _-]?(?:code|status|value)|return[ _-]?(?:code|status)))
    [ ]?[:=]?[ ]?\(?{_NUMBER}
"""
_SHELL = rf"""
    \((?:exit[ :=]|rc[:=])[ ]?{_NUMBER}\)
    |^\[?(?:exit[:=]?[ ]|exit[:=]|rc[:=][ ]?){_NUMBER}\]?[ \t]*$
    |[\[({{|,;][ ]?rc={_NUMBER}
    |\b(?:failed|exited):[ ]exit[ ]{_NUMBER}
    |\b(?:process|command|script|program)[ ]exited[ ]\({_NUMBER}\)
"""
_TOOLS = rf"""
    ^\w{{0,9}}make(?:\[\d{{1,4}}\])?:[ ]\*\*\*[ ].{{0,200}}\bError[ ]{_NUMBER}
    |^(?:.{{0,80}}[ ])?(?:Segmentation[ ]fault[ \t]*$|\w{{3,30}}[ ]{{1,30}}\(core[ ]dumped\))
    |^Killed(?::[ ]9)?[ \t]*$
    |^npm[ ](?:ERR!|error)[ ](?:errno|code)[ ]
"""
_FLAG = r"""["'](?:is_?error)["'][ ]?:[ ]?true\b"""


def _compile(form: str) -> re.Pattern[str]:
    return compile_late(form, re.VERBOSE | re.IGNORECASE | re.MULTILINE)


_RETURN = tuple(f"return{sign}{what}" for sign in ("", " ", "_", "-") for what in ("code", "status"))
_FORMS = (
    (("exit", *_RETURN), _compile(_CODE), _compile(_LABEL)),
    (("exit", "failed", "terminated", "died", *_RETURN), _compile(_SENTENCE)),
    (("exit", "failed", "rc=", "rc:"), _compile(_SHELL)),
    (("***", "segmentation", "dumped", "killed", "npm"), _compile(_TOOLS)),
    (("is_error", "iserror"), _compile(_FLAG)),
)
"""Each form of a failure: hints, of which one must occur, then patterns, all of which must match. Searching the hints
first is fast, and most texts contain none."""


def says_failure(text: str) -> bool:
    """Whether the text's first or last lines say that a command failed, or call the result an error."""
    for edge in (text,) if len(text) <= 2 * EDGE_CHARS else (text[:EDGE_CHARS], text[-EDGE_CHARS:]):
        lowered = edge.lower()
        for hints, *patterns in _FORMS:
            if any(hint in lowered for hint in hints) and all(pattern.search(edge) for pattern in patterns):
                return True
    return False


SHORT_CHARS = 4000
"""The beginning of a longer result does not count. Chosen: error messages of tools are shorter, and a longer result is
text that the tool has read or printed."""

_REFUSED = compile_late(
    r"""(?:Error:\s{0,2})?(?:
        <tool_use_error>
        |InputValidationError
        |The[ ]user[ ](?:(?:does|did)(?:n['\u2019]t|[ ]not)[ ]want|(?:has[ ])?(?:denied|rejected|declined))\b
        |User[ ](?:rejected|denied|declined|cancell?ed)\b
        |\[Request[ ]interrupted
        |Permission[ ]to[ ]use[ ].{1,80}[ ]denied
        |No[ ]such[ ]tool|Unknown[ ]tool
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_FAILED = compile_late(
    r"""
    (?:<error>|\[error\]|(?:fatal[ ]|tool[ ]|mcp[ ]|\w{1,40})?error(?:[ ]-?\d{1,6})?:|error[ ](?!s\b)\w{1,20}ing\b)
    |\{\s{0,8}"error"\s{0,4}:(?!\s{0,4}(?:null\b|false\b|""|\[\s{0,8}\]|\{\s{0,8}\}|0\b))
    |Traceback[ ]\(most
    |Failed(?:[ ]to[ ]|[ ]because[ ]|[:.]|$)
    |Invalid[ ](?:\w{1,30}[ ]?){1,3}(?:[:.]|$)
    |String[ ]to[ ]replace[ ]not[ ]found|No[ ]replacement[ ]was|old_str(?:ing)?\b.{0,80}\bnot[ ](?:found|unique|appear)
    |File[ ](?:has[ ]not[ ]been[ ]read|does[ ]not[ ]exist|not[ ]found)|No[ ]such[ ]file
    |apply_patch[ ]verification[ ]failed|(?:Permission|Access)[ ]denied
    |E(?:ACCES|NOENT|PERM|EXIST|ISDIR|NOTDIR|ROFS|NOSPC)\b
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def tells_failure(result: Message) -> bool:
    return result.is_error or says_failure(result.text) or was_refused(result) or _begins_with(_FAILED, result.text)


def was_refused(result: Message) -> bool:
    return _begins_with(_REFUSED, result.text)


def _begins_with(words: re.Pattern[str], text: str) -> bool:
    return len(text) <= SHORT_CHARS and words.match(text[:EDGE_CHARS].lstrip()) is not None


class FoundResult(msgspec.Struct, frozen=True):
    at: int  # its index
    call: ToolCall | None  # the call that it answers, if any
    treatment: Treatment  # how its tool's results are treated
    treatment_name: str  # text that is equal for equal treatments; as a part of cache keys it is cheaper to hash


class Waiting(msgspec.Struct, eq=False):
    """The calls of one message that have no result yet."""

    calls: Sequence[ToolCall]
    _taken: set[int] = msgspec.field(default_factory=set)
    _queues: dict[tuple[str, str | None], deque[int]] = msgspec.field(default_factory=dict)  # by id, and by id and name

    def take(self, call_id: str, name: str | None) -> int | None:
        """The place of the oldest waiting call with this id, of several such the oldest with this name; else None."""
        if not self._queues:  # as long as all results come in the order of their calls
            at = len(self._taken)
            call = self.calls[at] if at < len(self.calls) else None
            if call is not None and call.id == call_id and (name is None or call.name == name):
                self._taken.add(at)
                return at
            for at, each in enumerate(self.calls):
                self._queues.setdefault((each.id, each.name), deque()).append(at)
                self._queues.setdefault((each.id, None), deque()).append(at)
        for key in ((call_id, name), (call_id, None)):
            queue = self._queues.get(key)
            while queue:
                at = queue.popleft()
                if at not in self._taken:
                    self._taken.add(at)
                    return at
        return None

    def list(self) -> Iterator[int]:
        return (at for at in range(len(self.calls)) if at not in self._taken)


class OpenCalls(msgspec.Struct, eq=False):
    """The open calls of the newest message that is no result, in a paired transcript. A result may name its tool."""

    _waiting: Waiting | None = None

    def answer(self, message: Message) -> ToolCall | None:
        """Add the next message; return the call that it answers, if any."""
        if message.role is not Role.TOOL:
            self._waiting = Waiting(message.tool_calls) if message.tool_calls else None
            return None
        if self._waiting is None:
            return None
        calls = self._waiting.calls
        if message.answers is None:
            return next((call for call in reversed(calls) if call.name == message.name), None)
        at = self._waiting.take(message.answers, message.name)
        return None if at is None else calls[at]


_name = lru_cache(maxsize=256)(repr)  # a policy has few treatments, and each new result asks for the name of one


def find_results(
    messages: Sequence[Message], policy: Policy, start: int = 0, known: dict[str, tuple[Treatment, str]] | None = None
) -> list[FoundResult]:
    """Each result of a paired transcript from `start` on, oldest first, with its call; no leading system messages.

    known: what is found out about a tool, by its name.
    """
    places: list[FoundResult] = []
    treatments = {} if known is None else known
    start = first = start or count_leading(messages)
    while 0 < first < len(messages) and messages[first].role is Role.TOOL:
        first -= 1  # back to the message that makes the calls
    calls = OpenCalls()
    for index, message in enumerate(messages[first:], first):
        call = calls.answer(message)
        if index < start or message.role is not Role.TOOL:
            continue
        name = call.name if call is not None else message.name or ""
        found = treatments.get(name)
        if found is None:
            treatment = policy.find_treatment(name)
            found = treatments[name] = treatment, _name(treatment)
        places.append(FoundResult(index, call, *found))
    return places
