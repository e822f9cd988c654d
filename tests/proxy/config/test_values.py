"""What single values of the configuration may be."""

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, Field

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import Slot, Wanted, list_keys, own_host, site_url, split_address


def test_what_is_right_is_taken_as_it_is_written() -> None:
    """A path of a URL may contain the name of an endpoint elsewhere than at its end."""
    stores = ("memory", "sqlite", "sqlite:////var/a.db", "redis://h:1/0", "rediss://u:p@h", "valkey://[::1]:1")
    for store in stores:
        assert load_config(settings=[f"store={store}"], environment={}).store == store
    for path in ("", "/v1/", "/models/v1", "/models", "/my-models", "/openai/deployments/gpt-4o"):
        upstream = load_config(settings=[f"upstream.base_url=https://h{path}"], environment={}).upstream
        assert upstream.base_url == f"https://h{path}".rstrip("/")
    for setting in ("upstream.api_key=null", "store=redis://u@h:1", "upstream.proxy=http://u@h:1", "upstream.proxy=''"):
        assert load_config(settings=[setting], environment={}).upstream.api_key is None


def test_a_tenant_is_authorization_or_a_header() -> None:
    """The name of a header is a token."""
    for tenant in ("authorization", "header:X-Team"):
        assert load_config(settings=[f"tenant={tenant}"], environment={}).tenant == tenant
    for tenant in ("header", "header:a b", "cookie:x"):
        with pytest.raises(ConfigError, match="must be authorization, or header:NAME"):
            load_config(settings=[f"tenant={tenant}"], environment={})


@pytest.mark.parametrize(
    ("address", "parts", "url"),
    [
        ("127.0.0.1:8790", ("127.0.0.1", 8790), "http://127.0.0.1:8790"),
        ("[::1]:80", ("::1", 80), "http://[::1]:80"),
        ("localhost:0", ("localhost", 0), "http://localhost:0"),
    ],
)
def test_addresses_are_read_and_written(address: str, parts: tuple[str, int], url: str) -> None:
    """HOST:PORT, with an IPv6 host in brackets."""
    assert split_address(address) == parts
    assert site_url(*parts) == url


@pytest.mark.parametrize(
    ("listen", "own"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.1", "127.0.0.1"), ("box.lan", "box.lan")]
)
def test_a_server_on_all_addresses_is_reached_on_the_loopback(listen: str, own: str) -> None:
    """If it listens on another address, it is reached there."""
    assert own_host(listen) == own


@pytest.mark.parametrize("glob", ["[[]", "[!]]x", "[!z-a]", "*" * 300, "[a]" * 256, "a]"])
def test_other_globs_are_taken(glob: str) -> None:
    """They are odd, but each of them matches something."""
    load_config(
        f"models: [{{match: '{glob}'}}]\ndefaults: {{tools: {{'{glob}': {{exclude: ['{glob}']}}}}}}", environment={}
    )


def test_an_argument_may_be_longer_than_a_name() -> None:
    """A path is an example. Its brackets must be closed, too."""
    load_config(f"defaults: {{tools: {{a: {{exclude: ['{'x' * 300}']}}}}}}", environment={})
    with pytest.raises(ConfigError, match="write a literal"):
        load_config("defaults: {tools: {a: {exclude: ['*/[id/page']}}}", environment={})


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    size: int = Field(1, gt=0)
    other: str = Field("", alias="else")
    maybe: Annotated[int, Ge(3)] | None = None


class Outer(BaseModel):
    inner: Inner = Inner()
    named: dict[str, Inner] = {}
    many: tuple[Inner, ...] = ()
    either: Inner | str = ""


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool | None, "true, false or null"),
        (Literal["a", "b", "c"], "a, b or c"),
        (Colour, "red or blue"),
        (Annotated[int, Ge(0)], "a whole number, 0 or more"),
        (Annotated[float, Gt(0.0), Le(1.0)], "a number, above 0 and at most 1"),
        (Annotated[int, Lt(9)] | None, "a whole number, below 9, or null"),
        (str, "a text, in quotes if YAML would read it as another type"),
        (Annotated[str, Wanted("HOST:PORT")] | None, "HOST:PORT, or null"),
        (Inner, "a mapping with the keys size, else, maybe"),
        (dict[str, int], "a mapping of names, each to a whole number"),
        (tuple[bool, ...], "a list, each item true or false"),
        (Annotated[list[int], Wanted("a list of primes")], "a list of primes"),
        (Annotated[list[int], MaxLen(3)], "a list, each item a whole number"),
        (Annotated[list[int], MinLen(1)], "a list that is not empty, each item a whole number"),
    ],
)
def test_a_type_is_said_in_words(kind: Any, words: str) -> None:
    """The words follow `must be`."""
    assert Slot.of(kind).words() == words


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (("inner", "size"), "a whole number, above 0"),
        (("inner", "maybe"), "a whole number, 3 or more, or null"),
        (("inner", "else"), Slot.of(str).words()),
        (("named", "any", "size"), "a whole number, above 0"),
        (("many", 7, "size"), "a whole number, above 0"),
        (("either", "size"), "a whole number, above 0"),
        (("inner", "other"), None),
        (("inner", "size", 0), None),
        (("nope",), None),
    ],
)
def test_a_path_leads_through_sections_mappings_and_lists(steps: tuple[str | int, ...], words: str | None) -> None:
    """The path has the keys as they are written. The result is None if there is no such place."""
    slot: Slot | None = Slot.of(Outer)
    for step in steps:
        slot = slot.enter(step) if slot is not None else None
    assert (slot.words() if slot is not None else None) == words


def test_every_place_of_the_configuration_has_words() -> None:
    """No place is described as `something else`, the words for a type that this module does not know."""
    open_slots, seen = [Slot.of(Config)], 0
    while open_slots:
        slot = open_slots.pop()
        seen += 1
        assert "something else" not in slot.words(), slot
        steps = list_keys(slot.section) if slot.section is not None else ["any"] if slot.holds_others else []
        open_slots += [inner for step in steps if (inner := slot.enter(step)) is not None]
    assert seen > 50
