"""Fuzzes what clients teach about a model, honest clients and hostile ones; and refusals that quote a client's text.

Laws: nothing that a single client can cause changes a fact for another client, unless another client key saw the same.
A number that only the client can have written is never certain.
"""

import msgspec
import orjson
from fuzzing.choices import Choices
from fuzzing.overflow_targets import fill_piece

from trimtab.proxy.models.hypotheses import claim, combine, contradict, retract
from trimtab.proxy.models.lessons import Lesson, find_changes
from trimtab.proxy.models.records import Claim, Facts, Record, recall
from trimtab.proxy.wire.overflow import Quoted, find_quotes, read_overflow

KEYS = ("one", "two", "three", "")
"""The keys of four clients. The last client has no key."""
_WINDOWS = (1024, 4096, 4097, 8192, 100_000)
_BELIEVED = (8192, 128_000)
_SERVERS = ("got {}", "Unexpected role {}.", "invalid: {}!", "{}", "error: {} (see the docs)")


def fuzz_lessons(data: bytes) -> None:
    """Several steps of four clients."""
    choices = Choices(data)
    own = {key: Record(1.0) for key in KEYS}
    of_all = Record(1.0)
    met: dict[tuple[int, int], set[str]] = {}
    for _ in range(1 + choices.below(12)):
        who = choices.pick(KEYS)
        before = {key: _see(own[key], of_all) for key in KEYS if key != who}
        if choices.happens(64):
            changes = contradict(own[who], of_all, choices.below(120_000))
            own[who] = msgspec.structs.replace(own[who], **changes)
            if who and changes:
                of_all = msgspec.structs.replace(of_all, **retract(who, of_all))
                met = {pair: keys - {who} for pair, keys in met.items()}
        else:
            believed, window = choices.pick(_BELIEVED), choices.pick(_WINDOWS)
            lesson = Lesson(window, choices.pick((None, 1.5, 6.0)), is_certain=choices.happens(128))
            own[who] = msgspec.structs.replace(own[who], **find_changes(believed, lesson, own[who], now=1.0))
            if who and lesson.is_certain:
                met.setdefault((believed, window), set()).add(who)
                made = Claim(who, believed, window, ratio=lesson.ratio)
                of_all = msgspec.structs.replace(of_all, **claim(made, of_all, now=1.0))
        agreed = {pair for pair, keys in met.items() if len(keys) > 1}
        for key, seen in before.items():
            now = _see(own[key], of_all)
            window = now.learned_tokens
            shared = any(window == pair[1] and pair[0] in now.refuted for pair in agreed)
            shared |= (
                of_all.learned_tokens is None
            )  # a longer prompt of one of the two succeeded, so its claim was withdrawn
            has_outgrown = window is None and of_all.learned_tokens is not None
            assert seen.learned_tokens == window or shared or has_outgrown, "one client has changed another's window"
            assert seen.ratio == now.ratio or len(of_all.claims) > 1, "one client has changed another's ratio"


def _see(own: Record, of_all: Record) -> Facts:
    """The facts by which a client's requests are planned."""
    return combine(recall(own), recall(of_all))


def fuzz_quotes(data: bytes) -> None:
    """A server quotes a client's text in its error, in the ways in which servers do."""
    choices = Choices(data)
    said = "".join(fill_piece(choices) for _ in range(1 + choices.below(5)))
    said = said.encode("utf-8", "replace").decode()
    ways = (said, repr(said), orjson.dumps(said).decode(), said.upper(), " ".join(said.split()))
    message = choices.pick(_SERVERS).format(choices.pick(ways))
    overflow = read_overflow(400, orjson.dumps({"error": {"message": message}}))
    body = orjson.dumps({"messages": [{"role": said, "content": choices.text(4).encode("utf-8", "replace").decode()}]})
    if choices.happens(64):
        escaped = "".join(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else char for char in said)
        body = b'{"messages":[{"role":"%s"}],"x":NaN}' % escaped.encode("utf-8", "surrogatepass")
    if overflow is not None and overflow.limit is not None:
        assert find_quotes(overflow, body) is not Quoted.NOTHING, "a planted number is taken for one of the server's"
