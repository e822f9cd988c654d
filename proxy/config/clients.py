"""The configuration's key `client_keys`: the keys of clients, with or without names and limits.

Law: key files are read once, with the configuration. A message never quotes a key, nor a name, which may be a key that
stands in the wrong place.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from math import ceil
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from trimtab.proxy.config.network import require
from trimtab.proxy.config.policy import Section
from trimtab.proxy.config.values import HASHED, LACKING, LATE, OptionalName, OwnKey, Wanted, is_hash, refused

MAX_NAME_CHARS = 30
"""Longest name of a client. Chosen: people, teams and services have shorter names, and random keys are longer: 128 bits
in hexadecimal have 32 digits. So a mapping with names and keys exchanged is an error."""
MAX_KEY_FILE_BYTES = 8192  # Largest key. Chosen: no server accepts a longer header.
MAX_KEYS_BYTES = 128 * MAX_KEY_FILE_BYTES  # Largest key file. Chosen: far more keys than a client has.
_EXPIRES = "expires="
_KEY_PREFIX = "sk-"  # Providers' keys begin with it. Source: OpenAI's, Anthropic's and many others'.
_ONE_WORD = re.compile("[!-~]+")


class Budget(msgspec.Struct, frozen=True):
    """What a client may spend. None: as much as it likes. refuses: whether it is refused afterwards, not only told."""

    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    dollars_per_day: float | None = None
    dollars_per_month: float | None = None
    refuses: bool = True


class ClientConfig(Section):
    """A client with a name: its keys, its own limit, and its budget."""

    key: OwnKey | None = Field(None, repr=False)
    key_file: OptionalName = None
    expires: Annotated[date | None, Wanted("a day, such as 2027-01-31")] = None
    max_concurrent_requests: int | None = Field(None, ge=1)
    tokens_per_minute: int | None = Field(None, ge=1)
    tokens_per_day: int | None = Field(None, ge=1)
    tokens_per_month: int | None = Field(None, ge=1)
    dollars_per_day: float | None = Field(None, gt=0)
    dollars_per_month: float | None = Field(None, gt=0)
    over_budget: Literal["refuse", "tell"] = "refuse"
    _known_keys: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def known_keys(self) -> Mapping[str, str]:
        return self._known_keys

    @property
    def budget(self) -> Budget:
        tokens = (self.tokens_per_minute, self.tokens_per_day, self.tokens_per_month)
        return Budget(*tokens, self.dollars_per_day, self.dollars_per_month, self.over_budget == "refuse")

    @model_validator(mode="after")
    def _find_key(self) -> Self:
        if (self.key is None) == (self.key_file is None):
            raise PydanticCustomError(LACKING, LACKING)
        found = {self.key: ""} if self.key else _read_keys(self.key_file or "")
        last = "" if self.expires is None else self.expires.isoformat()
        self._known_keys = {key: min(filter(None, (own, last)), default="") for key, own in found.items()}
        return self

    def divide(self, workers: int) -> Self:
        whole = {name: getattr(self, name) for name in ("max_concurrent_requests", "tokens_per_minute")}
        parts = {name: ceil(limit / workers) for name, limit in whole.items() if limit is not None}
        return self.model_copy(update=parts) if parts else self


@dataclass(frozen=True, slots=True)
class Clients:
    """What `client_keys` says: names and days of the end, by key; limits of requests in flight and budgets by name."""

    keys: tuple[str, ...] = field(default=(), repr=False)
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Mapping[str, int] = field(default_factory=dict)
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    ends: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, client_keys: "ClientKeys | None") -> "Clients":
        if not isinstance(client_keys, dict):
            return cls(client_keys or ())
        named = {name: client for name, client in client_keys.items() if isinstance(client, ClientConfig)}
        limits = {name: client.max_concurrent_requests for name, client in named.items()}
        budgets = {name: client.budget for name, client in named.items()}
        keys = [(key, name, end) for name, client in named.items() for key, end in client.known_keys.items()]
        return cls(
            tuple(key for key, _, _ in keys),
            {key: name for key, name, _ in keys},
            {name: limit for name, limit in limits.items() if limit is not None},
            {name: budget for name, budget in budgets.items() if budget != Budget(refuses=budget.refuses)},
            {key: end for key, _, end in keys if end},
        )


def divide_clients(client_keys: "ClientKeys | None", workers: int) -> "ClientKeys | None":
    if not isinstance(client_keys, dict):
        return client_keys
    return {
        name: client.divide(workers) if isinstance(client, ClientConfig) else client
        for name, client in client_keys.items()
    }


def _read_keys(key_file: str) -> dict[str, str]:
    """The keys in a file, each with the day on which it ends. Raises ValueError with a message that quotes nothing."""
    path = os.path.expanduser(key_file)  # noqa: PTH111 - Path.expanduser raises if there is no such user
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - any path, as it is written
            text = file.read(MAX_KEYS_BYTES + 1).decode("ascii", "replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ValueError(f"key_file cannot be read: {(reason or 'no file can have this name').lower()}") from None
    require(text.strip(), "key_file is empty")
    require(len(text) <= MAX_KEYS_BYTES, "key_file is too long")
    lines = (line.strip() for line in text.splitlines())
    return dict(_read_line(line) for line in lines if line and not line.startswith("#"))


def _read_line(line: str) -> tuple[str, str]:
    key, *more = line.split()
    is_key = len(key) <= MAX_KEY_FILE_BYTES and _ONE_WORD.fullmatch(key)
    is_end = not more or (len(more) == 1 and more[0].startswith(_EXPIRES))
    require(is_key and is_end, "key_file must contain one key a line: one word of printable ASCII")
    require(not key.startswith(HASHED) or is_hash(key), f"key_file must have 64 digits after {HASHED}")
    try:
        return key, date.fromisoformat(more[0].removeprefix(_EXPIRES)).isoformat() if more else ""
    except ValueError:
        raise ValueError("key_file must have a date after expires=, such as 2027-01-31") from None


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
    if not isinstance(value, dict | list | tuple) or (
        not isinstance(value, dict) and any(isinstance(each, dict) for each in value)
    ):
        raise refused()  # names and limits are in a mapping: their keys' own errors would not say so
    return (_MAPPING if isinstance(value, dict) else _LIST).validate_python(value)


_List = Annotated[tuple[OwnKey, ...], Field(min_length=1)]
_Client = Annotated[
    OwnKey | ClientConfig,
    BeforeValidator(_read_client),
    Wanted(
        "a key (one word of printable ASCII), or a mapping of either key or key_file, and, if there are limits, "
        "max_concurrent_requests and others"
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
