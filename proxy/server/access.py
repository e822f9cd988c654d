"""Access: `client_keys` admit clients, `admin_token` admits readers of our own pages.

Law: the decision uses the request's headers only and is made before the body is read.
"""

from proxy.config.schema import Config
from proxy.http.errors import UnauthorizedError
from proxy.http.headers import KEY_HEADER, Headers
from proxy.http.keys import find_key


def admit_client(config: Config, headers: Headers) -> None:
    """Admit a client that sends one of `client_keys`, or any client if none are set. Raises UnauthorizedError."""
    if config.client_keys is not None and find_key(config.clients.keys, headers) is None:
        message = (
            "this proxy requires a key of its own: send one of its client_keys as Authorization: Bearer KEY, as"
            f" api-key, x-api-key or x-goog-api-key; or as {KEY_HEADER}, if Authorization is for the upstream"
        )
        raise UnauthorizedError(message)


def admit_admin(config: Config, headers: Headers) -> None:
    """Admit a request with `admin_token`; if none is set, any admitted client. Raises UnauthorizedError."""
    if config.admin_token is None:
        admit_client(config, headers)
    elif find_key((config.admin_token,), headers) is None:
        message = "this page requires admin_token: send it as Authorization: Bearer TOKEN"
        raise UnauthorizedError(message)
