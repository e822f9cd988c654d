"""The cost as it grows: of a turn with its session, of memory with sessions and streams, of the store with sessions.

Law: processor time is the kernel's account of the gateway; every figure stands beside the bare aiohttp proxy's, or is a
difference within one process.
"""
