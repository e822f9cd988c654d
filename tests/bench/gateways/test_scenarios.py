"""The requests that are sent to the gateways."""

import orjson

from bench.gateways.scenarios import mark_fresh
from bench.material.transcript import build_body


def test_every_result_of_a_fresh_body_holds_a_nonce() -> None:
    """The generator counts in the ten digits after each nonce. The rest of the body is unchanged."""
    body = build_body(40_000, steps=20)
    fresh = orjson.loads(mark_fresh(body))
    results = [message["content"] for message in fresh["messages"] if message["role"] == "tool"]
    assert len(results) == 20
    assert all(result.startswith("NONCE-0000000000\n") for result in results)
    assert mark_fresh(body).replace(b"NONCE-0000000000\\n", b"") == body
