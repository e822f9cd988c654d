"""What a sentence is about: the changes that one decision brought.

Law: values, found by the names of rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.conversation import Decision, count_leading
from rules.pipeline.plan import MEMORY, Plan
from rules.pipeline.story.traced import Traced, list_elements, list_places
from rules.pipeline.story.values import Fate
from rules.pipeline.story.words import say_number, say_places, say_tools


@dataclass(frozen=True, slots=True)
class Subject:
    """The changes of one decision.

    forwarded: those of messages that are still forwarded. gone: those of messages that are not.
    added: those of messages that trimtab made.
    """

    decision: Decision
    forwarded: tuple[Traced, ...]
    gone: tuple[Traced, ...]
    added: tuple[Traced, ...]

    @property
    def elements(self) -> tuple[int, ...]:
        """The indexes of the messages that it is about, ascending: of those still forwarded, if there are any."""
        return list_places(self.forwarded or self.gone)

    @property
    def places(self) -> str:
        """The same in words, with a blank and brackets around it; empty if they are all outside the list."""
        places = say_places(self.elements)
        return f" ({places})" if places else ""

    @property
    def tools(self) -> str:
        """The tools of the results in words, with `of` before it; empty if none has a name."""
        tools = say_tools(one.change.tool for one in self.forwarded or self.gone if one.change.tool)
        return f" of {tools}" if tools else ""

    @property
    def results(self) -> str:
        """How many results, of which tools, and where."""
        number = say_number(len(self.forwarded or self.gone) or self.decision.messages, "tool result")
        return f"{number}{self.tools}{self.places}"

    @property
    def hidden(self) -> str:
        """A closing part of a sentence about those that are not forwarded any more; empty if there are none."""
        if not self.gone:
            return ""
        if self.forwarded:
            return f"; {len(self.gone):,} more were shortened in the same way before the cut took them"
        return "; by now they are behind the cut"


def find_subject(plan: Plan, decision: Decision, traced: Sequence[Traced]) -> Subject:
    """The changes that a decision brought."""
    mine = [one for one in traced if decision.rule in one.change.rules]
    if decision.rule == MEMORY:  # there may be two: about the messages at the beginning, and about the others
        leading = count_leading(plan.original.messages)
        heads = {element for origin in plan.original.origins[:leading] for element in list_elements(origin)}
        is_head = decision.first_changed < leading
        mine = [one for one in mine if (one.change.at in heads) is is_head]
    added = tuple(one for one in mine if one.change.fate is Fate.ADDED)
    gone = tuple(one for one in mine if one.change.fate is Fate.REMOVED)
    forwarded = tuple(one for one in mine if one.change.fate not in {Fate.ADDED, Fate.REMOVED})
    return Subject(decision, forwarded, gone, added)
