"""Checks a forwarded transcript as a strict upstream would, and as a client that trusts trimtab would.

Law: it works on plain OpenAI message dicts, and does not import the rules or the proxy. Each check returns its problems
as sentences; an empty list means that there are none.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import orjson

Wire = dict[str, Any]
Wires = Sequence[Wire]

OWN_ROLES = frozenset({None, "system", "developer", "user", "assistant", "tool"})
"""The roles of chat completions but for the legacy one; None is the end of the transcript. A client may write ""."""
LEADERS = ("system", "developer")
RESULTS = ("tool", "function")
WRITTEN = "[trimtab: output of earlier tool calls; not an instruction]"
"""Begins a message of the user that holds results without a call."""
EXCERPT = "the call had this part"
"""What stands in the arguments of a call of which a part was left out."""

_POINTER = re.compile(r"\[trimtab: same as the tool result (\d+) before this")
_HUNK = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")
BEGINNING_CHARS = 8
"""A shortened text keeps at least this many of its first characters."""


def check_transcript(original: Wires, sent: Wires, *, last_may_shrink: bool = False) -> list[str]:
    """All problems of a forwarded transcript. `last_may_shrink`: the policy may truncate the last message."""
    sent = make_whole(original, sent)
    known = _with_last(original, sent) if last_may_shrink else original
    return [
        *check_pairing(sent),
        *check_calls(original, sent),
        *check_leaders(known, sent),
        *check_content(original, sent),
        *check_keys(original, sent),
        *check_pointers(original, sent, last_may_shrink=last_may_shrink),
        *check_users(known, sent),
        *check_bridges(known, sent),
        *check_first_user(known, sent, may_shrink=last_may_shrink),
        *check_last_user(known, sent, last_may_shrink=last_may_shrink),
    ]


def check_request(original: bytes, sent: bytes, *, last_may_shrink: bool = False) -> list[str]:
    """All problems of a forwarded body: of its transcript, its other members, and the bytes of system messages."""
    before, after = (msgspec.json.decode(body, type=dict[str, msgspec.Raw]) for body in (original, sent))
    problems = []
    others = [{key: bytes(value) for key, value in body.items() if key != "messages"} for body in (before, after)]
    if others[0] != others[1]:
        problems.append("members other than messages were changed")
    raws = [msgspec.json.decode(body["messages"], type=list[msgspec.Raw]) for body in (before, after)]
    wires = [[msgspec.json.decode(raw) for raw in part] for part in raws]
    leaders = [
        [bytes(raw) for raw, wire in zip(part, decoded, strict=True) if wire["role"] in LEADERS]
        for part, decoded in zip(raws, wires, strict=True)
    ]
    if not are_of_client(*leaders, leading=_count_leading(wires[0])):
        problems.append("the bytes of a system or developer message were changed")
    return [*problems, *check_transcript(wires[0], wires[1], last_may_shrink=last_may_shrink)]


def check_pairing(sent: Wires) -> list[str]:
    """Every call has exactly one result directly after its message, and every result has its call.

    Results without an id may stand in for as many calls that are left, and any for calls without an id. One of the
    legacy role, or of a role that is none of the dialect's, may stand in for a call, too, and needs none.
    """
    problems = []
    wanted, unnamed, legacy = Counter[str](), list[int](), 0
    for index, message in enumerate([*sent, {"role": None}]):
        if message["role"] == "tool":
            answers = message.get("tool_call_id") or ""
            if wanted[answers]:
                wanted[answers] -= 1
            elif answers and not wanted[""]:
                problems.append(f"message {index}: a result for {answers!r} without its call right before it")
            else:
                unnamed.append(index)
            continue
        if message["role"] not in OWN_ROLES and not message.get("tool_calls"):
            legacy += 1
            continue
        left = list(wanted.elements())
        if not len(unnamed) <= len(left) <= len(unnamed) + legacy:
            place = "at the end" if message["role"] is None else f"before message {index}"
            problems += [f"{place}: call {key!r} has no result" for key in left]
            problems += [f"message {at}: a result without an id and without a call right before it" for at in unnamed]
        wanted, unnamed = Counter(call.get("id") or "" for call in message.get("tool_calls") or ()), []
        legacy = 0
    return problems


def check_calls(original: Wires, sent: Wires) -> list[str]:
    """The calls sent are the client's, complete and in the client's order."""
    made = iter([message["tool_calls"] for message in original if message.get("tool_calls")])
    return [
        f"message {index}: calls or their arguments are not the client's"
        for index, message in enumerate(sent)
        if message.get("tool_calls") and message["tool_calls"] not in made
    ]


def make_whole(original: Wires, sent: Wires) -> Wires:
    """The transcript with the client's own calls in place of those that have excerpts of their arguments."""
    owns = [call for message in original for call in message.get("tool_calls") or ()]

    def find(call: Wire) -> Wire:
        return next((own for own in owns if _is_excerpt(call, own)), call)

    return [
        {**message, "tool_calls": [*map(find, message["tool_calls"])]} if message.get("tool_calls") else message
        for message in sent
    ]


def _is_excerpt(call: Wire, own: Wire) -> bool:
    """Whether a call differs from the client's in its arguments alone, which have the same members and an excerpt."""
    texts = [one.get("function", {}).get("arguments", "") for one in (call, own)]
    return (
        EXCERPT in texts[0]
        and {**call, "function": {**call["function"], "arguments": texts[1]}} == own
        and orjson.loads(texts[0]).keys() == orjson.loads(texts[1]).keys()
    )


def check_leaders(original: Wires, sent: Wires) -> list[str]:
    """System and developer messages are the client's: none was added, changed or moved; the leading ones are there."""
    before, after = ([message for message in part if message["role"] in LEADERS] for part in (original, sent))
    are_known = are_of_client(before, after, leading=_count_leading(original))
    problems = [] if are_known else ["system or developer messages were added, lost, changed or reordered"]
    if _count_leading(sent) < _count_leading(original):
        problems.append("a leading system message no longer leads")
    return problems


def are_of_client(before: Sequence[object], after: Sequence[object], *, leading: int) -> bool:
    """Whether these system messages are the client's, in its order, and begin with its `leading` ones."""
    rest = iter(before)
    return before[:leading] == after[:leading] and all(one in rest for one in after)


def check_content(original: Wires, sent: Wires) -> list[str]:
    """No content was emptied: a message of ours has text, and an edited one has no new empty text."""
    empties = Counter[str]()
    for message in original:
        empties[message["role"]] = max(empties[message["role"]], list(texts_of(message)).count(""))
    problems = []
    for index, message in enumerate(sent):
        if message in original:
            continue
        texts = list(texts_of(message))
        if not any(texts) and not message.get("tool_calls") and not empties[message["role"]]:
            problems.append(f"message {index}: a {message['role']} message without content")
        if texts.count("") > empties[message["role"]]:
            problems.append(f"message {index}: an emptied text")
    return problems


def check_keys(original: Wires, sent: Wires) -> list[str]:
    """A message keeps all keys except the content. A message of ours has only the necessary keys."""
    known = [_without_content(message) for message in original]
    known += [{"role": "user"}, {"role": "assistant"}]
    for message in original:
        known += [{"role": "tool", "tool_call_id": call.get("id") or ""} for call in message.get("tool_calls") or ()]
    return [
        f"message {index}: keys or ids are not the client's"
        for index, message in enumerate(sent)
        if _without_content(message) not in known
    ]


def check_pointers(original: Wires, sent: Wires, *, last_may_shrink: bool = False) -> list[str]:
    """The result that a pointer names is before it and is no pointer itself, and a diff fits that result.

    A diff in the last step may have been shortened if the policy allows it.
    """
    results = [(index, one) for index, one in enumerate(sent) if one["role"] in RESULTS or _begins(one, WRITTEN)]
    last_step = max((index for index, message in enumerate(sent) if message["role"] not in RESULTS), default=0)
    problems = []
    for rank, (index, message) in enumerate(results):
        back = 0 if message in original else read_pointer("\n\n".join(texts_of(message)).removeprefix(f"{WRITTEN}\n"))
        if not back:
            continue
        target = results[rank - back][1] if back <= rank else {"content": "[trimtab: tool result"}
        texts = [text.removeprefix(f"{WRITTEN}\n") for text in texts_of(target)]
        if target not in original and texts[0].startswith(("[trimtab: same as", "[trimtab: tool result")):
            problems.append(f"message {index}: points to a result that is not there")
        elif expand(texts, "\n\n".join(texts_of(message))) is None and not (last_may_shrink and index > last_step):
            problems.append(f"message {index}: a diff that does not fit")
    return problems


def read_pointer(text: str) -> int:
    """How many results back a result points; 0 if it is no pointer."""
    found = _POINTER.match(text)
    return int(found[1]) if found else 0


def expand(target: Sequence[str], pointer: str) -> list[str] | None:
    """The texts that a pointer replaces, given those of its target. None if its diff does not fit."""
    lines = pointer.split("\n")[1:]
    if not lines:
        return list(target)
    old = target[0].split("\n")
    new: list[str] = []
    at = 0
    while lines:
        found = _HUNK.fullmatch(lines.pop(0))
        if found is None:
            return None
        left, gone, right, came = map(int, found.groups())
        left, right = left - (gone > 0), right - (came > 0)
        removed = ["-" + line for line in old[left : left + gone]]
        new += old[at:left]
        if at > left or len(new) != right or lines[:gone] != removed or len(lines) < gone + came:
            return None
        added = lines[gone : gone + came]
        if not all(line.startswith("+") for line in added):
            return None
        new += [line[1:] for line in added]
        at, lines = left + gone, lines[gone + came :]
    return ["\n".join(new + old[at:])]


def check_users(original: Wires, sent: Wires) -> list[str]:
    """Two user messages in a row were already so in the original (results and system messages do not count)."""
    # By their beginnings: the second one may have lost images, or its middle.
    together = [_begin(right) for left, right in pairwise(_talk(original)) if left["role"] == right["role"] == "user"]
    return [
        f"two user messages in a row: {_clip(left)} and {_clip(right)}"
        for left, right in pairwise(_talk(sent))
        if left["role"] == right["role"] == "user" and _begin(right) not in together
    ]


def check_bridges(original: Wires, sent: Wires) -> list[str]:
    """An assistant message of ours is always between two user messages, or between a result and a user message."""
    turns = [message for message in sent if message["role"] in {"user", "assistant", *RESULTS}]
    problems = []
    for index, message in enumerate(turns):
        if message["role"] != "assistant" or message in original:
            continue
        neighbours = [near["role"] for near in turns[max(index - 1, 0) : index + 2 : 2]]
        if neighbours not in (["user", "user"], *([result, "user"] for result in RESULTS)):
            problems.append(f"an assistant message that is not the client's is between {neighbours}")
    return problems


def check_alternation(sent: Wires) -> list[str]:
    """User and assistant alternate, and the user is first (results and system messages do not count)."""
    talk = _talk(sent)
    problems = [
        f"two {left['role']} messages in a row: {_clip(left)} and {_clip(right)}"
        for left, right in pairwise(talk)
        if left["role"] == right["role"]
    ]
    return problems if talk and talk[0]["role"] == "user" else [*problems, "the user does not begin"]


def check_first_user(original: Wires, sent: Wires, *, may_shrink: bool = False) -> list[str]:
    """The first user message contains the task statement, complete. If it leaves no room, it may be shortened."""
    users = [[message for message in part if message["role"] == "user"] for part in (original, sent)]
    if not users[0]:
        return []
    if not users[1]:
        return ["the task statement is missing"]
    task = list(texts_of(users[0][0]))
    is_marked = may_shrink and _holds(users[1][:1], ("[trimtab: ",))
    if _holds(users[1], task) or (is_marked and _begin(users[0][0]) == _begin(users[1][0])):
        return []
    return ["the task statement is not complete"]


def check_last_user(original: Wires, sent: Wires, *, last_may_shrink: bool = False) -> list[str]:
    """The last user message is sent, complete. If it was once the last message of all, it may be shortened."""
    users = [message for message in original if message["role"] == "user"]
    sent_users = [message for message in sent if message["role"] == "user"]
    if not users or _holds(sent_users, list(texts_of(users[-1]))):
        return []
    beginnings = [text[:BEGINNING_CHARS] for text in texts_of(users[-1])]
    if last_may_shrink and _holds([user for user in sent_users if _holds([user], ("[trimtab: ",))], beginnings):
        return []
    return ["the last user message is missing or not complete"]


def texts_of(message: Wire) -> Iterator[str]:
    """The texts of a message's content, in order."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (part["text"] for part in content if isinstance(part, dict) and "text" in part)


def _begins(message: Wire, header: str) -> bool:
    return next(texts_of(message), "").startswith(header)


def _begin(message: Wire) -> str:
    return next(texts_of(message), "")[:BEGINNING_CHARS]


def _holds(messages: Wires, texts: Sequence[str]) -> bool:
    return any(all(text in "\n\n".join(texts_of(message)) for text in texts) for message in messages)


def _with_last(original: Wires, sent: Wires) -> list[Wire]:
    """The original, with the last message sent in place of the newest message that differs from it only in content."""
    for index in reversed(range(len(original) if sent else 0)):
        if _without_content(original[index]) == _without_content(sent[-1]):
            return [*original[:index], sent[-1], *original[index + 1 :]]
    return list(original)


def _talk(messages: Wires) -> list[Wire]:
    """The user and assistant messages."""
    return [message for message in messages if message["role"] in {"user", "assistant"}]


def _count_leading(messages: Wires) -> int:
    return next((index for index, message in enumerate(messages) if message["role"] not in LEADERS), len(messages))


def _without_content(message: Wire) -> Wire:
    return {key: value for key, value in message.items() if key != "content"}


def _clip(message: Wire) -> str:
    return repr(" ".join(" ".join(texts_of(message)).split())[:40])
