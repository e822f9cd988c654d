"""What an answer shows about the prompt and the model: on values, without a socket."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import orjson
import pytest
from support.builders import conversation
from support.journeys import NOTE, MakeStages, Stages, arrive, read, read_session
from upstreams.recording import completion, event

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.exchange.answer import (
    MAX_BYTES,
    MAX_NAME_BYTES,
    MAX_SCALES,
    ModelTap,
    _note_scale,
    count_answer,
    find_model,
    observe,
)
from trimtab.proxy.exchange.answer import listen as begin_listening
from trimtab.proxy.exchange.attempt import Attempt, Passed
from trimtab.proxy.models.calibration import URGENT_SAMPLES
from trimtab.proxy.models.records import Known, find_scale
from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.messages.codec import COUNT_TOKENS, MESSAGES
from trimtab.proxy.wire.transcript.body import Array, KeptBody
from trimtab.rules.tokens.scripts import count_kinds

USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 7}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
WINDOW = 128_000
PRUNES = ("defaults.overflow_strategy=prune",)


def listen(answer: bytes, *, is_stream: bool = False) -> Tap:
    """A tap that has read a whole answer."""
    tap = Tap.of(CHAT, is_stream=is_stream)
    tap.feed(answer)
    tap.finish()
    return tap


async def count(stages: Stages, answer: bytes, model: str = "m", *, is_stream: bool = False) -> Answered:
    """What is counted of a whole answer."""
    tap = listen(answer, is_stream=is_stream)
    return await count_answer(stages.services, arrive().tenant, stages.route(model), tap, WINDOW)


async def tell(stages: Stages, attempt: Attempt, prompt_tokens: int | None) -> float | None:
    """An upstream's answer that reports these prompt tokens and cached tokens."""
    observed = await observe(stages.services, attempt, Answered(prompt_tokens))
    await stages.settle()
    return observed.prefix_kept


def known(stages: Stages) -> Known | None:
    """The facts about the client's model, if an upstream has answered for it."""
    return next((one for one in stages.services.models.list_known() if one.name.tenant), None)


async def test_the_upstreams_own_figures_count(make_stages: MakeStages) -> None:
    counted = await count(await make_stages(), completion(**USAGE).body)
    assert counted == Answered(
        prompt_tokens=11, cached_tokens=7, completion_tokens=3, streamed_tokens=3, ends_turn=True
    )


async def test_without_them_we_count_what_was_written(make_stages: MakeStages) -> None:
    stages = await make_stages()
    tokens = {}
    for model in ("gpt-5", "codellama"):
        answered = await count(stages, completion(NOTE).body, model)
        written = tokens[model] = answered.completion_tokens
        figures = Answered(completion_tokens=written, is_estimated=True, streamed_tokens=written, ends_turn=True)
        assert answered == figures
    defaults = stages.services.config.defaults
    compactor, counted = [await stages.services.compactors.get(defaults, model) for model in tokens]
    assert tokens == {"gpt-5": compactor.count(NOTE), "codellama": round(1.1733 * counted.count(NOTE))}


async def test_of_a_stream_hidden_reasoning_was_not_streamed(make_stages: MakeStages) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 40}}
    events = ({"choices": [{"index": 0, "delta": {"content": "All good."}}]}, {"choices": [], "usage": usage})
    stream = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)
    counted = await count(await make_stages(), stream, is_stream=True)
    assert (counted.completion_tokens, counted.streamed_tokens) == (50, 10)


@pytest.mark.parametrize("told_tokens", [1, 100])
async def test_of_a_stream_that_was_cut_off_what_was_streamed_is_counted(
    told_tokens: int, make_stages: MakeStages
) -> None:
    """Or what the upstream has reported until then, if that is more."""
    stages = await make_stages()
    tap = Tap.of(MESSAGES, is_stream=True)
    usage = {"input_tokens": 40, "output_tokens": told_tokens}
    for told in (
        {"type": "message_start", "message": {"usage": usage}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": NOTE}},
    ):
        tap.feed(b"data: %b\n\n" % orjson.dumps(told))
    tap.finish(is_cut=True)
    counted = await count_answer(stages.services, arrive().tenant, stages.route("gpt-5"), tap, WINDOW)

    compactor = await stages.services.compactors.get(stages.services.config.defaults, "gpt-5")
    tokens = compactor.count(NOTE)
    most, is_estimated = max(tokens, told_tokens), tokens > told_tokens
    assert counted == Answered(40, completion_tokens=most, is_estimated=is_estimated, streamed_tokens=tokens)


async def test_figures_that_cannot_be_are_not_believed(make_stages: MakeStages) -> None:
    """Each is as if it had not been reported. A sum of many prompts, and hidden reasoning, are believed."""
    stages = await make_stages()

    async def tell_usage(prompt_tokens: int, completion_tokens: int, reasoning_tokens: int = 0) -> Answered:
        details = {"reasoning_tokens": reasoning_tokens}
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        answer = {"choices": [{"message": {"content": NOTE}}], "usage": usage | {"completion_tokens_details": details}}
        return await count(stages, orjson.dumps(answer))

    told = await tell_usage(9, 17 * WINDOW)
    assert (told.prompt_tokens, told.is_estimated) == (9, True)
    assert (told.completion_tokens or 0) < 1000
    assert (await tell_usage(17 * WINDOW, 3)) == Answered(completion_tokens=3, streamed_tokens=3, ends_turn=True)
    told = await tell_usage(9 * WINDOW, WINDOW + 3, WINDOW)
    assert (told.prompt_tokens, told.completion_tokens) == (9 * WINDOW, WINDOW + 3)


def test_nothing_is_read_of_an_answer_that_failed_or_that_only_counts() -> None:
    """It teaches nothing and costs nothing, whatever usage it reports."""
    request = read_session(1)
    for codec, status, asked in ((CHAT, 500, request), (CHAT, 404, None), (COUNT_TOKENS, 200, request)):
        ready = SimpleNamespace(request=asked, codec=codec)
        assert begin_listening(Mock(), ready, SimpleNamespace(status=status)) is None


async def test_a_report_is_a_sample_of_the_models_ratio(make_stages: MakeStages) -> None:
    stages = await make_stages(*PRUNES)
    attempt = await stages.attempt(read_session(70))
    sent = attempt.compacted.forwarded.tokens
    assert sent < attempt.compacted.original_tokens / 2
    for _ in range(URGENT_SAMPLES):
        await tell(stages, attempt, 2 * sent)
    found = known(stages)
    assert found is not None
    chars = count_kinds(attempt.compacted.forwarded)
    assert find_scale(found.name, found.facts).predict(sent, chars) == pytest.approx(2 * sent, rel=0.01)
    assert (await stages.prepare(read_session(1))).view.policy.token_ratio == found.facts.ratio


async def test_only_a_reported_prompt_of_text_is_a_sample(make_stages: MakeStages) -> None:
    text, stages = "word " * 900, await make_stages()
    for content, tokens, samples in (
        (text, None, 0),
        ([{"type": "text", "text": text}, IMAGE], 900, 0),
        (text, 900, 1),
    ):
        await tell(stages, await stages.attempt(read([{"role": "user", "content": content}])), tokens)
        assert known(stages).samples == samples


async def test_a_model_whose_name_holds_a_credential_is_not_known(make_stages: MakeStages) -> None:
    """The page of models would show it to every reader."""
    stages = await make_stages()
    request = replace(read_session(3), model="sk-of-the-client")
    await tell(stages, await stages.attempt(request), 900)
    assert known(stages) is None


async def test_a_second_request_is_known_by_what_of_it_stands_as_before(make_stages: MakeStages) -> None:
    stages = await make_stages()
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    sent_tokens = {}

    async def ask(key: str = "one", model: str = "m", steps: int = 3, **more: object) -> float | None:
        asked = replace(read_session(steps, **more), model=model)
        attempt = await stages.attempt(asked, Authorization=f"Bearer {key}")
        sent_tokens[steps] = attempt.compacted.forwarded.tokens
        return await tell(stages, attempt, 900)

    assert [await ask(), await ask("two"), await ask(model="n")] == [None] * 3
    assert [await ask(), await ask("two"), await ask(model="n")] == [1.0] * 3
    assert await ask(steps=4) == pytest.approx(sent_tokens[3] / sent_tokens[4])
    assert await ask(steps=4, tools=tools) == 0.0


async def test_a_miss_is_told_only_of_what_the_upstream_reports(make_stages: MakeStages) -> None:
    """A local upstream forgets nothing by time alone, so nothing has expired there."""
    for cached_tokens, causes in ((0, ["cold", "unknown"]), (1900, ["", ""]), (None, ["", ""])):
        stages, answered = await make_stages(), Answered(2000, cached_tokens)
        attempts = [await stages.attempt(read_session(20)) for _ in range(2)]
        found = [await observe(stages.services, attempt, answered, age_seconds=1.0) for attempt in attempts]
        assert [one.cache_miss for one in found] == causes


async def test_what_is_not_known_to_have_been_sent_teaches_nothing_of_the_cache(make_stages: MakeStages) -> None:
    """If it was only observed, the report is compared with the original. What was not decoded is no sample."""
    stages = await make_stages(*PRUNES, "mode=observe")
    observed = await stages.attempt(read_session(70))
    attempts = [Passed("undecodable"), Passed("failed_open"), observed, observed]
    answered = Answered(observed.chosen.planned.original.tokens, 0)

    found = [await observe(stages.services, attempt, answered) for attempt in attempts]
    assert [(one.prefix_kept, one.cache_miss) for one in found] == [(None, "")] * 4
    await stages.settle()
    assert (known(stages).samples, known(stages).mean_error) == (2, 0.0)


# The name of the model that has answered.


@pytest.mark.parametrize(
    ("answer", "model"),
    [
        (b'{"id": "1", "model": "gpt-5-2026-01-01", "choices": []}', "gpt-5-2026-01-01"),
        (b'{"choices":[{"delta":{"content":"say \\"model\\": \\"no\\""}}],"model":"m"}', "m"),
        (b'event: message_start\ndata: {"type":"message_start","message":{"id":"x","model":"claude-5"}}', "claude-5"),
        (b'{"model":"caf\\u00e9 \\"q\\""}', 'caf\u00e9 "q"'),
        (b'{"model":null}', ""),
        (b'{"model":"' + b"x" * (MAX_NAME_BYTES + 1) + b'"}', ""),
        (b'{"model":"bad \\x escape"}', ""),
        (b'{"model":"bad \xff utf-8"}', ""),
        (b'{"model":"unfinished', ""),
    ],
)
def test_the_first_member_names_it(answer, model) -> None:
    """The text of an answer is not taken for it. What cannot be read is no name."""
    assert find_model(answer) == model


def test_the_name_may_be_split() -> None:
    tap, answer = Mock(), b'data: {"id":"1","model":"m-1","choices":[]}\n\n' + event("text")
    model_tap = ModelTap(tap, Mock(), "id")
    chunks = [answer[start : start + 7] for start in range(0, len(answer), 7)]
    for chunk in chunks:
        model_tap.feed(chunk, 1.0)
    assert model_tap.model == "m-1"
    assert [call.args[0] for call in tap.feed.mock_calls] == chunks


def test_only_the_beginning_is_searched() -> None:
    """So that a long answer costs nothing more."""
    model_tap = ModelTap(Mock(), Mock(), "id")
    for _ in range(3):
        model_tap.feed(b" " * (MAX_BYTES // 2), 1.0)
    model_tap.feed(b'{"model":"late"}', 1.0)
    assert (model_tap.model, len(model_tap._seen)) == ("", MAX_BYTES)


def test_of_a_sessions_models_those_used_last_keep_their_scales() -> None:
    kept = KeptBody(b"", Array(0, 0, []), (), 0)
    planned = SimpleNamespace(plan=SimpleNamespace(window=SimpleNamespace(changes_sent=True)), original=conversation())
    for model in (*range(MAX_SCALES), 0, "new"):
        view = SimpleNamespace(name=SimpleNamespace(key=model), facts=SimpleNamespace(ratio=1.0, weights=None))
        _note_scale(SimpleNamespace(view=view), planned, kept)  # type: ignore[arg-type]
    assert list(kept.cut_by) == [*range(2, MAX_SCALES), 0, "new"]
