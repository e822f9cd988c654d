"""Summaries at rest."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.summaries.sealing import KEY_BYTES, KeyFileError, derive_id, load_key, seal, unseal
from trimtab.rules.summary.request import PROMPT_VERSION, Summary

ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Texts that may have lone surrogates."""
SUMMARIES = st.builds(Summary, ANY_TEXT, st.booleans(), note=st.binary())
SECRET = b"Bearer sk-secret"
SEALED = seal(SECRET, "id", Summary("text", by_model=True))


@given(st.binary(), ANY_TEXT, SUMMARIES)
def test_what_was_sealed_is_opened_with_the_same_secret(secret: bytes, summary_id: str, summary: Summary) -> None:
    assert unseal(secret, summary_id, seal(secret, summary_id, summary)) == summary


@given(st.binary(), st.text())
def test_nobody_else_can_open_it(secret: bytes, summary_id: str) -> None:
    """Another secret does not open it. Neither does the same secret under another id."""
    if secret != SECRET:
        assert unseal(secret, "id", SEALED) is None
    if summary_id != "id":
        assert unseal(SECRET, summary_id, SEALED) is None


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_what_was_changed_is_not_opened(position: int, change: int) -> None:
    changed = bytearray(SEALED)
    changed[position] ^= change

    assert unseal(SECRET, "id", bytes(changed)) is None


@given(st.binary(max_size=100) | st.integers(0, len(SEALED) - 1).map(lambda length: SEALED[:length]))
def test_what_is_no_seal_is_not_opened(garbage: bytes) -> None:
    """The same holds for a seal that was cut off. No exception is raised."""
    assert unseal(SECRET, "id", garbage) is None


def test_no_two_seals_are_the_same() -> None:
    """The nonce is random, so that nobody can see which texts are equal."""
    summary = Summary("text", by_model=True)

    assert len({seal(SECRET, "id", summary) for _ in range(100)}) == 100


@given(st.tuples(st.binary(), ANY_TEXT, ANY_TEXT), st.tuples(st.binary(), ANY_TEXT, ANY_TEXT))
def test_ids_of_different_summaries_differ(first: tuple[bytes, str, str], second: tuple[bytes, str, str]) -> None:
    """They differ by secret, prefix and model. A prefix's hash has no zero character that could shift the border."""
    first, second = ((secret, prefix.replace("\0", ""), model) for secret, prefix, model in (first, second))
    is_same = (first[0].rstrip(b"\0"), *first[1:]) == (second[0].rstrip(b"\0"), *second[1:])  # as HMAC pads keys

    assert (derive_id(*first) == derive_id(*second)) == is_same


@given(ANY_TEXT, ANY_TEXT)
def test_with_other_instructions_no_older_text_is_found(one: str, other: str) -> None:
    """Instructions are part of the prompt. No instructions and empty instructions are the same."""
    ids = [derive_id(SECRET, "prefix", "model", instructions) for instructions in (one, other)]
    assert (ids[0] == ids[1]) == (one == other)
    assert (ids[0] == derive_id(SECRET, "prefix", "model")) == (not one)
    if one:
        assert derive_id(SECRET, "prefix", f"model{one}", "x") != derive_id(SECRET, "prefix", "model", f"{one}x")


def test_a_key_is_made_once(tmp_path) -> None:
    """Its directory need not exist yet. Only the owner can read it, and it stays the same."""
    path = tmp_path / "data" / "key"
    key = load_key(path)

    assert (load_key(path), path.read_bytes(), len(key)) == (key, key, KEY_BYTES)
    assert [oct(name.stat().st_mode & 0o777) for name in (path, path.parent)] == ["0o600", "0o700"]


def test_all_who_start_at_once_end_with_the_same_key(tmp_path) -> None:
    path = tmp_path / "key"
    barrier = threading.Barrier(8)

    def start(_: int) -> bytes:
        barrier.wait()
        return load_key(path)

    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(start, range(8)))
    assert keys == {path.read_bytes()}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"short", b"x" * (KEY_BYTES + 1)])
def test_a_file_that_holds_no_key_is_named_and_left_alone(tmp_path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)

    with pytest.raises(KeyFileError, match=rf"key: has {len(content)} bytes instead of 32; remove it"):
        load_key(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["file/key", "directory"])
def test_a_key_that_cannot_be_read_or_made_is_an_error_that_says_where(tmp_path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()

    with pytest.raises(KeyFileError, match=f"{name}: .* must be kept there"):
        load_key(tmp_path / name)


@given(st.binary(min_size=1), st.text(), st.text())
def test_an_id_is_derived_as_rfc_5869_has_it(secret: bytes, prefix: str, model: str) -> None:
    """The other implementation is that of the cryptography package."""
    info = f"{prefix}\0{PROMPT_VERSION}\0{model}".encode("utf-8", "surrogatepass")
    reference = HKDF(algorithm=SHA256(), length=32, salt=b"trimtab summary id", info=info)
    assert derive_id(secret, prefix, model) == reference.derive(secret).hex()
