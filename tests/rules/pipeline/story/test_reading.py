"""A message as a text to read."""

from dataclasses import replace

from support.builders import IMAGE, IMAGE_LINE, assistant, call, user

from rules.conversation import Message, Role
from rules.pipeline.story.reading import is_same, read_message
from rules.window.images import drop_images


def test_calls_and_images_are_lines() -> None:
    """So that a message without text can be read, too."""
    assert read_message(assistant("Look.", call("c", "bash", '{"x":1}'))) == 'Look.\nbash {"x":1}'
    assert read_message(user("See.", IMAGE)) == "See.\n(image of 85 tokens)"
    assert read_message(drop_images(user("See.", IMAGE))) == f"See.\n{IMAGE_LINE}"


def test_a_written_result_has_its_header() -> None:
    """It is part of what the client sent."""
    assert read_message(Message(Role.TOOL, ("ok",), wire_role="user", header="Output: ")) == "Output: ok"


def test_two_objects_of_one_message_are_the_same() -> None:
    """A state that is kept for a session holds messages of an earlier request."""
    message = user("See.", IMAGE)
    assert is_same(message, replace(message))
    assert not is_same(message, drop_images(message))
    assert not is_same(message, message.shorten(("Se",), 0))
