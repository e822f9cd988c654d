"""The yardstick: the minimum that a proxy on aiohttp and uvloop does. It forwards requests and responses.

    python -m bench.harness.bare_proxy --port PORT --upstream http://127.0.0.1:PORT [--json]

With `--json` it decodes and encodes the body, as a gateway that reads requests has to.
"""

import argparse
import asyncio

import aiohttp
import orjson
import uvloop
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

_OF_ONE_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length", "accept-encoding"}
_MAX_BYTES = 64 * 1024 * 1024


async def serve(port: int, upstream: str, *, reads_json: bool) -> None:
    """Forward requests until the process is ended."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            headers = CIMultiDict((k, v) for k, v in request.headers.items() if k.lower() not in _OF_ONE_HOP)
            body = await request.read()
            if reads_json and body:
                body = orjson.dumps(orjson.loads(body))
            url = URL(upstream + request.path_qs, encoded=True)
            async with session.request(request.method, url, data=body, headers=headers) as answer:
                kept = CIMultiDict((k, v) for k, v in answer.headers.items() if k.lower() not in _OF_ONE_HOP)
                if answer.content_length is not None:
                    return web.Response(status=answer.status, body=await answer.read(), headers=kept)
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response

        app = web.Application(client_max_size=_MAX_BYTES)
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--json", action="store_true", help="decode the body and encode it again")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.upstream, reads_json=arguments.json))


if __name__ == "__main__":
    main()
