"""What the client wants kept stays word for word, in each dialect, whatever is cut, pruned, truncated or summarised."""

from itertools import pairwise
from typing import Any

import orjson
import pytest
from support.checker import check_bridges, check_pairing, check_users
from support.dialects import messages_validity, responses_validity
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses

from trimtab import Compactor, Result, make_policy
from trimtab.rules.text.markers import KEEP

DIALECTS = {"chat": dict, "responses": to_responses, "messages": to_messages}
RULES = "\n".join(f"rule {number}: never touch table {number * 7}" for number in range(60))
SMALL = make_policy(context_window=8000, max_tool_result_tokens=200, keep_user_tokens=0)


def _call(number: int, name: str = "read") -> dict[str, Any]:
    function = {"name": name, "arguments": f'{{"path": "f{number}"}}'}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def _result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def _make_chat(marked: list[dict[str, Any]], steps: int = 40) -> list[dict[str, Any]]:
    """A session whose third step is `marked`."""
    chat: list[dict[str, Any]] = [{"role": "user", "content": "Read all files."}]
    for number in range(steps):
        text = "\n".join(f"line {line} of file {number} is {line * number}" for line in range(40))
        chat += [_call(number), _result(number, text)]
        if number == 2:
            chat += marked
        if number % 12 == 11:
            chat += [{"role": "assistant", "content": f"Part {number} is read."}, {"role": "user", "content": "Go on."}]
    return chat


MARKED = {
    "user": [{"role": "assistant", "content": "Yes?"}, {"role": "user", "content": f"{RULES}\n{KEEP}"}],
    "system": [{"role": "system", "content": f"{KEEP}\n{RULES}"}],
    "answer": [{"role": "assistant", "content": f"{RULES}\n{KEEP}"}, {"role": "user", "content": "Good."}],
    "result": [_call(900, "rules"), _result(900, f"{RULES}\n{KEEP}\n")],
    "parallel": [
        {**_call(900, "rules"), "tool_calls": _call(900, "rules")["tool_calls"] + _call(901)["tool_calls"]},
        _result(900, f"{RULES}\n{KEEP}\n"),
        _result(901, "\n".join(f"other line {line}" for line in range(90))),
    ],
}


def _write(dialect: str, chat: list[dict[str, Any]]) -> list[Any]:
    body = DIALECTS[dialect]({"model": "m", "messages": chat})
    return body["input" if dialect == "responses" else "messages"]


def _run(dialect: str, chat: list[dict[str, Any]], policy: Any = SMALL) -> list[Result]:
    compactor, results = Compactor(policy, dialect=dialect, vocabulary="heuristic"), list[Result]()
    for number in range(1, len(chat) + 1):
        if chat[number - 1]["role"] in {"user", "tool"} and (number == len(chat) or chat[number]["role"] != "tool"):
            results.append(compactor.compact(_write(dialect, chat[:number])))
    return results


def _run_once(dialect: str, chat: list[dict[str, Any]]) -> Result:
    """The last of the results: it depends on no earlier request."""
    return Compactor(SMALL, dialect=dialect, vocabulary="heuristic").compact(_write(dialect, chat))


def _holds(result: Result) -> bool:
    """Whether the rules are in one text of one message, whole, with the marker."""
    text = orjson.dumps(result.messages).decode()
    return orjson.dumps(RULES).decode()[1:-1] in text and KEEP in text


def _find_problems(dialect: str, original: list[Any], messages: list[Any]) -> list[str]:
    """What a strict server would refuse."""
    if dialect == "chat":
        spoken = [one["role"] if one.get("content") else "" for one in messages if one["role"] != "system"]
        twice = ["two answers in a row" for pair in pairwise(spoken) if pair == ("assistant", "assistant")]
        return [*twice, *check_users(original, messages), *check_bridges(original, messages), *check_pairing(messages)]
    if dialect == "messages":
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "rules")]
        return messages_validity.check_body({"model": "m", "max_tokens": 9, "tools": tools, "messages": messages})
    return responses_validity.check_body({"model": "m", "input": messages})


@pytest.mark.parametrize(
    ("kind", "dialect"), [*((kind, "chat") for kind in MARKED), ("parallel", "messages"), ("parallel", "responses")]
)
def test_a_marked_message_stays_word_for_word(kind: str, dialect: str) -> None:
    chat = _make_chat(MARKED[kind], 30)
    results = _run(dialect, chat)
    after = results[4:]

    assert {decision.rule for decision in results[-1].decisions} >= {"digest"}
    assert all(map(_holds, after))
    assert "other line 45" not in str(results[-1].messages)
    assert all(result.tokens.sent <= result.tokens.limit for result in results)
    kept = [two.messages[: len(one.messages)] == one.messages for one, two in pairwise(results)]
    assert kept.count(False) < len(results) / 4  # only where a cut moves
    original = _write(dialect, chat)
    assert [problem for result in after for problem in _find_problems(dialect, original, result.messages)] == []


def test_without_a_marker_nothing_is_kept() -> None:
    for kind, marked in MARKED.items():
        plain = orjson.loads(orjson.dumps(marked).replace(KEEP.encode(), b"(kept)"))
        assert not _holds(_run_once("chat", _make_chat(plain))), kind


def test_what_alone_would_fill_the_window_is_told_and_the_request_goes_on() -> None:
    marked = [
        each
        for number in range(30)
        for each in (_call(900 + number), _result(900 + number, f"{number} {RULES}\n{KEEP}"))
    ]
    last = _run_once("chat", _make_chat(marked))
    text = orjson.dumps(last.messages).decode()

    assert last.tokens.sent <= last.tokens.limit
    assert "keep" in {decision.rule for decision in last.decisions}
    assert "to be kept did not fit" in " ".join(last.explain())
    assert "29 rule 0: " in text  # the newest stay
    assert "0 rule 0: " not in text.replace("20 rule", "").replace("10 rule", "")


def test_a_tool_or_the_model_can_ask_only_at_the_ends_of_a_text() -> None:
    quoted = f"{RULES}\n{KEEP}\nmore"
    for kind, place in (("result", _result(900, quoted)), ("answer", {"role": "assistant", "content": quoted})):
        marked = [*MARKED[kind][:-1], place] if kind == "result" else [place, MARKED[kind][1]]
        assert not _holds(_run_once("chat", _make_chat(marked)))
    inline = [MARKED["user"][0], {"role": "user", "content": f"{RULES} {KEEP}"}]
    assert not _holds(_run_once("chat", _make_chat(inline)))
    wrapped = [MARKED["user"][0], {"role": "user", "content": f"<query>\n{RULES}\n {KEEP}\n</query>"}]
    assert _holds(_run_once("chat", _make_chat(wrapped)))


def test_a_marked_result_is_neither_truncated_nor_a_pointer() -> None:
    long = "\n".join(f"line {number}" for number in range(900))
    chat = [
        {"role": "user", "content": "Read."},
        *(each for number in range(2) for each in (_call(number), _result(number, f"{KEEP}\n{long}"))),
    ]
    result = Compactor(make_policy(max_tool_result_tokens=200), vocabulary="heuristic").compact(chat)

    assert (result.messages, result.decisions) == (chat, ())


@pytest.mark.parametrize("kind", ["user", "parallel"])
def test_a_model_summary_stands_beside_it_and_who_has_seen_nothing_sends_the_same(kind: str) -> None:
    policy = make_policy(context_window=8000, keep_user_tokens=0, overflow_strategy="summarize")
    chat, notes = _make_chat(MARKED[kind]), dict[str, str]()

    def make() -> Compactor:
        return Compactor(policy, vocabulary="heuristic", summarise=lambda asked: f"Note {asked.key}.", summaries=notes)

    old = make()
    results = [old.compact(chat[:stop]) for stop in range(9, len(chat) + 1) if chat[stop - 1]["role"] == "tool"]

    assert notes
    assert "summarise" in {decision.rule for decision in results[-1].decisions}
    assert all(map(_holds, results[2:]))
    assert make().compact(chat[: -2 if chat[-1]["role"] == "user" else None]).messages == results[-1].messages
