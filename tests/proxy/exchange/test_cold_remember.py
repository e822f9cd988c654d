"""What is remembered of an answer for a cold cache."""

from msgspec import structs
from msgspec.structs import replace
from support.client import SMALL, post, settle
from support.journeys import MakeStages, read_session
from support.sessions import make_session

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.exchange.attempt import Passed
from trimtab.proxy.exchange.cold import remember
from trimtab.proxy.store.store import MemoryStore
from trimtab.proxy.summaries.cold_cuts import ColdCuts

OPENAI = "https://api.openai.com/v1"


async def test_every_answer_is_remembered_in_a_store_that_is_kept(client, start_proxy, tmp_path) -> None:
    proxy = await start_proxy(*SMALL, "upstream.cache_seconds=300", f"store=sqlite:///{tmp_path}/a.sqlite3")
    await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", **make_session(20)})
    await settle(proxy)
    assert len(proxy.services.cold_cuts._forwarded.items()) == 1


async def test_an_answer_after_a_silence_teaches_how_long_the_cache_lives(make_stages: MakeStages) -> None:
    """Its time is noted for the next request. An attempt that was not compacted leaves nothing."""
    stages = await make_stages(*SMALL, f"upstream.base_url={OPENAI}")
    store = MemoryStore(ttl_seconds=1.0)
    store.name = "sqlite"
    services = replace(stages.services, cold_cuts=ColdCuts(store))
    attempt = await stages.attempt(read_session(20))
    call = structs.replace(attempt.call, idle_seconds=1500.0)
    await remember(services, Passed("undecodable"), Answered(5000, 4900))
    await remember(services, structs.replace(attempt, call=call, body=None), Answered(5000, 4900))
    assert not services.cold_cuts._forwarded.items()
    await remember(services, structs.replace(attempt, call=call), Answered(5000, 4900))
    assert len(services.cold_cuts._forwarded.items()) == 1
    name = call.view.name
    assert services.lifetimes.find(call.arrival.tenant.id, name.base_url, name.model) == 1500
    assert services.lifetimes.find("other", name.base_url, name.model) == 300
