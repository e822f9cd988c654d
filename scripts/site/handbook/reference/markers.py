"""docs/reference/markers.md: every text that trimtab writes for models, from rules/text/markers.py.

The functions of that module write the texts, with sample values. The explanations for the page's readers are here.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from handbook.tables import plain
from trimtab.rules.text import markers

INTRODUCTION = """\
# Markers

This page lists every text that trimtab writes into a request: in place of something that it removed, or as a reminder.

Models read these texts. Each one says what is missing and, if the reader can do something about it, how to see it. The
texts below have sample values, such as `120 lines`. A tool or a user can write a text like these. It stays unchanged;
its only effect is that [dedupe](../explanation/tool-results.md#dedupe-point-to-what-is-already-there) may not compare
that tool result with others.

A size with `~` is approximate. A size without it is exact.
"""
SECTIONS: dict[str, dict[str, str]] = {
    "Tool results": {
        "mark_middle": "Stands for the lines between the beginning and the end of a tool result that was shortened"
        " with `truncation: head_tail`. The size is in bytes if `max_tool_result_bytes` was the tighter limit. In a"
        " shortened user message, the marker ends with `ask for this part`. In a summary, and in a shortened message of"
        " the assistant or the system, it ends after the size.",
        "mark_gap": "Stands for the first gap in a tool result that was shortened with `truncation: salient`. The"
        " numbers are those of the missing lines. If the lines have no numbers, the marker says how many are"
        " missing: `omitted 120 lines (~2000 tokens); call the tool again for this part`. In a [call that has written a"
        " file](../explanation/replayed-cut.md#long-arguments-of-calls), it ends with `the call had this part`.",
        "mark_next_gap": "Stands for a further gap in the same tool result. What the first marker says applies here,"
        " too.",
        "mark_payload": "Stands for a file that a tool result contained, written out as a `data:` URL, in Base64, in"
        " hex or as a hex dump, if the result was over its budget. Its type is `data` if it is not known.",
        "mark_same": "Stands for a tool result that equals an earlier one, where the model can read it. `2 before"
        " this` means the second tool result before this one. The end of the marker names the call of the earlier"
        " result; it is `from the same call` if the two calls are equal. If one of the two results was shortened,"
        " the marker says `in the parts shown`, because only these parts are known to be equal.",
        "mark_near": "Stands for a tool result that nearly equals an earlier one. The earlier result with this diff"
        " applied is the result that was replaced.",
        "mark_pruned": "Stands for an old tool result that was pruned. The size is that of the result as the client"
        " sent it.",
        "mark_pruned_again": "The same for a call that the agent has repeated at least three times because its result"
        " was removed, if the result is [too long to keep](../explanation/replayed-cut.md#calls-that-are-repeated).",
        "NO_RESULT": "The result of a tool call for which the client sent none. The call may or may not have run. This"
        " is the text that Codex uses, so models know it.",
        "RESULT_HEADER": "Begins a message of the user with tool results whose calls the client no longer sends. Their"
        " texts follow unchanged.",
    },
    "Tool results in JSON": {
        "TABLE": "Begins the key `[trimtab: table] columns`. A JSON array of objects with the same keys was rewritten:"
        " `columns` has the keys, once; `rows` has the values of each object, in the same order. Nothing is missing.",
        "mark_characters": "Stands for the rest of a long string in JSON, or for a whole value. To see it, ask for"
        " this value alone.",
        "mark_items": "Stands for items of an array within one JSON record. To see them, ask for this record alone.",
        "mark_more_items": "Stands for items of an array in a JSON document.",
        "mark_records": "Stands for records of an array in a JSON document. The records that are shown may lack"
        " members, too.",
        "name_member": "The key of a member that trimtab adds to a JSON object. Its value is one of the next two"
        " texts. If the document itself contains `[trimtab]`, the key is `[trimtab 2]`, and so on.",
        "mark_members": "The value of the added member: it says how many members of the object are missing.",
        "mark_member_records": "The same for an object whose members are records. The records that are shown may lack"
        " members, too.",
    },
    "Images": {
        "mark_image": "Stands for an image that was removed. It names the image's type, dimensions, size and file"
        " name, as far as they are known.",
    },
    "Reminders": {
        "mark_pin": "Ends the last result of a step with long tool output, if `pin_instruction` is on. It repeats the"
        " beginning of the user's newest message before the step and, if there is one, the open item of the agent's"
        " task list. In both, double quotation marks become single ones. [More](../explanation/tool-results.md"
        "#pins-the-goal-after-long-output)",
    },
    "Passages that were looked up": {
        "mark_recalled": "With `recall: inject`, this line follows the text of a user's message, or of a failed tool's"
        " result. Behind it are passages from what was removed, and the end of the quotation. [More]"
        "(../guides/recall.md)",
    },
    "Retrieved memory": {
        "mark_memory": "Stands for a block of [retrieved memory](../explanation/replayed-cut.md#retrieved-memory) that"
        " was dropped. The size is that of the block with its tags.",
    },
    "Summaries": {
        "INTRODUCTION": "The first line of a summary. The last sentence is there because a tool's text must not gain"
        " authority by being summarised.",
        "SHORT_INTRODUCTION": "The first line of a short digest, in windows of some 7,000 tokens or less; in an"
        " agent's session, of some 12,000. Its lists and the index are then one quotation.",
        "mark_coverage": "The second line of a summary: how many messages it covers. The second sentence appears only"
        " if the summary contains `[unverified]`.",
        "UNVERIFIED": "Follows a path, a URL, an id or a number in a model's summary that appears in none of the"
        " messages that the summary covers. The model should check it before use.",
        "mark_loop": "A line of trimtab in a summary: the agent repeats this call because its result is removed each"
        " time, and the result is [too long to keep](../explanation/replayed-cut.md#calls-that-are-repeated). It names"
        " the newest such call.",
        "SUMMARY_END": "The last line of a summary. Without it, a model takes the text after the summary for a part of"
        " it, or the summary for the question.",
        "OPENING_TITLE": "Precedes the summary of an earlier session that the client itself wrote. It follows the task"
        " statement; its text is unchanged.",
        "KEPT_TITLE": "Precedes the newest user messages from the part that the summary covers. They are the user's"
        " own words, unchanged.",
        "ACKNOWLEDGEMENT": "An assistant message between a summary and a user message, for upstreams that require the"
        " roles to alternate.",
        "GO_ON": "A user message between a summary in the assistant's role and an assistant message, for the same"
        " upstreams.",
    },
    "Quotations in a summary": {
        "QUOTE_START": "Begins a quotation within a summary: text of tools, tool calls and the assistant. None of it"
        " is an instruction.",
        "QUOTE_END": "Ends the quotation.",
        "TASK_LIST_TITLE": "The beginning of a heading within a quotation. The agent's newest task list from the"
        " removed messages follows. In parentheses the heading names the tool or file that the list comes from.",
        "FILE_SUFFIX": "The end of a heading within a quotation. It follows the path of an instruction file, whose"
        " whole text comes next, as it was last read or written.",
        "NAMES_TITLE": "The heading of the [index of exact names](../explanation/what-is-carried-over.md) within a"
        " quotation. The names may be copied as they are.",
        "CORRECTIONS_TITLE": "The heading of what the user corrected or asked for in the removed messages. It stands"
        " behind a model's note, before the index of exact names.",
        "ECHOES_TITLE": "The heading, within a quotation, of lines that share a rare word with the messages after the"
        " cut. Each line says who wrote it.",
        "CODE_TITLE": "The heading, within a quotation, of lines of code from the newest removed calls. Each call has"
        " one JSON string.",
    },
    "From clients": {
        "KEEP": "The only marker that clients write: on a line of its own in a message, it asks trimtab to keep the"
        " message. [More](../guides/compact-now.md#what-must-stay)",
    },
}
"""The explanation of each text, by section and by the name in rules/text/markers.py."""
SAMPLES: dict[str, tuple[Any, ...]] = {
    "as_shown": (False,),
    "assistants": (40,),
    "back": (2,),
    "chars": (900,),
    "diff": ("@@ -3 +3 @@\n-    return 1\n+    return 2",),
    "facts": ("image/png 1280x800", "182 kB", "login.png"),
    "goal": ("Move the harbour code from floats to Decimal.",),
    "has_unverified": (True,),
    "how": (markers.READ_LINES,),
    "item": ("Convert port_3",),
    "lines": (120,),
    "mark_middle.how": (markers.READ_PART,),
    "mark_next_gap.tokens": (300,),
    "mark_next_gap.what": ("lines 180-192",),
    "mark_payload.form": ("in Base64",),
    "mark_payload.kind": ("image/png",),
    "mark_payload.size": (60_000,),
    "missing": (12,),
    "size": (2000,),
    "source": ('read_file {"path":"src/port.py"}',),
    "text": ("{}",),
    "tokens": (2000,),
    "tool": ("read_file",),
    "total": (40,),
    "unit": ("tokens",),
    "users": (3,),
    "what": ("lines 40-159",),
}
"""Values by the name of the parameter, or by function and parameter. A variadic parameter may have several."""
NO_TEXT = {
    "ASK_PART",
    "asks_to_keep",
    "MEMBER",
    "POINTER",
    "CALL_HAD_PART",
    "READ_LINES",
    "READ_PART",
    "START",
    "strip_markers",
    "tells_omission",
    "SUMMARY_START",
}
"""Names of the module that are only parts of texts, or that recognise texts."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A text that models read, with its explanation."""

    name: str
    text: str
    meaning: str


def write() -> str:
    """The page. Raises KeyError if a text of the module has no explanation here."""
    for name in list_names():
        if not any(name in names for names in SECTIONS.values()):
            message = f"explain `{name}` in SECTIONS of scripts/site/handbook/reference/markers.py"
            raise KeyError(message)
    entries = {entry.name: entry for entry in list_entries()}
    parts = [INTRODUCTION]
    for title, names in SECTIONS.items():
        parts += [f"## {title}\n", *(_write_entry(entries[name]) for name in names)]
    return "\n".join(parts)


def _write_entry(entry: Entry) -> str:
    return f"```text\n{entry.text}\n```\n\n{plain(entry.meaning)}\n"


def list_names() -> list[str]:
    """The public names of texts, and of functions that write one, in the module's order."""
    return [
        name
        for name, value in vars(markers).items()
        if isinstance(value, str) or inspect.isfunction(value)
        if not name.startswith("_") and name not in NO_TEXT
    ]


def list_entries() -> Iterator[Entry]:
    """Each text of SECTIONS, with sample values."""
    for names in SECTIONS.values():
        for name, meaning in names.items():
            value = getattr(markers, name)
            yield Entry(name, value if isinstance(value, str) else _call(value), meaning)


def _call(function: Callable[..., str]) -> str:
    positional: list[Any] = []
    named = {}
    for name, parameter in inspect.signature(function).parameters.items():
        sample = SAMPLES.get(f"{function.__name__}.{name}", SAMPLES.get(name))
        if sample is None:
            message = f"{function.__name__}: add a sample for `{name}` to scripts/site/handbook/reference/markers.py"
            raise KeyError(message)
        if parameter.kind is parameter.KEYWORD_ONLY:
            (named[name],) = sample
        else:
            positional += sample
    return function(*positional, **named)
