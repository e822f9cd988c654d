"""The addresses of our own whose requests are served as those of models are: with the same keys, bounds and fairness.

Law: each answers with JSON. What it does is in exchange/.
"""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from trimtab.proxy.config.schema import Config
from trimtab.proxy.exchange import for_caller
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.services import Services
from trimtab.proxy.exchange.tell import Note
from trimtab.proxy.http.headers import Headers
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.server.admin.sending import send_whole

Answer = Callable[[Services, Arrival, Reply, Note], Awaitable[tuple[bytes, Headers]]]
"""Makes the answer: JSON, and headers beside it. Raises ProxyError."""
ANSWERS: Mapping[tuple[str, str], Answer] = {("POST", for_caller.PATH): for_caller.compact_for_caller}
"""By method and path."""


def find_answer(config: Config, method: str, path: str) -> Answer | None:
    """What answers a request; None if it is not for one of these addresses."""
    if config.compaction.compress:
        if (method, path) == ("POST", for_caller.COMPRESS):
            return for_caller.compress_messages
        if method == "GET" and path.startswith(for_caller.RETRIEVE):
            return for_caller.retrieve_text
    return ANSWERS.get((method, path))


async def answer_endpoint(
    services: Services, arrival: Arrival, reply: Reply, note: Note, answer: Answer
) -> web.StreamResponse:
    """Answer a request at one of these addresses. Raises ProxyError."""
    body, headers = await answer(services, arrival, reply, note)
    return await send_whole(reply, web.Response(content_type="application/json", headers=headers), body)
