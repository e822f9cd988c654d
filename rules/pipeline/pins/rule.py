"""Append the pins to the results that are forwarded.

Law: it comes after every other rule, so a pin changes no outcome of theirs. A result keeps its pin if it was truncated
or became a pointer. It has none if it was pruned or cut.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rules.conversation import Conversation, Message, Outcome, replace_messages
from rules.pipeline.pins.fold import Pin
from rules.window.open_step import Cap, least_tokens

Pinned = dict[int, tuple[Message, Message]]
"""By message index before any cut: the message, and the same message with its pin."""


def pin_results(conversation: Conversation, pins: Iterable[Pin], *, shift: int, known: Pinned | None = None) -> Outcome:
    """Append each pin to the last text of its result. A result that ends with its pin already stays.

    `shift` is added to the index of each pin: a summary may have replaced messages before the results. `known` holds
    messages that were pinned earlier; new ones are added to it.
    """
    known = {} if known is None else known
    new: dict[int, Message] = {}
    for pin in pins:
        message = conversation.messages[pin.at + shift]
        before, pinned = known.get(pin.at, (None, message))
        if before is not message:
            pinned = _append(message, pin)
            known[pin.at] = message, pinned
        if pinned is not message:
            new[pin.at + shift] = pinned
    return replace_messages(conversation, new, "pin", f"{len(new)} reminders of the user's goal")


def fit_pins(
    caps: Iterable[Cap], pins: Mapping[int, Pin], messages: Sequence[Message]
) -> tuple[list[Cap], dict[int, Pin]]:
    """The caps of the messages without their pins, and the pins that stay.

    A capped result keeps its pin if the rest of its cap is enough for the result. Else the pin goes.
    """
    kept = dict(pins)
    left: list[Cap] = []
    for cap in caps:
        pin = pins.get(cap.at)
        if pin is not None and cap.tokens - pin.tokens >= least_tokens(messages[cap.at]):
            left.append(replace(cap, tokens=cap.tokens - pin.tokens))
        else:
            kept.pop(cap.at, None)
            left.append(cap)
    return left, kept


def _append(message: Message, pin: Pin) -> Message:
    if not message.texts or message.texts[-1].endswith(pin.line):
        return message
    texts = (*message.texts[:-1], f"{message.texts[-1]}\n{pin.line}")
    return message.shorten(texts, -pin.tokens)
