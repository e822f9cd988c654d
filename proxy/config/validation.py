"""The problems of a configuration, in sentences: wrong values, found by pydantic, and keys that contradict each other.

Law: a message never repeats a value that may contain a secret, and never quotes pydantic. Keys are compared only if
none of them is wrong by itself.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from difflib import get_close_matches
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from trimtab.proxy.config.clients import ClientConfig
from trimtab.proxy.config.document import SECRET_KEYS, SHOWN_CHARS, Path, Problem, is_within, name_path
from trimtab.proxy.config.network import is_loopback
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.config.schema import MIN_MEMORY_BYTES, Config, UpstreamConfig
from trimtab.proxy.config.values import HASHED, LACKING, Slot, is_hash, list_keys, split_address

M = TypeVar("M", bound=BaseModel)

MAX_ROUNDS = 8
"""Chosen: enough for every nested section. Each round removes the wrong values and validates again, because pydantic
checks a whole section only if all of its values are right."""
STAND_IN = "*"  # replaces a required text that is wrong
_LEFT_OVER = frozenset({"too_short", LACKING})
"""Problems that a value may have only because wrong parts of it were taken out."""
_WRONG_KEY = "[key]"  # pydantic writes this after the name of a mapping's key if the key itself is wrong


class Validated(msgspec.Struct, Generic[M], frozen=True):
    """A model of the data, if any is valid, and problems. At the paths `wrong` are defaults, in lists stand-ins."""

    model: M | None
    problems: list[Problem]
    wrong: set[Path]


def validate(data: Any, model: type[M]) -> Validated[M]:
    problems: dict[Problem, None] = {}
    wrong: set[Path] = set()
    for _ in range(MAX_ROUNDS):
        try:
            return Validated(model.model_validate(data), list(problems), wrong)
        except ValidationError as error:
            data, before = copy.deepcopy(data), frozenset(wrong)
            found: dict[Path, tuple[Slot | None, list[Problem]]] = {}
            for item in error.errors(include_url=False):
                path, slot, words = _read(item, model, before)
                if path not in found or item["type"] == "value_error":  # each type of a union has an error
                    found[path] = slot, words
            for path, (slot, words) in found.items():
                if any(len(path) < len(other) and other[: len(path)] == path for other in found):
                    continue  # for example, a list is too short only because its wrong items are gone
                if not is_within(path, before):  # else the problem is one of a stand-in
                    problems.update(dict.fromkeys(words))
                wrong.add(path)
                _take_out(data, path, slot)
    return Validated(None, list(problems), wrong)


def show(path: Path, value: object) -> str:
    """The value as YAML writes it, and a space; an empty text if it may contain a secret or is no single value."""
    if not SECRET_KEYS.isdisjoint(path):
        return ""
    if value is None or isinstance(value, bool):
        return f"{'null' if value is None else str(value).lower()} "
    if not isinstance(value, str | int | float | date):
        return ""
    text = str(value)
    if "@" in text or "?" in text or (path[-1:] == ("store",) and "://:" in text):  # URLs with a password
        return ""
    shown = repr(value) if isinstance(value, str) else text
    return f"{shown} " if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}… "


def _read(item: Any, model: type[BaseModel], wrong: Iterable[Path]) -> tuple[Path, Slot | None, list[Problem]]:
    kind, value = item["type"], item["input"]
    path, slot = _find(item["loc"], kind, model)
    if kind in _LEFT_OVER and any(other[: len(path)] == path for other in wrong):
        return path, slot, []
    if kind == "value_error":
        said = str(item["ctx"]["error"]).split("\n")
        return path, slot, [Problem(path, f"{show(path, value) if path else ''}{line}") for line in said]
    if kind == "missing":
        return path, slot, [Problem(path[:-1], f"{path[-1]} is required")]
    if slot is None:
        return path, slot, [Problem(path, f"unknown key{_suggest(path, model)}")]
    shown = "" if slot.holds_others and value is not None else show(path, value)
    wanted = "a text: put it in quotes" if slot.takes_quoted(value) else slot.words()
    return path, slot, [Problem(path, f"{shown}must be {wanted}")]


def _find(location: tuple[str | int, ...], kind: str, model: type[BaseModel]) -> tuple[Path, Slot | None]:
    """The path of one of pydantic's locations, and the slot there; None for an unknown key.

    A location consists of keys and indexes. After them may be parts that are not in the file: the mark of a wrong key,
    or the name of one type of a union. So the location is followed only as far as the models' fields go.
    """
    path: Path = ()
    slot, outer = Slot.of(model), None
    for index, step in enumerate(location):
        is_last = index == len(location) - 1
        if outer is not None and outer.is_mapping and step == _WRONG_KEY and is_last and kind != "extra_forbidden":
            return path, outer.names
        inner = slot.enter(step)
        is_type = inner is None and len(slot.variants) > 1 and location[index - 1] == path[-1]
        if is_type and not (is_last and kind == "extra_forbidden"):
            continue
        if inner is None:
            return (path, slot) if slot.section is None else ((*path, step), None)
        path, slot, outer = (*path, step), inner, slot
    return path, slot


def _suggest(path: Path, model: type[BaseModel]) -> str:
    slot: Slot | None = Slot.of(model)
    for step in path[:-1]:
        slot = slot.enter(step) if slot else None
    known = list_keys(slot.section) if slot and slot.section else []
    key = str(path[-1])
    inner = [(name, slot.enter(name)) for name in known] if slot else []
    deeper = [f"{name}.{key}" for name, one in inner if one and one.section and key in list_keys(one.section)]
    near = deeper or get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}" if known else ""


def _take_out(data: Any, path: Path, slot: Slot | None) -> None:
    parent = data
    for step in path[:-1]:
        parent = parent[step]
    if not path:
        data.clear()
    elif isinstance(path[-1], int) or path[-1] not in parent:
        parent[path[-1]] = {} if slot and slot.section else STAND_IN
    else:
        del parent[path[-1]]


# Keys that contradict each other.
WHOLE = 1.0  # the share that is the whole room


class Overlaid(msgspec.Struct, frozen=True):
    """A policy at a path: its own keys, and with those of the defaults."""

    path: Path
    own: PolicyConfig
    full: PolicyConfig

    def owner(self, key: str) -> Path:
        """The path of the key that sets the value: the policy's own key, else that of the defaults."""
        return (*(self.path if key in self.own.model_fields_set else ("defaults",)), key)


def find_conflicts(config: Config, wrong: set[Path]) -> list[Problem]:
    known = list(config.upstreams) + [str(path[1]) for path in wrong if path[:1] == ("upstreams",) and len(path) == 2]
    found = [*_check_server(config, wrong), *_check_clients(config)]
    found += [*_check_credentials(config, wrong), *_check_text(config, wrong)]
    patches: list[tuple[Path, PolicyConfig]] = [
        (("defaults",), config.defaults),
        *((("models", index), model) for index, model in enumerate(config.models)),
        *((("profiles", name), profile) for name, profile in config.profiles.items()),
    ]
    for path, patch in patches:
        policy = Overlaid(path, patch, config.over_defaults(patch))
        found += check_policy(policy, wrong)
        if not is_within(("upstreams",), wrong):
            found += _check_upstreams(policy, known, wrong)
    matches = [((index, "match"), entry.match) for index, entry in enumerate(config.models)]
    return [*found, *_check_order(("models",), matches, wrong)]


def check_policy(policy: Overlaid, wrong: set[Path]) -> Iterator[Problem]:
    yield from _check_waters(policy, wrong)
    yield from _check_order((*policy.path, "tools"), [((glob,), glob) for glob in policy.own.tools], wrong)


def _check_server(config: Config, wrong: set[Path]) -> Iterator[Problem]:
    # Port 0 is a different port each time, so two of them do not conflict.
    is_same = config.metrics_listen == config.listen and not config.listen.endswith(":0")
    if is_same and not is_within(("listen",), wrong) and not is_within(("metrics_listen",), wrong):
        yield Problem(("metrics_listen",), "must differ from listen; with null, listen serves both")
    workers, memory = ("workers",), ("limits", "max_memory_bytes")
    # `auto` starts only as many workers as fit the memory.
    needed_bytes = 0 if config.workers == "auto" else config.workers * MIN_MEMORY_BYTES
    if needed_bytes > config.limits.max_memory_bytes and not is_within(workers, wrong) and not is_within(memory, wrong):
        yield Problem(workers, f"{config.workers} workers need limits.max_memory_bytes of at least {needed_bytes}")


def _check_clients(config: Config) -> Iterator[Problem]:
    # Names are not quoted: where keys and names are exchanged, they are keys.
    if not isinstance(config.client_keys, dict):
        return
    keys: frozenset[str] = frozenset(config.clients.keys)
    seen: set[str] = set()
    for name, client in config.client_keys.items():
        own = client.known_keys if isinstance(client, ClientConfig) else {client: ""}
        hashes = [key if is_hash(key) else f"{HASHED}{sha256(key.encode()).hexdigest()}" for key in own]
        if name in keys:
            yield Problem(("client_keys", name), "has a key as its name; write NAME: KEY")
        if not seen.isdisjoint(hashes):
            yield Problem(("client_keys", name), "has the same key as another client; each needs a key of its own")
        seen.update(hashes)


def _check_credentials(config: Config, wrong: set[Path]) -> Iterator[Problem]:
    upstreams: dict[Path, UpstreamConfig] = {("upstream",): config.upstream}
    upstreams |= {("upstreams", name): upstream for name, upstream in config.upstreams.items()}
    for path, upstream in upstreams.items():
        at = (*path, "credential")
        if is_within(at, wrong) or is_within((*path, "api_key"), wrong):
            continue
        if upstream.credential == "key" and upstream.api_key is None:
            yield Problem(at, "key needs api_key too")
        elif upstream.credential in {"client", "none"} and upstream.api_key is not None:
            words = "is never sent then; remove one of the two"
            yield Problem(at, f"{upstream.credential} contradicts api_key, which {words}")


def _check_text(config: Config, wrong: set[Path]) -> Iterator[Problem]:
    """Text of conversations must not be shown to other clients, nor to other machines without a token."""
    keys = [("admin_token",), ("listen",), ("metrics_listen",), ("client_keys",)]
    keeps_text = config.dashboard.enabled and config.dashboard.keep_text
    if not keeps_text or config.admin_token is not None or any(is_within(key, wrong) for key in keys):
        return
    at = ("dashboard", "keep_text")
    addresses = filter(None, (config.listen, config.metrics_listen))
    if config.client_keys is not None:
        yield Problem(at, "needs admin_token: else every client with a key could read the text of the others")
    elif not all(is_loopback(split_address(address)[0]) for address in addresses):
        yield Problem(at, "needs admin_token: else other machines could read the text of conversations")


def _check_waters(policy: Overlaid, wrong: set[Path]) -> Iterator[Problem]:
    low, high = policy.owner("low_water"), policy.owner("high_water")
    # An error of the defaults is reported there only, not again for each policy that inherits it.
    is_own = policy.path in {low[:-1], high[:-1]}
    if not is_own or is_within(low, wrong) or is_within(high, wrong):
        return
    high_share, low_share = policy.full.high_water, policy.full.low_water
    if low_share == "auto":
        return
    if high_share == "auto":  # it is above every low water except the whole room
        if low_share == WHOLE:
            yield Problem(low, f"{low_share} must be below {WHOLE}, the whole room, because a cut would remove nothing")
    elif low_share < high_share:
        return
    elif "low_water" in policy.own.model_fields_set:
        yield Problem(low, f"{low_share} must be below high_water, {high_share}")
    else:
        yield Problem((*policy.path, "high_water"), f"{high_share} must be above low_water, {low_share}")


def _check_upstreams(policy: Overlaid, known: Sequence[str], wrong: set[Path]) -> Iterator[Problem]:
    own = {(*policy.path, "upstream"): policy.own.upstream}
    own[*policy.path, "summary", "upstream"] = policy.own.summary.upstream
    for path, name in own.items():
        if name is not None and name not in known and not is_within(path, wrong):
            words = f"is not one of upstreams ({', '.join(known) or 'none'})"
            yield Problem(path, f"{show(path, name)}{words}")


def _check_order(path: Path, globs: Sequence[tuple[Path, str]], wrong: set[Path]) -> Iterator[Problem]:
    # The first glob that matches wins. So a glob never takes effect if an earlier one matches all that it matches.
    earlier: list[str] = []
    for place, glob in globs:
        if is_within((*path, *place), wrong):
            continue
        first = next((other for other in earlier if covers(other, glob)), None)
        if first is not None:
            yield Problem((*path, *place), f"never matches: {name_path((first,))} above it matches first")
        earlier.append(glob)


_WILD = re.compile(r"\[!?.[^]]*\]|[*?\[]")


def covers(earlier: str, later: str) -> bool:
    """Whether the earlier glob surely matches, as `fnmatch` does, all that the later one matches; may miss some."""
    if not _WILD.search(later):
        return fnmatchcase(later, earlier)
    # A class or `?` becomes a character that no glob has, and that only the same class and a star match.
    marks: dict[str, str] = {"*": "*"}

    def mark(glob: str) -> str:
        return _WILD.sub(lambda unit: marks.setdefault(unit[0], chr(0xE000 + len(marks))), glob)

    return fnmatchcase(mark(later).replace("*", "\0"), mark(earlier))
