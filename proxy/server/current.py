"""Which services a request is served with: those that were current when it came.

Law: a request keeps the services that it began with, whatever is reloaded meanwhile.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from proxy.exchange.services import Services
from proxy.http.aiohttp_fixes import loses_what_follows

Handler = Callable[[Services, web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Current:
    """The services of requests to come, which may be replaced."""

    services: Services

    def serve_by(self, handler: Handler) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        """The handler for a server."""

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            response = await handler(self.services, request)
            if loses_what_follows(request):
                response.force_close()
            return response

        return answer
