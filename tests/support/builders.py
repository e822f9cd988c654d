"""Messages for tests, counted by a cheap deterministic tokenizer, and strategies that draw whole transcripts.

Law: a message built here equals the message that a codec decodes from the JSON in its `raw`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
from hypothesis import strategies as st

from trimtab.rules.conversation import Conversation, Media, Message, Origin, Role, ToolCall, starts_step
from trimtab.rules.pipeline.plan import StateKey
from trimtab.rules.pipeline.transcript_state import TranscriptState, name_state, take_state
from trimtab.rules.policy import OnExceeded, Policy, Prices
from trimtab.rules.prefix import digest_message
from trimtab.rules.results.work import Work
from trimtab.rules.text.markers import mark_image
from trimtab.rules.tokens.messages import count_message
from trimtab.rules.window.cut_decision import Fold
from trimtab.rules.window.room import Room
from trimtab.rules.window.state import Window

Wire = dict[str, Any]

FREE = Prices(input=0.0, cached_input=0.0, output=0.0, cache_write=0.0)
"""All tokens are free, so no cut is postponed for its cost."""

ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
MEDIA_TOKENS = 85
"""The cost of a content part that is not text."""
IMAGE = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}'
"""A content part that is not text; 85 tokens."""
IMAGE_LINE = mark_image("image/png", "3 bytes")
"""The line that replaces it if it is removed."""


def count(text: str) -> int:
    """One token per four characters, rounded up."""
    return -(-len(text) // 4)


def count_words(text: str) -> int:
    """One token per word."""
    return len(text.split())


def fill(label: str, tokens: int) -> str:
    """A text of exactly `tokens` tokens by `count`, in lines that begin with `label`."""
    line = f"{label} all of this is what came out\n"
    return (line * (tokens * 4 // len(line) + 1))[: tokens * 4]


def call(call_id: str, name: str = "run", arguments: str = '{"path":"a/b.py"}') -> ToolCall:
    """A tool call."""
    return ToolCall(call_id, name, arguments)


def system(text: str = "You are careful.", *, role: str = "system") -> Message:
    """A system message, or a developer message."""
    return read({"role": role, "content": text})


def user(text: str = "Go on.", *media: bytes) -> Message:
    """A user message. It has content parts if there is media."""
    if not media:
        return read({"role": "user", "content": text})
    return read({"role": "user", "content": [{"type": "text", "text": text}, *map(orjson.loads, media)]})


def assistant(text: str | None = None, *calls: ToolCall) -> Message:
    """An assistant message with its tool calls."""
    wire: Wire = {"role": "assistant", "content": text}
    if calls:
        wire["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in calls
        ]
    return read(wire)


def result(answers: str | None, *texts: str, name: str | None = None) -> Message:
    """A tool result. It has content parts if there are several texts."""
    parts = [{"type": "text", "text": text} for text in texts]
    wire: Wire = {"role": "tool", "content": parts if len(texts) > 1 else (texts or ("done",))[0]}
    if answers is not None:
        wire["tool_call_id"] = answers
    if name is not None:
        wire["name"] = name
    return read(wire)


def shown(answers: str, *media: bytes, text: str | None = None) -> Message:
    """A tool result with images, after a text if one is given."""
    texts = [] if text is None else [{"type": "text", "text": text}]
    return read({"role": "tool", "tool_call_id": answers, "content": [*texts, *map(orjson.loads, media)]})


def screenshots(steps: int, *, image: bytes | None = None, as_user: bool = False) -> tuple[Message, ...]:
    """A session with one image per step, in tool results or in user messages."""
    image = image or IMAGE
    messages = [system(), user("Book a table in this shop.")]
    for number in range(steps):
        if as_user:
            messages += [assistant(fill(f"click {number}", 12)), user(f"screen {number}", image)]
        else:
            messages += [assistant(fill(f"click {number}", 12), call(f"c{number}", "computer"))]
            messages += [shown(f"c{number}", image)]
    return tuple(messages)


def function_result(text: str = "done") -> Message:
    """A result of the legacy role `function`, which has no call id."""
    return read({"role": "function", "name": "run", "content": text})


def conversation(*messages: Message, fixed_tokens: int = 0) -> Conversation:
    """A conversation of these messages, oldest first."""
    return Conversation(messages, fixed_tokens, tuple(Origin(at, at + 1) for at in range(len(messages))))


class KeptStates(dict[StateKey, TranscriptState]):
    """States of transcripts. Reading a state removes it."""

    def pop_first(self, keys: Iterable[StateKey]) -> TranscriptState | None:
        """Remove and return the state under the first key that has one."""
        found = (self.pop(key, None) for key in keys)
        return next((state for state in found if state is not None), None)


def fold(
    messages: Sequence[Message], policy: Policy, *, limit: int, fixed_tokens: int = 0, states: KeptStates | None = None
) -> Window:
    """The window's state after the last message. With `states`, start from the longest beginning that they know."""
    room = measure(messages, policy, limit=limit, fixed_tokens=fixed_tokens)
    if states is None:
        return Fold(room, policy).extend(messages).finish()
    work = Work(count)
    state = take_state(states, messages, name_state(messages, policy, work))
    state.edit(conversation(*messages), policy, work)
    window = state.find_window(messages, room, policy)
    states[name_state(messages, policy, work)] = state
    return window


def measure(messages: Sequence[Message], policy: Policy, *, limit: int, fixed_tokens: int = 0, spare: int = 0) -> Room:
    """The room after the head of a transcript, measured for a policy as plan() does."""
    shortens = policy.on_exceeded is OnExceeded.TRUNCATE
    return Room.measure(messages, fixed_tokens, limit, spare=spare, shortens=shortens)


def session(steps: int, *, call_tokens: int = 10, result_tokens: int = 60) -> tuple[Message, ...]:
    """An agent session of one user turn: system message, task, and `steps` calls with one result each."""
    messages = [system(), user("Mend the build of this project.")]
    for number in range(steps):
        messages.append(assistant(fill(f"step {number}", call_tokens), call(f"c{number}")))
        messages.append(result(f"c{number}", fill(f"result {number}", result_tokens)))
    return tuple(messages)


def listing(number: int, version: int = 0, lines: int = 20) -> str:
    """A file as a tool would show it. Two versions of one file differ in one line or two."""
    words = [f"file {number}, line {line}: nothing new stands in here" for line in range(lines)]
    words[version % lines] += f" but for version {version}"
    return "\n".join(words)


def rereading(steps: int, *, files: int = 3, every: int = 4) -> tuple[Message, ...]:
    """An agent session that reads the same files repeatedly. The version of the files rises every `every` steps."""
    messages = [system(), user("Mend the build of this project.")]
    for number in range(steps):
        file = number % files
        text = listing(file, number // every, lines=16 + 4 * file)
        messages.append(assistant(f"step {number}", call(f"c{number}", "read", f'{{"path":"{file}.py"}}')))
        messages.append(result(f"c{number}", text))
    return tuple(messages)


def read(wire: Wire) -> Message:
    """The message for this JSON, with its tokens counted."""
    content = wire.get("content")
    parts = content if isinstance(content, list) else []
    texts = (content,) if isinstance(content, str) else tuple(part["text"] for part in parts if "text" in part)
    calls = (ToolCall(one["id"], **one["function"]) for one in wire.get("tool_calls", ()))
    name, answers = wire["role"], wire.get("tool_call_id")
    role = ROLES.get(name, Role.OTHER)
    message = Message(
        role=role,
        wire_role="" if role == name else name,
        texts=texts,
        tool_calls=tuple(calls),
        answers=(answers or "") if name == "tool" else None,
        name=wire.get("name"),
        media=tuple(read_media(part) for part in parts if "text" not in part),
        raw=orjson.dumps(wire),
    )
    raws = [part.raw for part in message.media]
    return replace(message, tokens=count_message(message, count), digest=digest_message(message, raws))


def read_media(part: Wire) -> Media:
    """A content part that is not text. All have the same cost here, and an image can be replaced by a line."""
    line = IMAGE_LINE if "image" in part.get("type", "") else ""
    return Media(orjson.dumps(part), MEDIA_TOKENS, line, count(line))


def write(message: Message) -> Wire:
    """The JSON of a message: unchanged, except for the content if a rule edited it."""
    if not message.raw:
        made: Wire = {"role": message.speaker, "content": "\n\n".join(message.as_said().texts)}
        if message.answers is not None:
            made["tool_call_id"] = message.answers
        return made
    wire: Wire = orjson.loads(message.raw)
    if not message.edited:
        return wire
    texts = [{"type": "text", "text": text} for text in message.texts]
    if message.answers and wire.get("tool_call_id") not in {None, "", message.answers}:
        wire["tool_call_id"] = message.answers
    in_parts = isinstance(wire["content"], list) or message.media
    wire["content"] = [*texts, *map(_write_media, message.media)] if in_parts else "\n\n".join(message.texts)
    return wire


def _write_media(part: Media) -> Wire:
    wire: Wire = {"type": "text", "text": part.line} if part.is_removed else orjson.loads(part.raw)
    return wire


def write_all(messages: Iterable[Message]) -> list[Wire]:
    """The JSON of a transcript."""
    return [write(message) for message in messages]


# A drawn transcript is a list of plain rows (kind, sizes in tokens, ids): such rows shrink well and are easy to read.
Row = tuple[str, tuple[int, ...], tuple[str, ...]]

_SIZES = st.one_of(st.integers(1, 60), st.integers(60, 400))
_ANY_SIZES = st.one_of(st.integers(0, 60), st.integers(60, 3000))
_IDS = st.sampled_from(["a", "b", "c", ""])


def _row(kind: str, sizes: st.SearchStrategy[Any], ids: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Row]:
    return st.tuples(st.just(kind), sizes, ids if ids is not None else st.just(()))


def _one(sizes: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    return st.tuples(sizes)


_VALID_ROWS = st.one_of(
    _row("step", st.lists(_SIZES, min_size=2, max_size=4).map(tuple)),
    _row("step", st.lists(_SIZES, min_size=2, max_size=2).map(tuple)),
    _row("read", st.lists(st.integers(0, 5), min_size=1, max_size=2).map(tuple)),
    _row("user", _one(_SIZES)),
    _row("assistant", _one(_SIZES)),
    _row("system", _one(st.integers(1, 30))),
    _row("developer", _one(st.integers(1, 30))),
    _row("media", _one(st.integers(1, 30))),
    _row("shot", _one(st.integers(1, 3))),
)
_BROKEN_ROWS = st.one_of(
    _row("calls", _one(_ANY_SIZES), st.lists(_IDS, min_size=1, max_size=3).map(tuple)),
    _row("tool", _one(_ANY_SIZES), st.tuples(st.one_of(_IDS, st.just("unknown")))),
    _row("tool", _one(_SIZES), st.tuples(_IDS)),
    _row("orphan", _one(_SIZES)),
    _row("function", _one(_ANY_SIZES)),
    _row("user", _one(_ANY_SIZES)),
    _row("assistant", _one(_ANY_SIZES)),
    _row("system", _one(_SIZES)),
)


def _assemble(rows: Sequence[Row]) -> tuple[Message, ...]:
    return tuple(message for number, row in enumerate(rows) for message in _messages(number, row))


def _messages(number: int, row: Row) -> list[Message]:
    kind, sizes, ids = row
    text = fill(f"{kind} {number}", sizes[0])
    match kind:
        case "step" | "read":
            made = [fill(f"result c{number}-{rank}", size) for rank, size in enumerate(sizes[1:])]
            texts = made if kind == "step" else [listing(size % 2, size // 2) for size in sizes]
            calls = [call(f"c{number}-{rank}") for rank in range(len(texts))]
            results = zip(calls, texts, strict=True)
            return [assistant(text, *calls), *(result(one.id, said) for one, said in results)]
        case "calls":
            return [assistant(None, *(call(one, arguments=text) for one in ids))]
        case "tool" | "orphan":
            return [result(ids[0] if ids else None, text)]
        case "function":
            return [function_result(text)]
        case "media" | "shot":
            return _show(number, row)
        case _:
            return [read({"role": kind, "content": text})]


def _show(number: int, row: Row) -> list[Message]:
    kind, sizes, _ = row
    if kind == "media":
        return [user(fill(f"media {number}", sizes[0]), IMAGE)]
    return [assistant("Look.", call(f"c{number}")), shown(f"c{number}", *[IMAGE] * sizes[0])]


def valid_transcripts(max_rows: int = 30) -> st.SearchStrategy[tuple[Message, ...]]:
    """Transcripts that any upstream accepts: parallel calls, system messages anywhere, media, any first role."""
    return _lists(_VALID_ROWS, max_rows).map(_assemble)


def broken_transcripts(max_rows: int = 16) -> st.SearchStrategy[tuple[Message, ...]]:
    """Transcripts that may be invalid: results without a call, calls without a result, repeated and empty ids."""
    return _lists(_BROKEN_ROWS, max_rows).map(_assemble)


def _lists(rows: st.SearchStrategy[Row], max_rows: int) -> st.SearchStrategy[list[Row]]:
    """Half of the lists are long: by default hypothesis draws mostly short lists, which never need a cut."""
    return st.one_of(st.lists(rows, min_size=max_rows // 2, max_size=max_rows), st.lists(rows, max_size=max_rows))


def transcripts(max_rows: int = 24) -> st.SearchStrategy[tuple[Message, ...]]:
    """Valid transcripts, broken ones, or a valid one followed by a broken one."""
    valid, broken = valid_transcripts(max_rows), broken_transcripts(max_rows // 2)
    return st.one_of(valid, broken, st.tuples(valid, broken).map(lambda pair: pair[0] + pair[1]))


def split_steps(messages: Sequence[Message]) -> list[range]:
    """The message indexes of each step: the message that opens it, and the results after it."""
    starts = [index for index, message in enumerate(messages) if starts_step(message) or index == 0]
    return [range(start, stop) for start, stop in pairwise([*starts, len(messages)])]
