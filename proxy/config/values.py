"""What is allowed at each place of the configuration, in words; the types of single values.

Law: a message says what the value must be. It never repeats a value that may contain a secret.
"""

import re
import types
from collections.abc import Iterable
from datetime import date
from enum import Enum
from fnmatch import translate
from functools import lru_cache
from hashlib import sha256
from pathlib import PurePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, PydanticCustomError

from trimtab.proxy.config.network import (
    DIRECT,
    SCHEMES,
    SETTING,
    check_authorities,
    check_certificate,
    has_several,
    read_proxy,
    read_servers,
    require,
)
from trimtab.rules.policy import MAX_NAME_CHARS

Step = str | int
_NUMBERS = {int: "a whole number", float: "a number"}
LACKING = "lacking"  # The type of pydantic's error for a section that needs a key that it does not have
_BOUNDS = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


class Wanted(msgspec.Struct, frozen=True):
    """What values must be. words: follow "must be". pattern: for editors (ECMAScript); every right value matches."""

    words: str
    pattern: str | None = None

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        found = handler(schema)
        return found if self.pattern is None else {**found, "pattern": self.pattern}


class Slot(msgspec.Struct, frozen=True):
    """What is allowed at a place: a type without its annotations, the annotations, and whether null is allowed."""

    kind: Any
    constraints: tuple[Any, ...] = ()
    is_optional: bool = False

    @classmethod
    def of(cls, annotation: Any, constraints: Iterable[Any] = ()) -> "Slot":
        """The slot of an annotation. `constraints`: those that the field adds to it."""
        found, is_optional = tuple(constraints), False
        while True:
            inner = get_args(annotation)
            if get_origin(annotation) is Annotated:
                annotation, found = inner[0], (*inner[1:], *found)
            elif _is_union(annotation) and type(None) in inner and len(inner) == 2:
                annotation, is_optional = inner[inner[0] is type(None)], True
            else:
                return cls(annotation, found, is_optional)

    @property
    def variants(self) -> "tuple[Slot, ...]":
        return tuple(map(Slot.of, get_args(self.kind))) if _is_union(self.kind) else (self,)

    @property
    def section(self) -> type[BaseModel] | None:
        kinds = (slot.kind for slot in self.variants)
        return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)

    @property
    def names(self) -> "Slot | None":
        """What the names must be, if the value may be a mapping with names of the user's choice."""
        kinds = (slot.kind for slot in self.variants)
        return next((Slot.of(get_args(kind)[0]) for kind in kinds if get_origin(kind) is dict), None)

    @property
    def is_mapping(self) -> bool:
        return self.names is not None

    @property
    def text(self) -> "Slot | None":
        return next((slot for slot in self.variants if slot.kind is str), None)

    @property
    def holds_others(self) -> bool:
        return self.section is not None or self.is_mapping or get_origin(self.kind) in {tuple, list}

    def enter(self, step: Step) -> "Slot | None":
        if _is_union(self.kind):
            return next((inner for slot in self.variants if (inner := slot.enter(step))), None)
        if self.section is not None:
            fields = {field.alias or name: (name, field.metadata) for name, field in self.section.model_fields.items()}
            name, metadata = fields.get(str(step), ("", []))
            return Slot.of(get_type_hints(self.section, include_extras=True)[name], metadata) if name else None
        if get_origin(self.kind) is dict:
            return Slot.of(get_args(self.kind)[1])
        if get_origin(self.kind) in {tuple, list} and isinstance(step, int):
            return Slot.of(get_args(self.kind)[0])
        return None

    def takes_quoted(self, value: object) -> bool:
        """Whether a text is needed here, and the value would be right if it were in quotes."""
        slot = self.text
        if slot is None or not isinstance(value, bool | int | float | date):
            return False
        text = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            TypeAdapter(Annotated[str, Field(), *slot.constraints]).validate_python(text)
        except ValidationError:
            return False
        return True

    def words(self) -> str:
        """What a value must be, to follow "must be"."""
        words = next((item.words for item in self.constraints if isinstance(item, Wanted)), None)
        options = ["true", "false"] if self.kind is bool else []
        if get_origin(self.kind) is Literal:
            options = list(map(str, get_args(self.kind)))
        elif isinstance(self.kind, type) and issubclass(self.kind, Enum):
            options = [str(option.value) for option in self.kind]
        if words is None and options:
            *others, last = [*options, "null"] if self.is_optional else options
            return f"{', '.join(others)} or {last}" if others else last
        words = words or self._describe_kind()
        return f"{words}, or null" if self.is_optional else words

    def _describe_kind(self) -> str:
        if self.section is not None:
            return _describe_section(self.section)
        if self.is_mapping:
            return f"a mapping of names, each to {Slot.of(get_args(self.kind)[1]).words()}"
        if get_origin(self.kind) in {tuple, list}:
            least = " that is not empty" if any(getattr(item, "min_length", 0) for item in self.constraints) else ""
            return f"a list{least}, each item {Slot.of(get_args(self.kind)[0]).words()}"
        if self.kind in _NUMBERS:
            bounds = [
                words.format(f"{bound:g}" if isinstance(bound, float) else bound)
                for name, words in _BOUNDS.items()
                for item in self.constraints
                if (bound := getattr(item, name, None)) is not None
            ]
            return ", ".join([_NUMBERS[self.kind], *([" and ".join(bounds)] if bounds else [])])
        return "a text, in quotes if YAML would read it as another type" if self.kind is str else "something else"


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in {Union, types.UnionType}


def list_keys(section: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


MAX_LISTED_KEYS = 16  # Chosen: a list of them fits three lines of a terminal; a policy has more than forty


def _describe_section(section: type[BaseModel]) -> str:
    keys, required = list_keys(section), [name for name, field in section.model_fields.items() if field.is_required()]
    if len(keys) <= MAX_LISTED_KEYS:
        return f"a mapping with the keys {', '.join(keys)}"
    shown = [*required, *(key for key in keys if key not in required)][:MAX_LISTED_KEYS]
    return f"a mapping with keys such as {', '.join(shown)}"


LATE = ConfigDict(defer_build=True)
"""Of a type that is validated by itself only if the whole is wrong, or has such a value. Building one takes 2 ms."""
UNCLOSED = "[unclosed"  # The unit for a `[` without its `]`. `fnmatch` would match it literally, which is hardly meant.
NEVER = "(?!)"  # What `fnmatch.translate` writes for a class without a character, and for nothing else
HASHED = "sha256:"  # What a hash of a key begins with, in the place of the key. `trimtab keys` writes them.
KEY_ID_CHARS = 8  # of a key's hash, to name it. Chosen: a file has a few keys.
is_hash = re.compile(f"{HASHED}[0-9a-f]{{64}}").fullmatch


def name_key(key: str) -> str:
    """The ID of a key, or of its hash, under which it may be logged and listed."""
    digest = key.removeprefix(HASHED) if key.startswith(HASHED) else sha256(key.encode()).hexdigest()
    return digest[:KEY_ID_CHARS]


@lru_cache(maxsize=1024)
def split_glob(glob: str) -> tuple[str, ...]:
    """The units of a glob: `*`, `?`, a class with its brackets, UNCLOSED, or a single character as a class."""
    units: list[str] = []
    at = 0
    while at < len(glob):
        # A class has at least one character, so a ] right after its beginning is a member, not its end.
        end = glob.find("]", at + 3 if glob.startswith("[!", at) else at + 2) if glob[at] == "[" else at
        if end < 0:
            units.append(UNCLOSED)
        elif end > at:
            units.append(glob[at : end + 1])
        else:
            units.append(glob[at] if glob[at] in "*?" else f"[{glob[at]}]")
        at = max(end, at) + 1
    return tuple(units)


MAX_SUMMARY_MODELS = 8  # chosen: with so many, the last one is asked for a hundredth of the time
MIN_SUMMARY_TOKENS = 64  # chosen: a shorter summary has no space for text under its four headings
MIN_CONTEXT_WINDOW = 1024  # chosen: a smaller window has no space for a system prompt and an answer
MAX_DIGITS = 18  # chosen: more digits than any number of the configuration needs, and few enough to fit 64 bits
MAX_WORKERS = 256  # chosen: more processes than large machines have cores
ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages")
"""Clients append these to `base_url`. Longer ones first. Not /models: URLs of Azure AI Foundry end in it."""
_NOT_EMPTY = "must not have an empty password; is its variable set to an empty text? For no password, omit the colon"
_NOT_ONE_SERVER = (
    "must name one server; for several servers write redis+sentinel://host:port,host:port/SERVICE/DB or "
    "redis+cluster://host:port,host:port"
)
GLOB = Wanted("a glob of printable characters that is not empty", r"[\s\S]")
_TENANT = r"^(?:authorization|header:[!#$%&'*+.^_`|~0-9A-Za-z-]+)$"  # source: a header name is a token of RFC 9110
_PORT = "[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_STORE = r"^(?:memory|sqlite|sqlite:///[\s\S]+|(?:redis|valkey)s?(?:\+(?:sentinel|cluster))?://[\s\S]+)$"


def refused() -> PydanticCustomError:
    return PydanticCustomError("refused", "refused")


def _check_url(url: str) -> str:
    is_one_word = url.isascii() and url.isprintable() and " " not in url
    require(is_one_word and _has_valid_port(url), "must be plain ASCII; a port must be from 1 to 65535")
    parts = urlsplit(url)
    is_server = parts.scheme in {"http", "https"} and parts.hostname
    require(is_server, "must be an http:// or https:// URL with a host")
    is_plain = parts.username is None and "?" not in url and "#" not in url
    require(is_plain, "must have no user name, query or fragment; a key belongs in api_key")
    url = url.rstrip("/")
    endpoint = next((path for path in ENDPOINTS if url.lower().endswith(path)), None)
    require(endpoint is None, f"must end before {endpoint}: requests to /v1/X go to base_url/X")
    return url


def _check_rooted_path(path: str) -> str:
    is_plain = path.isascii() and path.isprintable() and not set(path.removesuffix("/*")) & set(" %?#;*\\")
    require(path.startswith("/") and is_plain, "must be /PATH or /PATH/*; PATH must not contain any of % ? # ; *")
    has_dots = {".", ".."} & set(path.split("/"))
    require(not has_dots and "//" not in path, "must not contain a segment that is empty, . or ..")
    return path


def _check_proxy(proxy: str) -> str:
    if proxy != DIRECT:
        read_proxy(proxy, SETTING)
        require(not _has_empty_password(proxy), _NOT_EMPTY)
    return proxy


def _has_empty_password(address: str) -> bool:
    return urlsplit(address).netloc.rpartition("@")[0].endswith(":")  # probably the end of an empty variable


def _has_valid_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def _check_own_key(key: str) -> str:
    require(key, "must not be empty")  # or a variable that is set to an empty text would let everyone in
    require(not key.startswith(HASHED) or is_hash(key), f"must have 64 digits after {HASHED}")
    return key


def _check_upstream_key(key: str) -> str:
    # Without this check, an empty variable would send the client's own key to the upstream.
    require(key, "must not be empty; is its variable set to an empty text? For no key, write null")
    return key


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def site_url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def own_host(host: str) -> str:
    """The host by which this machine reaches a server that listens on `host`: loopback if that is all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asked, not listened on


def _check_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    if not host or not _is_number(port) or int(port) > 65_535:
        raise refused()
    return address


def _is_number(digits: str) -> bool:
    return len(digits) <= MAX_DIGITS and digits.isascii() and digits.isdecimal()


def _check_glob(glob: str) -> str:
    require(glob and glob.isprintable(), f"must be {GLOB.words}")
    require(UNCLOSED not in split_glob(glob), "has a [ without its ]; write a literal [ as [[]")
    require(NEVER not in translate(glob), "never matches: one of its [...] contains no character")
    return glob


def _check_name_glob(glob: str) -> str:
    chars = sum(unit != "*" for unit in split_glob(_check_glob(glob)))
    require(chars <= MAX_NAME_CHARS, f"never matches: a name has at most {MAX_NAME_CHARS} characters")
    return glob


def read_switch(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return _SWITCH.validate_python(value)
    except ValidationError:
        return value


_DATABASE = re.compile(r"(/[0-9]*)?", re.ASCII)
_NOT_A_DATABASE = "must end with the number of a database, redis://host:port/DB, or with the port"


def _check_store(store: str) -> str:
    scheme, _, rest = store.partition("://")
    if rest and has_several(store) and scheme.partition("+")[0] in SCHEMES:
        read_servers(store)
        return store
    is_file = scheme == "sqlite" and rest.startswith("/") and PurePath(rest[1:]).name not in {"", ".", ".."}
    is_list = scheme in SCHEMES and "," in rest.partition("/")[0].rpartition("@")[2]
    require(not is_list, _NOT_ONE_SERVER)
    is_server = scheme in SCHEMES and rest.strip("/") and _has_valid_port(store)
    if store not in {"memory", "sqlite"} and not is_file and not is_server:
        raise refused()
    require(not is_server or not _has_empty_password(store), _NOT_EMPTY)
    require(not is_server or _DATABASE.fullmatch(urlsplit(store).path), _NOT_A_DATABASE)
    return store


# An empty variable means that the key is not set. For secrets it is an error instead.
_BLANK_IS_NULL = BeforeValidator(lambda key: None if key == "" else key)
Url = Annotated[
    str,
    AfterValidator(_check_url),
    Wanted("an http:// or https:// URL with a host", r"^[Hh][Tt][Tt][Pp][Ss]?://[!\x22$->@-~]+$"),
]
RootedPath = Annotated[str, AfterValidator(_check_rooted_path), Wanted("/PATH or /PATH/*", r"^/[^\s%?#;*\\]*\*?$")]
OptionalName = Annotated[str | None, _BLANK_IS_NULL]
_ModelNames = Annotated[
    str | Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_SUMMARY_MODELS)],
    Wanted("the name of a model, or a list of names"),
]
SummaryModels = Annotated[_ModelNames | None, _BLANK_IS_NULL]
_Key = Annotated[
    str, StringConstraints(pattern="^[!-~]*$"), Wanted("one word of printable ASCII, without a line break", "^[!-~]+$")
]
OptionalKey = Annotated[_Key, AfterValidator(_check_upstream_key)] | None
_Proxy = Annotated[
    str,
    AfterValidator(_check_proxy),
    Wanted("http://[USER:PASSWORD@]HOST:PORT, or direct", r"^(?:|direct|[Hh][Tt][Tt][Pp][Ss]?://[!-~]+)$"),
]
OptionalProxy = Annotated[_Proxy | None, _BLANK_IS_NULL]
_File = Wanted("the path of a PEM file")
AuthoritiesFile = Annotated[Annotated[str, AfterValidator(check_authorities), _File] | None, _BLANK_IS_NULL]
CertificateFile = Annotated[Annotated[str, AfterValidator(check_certificate), _File] | None, _BLANK_IS_NULL]
OwnKey = Annotated[_Key, AfterValidator(_check_own_key)]
Address = Annotated[
    str, AfterValidator(_check_address), Wanted("HOST:PORT, with a port from 0 to 65535", rf"[\s\S]:0*(?:{_PORT})$")
]
ContextWindow = Annotated[
    Literal["auto"] | Annotated[int, Field(ge=MIN_CONTEXT_WINDOW)],
    Wanted(f"auto, or a whole number of tokens, at least {MIN_CONTEXT_WINDOW}"),
]
WorkerCount = Annotated[
    Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_WORKERS)],
    Wanted(f"auto, or a whole number from 1 to {MAX_WORKERS}"),
]
AutoShare = Annotated[Literal["auto"] | Annotated[float, Field(ge=0, le=1)], Wanted("auto, or a number from 0 to 1")]
AutoWater = Annotated[
    Literal["auto"] | Annotated[float, Field(gt=0, le=1)], Wanted("auto, or a number above 0 and at most 1")
]
AutoTokens = Annotated[
    Literal["auto"] | Annotated[int, Field(ge=MIN_SUMMARY_TOKENS)],
    Wanted(f"auto, or a whole number of tokens, at least {MIN_SUMMARY_TOKENS}"),
]
NameGlob = Annotated[str, AfterValidator(_check_name_glob), GLOB]
_Glob = Annotated[str, AfterValidator(_check_glob), GLOB]
_SWITCH = TypeAdapter(bool, config=LATE)
Exclude = Annotated[
    bool | Annotated[tuple[_Glob, ...], Field(min_length=1)],
    BeforeValidator(read_switch),
    Wanted("true, false, or a list of globs"),
]
Tenant = Annotated[str, StringConstraints(pattern=_TENANT), Wanted("authorization, or header:NAME")]
Store = Annotated[
    str, AfterValidator(_check_store), Wanted("memory, sqlite, sqlite:///path or redis://host:port/db", _STORE)
]
