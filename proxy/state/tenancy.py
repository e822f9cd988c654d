"""Whose request it is: what keeps clients apart in everything that outlives a request.

Law: what tells tenants apart comes from all the credentials that a request shows, else from a key that never leaves
this machine. An `id` tells nothing of the credential behind it.
"""

from dataclasses import dataclass, field
from hashlib import sha256

from proxy.http.credentials import CLASSIC_NAMES, GUESSABLE_NAMES, Shown, find_shown
from proxy.http.headers import KEY_HEADER, Headers
from proxy.http.keys import find_key

_HEADER = "header:"
_FIRST_NAMES = frozenset({*CLASSIC_NAMES, KEY_HEADER})
"""What is in stores was written under these alone; other names were no credentials then."""


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

    def identify(self, headers: Headers, target: str = "", shown: Shown | None = None) -> Tenant:
        """The tenant whose request has these headers, all that arrived, and this target.

        `shown` is what `find_shown` finds in these, if that is at hand.
        """
        secret = self.find_secret(headers, target, shown)
        key = find_key(self.client_keys, headers) if self.client_keys else None
        return Tenant(_name("tenant", secret), secret, "" if key is None else _name("client key", _encode(key)))

    def find_secret(self, headers: Headers, target: str = "", shown: Shown | None = None) -> bytes:
        """What the ids and the encryption of a client's summaries are derived from.

        It is another one if any of what the client shows is another. A header that names the tenant is no secret, nor
        is who pays: such a value is joined with the proxy's own key unless a key stands beside it.
        """
        name = self.tenant.removeprefix(_HEADER).lower() if self.tenant.startswith(_HEADER) else None
        tenant = "" if name is None else next((value for key, value in headers if key.lower() == name), "")
        if tenant:
            return b"tenant\0" + self.key + _encode(tenant)
        return _derive(find_shown(headers, target) if shown is None else shown, self.key)


def _derive(shown: Shown, key: bytes) -> bytes:
    """A secret of all that is shown: clients may have one placeholder for the upstream, and each its own key."""
    classic = [value for wanted in CLASSIC_NAMES for name, value in shown if name == wanted]
    own_keys = [value for name, value in shown if name == KEY_HEADER]
    others = sorted({item for item in shown if item[0] not in _FIRST_NAMES})
    first = "\0".join(("\0".join(dict.fromkeys(classic)), *dict.fromkeys(own_keys)))
    if not others:
        return b"credential\0" + _encode(first) if first else b"none\0" + key
    more = _encode("\0".join("\0".join(item) for item in others))
    if first or any(name.removeprefix("?") not in GUESSABLE_NAMES for name, _ in others):
        return b"credentials\0" + _encode(first) + b"\0\0" + more
    return b"shown\0" + key + more


def _name(what: str, secret: bytes) -> str:
    return sha256(b"trimtab " + what.encode() + b"\0" + secret).hexdigest()


def _encode(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")
