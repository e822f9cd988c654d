"""The members of a body beside its transcript."""

from dataclasses import replace

import msgspec
import orjson
import pytest
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting
from trimtab.proxy.wire.json import Span
from trimtab.proxy.wire.transcript.body import Form, UndecodableError, find_edit
from trimtab.proxy.wire.transcript.elements import OUTSIDE, take_off_outside

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]


@each_dialect
def test_a_transcript_without_its_outside_begins_with_the_first_element(dialect: Dialect) -> None:
    """A message that a rule made has no position, and stays."""
    request = dialect.codec.read(orjson.dumps(dialect.write(MESSAGES)))
    transcript = dialect.codec.decode(request, Counting(count_by_heuristic, make_known()))
    inside = take_off_outside(transcript)
    assert inside.origins[:1] != (OUTSIDE,)
    assert inside.messages == transcript.messages[len(transcript.messages) - len(inside.messages) :]
    assert take_off_outside(inside) is inside
    made = replace(transcript, origins=(None, *transcript.origins[1:]))
    assert take_off_outside(made) is made


def test_a_form_reads_its_members_and_leaves_the_fixed_ones_as_they_are() -> None:
    """Other members are not looked at. A transcript that is no array has no elements, where it may be another value."""
    form = Form("items", ("tools",), ("limit",), long=("tools",))
    members = form.decode(b'{"items":[{"a" : 1}, 2],"tools":[ 1 ],"limit":"x","other":{}}')
    assert form.list_raws(members) == (b'{"a" : 1}', b"2")
    assert (bytes(members.tools), members.limit, members.model) == (b"[ 1 ]", "x", None)
    assert form.list_long(members) == [b"[ 1 ]"]
    for body in (b"{}", b'{"items":"x"}'):
        with pytest.raises(msgspec.ValidationError):
            form.decode(body)
        loose = Form("items", (), long=(), elements=list[msgspec.Raw] | str | None)
        assert loose.list_raws(loose.decode(body)) == ()


def test_a_member_whose_key_is_written_with_escapes_is_not_replaced() -> None:
    """Its place is not searched for."""
    assert find_edit(b'{"s":"a","items":[]}', b'"s"', Span(18, 20), b'"b"').place == Span(5, 8)
    with pytest.raises(UndecodableError):
        find_edit(b'{"\\u0073":"a","items":[]}', b'"s"', Span(22, 24), b'"b"')
