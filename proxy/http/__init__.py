"""HTTP both ways: the client, framing, bodies, relay, WebSockets.

Law: bytes pass unchanged, and every repair of aiohttp stands in this room.
"""
