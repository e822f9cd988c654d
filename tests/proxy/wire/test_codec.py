"""What all dialects have in common."""

import orjson
import pytest
from support.dialects.spoken.all_dialects import DIALECTS, each_dialect
from support.dialects.spoken.dialect import Dialect
from support.turns import TURNS

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.codec import Counting, UndecodableError
from trimtab.proxy.wire.parameters import Question

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
QUESTION = Question("m", 500, 0.2)


def _count() -> Counting:
    return Counting(count_by_heuristic, make_known())


def test_a_dialect_with_tables_alone_decodes_and_counts() -> None:
    """What it does not set, it has from the base: nothing is cleaned, adapted, marked or refused."""
    body = orjson.dumps({"items": [{"blocks": [{"text": "hi"}]}, {"said": "ho"}], "instructions": "be brief"})
    request, counting = TURNS.read(body), _count()
    assert TURNS.uncounted_bytes(request, counting) > 0
    transcript = TURNS.decode(request, counting)
    assert [message.text for message in transcript.messages] == ["hi", "ho"]
    outside = TURNS.count_format(request, counting)
    assert outside == count_by_heuristic("be brief")
    assert transcript.tokens == outside + sum(message.tokens for message in transcript.messages)
    assert TURNS.adapt(request, transcript, transcript, (body,)).pieces == (body,)
    assert TURNS.help_cache(request, transcript, (body,)).pieces == (body,)
    assert TURNS.drop_tools(request, transcript, ("*",), counting) == (body, 0)
    assert TURNS.list_parameters(QUESTION) == ("temperature", "stream")


@each_dialect
def test_what_was_decoded_once_is_known(dialect: Dialect) -> None:
    """The same body has no uncounted bytes then, and the same messages."""
    request, counting = dialect.codec.read(orjson.dumps(dialect.write(MESSAGES))), _count()
    first = dialect.codec.decode(request, counting)
    assert dialect.codec.uncounted_bytes(request, counting) == 0
    assert dialect.codec.decode(request, counting) == first


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_limit_that_is_required_is_not_left_out(dialect: Dialect) -> None:
    """An error that names it gives a lower limit, or nothing."""
    codec = dialect.codec
    name = codec.limits[0]
    error = orjson.dumps({"error": {"message": f"{name} must be at most 300", "param": name}})
    assert codec.find_refused(QUESTION, error) == "limit>300"
    assert set(codec.list_parameters(QUESTION)) & set(codec.limits) <= set(codec.refusable_limits)


def test_a_unit_that_cannot_be_decoded_is_no_request_of_the_dialect() -> None:
    """The upstream decides about it."""
    with pytest.raises(UndecodableError):
        TURNS.decode(TURNS.read(b'{"items":[{"blocks":[]}]}'), _count())
