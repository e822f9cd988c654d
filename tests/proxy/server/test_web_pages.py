"""What a request's head shows about the page that sent it. See also tests/attack/test_web_pages.py."""

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from proxy.config.load import load_config
from proxy.http.errors import SiteNotAllowedError
from proxy.server.web_pages import admit_site

OPEN = load_config("")


def _is_admitted(*headers: tuple[str, str], config=OPEN, of_pages: bool = False) -> bool:
    request = make_mocked_request("GET", "/", headers=CIMultiDict(headers))
    try:
        admit_site(config, request, of_pages=of_pages)
    except SiteNotAllowedError:
        return False
    return True


@given(st.from_regex(r"[a-z0-9.\-]{1,30}\.[a-z]{2,10}(:[0-9]{1,5})?", fullmatch=True))
def test_no_name_of_the_net_leads_here(host: str) -> None:
    """Names that nobody can register are exceptions."""
    name = host.partition(":")[0]
    assert _is_admitted(("Host", host)) is (
        name.endswith(".localhost") or name in {"host.docker.internal", "host.containers.internal"}
    )


@given(st.ip_addresses(), st.none() | st.integers(0, 65535))
def test_every_address_is_an_own_name(address, port: int | None) -> None:
    """A page reaches an address without a resolver."""
    host = f"[{address}]" if address.version == 6 else str(address)
    assert _is_admitted(("Host", host if port is None else f"{host}:{port}"))


@given(st.text(max_size=30))
def test_no_text_is_an_origin_of_ours_by_chance(origin: str) -> None:
    """An origin passes only if it is the request's own site or an installed application's."""
    if origin.partition("://")[0].lower() not in {"app", "tauri", "vscode-file", "vscode-webview"}:
        assert not _is_admitted(("Host", "localhost"), ("Origin", origin))


def test_a_request_without_these_headers_is_no_pages() -> None:
    """Browsers always send a Host."""
    assert _is_admitted()
    assert _is_admitted(("Host", ""))


def test_the_message_names_an_origin_only_if_it_is_plain() -> None:
    """A plain origin can be copied into the configuration. Any other text is not repeated."""
    for origin, is_named in (("https://chat.example:8443", True), ("https://x\x1b[2J", False), ("x" * 101, False)):
        request = make_mocked_request("GET", "/", headers={"Origin": origin})
        with pytest.raises(SiteNotAllowedError) as caught:
            admit_site(OPEN, request, of_pages=False)
        assert (origin in str(caught.value)) is is_named


def test_the_listeners_own_name_passes() -> None:
    """Case does not matter."""
    config = load_config("listen: api.localhost:1")
    assert _is_admitted(("Host", "API.localhost:1"), config=config)


def test_pages_share_the_listener_of_clients_unless_they_have_one() -> None:
    """If the pages have their own listener, its address and the pages' token count."""
    evil = ("Host", "evil.example")
    config = load_config("metrics_listen: 0.0.0.0:1")
    assert _is_admitted(evil, config=config, of_pages=True)
    assert not _is_admitted(evil, config=config)
    assert not _is_admitted(evil, config=load_config("metrics_listen: 127.0.0.1:1"), of_pages=True)
    assert _is_admitted(evil, config=load_config("client_keys: [k]"), of_pages=True)
