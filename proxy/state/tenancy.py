"""Whose request it is: what keeps clients apart in everything that outlives a request.

Law: what tells tenants apart comes from the credential that a request shows, else from a key that never leaves this
machine. An `id` tells nothing of the credential behind it.
"""

from dataclasses import dataclass, field
from hashlib import sha256

from proxy.http.headers import KEY_HEADER, Headers, find_credentials
from proxy.http.keys import find_key

_HEADER = "header:"


@dataclass(frozen=True, slots=True)
class Tenant:
    """One client, as far as it can be told from others.

    `id` is the same in every process that is shown the same credential. `secret` is what the ids and the encryption of
    its summaries are derived from. `key_id` tells apart the `client_keys` that let clients in; empty if there are none.
    Credentials can be invented if the upstream checks none; client keys cannot.
    """

    id: str
    secret: bytes = field(repr=False)
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class Tenancy:
    """`tenant` and `client_keys` as configured: `authorization`, or `header:NAME`. `key` is this proxy's own."""

    tenant: str
    key: bytes = field(repr=False)
    client_keys: tuple[str, ...] = field(default=(), repr=False)

    def identify(self, headers: Headers) -> Tenant:
        """The tenant whose request has these headers."""
        secret = self.find_secret(headers)
        shown = find_key(self.client_keys, headers) if self.client_keys else None
        return Tenant(_name("tenant", secret), secret, "" if shown is None else _name("client key", _encode(shown)))

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


def _name(what: str, secret: bytes) -> str:
    return sha256(b"trimtab " + what.encode() + b"\0" + secret).hexdigest()


def _encode(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")
