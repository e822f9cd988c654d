"""The configuration's key `client_keys`: the keys of clients, with or without names and limits.

Law: key files are read once, with the configuration. A message never quotes a key, nor a name, which may be a key that
stands in the wrong place.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from trimtab.proxy.config.policies.sections import Section
from trimtab.proxy.config.values import LATE, OptionalName, OwnKey, refused, require
from trimtab.proxy.config.words import LACKING, Wanted

MAX_NAME_CHARS = 30
"""Longest name of a client. Chosen: people, teams and services have shorter names, and random keys are longer: 128 bits
in hexadecimal have 32 digits. So a mapping with names and keys exchanged is an error."""
MAX_KEY_FILE_BYTES = 8192
"""Largest key file. Chosen: no server accepts a longer header, so no client could send a longer key."""
_KEY_PREFIX = "sk-"
"""Providers' keys begin with it. Source: OpenAI's, Anthropic's and many others'."""
_ONE_WORD = re.compile("[!-~]+")


class ClientConfig(Section):
    """A client with a name: its key, and its own limit."""

    key: OwnKey | None = Field(None, repr=False)
    key_file: OptionalName = None
    max_concurrent_requests: int | None = Field(None, ge=1)
    _known_key: str = PrivateAttr(default="")

    @property
    def known_key(self) -> str:
        """The key, from wherever it is. The file is as it was when the configuration was read."""
        return self._known_key

    @model_validator(mode="after")
    def _find_key(self) -> Self:
        if (self.key is None) == (self.key_file is None):
            raise PydanticCustomError(LACKING, LACKING)
        self._known_key = self.key or _read_key(self.key_file or "")
        return self

    def divide(self, workers: int) -> Self:
        """The client with the part of its limit that one of several workers has; at least one request."""
        if self.max_concurrent_requests is None:
            return self
        return self.model_copy(update={"max_concurrent_requests": ceil(self.max_concurrent_requests / workers)})


@dataclass(frozen=True, slots=True)
class Clients:
    """What `client_keys` says.

    names: by key, for clients with a name.
    limits: the number of requests that may be in flight, by name, for clients with such a limit.
    """

    keys: tuple[str, ...] = field(default=(), repr=False)
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, client_keys: "ClientKeys | None") -> "Clients":
        if not isinstance(client_keys, dict):
            return cls(client_keys or ())
        named = {name: client for name, client in client_keys.items() if isinstance(client, ClientConfig)}
        limits = {name: client.max_concurrent_requests for name, client in named.items()}
        return cls(
            tuple(client.known_key for client in named.values()),
            {client.known_key: name for name, client in named.items()},
            {name: limit for name, limit in limits.items() if limit is not None},
        )


def divide_clients(client_keys: "ClientKeys | None", workers: int) -> "ClientKeys | None":
    if not isinstance(client_keys, dict):
        return client_keys
    return {
        name: client.divide(workers) if isinstance(client, ClientConfig) else client
        for name, client in client_keys.items()
    }


def _read_key(key_file: str) -> str:
    """The key in a file. Raises ValueError with a message that quotes nothing of the file."""
    path = os.path.expanduser(key_file)  # noqa: PTH111 - Path.expanduser raises if there is no such user
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - any path, as it is written
            text = file.read(MAX_KEY_FILE_BYTES + 1).decode("ascii", "replace").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        message = f"key_file cannot be read: {(reason or 'no file can have this name').lower()}"
        raise ValueError(message) from None
    require(text, "key_file is empty")
    is_key = len(text) <= MAX_KEY_FILE_BYTES and _ONE_WORD.fullmatch(text)
    require(is_key, "key_file must contain one key: one word of printable ASCII")
    return text


def _check_name(name: str) -> str:
    is_name = 0 < len(name) <= MAX_NAME_CHARS and name.isprintable() and name == name.strip()
    if not is_name or name.startswith(_KEY_PREFIX):
        raise refused()
    return name


_KEY = TypeAdapter(OwnKey, config=LATE)
_NAME = Wanted(
    f"a name of 1 to {MAX_NAME_CHARS} printable characters that does not begin with {_KEY_PREFIX}",
    rf"^(?!{_KEY_PREFIX})\S(?:[\s\S]{{0,{MAX_NAME_CHARS - 2}}}\S)?$",
)


def _read_client(value: Any) -> Any:
    # Checked here, and not by pydantic's union: that would report an error for each of the two types.
    if isinstance(value, ClientConfig):
        return value
    return (
        ClientConfig.model_validate(value) if isinstance(value, dict) else ClientConfig(key=_KEY.validate_python(value))
    )


def _read_clients(value: Any) -> Any:
    if not isinstance(value, dict | list | tuple):
        raise refused()
    return (_MAPPING if isinstance(value, dict) else _LIST).validate_python(value)


_List = Annotated[tuple[OwnKey, ...], Field(min_length=1)]
_Client = Annotated[
    OwnKey | ClientConfig,
    BeforeValidator(_read_client),
    Wanted(
        "a key (one word of printable ASCII), or a mapping of either key or key_file, and, if there is a limit, "
        "max_concurrent_requests"
    ),
]
_Mapping = Annotated[dict[Annotated[str, AfterValidator(_check_name), _NAME], _Client], Field(min_length=1)]
_LIST: TypeAdapter[tuple[str, ...]] = TypeAdapter(_List, config=LATE)
_MAPPING: TypeAdapter[dict[str, str | ClientConfig]] = TypeAdapter(_Mapping, config=LATE)
ClientKeys = Annotated[
    _List | _Mapping,
    BeforeValidator(_read_clients),
    Wanted(
        "a list of keys or a mapping of names, not empty, each name with a key (or with a mapping of either key or "
        "key_file, and max_concurrent_requests)"
    ),
]
"""The type of `client_keys`. Each value of a mapping becomes a ClientConfig."""
