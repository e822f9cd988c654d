"""Whose summaries are whose.

Law: what a summary is found and read with comes from the client's credential, else from a key that never leaves this
machine.
"""

from dataclasses import dataclass

from proxy.http.headers import KEY_HEADER, Headers, find_credentials

_HEADER = "header:"


@dataclass(frozen=True, slots=True)
class Tenancy:
    """`tenant` as configured: `authorization`, or `header:NAME`. `key` is this proxy's own."""

    tenant: str
    key: bytes

    def find_secret(self, headers: Headers) -> bytes:
        """What the ids and the encryption of a client's summaries are derived from.

        A header that names the tenant is no secret, so it is joined with the proxy's own key.
        """
        name = self.tenant.removeprefix(_HEADER).lower() if self.tenant.startswith(_HEADER) else None
        tenant = next((value for key, value in headers if key.lower() == name), "")
        if tenant:
            return b"tenant\0" + self.key + _encode(tenant)
        # All that it shows: clients may have the same for the upstream, a placeholder say, and each its own key for us.
        credential = "\0".join(find_credentials(headers))
        own_keys = dict.fromkeys(value for key, value in headers if key.lower() == KEY_HEADER and value)
        shown = "\0".join((credential, *own_keys))
        return b"credential\0" + _encode(shown) if shown else b"none\0" + self.key


def _encode(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")
