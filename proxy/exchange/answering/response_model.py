"""Reads the name of the model that has answered, for traces."""

import re

import msgspec

from proxy.exchange.answering.observe import SafeTap
from proxy.exchange.report import Recorder
from proxy.wire.answers.tap import Tap
from proxy.wire.json.repair import DECODE_ERRORS

MAX_BYTES = 16 * 1024
"""Bytes of an answer in which the name is sought. Chosen: all dialects write it before the text, or in the first event;
an answer of usual length is in it as a whole."""
MAX_NAME_BYTES = 200  # chosen: longer than real names
# Within a text of the answer, each quotation mark would have a backslash before it.
_MODEL = re.compile(rb'(?<!\\)"model"\s*:\s*("(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f]){1,%d}")' % MAX_NAME_BYTES)


class ModelTap(SafeTap):
    """A tap that also finds the model's name. `model`: empty until it is found."""

    __slots__ = ("_seen", "model")

    def __init__(self, tap: Tap, recorder: Recorder, request_id: str) -> None:
        super().__init__(tap, recorder, request_id)
        self.model = ""
        self._seen = b""

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        """Read the next bytes."""
        super().feed(chunk, arrived_at)
        if not self.model and len(self._seen) < MAX_BYTES:
            self._seen += chunk[: MAX_BYTES - len(self._seen)]
            self.model = find_model(self._seen)


def find_model(answer: bytes) -> str:
    """The name in the first member `model`; empty if there is none that can be read."""
    found = _MODEL.search(answer)
    if found is None:
        return ""
    try:
        return msgspec.json.decode(found[1], type=str)
    except DECODE_ERRORS:
        return ""
