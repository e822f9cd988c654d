"""Finds out what the provider of a request takes for its prompt cache, and derives the key of its session.

Law: nothing for an upstream that is not known to take it, nothing that it has refused, and nothing with `cache: off`.
The key reveals nothing of the session or the client, and differs between clients.
"""

import hmac
from dataclasses import replace
from hashlib import sha256

from proxy.compaction.compactor import Planned
from proxy.exchange.arrival import Arrival
from proxy.exchange.attempts.call import Call, Route
from proxy.exchange.services import Services
from proxy.state.catalogue.prompt_caches import find_additions
from proxy.state.catalogue.refusals import Asked
from proxy.wire.codec import Codec, Request
from proxy.wire.content.cache_help import NO_HELP, Addition, CacheHelp
from rules.prefix import hash_head

KEY_CHARS = 32
"""Source: OpenAI and OpenRouter refuse more than 64 and 256. Chosen: 128 bits, so sessions never share a key."""
_PURPOSE = b"trimtab prompt_cache_key\0"


def find_help(services: Services, arrival: Arrival, route: Route, codec: Codec) -> CacheHelp:
    """What is added to a request on this route; its key is not known yet."""
    if route.upstream.cache != "auto" or route.target.mode != "enforce" or codec.is_count:
        return NO_HELP
    adds = find_additions(route.upstream.base_url, codec.name, route.target.model)
    return CacheHelp(adds - services.refused_additions.find(name_asked(arrival, route))) if adds else NO_HELP


def takes(services: Services, arrival: Arrival, route: Route, addition: Addition) -> bool:
    """Whether the upstream has not refused an addition."""
    return addition not in services.refused_additions.find(name_asked(arrival, route))


def name_asked(arrival: Arrival, route: Route) -> Asked:
    """The name under which refusals are remembered."""
    return arrival.tenant.id, route.upstream.base_url, route.target.model


def add_key(call: Call, planned: Planned) -> Request:
    """The request with the key of its session, if it takes one. The key stays the same over cuts.

    A request without the beginning of its session has no key: the upstream holds it.
    """
    request, transcript = call.request, planned.original
    if "cache_key" not in request.cache.adds or transcript.continues or not transcript.messages:
        return request
    head = hash_head(transcript.messages)
    key = hmac.new(call.arrival.tenant.secret, _PURPOSE + head, sha256).hexdigest()[:KEY_CHARS]
    return replace(request, cache=replace(request.cache, key=key))
