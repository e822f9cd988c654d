"""The content of a file or of a server does not reveal what was said."""

import redis

from trimtab.proxy.store.redis import RedisStore
from trimtab.proxy.store.sqlite import SqliteStore
from trimtab.proxy.summaries.sealing import derive_id, seal
from trimtab.rules.summary.request import Summary

SENTENCE = "the planted sentence of the planted conversation"
SECRET = b"Bearer sk-planted-credential"
SUMMARY = Summary(SENTENCE, by_model=True)


async def test_a_sentence_is_not_in_the_file(tmp_path, log) -> None:
    """Neither the sentence nor the credential is in the file or its log, while it is open and afterwards."""
    store = SqliteStore(tmp_path / "summaries.sqlite3", ttl_seconds=1000, log=log)
    sealed = await _put(store)
    while_open = _read_all(tmp_path)
    await store.close()

    _check(sealed, while_open, _read_all(tmp_path))


async def test_a_sentence_is_not_on_the_server(redis_at) -> None:
    """It is in no key, in no value, and not in what the server writes to its disk."""
    store = RedisStore(redis_at.url, ttl_seconds=1000)
    sealed = await _put(store)
    await store.close()
    with redis.Redis(port=redis_at.port) as client:
        pairs = b"".join(key + (client.get(key) or b"") for key in client.scan_iter())
        client.save()

    _check(sealed, pairs, _read_all(redis_at.directory))


async def _put(store) -> bytes:
    summary_id = derive_id(SECRET, "prefix", "model")
    sealed = seal(SECRET, summary_id, SUMMARY)
    await store.claim(summary_id, 60)
    await store.put(summary_id, sealed)
    return sealed


def _check(sealed: bytes, *stored: bytes) -> None:
    """The sealed summary is found, so the search is in the right place. The sentence in it is not found."""
    for each in stored:
        assert sealed in each
        assert SENTENCE.encode() not in each
        assert SECRET not in each


def _read_all(directory) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
