"""Measures how costs grow: of a turn with its session, of memory with sessions and streams, of the store with sessions.

Law: processor time is the kernel's account of the gateway. Every figure is compared with that of the bare aiohttp
proxy, or is a difference within one process.
"""
