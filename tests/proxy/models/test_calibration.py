"""A proxy in front of an upstream that counts differently: after some answers, it uses the upstream's counts."""

import re

import orjson
import pytest
from support.client import post
from upstreams.recording import completion

from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.models.calibration import ERROR_WEIGHT, WARM_UP_SAMPLES, Calibration, Report
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.scripts import Scale

PATH = "/v1/chat/completions"
LIMIT = 7000
SMALL = ("defaults.context_window=8000", "defaults.completion_reserve=1000", "defaults.overflow_strategy=prune")


class Counting:
    """An upstream that counts `ratio` tokens for one of ours. `reported`: the counts that it has reported so far."""

    def __init__(self, compactors, ratio: float) -> None:
        self.reported: list[int] = []
        self._compactor = compactors.choose(PolicyConfig(), "m")
        self._ratio = ratio

    def count(self, body: bytes) -> int:
        return self._compactor.plan(CHAT.read(body), Policy()).original.tokens

    async def __call__(self, recorded, request):
        self.reported.append(round(self._ratio * self.count(recorded.body)))
        return completion(prompt_tokens=self.reported[-1], completion_tokens=1)


def prompt(words: int, number: int = 0, model: str = "m") -> bytes:
    """A request of about `words` tokens, a different one for each `number`."""
    text = f"request {number}:" + " the" * words  # English by its letters: plain text
    return orjson.dumps({"model": model, "messages": [{"role": "user", "content": text}]})


async def ask(client, proxy, body):
    """The response, its body and the tokens in its header, after the proxy has learned from it."""
    response, answer = await post(client, proxy.url + PATH, body)
    await proxy.services.lifecycle.idle.wait()
    await learn(proxy)
    header = response.headers.get("x-trimtab-tokens", "")
    return response, answer, {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", header)}


def near(tokens: int) -> range:
    return range(int(0.98 * tokens), int(1.02 * tokens) + 2)


async def learn(proxy):
    await proxy.services.models.settle()


async def warm_up(client, proxy):
    for number in range(WARM_UP_SAMPLES):
        response, _, tokens = await ask(client, proxy, prompt(1000, number=number))
        assert response.status == 200
    return tokens


async def test_headers_tell_the_upstreams_own_numbers(client, upstream, start_proxy, compactors):
    """The numbers change once, after eight answers. The limit stays that of the configured window."""
    upstream.answer = counting = Counting(compactors, 1.5)
    proxy = await start_proxy("defaults.context_window=8000", "defaults.completion_reserve=1000")
    _, _, first = await ask(client, proxy, prompt(1000, number=99))
    assert first == {"original": counting.count(prompt(1000, number=99)), "sent": first["original"], "limit": LIMIT}
    await warm_up(client, proxy)
    body = prompt(2500)
    _, _, tokens = await ask(client, proxy, body)

    assert tokens["sent"] == tokens["original"]
    assert tokens["sent"] in near(counting.reported[-1])
    assert tokens["sent"] > 1.4 * counting.count(body)
    assert tokens["limit"] == LIMIT
    text = await (await client.get(proxy.url + "/metrics")).text()
    changes = [line for line in text.splitlines() if line.startswith("trimtab_policy_changes_total")]
    assert [line.rpartition(" ")[2] for line in changes] == ["1.0"]


async def test_a_refusal_states_the_models_own_numbers(client, upstream, start_proxy, compactors):
    """A request that cannot fit is refused before it is sent, with the error that the upstream itself would return.

    A request that does not fit only because of the ratio is sent: the ratio was learned, so the upstream decides.
    """
    upstream.answer = counting = Counting(compactors, 2.0)
    proxy = await start_proxy(*SMALL, "defaults.on_exceeded=error")
    await warm_up(client, proxy)
    assert (await ask(client, proxy, prompt(5000)))[0].status == 200
    response, answer, tokens = await ask(client, proxy, prompt(9000))

    error = orjson.loads(answer)["error"]
    assert (response.status, error["code"]) == (400, "context_length_exceeded")
    expected = 2 * counting.count(prompt(9000))
    assert tokens["original"] in near(expected)
    assert tokens["limit"] == LIMIT
    assert "maximum context length is 8000 tokens" in error["message"]
    assert f"a limit of {LIMIT} tokens" in error["message"]
    assert f"resulted in {tokens['original']} tokens" in error["message"]
    assert len(upstream.chats) == WARM_UP_SAMPLES + 1


def test_the_mean_error_follows_the_last_reports() -> None:
    """It begins at none, and an error of more than the whole counts as the whole."""
    calibration = Calibration()
    errors = []
    for reported in (1000, 1000, 1500, 9000, 1000):
        calibration.add(Report(1000, reported, 40_000), Scale(), Scale())
        errors.append(calibration.error)
    third = 0.5 * ERROR_WEIGHT
    fourth = third + (1.0 - third) * ERROR_WEIGHT
    assert errors == pytest.approx([0, 0, third, fourth, fourth * (1 - ERROR_WEIGHT)])
