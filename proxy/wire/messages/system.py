"""Takes out of `system` what only makes each request different from the one before.

Claude Code begins its system prompt with a line `x-anthropic-billing-header: cc_version=...; cch=...;`. Both values
change with each request, and the model does not need them. Anthropic's own servers know the line. On other servers, the
prompt cache finds nothing because of it, and Amazon Bedrock refuses it. So the whole line is removed, and a block that
holds nothing else with it.

Law: only texts of `system` that begin with that line change, and all other bytes of the body stay.

Source: anthropics/claude-code#68900; the fixes of sgl-project/sglang#29169, EasyMetaAu/helm-api#208 and
MadAppGang/claudish#167 remove the line as well.
"""

import re

from trimtab.proxy.wire.codec import Request, Unsent
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_items
from trimtab.proxy.wire.json.spans import Span, find_array, find_member
from trimtab.rules.conversation import Decision

_HEADER = rb"x-anthropic-billing-header:"
_LINE = re.compile(rb'"' + _HEADER + rb'(?: {0,9}[\w.-]{1,64}=[^"\\;\s]{0,256};){1,32}+ {0,9}(?:\\r)?(?:\\n)?')
"""The beginning of a JSON string: the header, its fields, and the end of the line if nothing else is on it."""
_BLANK = re.compile(rb'(?: |\\[rnt]){0,2000}+"')
"""The end of a JSON string that goes on with only white space."""
_KEY = b'{"system":'


def clean_request(request: Request, unsent: Unsent) -> tuple[bytes, tuple[Decision, ...]]:
    """The body without such lines, and the decision; the body itself if it holds none, or if they must be sent."""
    system = request.fixed[0]
    if not unsent.nonces or _HEADER not in system:
        return request.body, ()
    try:
        place = find_member(request.body, b'"system"', *_list_known(request))
        spans = [] if place is None else _find_lines(request.body, place)
    except DECODE_ERRORS:
        spans = []
    if not spans:
        return request.body, ()
    body = request.body
    stops = [0, *(span.stop for span in spans)]
    starts = [*(span.start for span in spans), len(body)]
    rest = b"".join(body[stop:start] for stop, start in zip(stops, starts, strict=True))
    removed = sum(span.stop - span.start for span in spans)
    return rest, (Decision("nonce", f"{removed} bytes of system that change with each request", 0, 0, 1, 0),)


def _list_known(request: Request) -> list[Span]:
    beginning = request.beginning
    return [] if beginning is None else [Span(beginning.array.start, beginning.array.stop)]


def _find_lines(body: bytes, place: Span) -> list[Span]:
    """What to remove from `system`: the line of a string, or of each block. Raises one of DECODE_ERRORS."""
    value = body[place.start : place.stop]
    if value[:1] != b"[":
        return [] if (line := _find_line(value)) is None else [_move(line, place.start)]
    blocks = list(map(bytes, decode_items(value)))
    array = find_array(_KEY + value + b"}", b'"system"', blocks)
    spans = [] if array is None else [_move(span, place.start - len(_KEY)) for span in array.elements]
    lines: dict[int, Span] = {}
    for at, block in enumerate(blocks):  # a later block may quote the line
        line = _find_in_block(block)
        if line is None:
            break
        lines[at] = line
    gone = [at for at, line in lines.items() if _is_all(blocks[at], line)] if spans else []
    last = max((at for at in range(len(spans)) if at not in gone), default=-1)
    found = [_move(lines[at], spans[at].start) for at in lines if spans and at not in gone]
    found += [Span(spans[at].start, spans[at + 1].start) for at in gone if at < last]
    if gone and gone[-1] > last:
        found.append(Span(spans[last].stop if last >= 0 else spans[0].start, spans[-1].stop))
    return sorted(found)


def _find_in_block(block: bytes) -> Span | None:
    """The line in the text of a block. Raises one of DECODE_ERRORS."""
    place = find_member(block, b'"text"') if block[:1] == b"{" else None
    line = None if place is None else _find_line(block[place.start : place.stop])
    return None if place is None or line is None else _move(line, place.start)


def _is_all(block: bytes, line: Span) -> bool:
    return _BLANK.match(block, line.stop) is not None


def _find_line(text: bytes) -> Span | None:
    found = _LINE.match(text)
    return Span(len(b'"'), found.end()) if found else None


def _move(span: Span, shift: int) -> Span:
    return Span(span.start + shift, span.stop + shift)
