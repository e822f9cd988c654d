"""Counters, requests and codecs as the proxy makes them. A new counter or codec remembers nothing yet.

Law: the rooms that measure use the proxy's counting and decoding only through this module.
"""

import tiktoken

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers import exact
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting, Request
from trimtab.rules.conversation import Conversation, CountTokens
from trimtab.rules.tokens.families import O200K, find_family

VOCABULARIES = exact.VOCABULARIES


def load_encoding(vocabulary: str = O200K, *, is_published: bool = False) -> tiktoken.Encoding:
    """Tiktoken's encoding from the proxy's own rank file, with its pattern or the published one. Keep it."""
    return exact.load_encoding(vocabulary, is_published=is_published)


def make_counter(encoding: tiktoken.Encoding) -> CountTokens:
    """A counter that has counted nothing yet."""
    return exact.make_counter(exact.count_pieces(encoding))


class Codec:
    """The chat dialect with this counter. It remembers what it has decoded, at first nothing."""

    def __init__(self, count: CountTokens, model: str = "") -> None:
        """The costs of an unknown model, because no model is given."""
        self._counting = Counting(count, make_known(), find_family(model).costs)

    def decode(self, request: Request) -> Conversation:
        """The request's transcript with its counts."""
        return CHAT.decode(request, self._counting)


def read_body(body: bytes) -> Request:
    """A request's parts, split but not decoded."""
    return CHAT.read(body)
