"""What a request gets for its provider's prompt cache, and the key of its session."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.journeys import MakeStages, arrive, read_session

from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.attempt import KEY_CHARS, add_key
from trimtab.proxy.exchange.route import THINKING, choose_route, find_help
from trimtab.proxy.wire.cache_help import NO_HELP, CacheHelp
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.messages.codec import COUNT_TOKENS
from trimtab.rules.conversation import Conversation, Message, Role

OPENAI = "upstream.base_url=https://api.openai.com/v1"
KEYED = CacheHelp(frozenset({"cache_key"}))
SYSTEM, TASK = (Message(role, (role.value,), digest=role.encode()) for role in (Role.SYSTEM, Role.USER))


def _key(messages: tuple[Message, ...], arrival: Arrival, cache: CacheHelp = KEYED, *, continues: bool = False) -> str:
    call = SimpleNamespace(request=replace(read_session(1), cache=cache), arrival=arrival)
    original = Conversation(messages, 0, (None,) * len(messages), continues=continues)
    request: Request = add_key(call, SimpleNamespace(original=original))  # type: ignore[arg-type] - only these are read
    return request.cache.key


def test_a_session_keeps_its_key_and_each_client_has_its_own() -> None:
    client, other = arrive(), arrive(**{"X-Api-Key": "another"})
    key = _key((SYSTEM, TASK), client)
    said = Message(Role.ASSISTANT, ("I look.",), digest=b"a")
    assert len(key) == KEY_CHARS <= 64
    assert _key((SYSTEM, TASK, said, TASK), client) == key
    assert _key((SYSTEM, TASK), other) != key
    assert _key((SYSTEM, replace(TASK, digest=b"other task")), client) != key
    assert _key((replace(SYSTEM, digest=b"other agent"), TASK), client) != key


def test_a_session_whose_beginning_is_not_known_has_no_key() -> None:
    assert _key((TASK,), arrive(), continues=True) == _key((), arrive()) == _key((TASK,), arrive(), NO_HELP) == ""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((OPENAI,), KEYED),
        ((OPENAI, "upstream.cache=off"), NO_HELP),
        ((OPENAI, "mode=observe"), NO_HELP),
        ((OPENAI, "mode=off"), NO_HELP),
        ((), NO_HELP),
    ],
    ids=["known", "switched off", "observed", "off", "unknown host"],
)
async def test_only_a_known_host_gets_something_and_only_if_it_is_wanted(settings, expected, make_stages: MakeStages):
    services, arrival = (await make_stages(*settings)).services, arrive()
    config, headers, request = services.config, arrival.forward(services.config.upstream), read_session(1)
    route = choose_route(config, arrival, headers, "gpt-4o", CHAT)
    assert find_help(route, request, frozenset()).cache == expected
    counted = choose_route(config, arrive(), headers, "gpt-4o", COUNT_TOKENS)
    assert find_help(counted, request, frozenset()).cache == NO_HELP
    assert find_help(route, request, frozenset({"cache_key"})).cache == NO_HELP
    told = find_help(route, request, frozenset({THINKING}))
    assert (told.cache, told.takes_binding) == (expected, False)
