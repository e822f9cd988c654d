"""A summaries' file with bytes changed anywhere is read, set aside or refused; nothing else happens."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.model_learning import ListLog

from trimtab.proxy.store.sqlite import SqliteStore
from trimtab.proxy.store.store import StoreError

FILES = 30
SUMMARIES = {f"id {number}": bytes([number]) * 400 for number in range(40)}


def _open(path: Path, log: ListLog) -> SqliteStore:
    return SqliteStore(path, ttl_seconds=1e9, log=log)


def _spoil_bytes(sound: bytes, generator: random.Random) -> bytes:
    spoilt = bytearray(sound)
    for _ in range(generator.choice((1, 4, 40))):
        spoilt[generator.randrange(len(spoilt))] = generator.randrange(256)
    return bytes(spoilt)


def _spoil_a_stretch(sound: bytes, generator: random.Random) -> bytes:
    start = generator.randrange(len(sound))
    return sound[:start] + generator.randbytes(300) + sound[start + 300 :]


def _cut_short(sound: bytes, generator: random.Random) -> bytes:
    return sound[: generator.randrange(len(sound))]


@pytest.mark.parametrize("spoil", [_spoil_bytes, _spoil_a_stretch, _cut_short])
async def test_a_spoilt_file_raises_nothing_but_store_errors(
    spoil: Callable[[bytes, random.Random], bytes], tmp_path: Path, log: ListLog
) -> None:
    """A read returns the stored value, or nothing, or damaged bytes that no seal opens."""
    sound = _open(tmp_path / "sound", log)
    for summary_id, sealed in SUMMARIES.items():
        await sound.put(summary_id, sealed)
    await sound.close()
    content = (tmp_path / "sound").read_bytes()
    generator = random.Random(3)  # noqa: S311 - the same at every run
    for number in range(FILES // 3):
        path = tmp_path / f"spoilt {number}"
        path.write_bytes(spoil(content, generator))
        store = _open(path, log)
        try:
            for summary_id in SUMMARIES:
                assert isinstance(await store.get(summary_id), bytes | None)
            assert isinstance(await store.put("new", b"sealed"), bytes | None)
        except StoreError:
            pass
        await store.close()
