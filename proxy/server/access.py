"""Who may come in: clients by `client_keys`, our own pages by `admin_token`.

Law: a request is judged by its headers alone, before its body is read.
"""

from proxy.config.schema import Config
from proxy.http.errors import UnauthorizedError
from proxy.http.headers import KEY_HEADER, Headers
from proxy.http.keys import find_key


def admit_client(config: Config, headers: Headers) -> None:
    """Let a client in that shows one of `client_keys`, and anyone where there are none. Raises UnauthorizedError."""
    if config.client_keys is not None and find_key(config.client_keys, headers) is None:
        message = (
            "this proxy wants a key of its own: send one of its client_keys as Authorization: Bearer KEY, as api-key,"
            f" x-api-key or x-goog-api-key; or as {KEY_HEADER}, where Authorization is for the upstream"
        )
        raise UnauthorizedError(message)


def admit_admin(config: Config, headers: Headers) -> None:
    """Let in whoever shows `admin_token`; where there is none, whoever is a client. Raises UnauthorizedError."""
    if config.admin_token is None:
        admit_client(config, headers)
    elif find_key((config.admin_token,), headers) is None:
        message = "this page is for who knows admin_token: send it as Authorization: Bearer TOKEN"
        raise UnauthorizedError(message)
