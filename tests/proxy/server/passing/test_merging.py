"""One list of models from several."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.server.passing.merging import UPSTREAM_MEMBER, Listed, merge_lists, read_list


def _read(upstream: str, form: object) -> Listed:
    listed = read_list(upstream, orjson.dumps(form))
    assert listed is not None
    return listed


def _to_main(_model: str) -> str:
    return "main"


OPENAI = {"object": "list", "data": [{"id": "gpt", "object": "model", "created": 1, "owned_by": "openai"}]}
LOCAL = {"object": "list", "data": [{"id": "qwen", "max_model_len": 4096}, {"id": "gpt", "owned_by": "me"}]}
ANTHROPIC = {
    "data": [{"type": "model", "id": "claude", "display_name": "Claude", "created_at": "2026-01-01T00:00:00Z"}],
    "has_more": False,
    "first_id": "claude",
    "last_id": "claude",
}


def test_each_model_has_an_owner_and_its_upstream() -> None:
    """What an upstream says of a model stays. Members that clients of the form expect are added."""
    merged = orjson.loads(merge_lists([_read("main", OPENAI), _read("local", LOCAL)], _to_main))

    assert merged == {
        "object": "list",
        "data": [
            {**OPENAI["data"][0], UPSTREAM_MEMBER: "main"},
            {
                "id": "qwen", "object": "model", "created": 0, "owned_by": "local", "max_model_len": 4096,
                UPSTREAM_MEMBER: "local",
            },
        ],
    }  # fmt: skip


def test_the_list_has_the_form_of_the_first() -> None:
    """Members of the list itself stay, too."""
    merged = orjson.loads(merge_lists([_read("main", ANTHROPIC), _read("local", LOCAL)], _to_main))
    assert {name: value for name, value in merged.items() if name != "data"} == {
        name: value for name, value in ANTHROPIC.items() if name != "data"
    }
    assert [entry["id"] for entry in merged["data"]] == ["claude", "qwen", "gpt"]
    assert all({"type", "display_name", "created_at", "owned_by"} <= entry.keys() for entry in merged["data"])

    bare = orjson.loads(merge_lists([_read("main", OPENAI["data"]), _read("local", ANTHROPIC)], _to_main))
    assert [entry["id"] for entry in bare] == ["gpt", "claude"]


@pytest.mark.parametrize(("goes_to", "owner"), [("main", "openai"), ("local", "me"), ("a third", "openai")])
def test_a_model_that_several_list_is_that_of_the_upstream_that_answers_for_it(goes_to: str, owner: str) -> None:
    """If that upstream does not list it, the first one counts."""
    merged = orjson.loads(merge_lists([_read("main", OPENAI), _read("local", LOCAL)], lambda _: goes_to))
    assert [entry["owned_by"] for entry in merged["data"] if entry["id"] == "gpt"] == [owner]


def test_of_a_model_that_is_listed_twice_the_first_entry_counts() -> None:
    """Within one list, too."""
    twice = _read("main", {"data": [{"id": "m", "owned_by": "a"}, {"id": "n"}, {"id": "m", "owned_by": "b"}]})
    merged = orjson.loads(merge_lists([twice], _to_main))["data"]
    assert [(entry["id"], entry["owned_by"]) for entry in merged] == [("m", "a"), ("n", "main")]


@pytest.mark.parametrize("body", [b"", b"hello", b"{}", b'{"data":5}', b'"data"', b'{"error":{"message":"no"}}'])
def test_any_other_answer_is_no_list(body: bytes) -> None:
    """Such an upstream is left out."""
    assert read_list("main", body) is None


@given(
    st.lists(st.none() | st.text() | st.dictionaries(st.sampled_from(["id", "key", "owned_by"]), st.none() | st.text()))
)
def test_whatever_an_upstream_lists_can_be_merged(entries: list[object]) -> None:
    """Entries without a name are left out."""
    listed = _read("local", {"data": entries})
    merged = orjson.loads(merge_lists([_read("main", OPENAI), listed], _to_main))["data"]
    assert all(isinstance(entry[UPSTREAM_MEMBER], str) and entry["owned_by"] for entry in merged)
    assert {entry["id"] for entry in merged} == {"gpt", *listed.models}


@pytest.mark.parametrize(
    "written", [b"123456789012345678901234567890", b"1.50", b"[" * 300 + b"]" * 300, b'"\\u00e4"', b'{"a": 1, "a": 2}']
)
def test_what_an_upstream_writes_of_a_model_stays_as_it_is(written: bytes) -> None:
    """Numbers of any length, white space and escapes, in a list and in an entry."""
    odd = read_list("odd", b'{"n":%b,"data":[{"id":"m","n":%b}]}' % (written, written))
    assert odd is not None
    merged = merge_lists([odd, _read("main", OPENAI)], _to_main)
    assert merged.count(b'"n":' + written) == 2
    assert b'"gpt"' in merged


@pytest.mark.parametrize(
    "written",
    [b'"\\ud800"', b"NaN", b"1e400", b'"\xff"', b"[" * 5000 + b"]" * 5000, b"01", b'"', b'{"\\ud800":1}', b"Infinity"],
)
def test_a_list_that_others_may_not_read_is_no_list(written: bytes) -> None:
    """The lists of the others are merged without it."""
    for body in (b'{"data":[{"id":"m","n":%b}]}', b'{"n":%b,"data":[]}', b'[{"id":"m","n":%b}]', b'[{"id":%b}]'):
        assert read_list("odd", body % written) is None


@pytest.mark.parametrize("body", [b"", b"{}", b"1", b'"data"', b'{"data":{}}', b'{"data":null}', b"<html>", b"null"])
def test_another_answer_is_no_list(body: bytes) -> None:
    assert read_list("odd", body) is None
