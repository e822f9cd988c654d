"""The client of loop_lag.py, in its own process: builds bodies that the proxy has never seen, and posts them.

    python -m bench.latency.loop_client PORT

Input: a JSON line for each case. Output: "ready" once its bodies are built, and after the next input line [started,
ended] of each post, in nanoseconds of the monotonic clock.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

import orjson

from bench.latency.client import Connection, build_request
from bench.material.transcript import build_body

PAUSE_SECONDS = 0.05
"""Between two posts. Chosen: what the proxy does after a response then still belongs to that post."""
PART_BYTES = 2_000_000
"""Chosen: a larger body consists of copies, because making text up takes long."""
_MARK = b'"content":"'


@dataclass(frozen=True, slots=True)
class Case:
    """Posts of bodies of one size, `at_once` at a time: many messages, or nearly all of the text in one message.

    Each post has its own model, whose name begins with `model`, so that the proxy learns nothing from the usage that
    the upstream reports. `is_known`: the messages are the same in each post.
    """

    name: str
    kilobytes: int
    posts: int
    model: str
    at_once: int = 1
    is_one_text: bool = False
    is_known: bool = False


def build_case(case: Case, seed: int) -> list[bytes]:
    """The requests of a case. No two have a message in common, unless the case is known."""
    shape = build_shape(case.kilobytes * 1000, is_one_text=case.is_one_text)
    numbers = range(seed, seed + case.posts)
    marks = [seed] * case.posts if case.is_known else numbers
    models = [f"{case.model}-{number}" for number in numbers]
    return [build_request(_mark(shape, mark, model)) for mark, model in zip(marks, models, strict=True)]


def build_shape(total_bytes: int, *, is_one_text: bool) -> bytes:
    """A body of about this size: messages as agents send them, or nearly all of the text in the last message."""
    copies = max(total_bytes // PART_BYTES, 1)
    part = build_body(total_bytes // copies, steps=1 if is_one_text else total_bytes // copies * 175 // 400_000)
    members = orjson.loads(part)
    if is_one_text:
        result = members["messages"][-1]
        result["content"] = (2 * copies * result["content"])[:total_bytes]
        return orjson.dumps(members)
    # Each copy gets other ids and texts, so that no call of a session repeats.
    marked = (
        part.replace(b"call_", b"call_%d_" % copy).replace(_MARK, _MARK + b"%d. " % copy) for copy in range(copies)
    )
    return orjson.dumps({**members, "messages": [item for copy in marked for item in orjson.loads(copy)["messages"]]})


def _mark(shape: bytes, number: int, model: str) -> bytes:
    """The body with a number in front of each message's text, so that none of it is known."""
    marked = shape.replace(_MARK, b"%b%d " % (_MARK, number))
    return marked.replace(b'"model":"bench"', b'"model":%b' % orjson.dumps(model), 1)


def post_all(port: int, requests: list[bytes], at_once: int) -> list[tuple[int, int]]:
    """When each post began, and when its response had been read."""
    with ThreadPoolExecutor(at_once) as pool:
        connections = [Connection(port) for _ in range(at_once)]
        spans: list[tuple[int, int]] = []
        for start in range(0, len(requests), at_once):
            part = requests[start : start + at_once]
            spans.extend(pool.map(_post, connections, part))
            time.sleep(PAUSE_SECONDS)
        for connection in connections:
            connection.__exit__()
    return spans


def _post(connection: Connection, request: bytes) -> tuple[int, int]:
    started = time.monotonic_ns()
    connection.ask(request)
    return started, time.monotonic_ns()


def main() -> None:
    port = int(sys.argv[1])
    seed = Random().randrange(10**6, 10**7)  # noqa: S311 - no secret
    for line in sys.stdin:
        case = Case(**orjson.loads(line))
        requests = build_case(case, seed)
        seed += case.posts
        print("ready", flush=True)
        sys.stdin.readline()
        print(orjson.dumps(post_all(port, requests, case.at_once)).decode(), flush=True)


if __name__ == "__main__":
    main()
