"""One compactor for each way of counting."""

import threading
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest
from support.model_learning import ListLog

from trimtab.proxy.compaction import pool as module
from trimtab.proxy.compaction.caches import KEPT_BODIES_BYTES
from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.pool import CACHES_BYTES, Compactors
from trimtab.proxy.compaction.tokenizers.exact import MEMO_BYTES, VocabularyError, count_by_heuristic
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.wire.dialects import DEFAULT
from trimtab.rules.policy import Policy, Prices
from trimtab.rules.tokens.families import SAMPLE_TOKENS, Reading
from trimtab.rules.tokens.scripts import Weights

AUTO = PolicyConfig()


def _lose(monkeypatch: pytest.MonkeyPatch, *lost: str) -> None:
    load_encoding = module.load_encoding

    def load(name: str, _: object = None) -> object:
        if name in lost:
            message = "no such file"
            raise VocabularyError(message)
        return load_encoding(name)

    monkeypatch.setattr(module, "load_encoding", load)


def test_a_missing_vocabulary_is_said_once_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any vocabulary, everything is counted by characters. Each missing one is logged once, as a warning."""
    _lose(monkeypatch, "o200k_base", "cl100k_base")
    log = ListLog()
    compactors = Compactors(log)

    assert compactors.choose(AUTO, "gpt-4o").count is count_by_heuristic
    assert compactors.choose(AUTO, "gpt-4").count is count_by_heuristic
    assert compactors.choose(AUTO, "gpt-4-turbo").count is count_by_heuristic
    missing = [(line["vocabulary"], line["instead"]) for line in log.lines if line["event"] == "vocabulary_missing"]
    assert missing == [("o200k_base", "heuristic"), ("cl100k_base", "o200k_base")]


def test_the_policy_chooses_how_tokens_are_counted(compactors: Compactors) -> None:
    """`auto` depends on the model. Any other value means the same for every model."""
    exact = compactors.choose(AUTO, "gpt-4o")

    assert compactors.choose(PolicyConfig(count="o200k_base"), "gpt-4o") is exact
    assert compactors.choose(PolicyConfig(count="o200k_base"), "gpt-4").count is exact.count
    assert compactors.choose(PolicyConfig(count="heuristic"), "gpt-4o").count is count_by_heuristic
    assert compactors.choose(AUTO, "gpt-4").count is compactors.choose(PolicyConfig(count="cl100k_base"), "x").count

    text = "我喜欢猫。" * 100

    assert compactors.choose(AUTO, "gpt-4").count(text) > compactors.choose(AUTO, "gpt-4o").count(text)


async def test_equal_costs_of_one_tenant_share_a_compactor(compactors: Compactors) -> None:
    """All count alike and share the vocabulary. The event loop gets the same compactors."""
    assert compactors.choose(AUTO, "moonshot-v1") is compactors.choose(AUTO, "kimi-k2")
    assert compactors.choose(AUTO, "gpt-4o") is not compactors.choose(AUTO, "gpt-5")
    assert await compactors.get(AUTO, "gpt-4") is compactors.choose(AUTO, "gpt-4")

    one, two = (compactors.choose(AUTO, "gpt-4o", tenant) for tenant in ("one", "two"))
    assert one is not two
    assert one.count is not two.count
    assert one.count("some text " * 20) == two.count("some text " * 20)
    assert await compactors.get(AUTO, "gpt-4o", "one") is one
    assert compactors.choose(AUTO, "gpt-4", "two") is await compactors.get(AUTO, "gpt-4", "two")
    assert compactors.choose(AUTO, "gpt-4o") not in (one, two)


def test_a_tenant_remembers_nothing_of_another(compactors: Compactors) -> None:
    """Else the time of an answer would show what the other has sent."""
    text = "a word " * 20
    one, two = (compactors.choose(AUTO, "gpt-4o", tenant) for tenant in ("one", "two"))
    one.count(text)
    holders = [compactors._hold(tenant) for tenant in ("one", "two")]
    assert [holder.memos["o200k_base"].usual.get(text) for holder in holders] == [two.count(text), None]
    holders[0].caches.diffs[b"a", b"b"] = "diff"
    assert holders[1].caches.diffs.get((b"a", b"b")) is None


def test_a_vocabulary_is_loaded_once_for_all_compactors_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them still remembers its own texts."""
    first = module.load_compactor("gpt-4o")
    monkeypatch.setattr(module, "load_encoding", pytest.fail)
    second = module.load_compactor("gpt-4o")
    assert first is not second
    assert first.count("a word " * 20) == second.count("a word " * 20)


def test_many_who_need_a_vocabulary_first_load_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads ask at once, for models of two kinds. Each kind has one compactor, and both share one counter."""
    loaded: list[str] = []
    load_encoding = module.load_encoding
    barrier = threading.Barrier(4)
    monkeypatch.setattr(module, "load_encoding", lambda name, _: loaded.append(name) or load_encoding(name))
    compactors = Compactors(ListLog())

    def choose(number: int) -> Compactor:
        barrier.wait(30)
        return compactors.choose(PolicyConfig(count="cl100k_base"), ("gpt-4", "unheard-of")[number % 2])

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(choose, range(4)))
    assert loaded == ["cl100k_base"]
    assert (made[0], made[1]) == (made[2], made[3])
    assert made[0] is not made[1]
    assert made[0].count is made[1].count


async def test_the_loop_loads_nothing_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread loads a vocabulary. One that is loaded already needs no thread."""
    threads: list[bool] = []
    load_encoding = module.load_encoding

    def load(name: str, _: object = None) -> object:
        threads.append(threading.current_thread() is threading.main_thread())
        return load_encoding(name)

    compactors = Compactors(ListLog())
    compactors.load()
    monkeypatch.setattr(module, "load_encoding", load)
    await compactors.get(AUTO, "gpt-4o")
    assert threads == []
    assert [compactors.is_ready(AUTO, model) for model in ("gpt-4o", "gpt-4")] == [True, False]
    await compactors.get(AUTO, "gpt-4")
    await compactors.get(AUTO, "gpt-4")
    assert compactors.is_ready(AUTO, "gpt-4")
    assert threads == [False]


async def test_a_small_request_does_not_wait_for_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its compactor counts as the one that follows, and goes on when the vocabulary is loaded. A large one waits."""
    load_encoding, compactors = module.load_encoding, Compactors(ListLog())
    monkeypatch.setattr(module, "load_encoding", pytest.fail)
    body = orjson.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "How are the naïve 我喜欢猫?"}]})
    early = [await compactors.get(AUTO, "gpt-4o", size_bytes=size) for size in (len(body), module.EARLY_BYTES)]
    before = [one.plan(DEFAULT.read(body, None), Policy()) for one in early]
    loaded: list[str] = []
    monkeypatch.setattr(module, "load_encoding", lambda name, _: loaded.append(name) or load_encoding(name))
    usual = await compactors.get(AUTO, "gpt-4o", size_bytes=module.EARLY_BYTES + 1)

    after = usual.plan(DEFAULT.read(body, None), Policy())
    assert [one.original.tokens for one in before] == [after.original.tokens] * len(early)
    assert [one.sections for one in before] == [after.sections] * len(early)
    assert early[0].count("Ada and Charles") == usual.count("Ada and Charles")
    assert await compactors.get(AUTO, "gpt-4o", size_bytes=len(body)) is usual
    assert loaded == ["o200k_base"]


async def test_only_the_first_few_small_requests_are_counted_without_the_vocabulary() -> None:
    compactors = Compactors(ListLog())
    compactors.read()
    for _ in range(module.EARLY_REQUESTS):
        await compactors.get(AUTO, "gpt-4o", size_bytes=100)
    is_ready = compactors.is_ready(AUTO, "gpt-4o")
    await compactors.get(AUTO, "gpt-4o", size_bytes=100)
    assert (is_ready, compactors.is_ready(AUTO, "gpt-4o")) == (False, True)


async def test_without_a_list_of_tokens_a_small_request_is_counted_by_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(name: str, _: object = None) -> object:
        raise VocabularyError(name)

    monkeypatch.setattr(module, "load_encoding", lose)
    monkeypatch.setattr(module, "read_vocabulary", lose)
    compactor = await Compactors(ListLog()).get(AUTO, "gpt-4o", size_bytes=100)
    assert compactor.count is count_by_heuristic


TOOL = {"type": "function", "function": {"name": "f", "description": "word " * 50, "parameters": {}}}


@pytest.mark.parametrize(("role", "unspoken"), [("user", 20), ("system", 0)])
def test_what_the_server_says_of_its_template_is_counted(role: str, unspoken: int) -> None:
    """Tools that it leaves out cost nothing; what it says before a prompt without a system message costs its tokens."""
    body = orjson.dumps({"model": "m", "messages": [{"role": role, "content": "Hello"}], "tools": [TOOL]})
    told = Reading(drops_tools=True, samples=SAMPLE_TOKENS["o200k_base"], priming=3, frame=4.0, unspoken=20)
    tokens = []
    for reading in (Reading(), told._replace(drops_tools=False), told):
        compactor = Compactors(ListLog()).choose(AUTO, "m", reading=reading)
        tokens.append(compactor.plan(DEFAULT.read(body, None), Policy()).original.tokens)
    plain, added, dropped = tokens
    assert added == plain + unspoken
    assert dropped == 3 + 4 + 1 + unspoken


def test_a_result_is_shortened_alike_whatever_was_learned_of_other_scripts() -> None:
    """Else each change of the weights would change the bytes behind a cut. What it costs is counted anew."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = "\n".join(f"第{number}行。附近有没有评分高一点的酒店。最好离地铁站近。" for number in range(4000))
    messages = [
        {"role": "user", "content": "看"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]
    request, pool = DEFAULT.read(orjson.dumps({"model": "m", "messages": messages}), None), Compactors(ListLog())
    found = []
    for weights in (None, Weights(dense=1.0)):
        compactor = pool.choose(AUTO, "m", weights=weights)
        compacted = compactor.apply(
            compactor.plan(request, PolicyConfig(max_tool_result_tokens=2000).to_policy(Prices())), None
        )
        found.append((compacted.body, compacted.sent_tokens))
    (plain, tokens), (weighed, more) = found
    assert plain == weighed != request.body
    assert more > 1.4 * tokens


def test_the_compactors_of_a_tenant_are_bounded(compactors: Compactors) -> None:
    """Answers show new weights of a model again and again. No two compactors share what was counted."""
    settings = PolicyConfig()
    for number in range(module.MAX_COUNTINGS + 2):
        compactors.choose(settings, "gpt-4o", "tenant", weights=Weights(code=number / 1000))
    made = compactors._hold("tenant").made
    assert len(made) == module.MAX_COUNTINGS
    assert len({compactor._number for compactor in made.values()}) == module.MAX_COUNTINGS


def test_all_caches_keep_their_share_of_the_bound_at_the_start_and_after_a_change() -> None:
    """Also those of a vocabulary that is loaded later."""
    compactors = Compactors(ListLog(), caches_bytes=CACHES_BYTES // 4)
    for scale, model in ((4, "gpt-4o"), (2, "gpt-4")):
        if scale == 2:
            compactors.rebound(CACHES_BYTES // scale)
        compactors.choose(AUTO, model)
        memos = [one.memos.usual for one in compactors._vocabularies.values()]
        assert {memo._bound.max_bytes for memo in memos} == {MEMO_BYTES // scale}
        assert compactors.find_kept_bodies("a tenant").most_bytes == KEPT_BODIES_BYTES // scale // 2
