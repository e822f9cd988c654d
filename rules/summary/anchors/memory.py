"""Write what code carries over a cut: the task list, instruction files and the index of names.

Law: the text is a function of the messages that were there when the cut was made, of the cut, and of the policy. What
is cached for the next request of the same transcript saves time and changes nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rules.conversation import CountTokens, Message, Role, count_leading
from rules.summary.anchors.echoes import READ_CHARS
from rules.summary.anchors.mentions import Mentions, read_mentions
from rules.summary.anchors.names import find_names
from rules.summary.anchors.write import Removed, write_anchors
from rules.summary.carried.instruction_files import find_instruction_files, write_instruction_files
from rules.summary.carried.task_list import find_task_list, write_task_list
from rules.window.state import Cut

MAX_TEXTS = 4
"""Maximum number of cuts whose text is cached. Chosen: while the summary of the newest cut is written, requests use
earlier cuts."""
Spend = Callable[[int], None]
"""A function that is called with a number of characters before they are read. It may raise an error to end the work."""
LIST_SHARE = 0.5
"""The task list's share of what is carried. Chosen: an agent misses the list more than anything else that is lost."""
FILES_SHARE = 0.5
"""The instruction files' share of what the task list leaves. A file that does not fit becomes a line that says to read
it again. Chosen: the other half stays for the index of names."""


@dataclass(frozen=True, slots=True)
class Place:
    """Everything that the text carried over a cut depends on, except for the messages.

    `task` is the index of the task statement, which is forwarded verbatim; None if there is none. `instruction_files`
    are globs on file names. `told` is the cut's digest, which lists files and calls itself; empty if a model wrote the
    summary.
    """

    cut: Cut
    task: int | None
    instruction_files: tuple[str, ...] = ()
    told: str = ""


class Anchors:
    """A cache for one transcript: the names in its messages, as far as cuts needed them, and the texts made of them."""

    __slots__ = ("_mentions", "_messages", "_size_bytes", "_texts")

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._messages: list[Message] = []
        self._mentions: list[Mentions] = []
        self._texts: dict[Place, str] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Approximate memory in use."""
        return self._size_bytes + sum(map(len, self._texts.values()))

    def find(self, messages: Sequence[Message], place: Place, *, count: CountTokens, spend: Spend) -> str:
        """Return the text that is carried over a cut; empty if there is nothing to carry.

        `spend` is called before characters are read; some of them are counted twice because they are read twice.
        """
        if self._messages != list(messages[: len(self._messages)]):
            self._forget()
        text = self._texts.get(place)
        if text is None:
            self._read(messages[: place.cut.made_at], spend)
            spend(min(sum(map(_measure, messages[: place.cut.at])), READ_CHARS))
            text = self._texts[place] = self._write(place, count)
            while len(self._texts) > MAX_TEXTS:
                del self._texts[next(iter(self._texts))]
        return text

    def _read(self, messages: Sequence[Message], spend: Spend) -> None:
        new = messages[len(self._messages) :]
        spend(sum(map(_measure, new)))
        for message in new:
            mentions = read_mentions(message)
            self._messages.append(message)
            self._mentions.append(mentions)
            self._size_bytes += mentions.size_bytes

    def _write(self, place: Place, count: CountTokens) -> str:
        cut, room = place.cut, place.cut.anchor_tokens
        removed, tail = self._messages[: cut.at], self._messages[cut.at : cut.made_at]
        leading = count_leading(removed)
        texts: list[str] = []
        tasks = find_task_list(removed[leading:], tail)
        if tasks is not None:
            texts.append(write_task_list(tasks, max_tokens=int(room * LIST_SHARE), count=count))
            room -= count(texts[-1])
        files = find_instruction_files(removed[leading:], tail, place.instruction_files)
        if files:
            texts.append(write_instruction_files(files, max_tokens=int(room * FILES_SHARE), count=count))
            room -= count(texts[-1])
        # A task statement that came after the cut was made is ignored: it must not change what was carried before.
        task = () if place.task is None or place.task >= cut.made_at else (place.task,)
        # Of the leading messages only the system messages are not read for names.
        stays = [index for index in range(leading) if removed[index].role is not Role.SYSTEM]
        steps = (index for step in cut.kept_steps for index in range(*step))
        kept = [*cut.kept, *((cut.opening,) if cut.opening >= 0 else ()), *steps]
        verbatim = [*stays, *kept, *task, *range(cut.at, cut.made_at)]
        present = {name for index in verbatim for name in self._mentions[index].asked | self._mentions[index].told}
        # Names in the digest or in verbatim messages are not repeated in the index.
        present |= find_names(place.told)
        spoken = {*stays, *kept, *task}
        unsaid = [message for index, message in enumerate(removed) if index not in spoken]
        names = Removed(unsaid, self._mentions[: cut.at], present, bool(place.told), tail)
        texts.append(write_anchors(names, max_tokens=room, count=count))
        return "\n\n".join(text.rstrip("\n") for text in reversed(texts) if text)


def _measure(message: Message) -> int:
    """The number of characters that are read of a message."""
    return sum(map(len, message.texts)) + sum(len(call.arguments) for call in message.tool_calls)
