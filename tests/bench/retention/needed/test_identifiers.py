"""Messages in JSON are measured as the definition of needed identifiers says."""

import orjson

from bench.retention.needed.identifiers import Transcript, read_worded


def say(role: str, text: str, **members: object) -> bytes:
    return orjson.dumps({"role": role, "content": text, **members})


def call(call_id: str, arguments: str) -> bytes:
    function = {"name": "read", "arguments": arguments}
    return say("assistant", "", tool_calls=[{"id": call_id, "type": "function", "function": function}])


def measure(answer: str, original: list[bytes], forwarded: list[bytes]) -> tuple[int, int, int, int]:
    transcript = Transcript(original)
    list(transcript.extend(len(original)))
    tally = transcript.measure(read_worded(say("assistant", answer)), [read_worded(raw) for raw in forwarded])
    return tally.needed.total(), tally.kept.total(), tally.removed.total(), tally.recalled.total()


def test_only_what_the_transcript_held_is_needed() -> None:
    original = [say("user", "look at src/app.py")]
    assert measure("src/app.py and src/new.py", original, original) == (1, 1, 0, 0)


def test_a_part_of_an_identifier_does_not_count() -> None:
    original = [say("user", "look at src/app.py")]
    assert measure("src/app.py", original, [say("user", "look at src/app.pyc")]) == (1, 0, 1, 0)


def test_a_summary_recalls_what_no_message_holds_any_more() -> None:
    original = [say("user", "look at src/app.py and src/lib.py")]
    assert measure("src/app.py src/lib.py", original, [say("user", "Summary: src/lib.py")]) == (2, 1, 2, 1)


def test_the_result_of_a_call_is_carried_over_whatever_was_done_to_its_text() -> None:
    original = [call("c1", "{}"), say("tool", "src/app.py " * 9, tool_call_id="c1")]
    shortened = [original[0], say("tool", "src/app.py", tool_call_id="c1")]
    assert measure("src/app.py", original, shortened) == (1, 1, 0, 0)


def test_members_in_another_order_are_the_same_message() -> None:
    original = [orjson.dumps({"role": "user", "content": "src/app.py"})]
    assert measure("src/app.py", original, [orjson.dumps({"content": "src/app.py", "role": "user"})]) == (1, 1, 0, 0)


def test_arguments_of_calls_are_words_too() -> None:
    original = [call("c1", '{"path": "src/app.py"}')]
    assert measure("src/app.py", original, original) == (1, 1, 0, 0)
