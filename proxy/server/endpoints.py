"""The addresses of our own whose requests are served as those of models are: with the same keys, bounds and fairness.

Law: each answers with JSON. What it does is in exchange/.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from aiohttp import web

from trimtab.proxy.config.schema import Config
from trimtab.proxy.exchange import for_caller
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.exchange.tell import Note
from trimtab.proxy.http.errors import MethodNotAllowedError
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.server.admin.sending import send_whole

Answer = Callable[[Services, Arrival, Reply, Note], Awaitable[tuple[bytes, Headers]]]
"""Makes the answer: JSON, and headers beside it. Raises ProxyError."""
_COMPACT = (("POST", for_caller.compact_for_caller),)
_COMPRESS = (("POST", for_caller.compress_messages),)
_RETRIEVE = (("GET", for_caller.retrieve_text),)


def find_answer(config: Config, method: str, path: str) -> Answer | None:
    """What answers a request; None if it is not for one of these addresses."""
    known: Sequence[tuple[str, Answer]] = _COMPACT if path == for_caller.PATH else ()
    if config.compaction.compress:
        if path == for_caller.COMPRESS:
            known = _COMPRESS
        elif path.startswith(for_caller.RETRIEVE):
            known = _RETRIEVE
    allowed = ", ".join(name for name, _ in known)
    return dict(known).get(method) or (partial(_refuse_method, allowed) if known else None)


async def _refuse_method(allowed: str, _: Services, __: Arrival, reply: Reply, ___: Note) -> tuple[bytes, Headers]:
    message = f"{reply.request.path} takes {allowed}"
    raise MethodNotAllowedError(message, allowed)


async def answer_endpoint(
    services: Services, arrival: Arrival, reply: Reply, note: Note, answer: Answer
) -> web.StreamResponse:
    """Answer a request at one of these addresses. Raises ProxyError."""
    body, headers = await answer(services, arrival, reply, note)
    return await send_whole(reply, web.Response(content_type="application/json", headers=headers), body)
