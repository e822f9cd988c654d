"""To which paths the operator's key is sent, however a path is written."""

import posixpath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.http.client import is_allowed

PIECES = [
    "/", "..", ".", "a", "%2e", "%2E%2e", "%2f", "%5c", "\\", ";x", ";", "%3b", "%252e", "%25", "v1", "//", "%c0%ae",
]  # fmt: skip


def _resolve(path: str, *, slashes: bool, parameters: bool) -> str:
    """The path as one kind of server reads it."""
    path = path.replace("\\", "/") if slashes else path
    parts = (part.partition(";")[0] if parameters else part for part in path.split("/"))
    return posixpath.normpath("/" + "/".join(parts).lstrip("/"))


@given(st.lists(st.sampled_from(PIECES), max_size=9))
def test_no_server_reads_an_allowed_path_as_one_beyond(pieces: list[str]) -> None:
    """With escapes undone zero to three times, with and without backslashes and parameters."""
    path = "/v1/" + "".join(pieces)
    if not is_allowed(path, "/v1", ()):
        return
    for _ in range(4):
        for slashes in (False, True):
            for parameters in (False, True):
                read = _resolve(path, slashes=slashes, parameters=parameters)
                assert read == "/v1" or read.startswith("/v1/"), read
        path = unquote(path)


@given(st.lists(st.text("abcXYZ019-_~!$&'()*+,=:@", min_size=1), max_size=6))
def test_a_path_without_tricks_is_allowed(parts: list[str]) -> None:
    """Below the base, and only there."""
    path = "/".join(("/v1", *parts))
    assert is_allowed(path, "/v1", ())
    assert not is_allowed(f"/x{path}", "/v1", ())
    assert is_allowed(f"/x{path}", "/v1", ("/x/*",))


@pytest.mark.parametrize("base", ["", "/api/v1"])
def test_a_base_may_have_any_depth(base: str) -> None:
    """The base may also be the root of a server."""
    assert is_allowed(f"{base}/x/../y", base, ())
    assert not is_allowed(f"{base}/../y", base, ())


def test_a_listed_path_is_that_path_alone() -> None:
    """A listed folder allows what is below it. A name that only begins with either is not allowed."""
    assert is_allowed("/a", "/v1", ("/a",))
    assert not is_allowed("/a/b", "/v1", ("/a",))
    assert is_allowed("/a/b", "/v1", ("/a/*",))
    assert not is_allowed("/ab", "/v1", ("/a/*",))


def test_escapes_without_end_are_refused() -> None:
    """Real paths do not have them."""
    assert not is_allowed("/v1/%2525252525252541", "/v1", ())
