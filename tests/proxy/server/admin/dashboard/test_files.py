"""The page's files: exactly those of the folder, with headers that let them load nothing from elsewhere."""

import pytest
from support.client import ask_raw

from trimtab.proxy.server.admin.dashboard import files

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@pytest.fixture
def page(tmp_path, monkeypatch):
    folder = tmp_path / "page"
    folder.mkdir()
    (tmp_path / "secret.html").write_text("secret", encoding="utf-8")
    for name, text in (("index.html", "<p>hello"), ("page.css", "p {}"), ("page.js", "1"), ("notes.txt", "no")):
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(files, "FILES", files.load_files(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "content_type", "body"),
    [
        ("", "text/html; charset=utf-8", "<p>hello"),
        ("index.html", "text/html; charset=utf-8", "<p>hello"),
        ("page.css", "text/css; charset=utf-8", "p {}"),
        ("page.js", "text/javascript; charset=utf-8", "1"),
    ],
)
@pytest.mark.usefixtures("page")
@pytest.mark.parametrize("address", ["listen", "metrics_listen"])
async def test_a_file_is_served_with_its_type_and_safe_headers(address, name, content_type, body, client, start_proxy):
    proxy = await start_proxy(*(["metrics_listen=127.0.0.1:0"] if address == "metrics_listen" else []))
    root = proxy.metrics_url.removesuffix("metrics")
    async with client.get(f"{root}trimtab/{name}") as response:
        assert (response.status, await response.text()) == (200, body)
        headers = response.headers
    assert headers["Content-Type"] == content_type
    assert headers["Content-Security-Policy"] == POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-cache"
    async with client.get(f"{root}trimtab/{name}", headers={"If-None-Match": headers["ETag"]}) as response:
        assert (response.status, await response.read()) == (304, b"")


async def test_another_version_has_another_tag(page, monkeypatch, client, start_proxy):
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab/") as response:
        before = response.headers["ETag"]
    (page / "index.html").write_text("<p>other", encoding="utf-8")
    monkeypatch.setattr(files, "FILES", files.load_files(page))
    async with client.get(f"{proxy.url}/trimtab/", headers={"If-None-Match": before}) as response:
        assert (response.status, await response.text()) == (200, "<p>other")


async def test_a_running_program_serves_its_page_after_the_files_are_gone(page, client, start_proxy):
    """An update of the package removes them for a moment, and may rename them."""
    proxy = await start_proxy()
    for path in page.iterdir():
        path.unlink()
    async with client.get(f"{proxy.url}/trimtab/page.js") as response:
        assert (response.status, await response.text()) == (200, "1")


def test_the_page_is_loaded_when_the_program_starts():
    assert files.load_files(files.FOLDER) == files.FILES
    assert {"index.html", "page.css", "main.js", "overview.js"} <= files.FILES.keys()


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize(
    "name", ["notes.txt", "../secret.html", "%2e%2e/secret.html", "..%2fsecret.html", "none.html", "page.css/", "page"]
)
async def test_nothing_else_is_served(name, client, start_proxy):
    proxy = await start_proxy()
    host = proxy.url.removeprefix("http://")
    answer = await ask_raw(
        proxy.url, f"GET /trimtab/{name} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    # `..` may lead out of our own pages: then the upstream answers.
    assert head.startswith(b"HTTP/1.1 404 ") or body == b"hello"


@pytest.mark.usefixtures("page")
async def test_the_root_leads_to_the_page_also_behind_a_path(client, start_proxy):
    """The redirect is relative, so a proxy that adds a path before it need not change it."""
    proxy = await start_proxy()
    async with client.get(f"{proxy.url}/trimtab", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (308, "trimtab/")
    async with client.get(f"{proxy.url}/trimtab") as response:
        assert (response.status, response.url.path) == (200, "/trimtab/")
