"""Takes items out of a request that belong to the client alone.

Law: with each item goes one comma. All other bytes stay.
"""

import orjson

from proxy.wire.codec import Request, UndecodableError, Unsent
from proxy.wire.json.spans import Span, cut, holds
from proxy.wire.responses.request import FORM
from proxy.wire.responses.units import read_head
from proxy.wire.transcript.body import find_elements
from rules.conversation import Decision

RULE = "local_items"
"""Name of the rule in decisions."""


def clean_request(request: Request, unsent: Unsent) -> tuple[bytes, tuple[Decision, ...]]:
    """The body without the client's own items, and a decision; the body itself if it holds none or is not understood.

    The decision counts items, because nothing is decoded yet. They cost no tokens.
    """
    if not any(holds(request.body, orjson.dumps(name)) for name in unsent.local_items):
        return request.body, ()
    local = frozenset(unsent.local_items)
    gone = [at for at, raw in enumerate(request.raws) if read_head(raw)[0] in local]
    if not gone:
        return request.body, ()
    try:
        spans = _find_spans(request)
    except UndecodableError:
        return request.body, ()
    return cut(request.body, spans, gone), (
        Decision(RULE, f"{len(gone)} items of the client's own", 0, 0, len(gone), gone[0]),
    )


def _find_spans(request: Request) -> list[Span]:
    """The positions of the items. Raises UndecodableError."""
    array = find_elements(FORM, request.body, request.raws) if request.beginning is None else request.beginning.array
    return array.elements
