"""Counters, requests and codecs as the proxy makes them; each counter and codec knows nothing yet.

Law: the rooms that measure reach the proxy's counting and decoding through here alone.
"""

import tiktoken

from proxy.compaction.tokenizers import exact
from proxy.wire.chat.request import ChatCache, ChatCodec, ChatRequest, read_request
from rules.conversation import CountTokens
from rules.tokens.families import O200K, find_family

Codec = ChatCodec
Request = ChatRequest
VOCABULARIES = exact.VOCABULARIES


def load_encoding(vocabulary: str = O200K) -> tiktoken.Encoding:
    """Tiktoken's encoding, from the proxy's own rank file. Slow: keep it."""
    return exact.load_encoding(vocabulary)


def make_counter(encoding: tiktoken.Encoding) -> CountTokens:
    """A counter that has counted nothing yet."""
    return exact.make_counter(exact.count_pieces(encoding))


def make_codec(count: CountTokens, model: str = "") -> Codec:
    """A codec that has decoded nothing yet; without a model, at the costs of an unknown one."""
    return ChatCodec(count, find_family(model).costs, cache=ChatCache())


def read_body(body: bytes) -> Request:
    """A request's parts, split but not decoded."""
    return read_request(body)
