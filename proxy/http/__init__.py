"""HTTP with clients and upstreams: framing, headers, bodies, credentials, the relay, WebSockets.

Law: bytes pass unchanged. Every workaround for aiohttp is in this package.
"""
