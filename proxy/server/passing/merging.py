"""Merges the lists of models of several upstreams into one.

Law: pure. What an upstream says of a model stays; members are only added.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.state.models.discovery import find_entries, find_name
from proxy.wire.json.repair import try_decode

UPSTREAM_MEMBER = "trimtab_upstream"
"""The member of an entry that names the upstream which lists the model."""
_OF_OPENAI: Mapping[str, Any] = {"object": "model", "created": 0}
_OF_ANTHROPIC: Mapping[str, Any] = {"type": "model", "created_at": "1970-01-01T00:00:00Z"}
"""Members that clients of each form expect, and that an entry of another form may lack."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The list of one upstream, which appears under `upstream`: the whole answer, and its models by name."""

    upstream: str
    form: Any
    models: Mapping[str, Mapping[str, Any]]


def read_list(upstream: str, body: bytes) -> Listed | None:
    """Read an upstream's answer; None if it holds no list of models."""
    form = try_decode(body)
    is_list = isinstance(form, list) or (isinstance(form, dict) and isinstance(form.get("data"), list))
    if not is_list:
        return None
    models: dict[str, Mapping[str, Any]] = {}
    for entry in find_entries(form):
        name = find_name(entry)
        if name is not None:
            models.setdefault(name, entry)
    return Listed(upstream, form, models)


def merge_lists(lists: Sequence[Listed], find_upstream: Callable[[str], str]) -> bytes:
    """One list, in the form of the first. There must be one at least.

    Each model is listed by the upstream to which requests for it go; what only others list cannot be reached.

    find_upstream: the upstream to which requests for a model go.
    """
    merged: dict[str, Listed] = {}
    for listed in lists:
        for name in listed.models:
            if find_upstream(name) == listed.upstream:
                merged.setdefault(name, listed)
    form = lists[0].form
    is_anthropics = isinstance(form, dict) and "object" not in form and "has_more" in form
    expected = _OF_ANTHROPIC if is_anthropics else _OF_OPENAI
    entries = [_show(name, listed, expected) for name, listed in merged.items()]
    return orjson.dumps({**form, "data": entries} if isinstance(form, dict) else entries)


def _show(name: str, listed: Listed, expected: Mapping[str, Any]) -> dict[str, Any]:
    """A model's entry with its owner and its upstream."""
    entry = {"id": name, **listed.models[name]} | {"id": name}
    if "created_at" in expected:
        entry.setdefault("display_name", name)
    return {**expected, **entry, "owned_by": entry.get("owned_by") or listed.upstream, UPSTREAM_MEMBER: listed.upstream}
