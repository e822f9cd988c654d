"""What a message costs."""

import pytest
from builders import IMAGE, assistant, call, count_words, read, user

from rules.tokens import (
    CALL_TOKENS,
    IMAGE_TOKENS,
    LOW_DETAIL_IMAGE_TOKENS,
    MEDIA_BYTES_PER_TOKEN,
    MESSAGE_TOKENS,
    NAME_TOKENS,
    ROLE_TOKENS,
    count_media,
    count_message,
)

FRAME = MESSAGE_TOKENS + ROLE_TOKENS


def test_a_message_costs_its_frame_and_its_texts() -> None:
    """Without text only the frame is paid; each text adds its own tokens, texts outside the content too."""
    assert count_message(assistant(), count_words) == FRAME
    assert count_message(user("one two three"), count_words) == FRAME + 3
    assert count_message(user("one two three"), count_words, ["four five"]) == FRAME + 5


def test_a_name_costs_itself_and_a_token() -> None:
    """A named message costs more than one without a name."""
    named = read({"role": "user", "content": "one", "name": "ada lovelace"})
    assert count_message(named, count_words) == FRAME + 1 + NAME_TOKENS + 2


def test_a_call_costs_its_arguments_and_twice_its_name() -> None:
    """Each call of a message adds its own."""
    calls = [call("1", "run it", "a b c"), call("2", "stop", "")]
    assert count_message(assistant(None, *calls), count_words) == FRAME + 2 * CALL_TOKENS + 4 + 3 + 2


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (IMAGE, LOW_DETAIL_IMAGE_TOKENS),
        (b'{"type":"image_url","image_url":{"url":"https://a/b.png"}}', IMAGE_TOKENS),
        (b'{"image_url":{"url":"' + b"A" * 200 + b'"},"type":"image_url"}', IMAGE_TOKENS),
        (b'{"type":"input_audio","input_audio":{"data":"low"}}', MESSAGE_TOKENS + 51 // MEDIA_BYTES_PER_TOKEN),
        (b"x" * 640, MESSAGE_TOKENS + 10),
    ],
)
def test_media_have_an_upper_bound(part: bytes, tokens: int) -> None:
    """Images cost by their detail, anything else by its size."""
    assert count_media(part) == tokens


def test_media_enter_the_message() -> None:
    """A message with an image costs the image, too."""
    assert count_message(user("one", IMAGE), count_words) == FRAME + 1 + LOW_DETAIL_IMAGE_TOKENS
