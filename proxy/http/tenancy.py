"""The tenant of a request: what keeps clients apart in everything that outlives a request.

Law: a tenant is derived from all credentials of the request, or else from a key that never leaves this machine. An `id`
reveals nothing of the credential.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from trimtab.proxy.http.credentials import CLASSIC_NAMES, GUESSABLE_NAMES, Shown, find_shown
from trimtab.proxy.http.headers import KEY_HEADER, Headers, find_key

_HEADER = "header:"
_FIRST_NAMES = frozenset({*CLASSIC_NAMES, KEY_HEADER})
"""The names that count first. Stores contain summaries from a time when only these names were credentials."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One client, as far as it can be distinguished from others.

    `id` is the same in every process for the same credential. The ids and the encryption of the client's summaries are
    derived from `secret`. `key_id` identifies the one of `client_keys` that the request has; empty if none are
    configured. `client_name` is the name of that key in the configuration; empty if it has none. A client can invent
    credentials if the upstream checks none, but it cannot invent client keys.
    """

    id: str
    secret: bytes = field(repr=False)
    key_id: str = ""
    client_name: str = ""


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The configured `tenant` and `client_keys`. key: the proxy's own secret. client_names: of keys that have one."""

    tenant: str
    key: bytes = field(repr=False)
    client_keys: tuple[str, ...] = field(default=(), repr=False)
    client_names: Mapping[str, str] = field(default_factory=dict, repr=False)

    def identify(self, headers: Headers, target: str = "", shown: Shown | None = None) -> Tenant:
        """The tenant of a request with these headers and target. `shown`: what `find_shown` says, if it is known."""
        secret = self.find_secret(headers, target, shown)
        key = find_key(self.client_keys, headers) if self.client_keys else None
        tenant = Tenant(_name("tenant", secret), secret)
        if key is None:
            return tenant
        return replace(tenant, key_id=_name("client key", _encode(key)), client_name=self.client_names.get(key, ""))

    def find_secret(self, headers: Headers, target: str = "", shown: Shown | None = None) -> bytes:
        """The secret from which the ids and the encryption of a client's summaries are derived.

        It differs if any credential of the client differs. A header that names the tenant is not secret, and neither is
        the name of an account. Such a value alone is joined with the proxy's own key.
        """
        name = self.tenant.removeprefix(_HEADER).lower() if self.tenant.startswith(_HEADER) else None
        tenant = "" if name is None else next((value for key, value in headers if key.lower() == name), "")
        if tenant:
            return b"tenant\0" + self.key + _encode(tenant)
        return _derive(find_shown(headers, target) if shown is None else shown, self.key)


def _derive(shown: Shown, key: bytes) -> bytes:
    # All credentials count: clients may share a placeholder for the upstream, while each has its own key.
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
