"""Fuzzes positions of values in JSON, and lone surrogates, compared with the standard library's decoder."""

import json  # noqa: TID251 - the oracle
import re
from typing import Any

import msgspec
from fuzzing.choices import Choices, dump

from trimtab.proxy.wire.json import find_array, has_more_parts, mend, replace_lone_surrogates

_LONE = re.compile("[\ud800-\udfff]")
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


def fuzz_spans(data: bytes) -> None:
    """The last member `messages` is found at its position, whatever is around it."""
    choices = Choices(data)
    members = []
    for _ in range(1 + choices.below(5)):
        key = choices.pick(("messages", "messages", "model", "a", choices.text()))
        members.append(
            (key, [choices.value() for _ in range(choices.below(4))] if choices.happens(128) else choices.value(3))
        )
    body = b"{" + b" ,\n".join(dump(key, choices) + b" : " + dump(value, choices) for key, value in members) + b"}"
    if _is_utf8(body):
        _check_spans(body)


def _check_spans(body: bytes) -> None:
    """Compare with the standard library. Arrays with equal values are interchangeable."""
    clean = replace_lone_surrogates(body)
    try:
        decoded = msgspec.json.decode(clean, type=dict[str, msgspec.Raw])
        raws = list(map(bytes, _decode_raws(decoded["messages"])))
    except (msgspec.DecodeError, KeyError):
        return
    array = find_array(clean, b'"messages"', raws)
    is_plain = b'"messages"' in body
    assert array is not None or not is_plain, "the array was not found"
    if array is None:
        return
    assert [clean[span.start : span.stop] for span in array.elements] == raws, "the elements have other positions"
    put_in = clean[: array.start] + b'["here"]' + clean[array.stop :]
    assert _load(put_in)["messages"] == ["here"], "another array would be replaced"
    others = [{key: value for key, value in _load(text).items() if key != "messages"} for text in (clean, put_in)]
    assert others[0] == others[1], "something else would be replaced"


def fuzz_surrogates(data: bytes) -> None:
    """The replacement of a lone surrogate has the same length, and the rest is unchanged, for JSON and other bytes."""
    choices = Choices(data)
    kind = choices.below(4)
    text = choices.rest() if kind == 1 else dump(choices.value(4), choices)
    text = choices.mutate(text) if kind == 2 else text
    clean = replace_lone_surrogates(text)
    assert len(clean) == len(text), "offsets have moved"
    assert replace_lone_surrogates(clean) == clean, "a second pass changes the result"
    mended = mend(text)
    assert len(mended) == len(text), "offsets have moved"
    has_more_parts(text, 100)
    if not _is_utf8(text):
        return
    try:
        before = _load(text)
    except (ValueError, RecursionError):
        return
    assert repr(_load(clean)) == repr(_replace(before)), "other text than lone surrogates was changed"
    assert mend(mended) == mended, "a second pass changes the result"
    assert not _LONE.search(json.dumps(_load(clean), ensure_ascii=False)), "a lone surrogate is left"


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _load(text: bytes) -> Any:
    return json.loads(text.decode(), parse_int=str, parse_float=str)


def _replace(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, list):
        return list(map(_replace, value))
    return {_replace(key): _replace(item) for key, item in value.items()} if isinstance(value, dict) else value
