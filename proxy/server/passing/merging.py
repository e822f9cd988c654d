"""Merges the lists of models of several upstreams into one.

Law: pure. What an upstream says of a model stays as it was written; members are only added. Nothing that could be read
cannot be written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.state.models.discovery import MAX_MODELS, find_name
from proxy.wire.json.decode import DECODE_ERRORS, decode_items, decode_members

UPSTREAM_MEMBER = "trimtab_upstream"
"""The member of an entry that names the upstream which lists the model."""
_OF_OPENAI: Mapping[str, Any] = {"object": "model", "created": 0}
_OF_ANTHROPIC: Mapping[str, Any] = {"type": "model", "created_at": "1970-01-01T00:00:00Z"}
"""Members that clients of each form expect, and that an entry of another form may lack."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model's entry in a list: its members as they were written. owned_by: empty if it names no owner."""

    members: Mapping[str, msgspec.Raw]
    owned_by: Any


@dataclass(frozen=True, slots=True)
class Listed:
    """The list of one upstream, which appears under `upstream`.

    form: the other members of the answer, as they were written; None if it is a bare list. models: by their names.
    """

    upstream: str
    form: Mapping[str, msgspec.Raw] | None
    models: Mapping[str, Model]


def read_list(upstream: str, body: bytes) -> Listed | None:
    """Read an upstream's answer; None if it holds no list of models, or JSON that others may not read."""
    try:
        whole = msgspec.json.decode(body)  # all of it is valid, also what is only passed on
        form = decode_members(body) if isinstance(whole, dict) else None
        listed = whole["data"] if isinstance(whole, dict) else whole
        raws = decode_items(body if form is None else form["data"])
        models: dict[str, Model] = {}
        for entry, raw in zip(listed[:MAX_MODELS], raws, strict=False):
            name = find_name(entry) if isinstance(entry, dict) else None
            if name is not None and name not in models:
                models[name] = Model(decode_members(raw), entry.get("owned_by"))
    except (*DECODE_ERRORS, KeyError, TypeError):
        return None
    return Listed(upstream, form, models)


def merge_lists(lists: Sequence[Listed], find_upstream: Callable[[str], str]) -> bytes:
    """One list, in the form of the first. There must be one at least.

    A model that several upstreams list is that of the upstream to which requests for it go, else of the first one.

    find_upstream: the upstream to which requests for a model go.
    """
    merged: dict[str, Listed] = {}
    for listed in lists:
        for name in listed.models:
            if name not in merged or find_upstream(name) == listed.upstream:
                merged[name] = listed
    form = lists[0].form
    expected = _OF_ANTHROPIC if form is not None and "object" not in form and "has_more" in form else _OF_OPENAI
    entries = [_show(name, listed, expected) for name, listed in merged.items()]
    return msgspec.json.encode(entries if form is None else {**form, "data": entries})


def _show(name: str, listed: Listed, expected: Mapping[str, Any]) -> dict[str, Any]:
    """A model's entry with its owner and its upstream."""
    model = listed.models[name]
    entry = {**expected, "id": name, **model.members} | {"id": name}
    if "created_at" in expected:
        entry.setdefault("display_name", name)
    if not model.owned_by:
        entry["owned_by"] = listed.upstream
    return {**entry, UPSTREAM_MEMBER: listed.upstream}
