"""Another configuration for a proxy that runs."""

from asking import CHAT, post

from proxy.app import Proxy
from proxy.config import Config
from proxy.reloading import adopt


def _change(proxy: Proxy, **changes: object) -> Config:
    """The proxy's configuration with some keys set, validated anew."""
    return Config.model_validate(proxy.services.config.model_dump() | changes)


async def test_what_is_fixed_keeps_its_value_and_is_named(start_proxy) -> None:
    """All else is as the new one says."""
    proxy = await start_proxy()
    old = proxy.services
    new = _change(proxy, listen="127.0.0.1:1", store="sqlite", mode="off", tenant="header:x-team")

    assert adopt(proxy.current, new) == ["listen", "store"]
    now = proxy.services
    assert (now.config.listen, now.config.store, now.config.mode) == (old.config.listen, "memory", "off")
    assert (now.tenancy.tenant, now.tenancy.key) == ("header:x-team", old.tenancy.key)
    assert (old.config.mode, old.tenancy.tenant) == ("enforce", "authorization")
    assert adopt(proxy.current, proxy.services.config) == []


async def test_bounds_that_all_requests_share_change_at_once(client, start_proxy) -> None:
    """What is held meanwhile counts."""
    proxy = await start_proxy()
    url = proxy.url + "/v1/chat/completions"
    uploads = proxy.services.uploads
    limits = proxy.services.config.limits
    uploads.left_bytes -= 1000  # a request in flight
    for max_held_bytes, status in ((1024, 503), (2048, 200), (limits.max_held_bytes, 200)):
        new = {"limits": limits.model_dump() | {"max_held_bytes": max_held_bytes, "client_silence_seconds": 7}}
        adopt(proxy.current, _change(proxy, **new))
        assert (uploads.left_bytes, uploads.silence_seconds) == (max_held_bytes - 1000, 7)
        assert (await post(client, url, CHAT))[0].status == status
