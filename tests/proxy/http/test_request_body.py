"""Bodies of chat requests, compressed or not, through a running proxy."""

import gzip
import sys
import zlib

import orjson
import pytest
from support.client import CHAT, post, wait_until

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}
LONG = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "a line of output\n" * 5000},
    ],
}


@pytest.mark.parametrize("coding", COMPRESS)
async def test_a_compressed_body_that_no_rule_touches_goes_out_as_it_came(coding, client, upstream, start_proxy, log):
    """Byte for byte, with its Content-Encoding. It was read, because its tokens are known."""
    proxy = await start_proxy()
    body = COMPRESS[coding](orjson.dumps(CHAT))
    headers = {"Content-Encoding": coding, "Content-MD5": "x"}
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body, **headers)
    assert response.status == 200
    sent = upstream.chats[0]
    assert (sent.body, sent.header("content-encoding"), sent.header("content-md5")) == (body, [coding], ["x"])
    assert sent.header("content-length") == [str(len(body))]
    assert (log.lines[-1]["outcome"], log.lines[-1]["original_tokens"]) == ("unchanged", 8)


@pytest.mark.parametrize("coding", COMPRESS)
async def test_a_compressed_body_is_compacted(coding, client, upstream, start_proxy, log):
    """A changed body is sent uncompressed, without the headers that describe only the client's bytes."""
    proxy = await start_proxy()
    body = COMPRESS[coding](orjson.dumps(LONG))
    headers = {"Content-Encoding": coding, "Content-MD5": "x", "Content-Digest": "y"}
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body, **headers)
    assert response.headers["x-trimtab-decisions"].startswith("truncate")
    sent = upstream.chats[0]
    names = {name.lower() for name, _ in sent.headers}
    assert names.isdisjoint({"content-encoding", "content-md5", "content-digest"})
    assert sent.header("content-length") == [str(len(sent.body))]
    assert sent.json["messages"][:2] == LONG["messages"][:2]
    assert len(sent.body) < 30_000
    assert log.lines[-1]["outcome"] == "compacted"


@pytest.mark.parametrize(
    ("body", "coding", "outcome"),
    [
        (gzip.compress(orjson.dumps(CHAT))[:-3], "gzip", "undecodable"),
        (b"\x1f\x8bnothing of the kind", "gzip", "undecodable"),
        (orjson.dumps(CHAT), "br", "undecodable"),
        (gzip.compress(b"no JSON"), "gzip", "undecodable"),
        (gzip.compress(orjson.dumps(CHAT | {"x": "a" * 70_000})), "gzip", "too_large"),
        (gzip.compress(orjson.dumps(CHAT | {"x": "a" * 70_000}), compresslevel=0), "gzip", "too_large"),
    ],
    ids=["cut", "garbage", "unknown", "no JSON", "large", "large already"],
)
async def test_what_cannot_be_read_is_passed_on(body, coding, outcome, *, client, upstream, start_proxy, log):
    """A damaged, unknown or too large body passes unchanged, and is counted by its kind."""
    proxy = await start_proxy("limits.max_body_bytes=65536")
    headers = {"Content-Encoding": coding}
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body, **headers)
    assert response.status == 200
    sent = upstream.requests[0]
    assert (sent.body, sent.header("content-encoding")) == (body, [coding])
    await wait_until(lambda: log.lines)  # a request is told a little after its answer
    assert log.lines[-1]["outcome"] == outcome


async def test_the_model_of_a_large_compressed_body_says_whose_it_is(client, upstream, start_proxy):
    """It goes to the upstream of that model, although it is not read whole."""
    proxy = await start_proxy(
        "limits.max_body_bytes=65536",
        "upstream.base_url=http://127.0.0.1:1/v1",
        f"upstreams.other.base_url={upstream.url}",
        'models=[{"match": "m", "upstream": "other"}]',
    )
    body = zstd.compress(orjson.dumps(CHAT | {"x": "a" * 70_000}))
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body, **{"Content-Encoding": "zstd"})
    assert (response.status, upstream.requests[0].body) == (200, body)
