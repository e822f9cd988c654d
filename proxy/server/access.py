"""Access: `client_keys` admit clients, `admin_token` admits readers of our own pages.

Law: the decision uses the request's headers only and is made before the body is read.
"""

from proxy.config.schema import Config
from proxy.http.errors import EraseNotAllowedError, PageUnauthorizedError, UnauthorizedError
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
    """Admit a request with `admin_token`; if none is set, with one of `client_keys`, if there are any.

    The token may be the password of basic authentication, so that browsers can send it. Raises PageUnauthorizedError.
    """
    if config.admin_token is not None:
        keys: tuple[str, ...] = (config.admin_token,)
        name = "admin_token"
    elif config.client_keys is not None:
        keys, name = config.clients.keys, "one of client_keys"
    else:
        return
    if find_key(keys, headers, takes_basic=True) is None:
        message = f"this page requires {name}: send it as Authorization: Bearer TOKEN, or as the password in a browser"
        raise PageUnauthorizedError(message)


def admit_eraser(config: Config, *, of_pages: bool) -> None:
    """Refuse to erase what others did, if every client with a key could. Raises EraseNotAllowedError."""
    if config.client_keys is not None and config.admin_token is None and not of_pages:
        message = "only the operator may delete a session: set admin_token, or use metrics_listen"
        raise EraseNotAllowedError(message)
