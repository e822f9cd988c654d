"""Every workaround for aiohttp, for its client and its server.

Law: nobody gets a response to another request, and nobody waits for a response that can no longer come. Only this
package and server/connections.py use private parts of aiohttp.
"""
