"""Measures a chat behind llama.cpp: the tokens that the server reads and writes, and seconds, with and without trimtab.

    python -m bench.local.run --json bench/results/local.json --plot bench/results/local.png
    python -m bench.local.run --window 8192 ../shared/data/conversations/mini_swe_agent.jsonl:0

Each row is one fresh server with one or two slots, each with a client that talks to it. The text is of this tree's
documentation, the answers are the model's own; a recorded session has its own answers. Computed seconds are those of a
laptop, at READ_TOKENS and WRITTEN_TOKENS a second; real seconds are this machine's with a model of hardly any weights.
`--model FILE.gguf` measures with another model, `--vllm PYTHON` behind vLLM (see vllm.py). Prints Markdown. `--plot`
needs the extra `bench`.
"""

import argparse
import http.client
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from bench.figures import describe_machine, print_table
from bench.harness.servers import HOST, run_proxy
from bench.local.server import ROOT, find_missing, find_twin, run_server
from bench.local.vllm import make_folder, run_vllm
from bench.material.workload import Session, encode, load_sessions

READ_TOKENS, WRITTEN_TOKENS = 120, 45
"""A second. Chosen: a laptop without a graphics card, with a model of 8 billion parameters in 4 bits."""
ANSWER_TOKENS = 20
PAGES = ("security", "prompt-cache", "tool-results", "failures")
PARAGRAPH_CHARS = range(380, 650)
LEAST_TOKEN_BYTES = 2
"""Chosen: a token of text or code has more than that on average."""
TIMEOUT_SECONDS = 600.0
METRICS = (
    r"(?:llamacpp:prompt_tokens_total|vllm:prompt_tokens_by_source_total\{.*local_compute.*\})",
    r"(?:llamacpp:tokens_predicted_total|vllm:generation_tokens_total\{.*\})",
)
"""What the servers call the tokens that they have read (not from their caches) and written."""
_SPARE_TOKENS = 64
"""What the sliding window leaves free beside the answer. Chosen: above what the template adds to a prompt."""
_MESSAGE_TOKENS = 6

Wire = dict[str, Any]
Shorten = Callable[[list[Wire]], list[Wire]]
Run = Callable[[int, int, int], AbstractContextManager[int]]
"""Runs a server with a window for each of its slots, and --cache-reuse; yields its port."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to live with a small window. `holds_all`: its server's window holds the whole session."""

    name: str
    settings: tuple[str, ...] | None = None
    holds_all: bool = False
    slides: bool = False


LARGER = Way("a larger window, no proxy", holds_all=True)
WAYS = (
    LARGER,
    Way("trimtab", ()),
    Way("trimtab, `summary.when: background`", ("defaults.summary.when=background",)),
    Way("a client that drops its oldest messages", slides=True),
)
SERVERS = ((1, 0), (1, 32), (2, 0))
"""Slots, and --cache-reuse."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one way cost. Tokens are the server's own figures, with those of summaries."""

    way: str
    slots: int
    cache_reuse: int
    read_tokens: int
    written_tokens: int
    computed_seconds: float
    real_seconds: float
    slowest_seconds: float
    refused: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session", nargs="?", help="a recorded session, as FILE:NUMBER; without one, the chat")
    parser.add_argument("--model", type=Path, help="a GGUF file; without one, the twin of SmolLM2")
    parser.add_argument("--vllm", type=Path, help="measure behind vLLM, with this interpreter of its environment")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--window", type=int, default=4096, help="of each slot, in tokens")
    parser.add_argument("--only", default="", help="only the ways whose name has this in it, beside the larger window")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--plot", type=Path, help="draw the picture as this PNG file")
    arguments = parser.parse_args()
    if missing := find_missing():
        sys.exit(f"bench.local: {missing}")
    model = arguments.model or find_twin()
    if model is None:
        sys.exit("bench.local: the model SmolLM2 could not be downloaded; name another one with --model")
    session = _load(arguments.session) if arguments.session else make_chat(arguments.turns)
    rows = []
    run = _choose_engine(model, arguments.vllm)
    for slots, cache_reuse in [one for one in SERVERS if arguments.vllm is None or one[1] == 0]:
        for way in WAYS:
            if way is LARGER or arguments.only in way.name:
                rows.append(measure(run, session, way, arguments.window, slots, cache_reuse))
                print(rows[-1], file=sys.stderr, flush=True)
    print(describe_machine())
    show(rows)
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps(list(map(asdict, rows)), option=orjson.OPT_INDENT_2))
    if arguments.plot:
        draw(rows, arguments.plot)


def _choose_engine(model: Path, vllm: Path | None) -> Run:
    if vllm is None:
        return lambda window, slots, reuse: run_server(model, window * slots, slots=slots, cache_reuse=reuse)
    folder = make_folder(model)
    return lambda window, slots, _: run_vllm(vllm, folder, window, slots)


def make_chat(turns: int) -> Session:
    """A chat about paragraphs of the documentation. Its answers are replaced by the model's."""
    texts = [(ROOT / "docs" / "explanation" / f"{page}.md").read_text(encoding="utf-8") for page in PAGES]
    spaced = [re.sub(r"\s+", " ", part) for text in texts for part in text.split("\n\n")]
    parts = [part for part in spaced if len(part) in PARAGRAPH_CHARS and not part.startswith(("|", "```"))]
    messages = [{"role": "system", "content": "You are a helpful assistant. Answer briefly."}]
    for turn in range(turns):
        asked = f'Part {turn + 1} of my reading: "{parts[turn % len(parts)]}" Comment on it in one short sentence.'
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": ""}]
    return encode("chat", {"messages": messages})


def _load(name: str) -> Session:
    file, _, number = name.rpartition(":")
    if not Path(file).exists():
        sys.exit(f"bench.local: there is no file {file}")
    return load_sessions([Path(file)])[int(number)]


def measure(run: Run, session: Session, way: Way, window: int, slots: int, cache_reuse: int) -> Row:
    """Play the session to a fresh server, with a client for each slot."""
    with ExitStack() as stack:
        tokens = _find_larger(session, window) if way.holds_all else window
        server = stack.enter_context(run(tokens, slots, cache_reuse))
        port = server
        if way.settings is not None:
            settings = ("store=memory", "prices=auto", *way.settings)
            port = stack.enter_context(run_proxy(server, *settings))
            _wait_for_window(port)
        before, started = _read_metrics(server), time.perf_counter()
        shorten = partial(_slide, server, {}, window) if way.slides else list
        with ThreadPoolExecutor(slots) as pool:
            plays = [pool.submit(play, port, session, shorten, client) for client in range(slots)]
            taken = [seconds for one in plays for seconds in one.result()]
        passed = time.perf_counter() - started
        read, written = (int(now - then) for now, then in zip(_read_metrics(server), before, strict=True))
    answered = [seconds for seconds in taken if seconds is not None]
    computed = read / READ_TOKENS + written / WRITTEN_TOKENS
    refused = len(taken) - len(answered)
    return Row(way.name, slots, cache_reuse, read, written, computed, passed, max(answered, default=0.0), refused)


def _find_larger(session: Session, window: int) -> int:
    """A window that holds the whole session: four of the small ones, or more if that may be too little."""
    most_tokens = sum(map(len, session.messages)) // LEAST_TOKEN_BYTES
    return window * max(-(-most_tokens // window), 4)


def play(port: int, session: Session, shorten: Shorten, client: int) -> list[float | None]:
    """The seconds of each request of a session; None for one that was refused."""
    messages = list(map(orjson.loads, session.messages))
    messages[0]["content"] = f"Client {client}. {messages[0]['content']}"
    taken = []
    for stop in session.stops:
        started = time.perf_counter()
        body = {"model": "twin", "messages": shorten(messages[:stop]), "max_tokens": ANSWER_TOKENS, "temperature": 0}
        status, answer = _post(port, "/v1/chat/completions", body)
        is_answered = status == http.HTTPStatus.OK
        taken.append(time.perf_counter() - started if is_answered else None)
        if stop < len(messages) and not messages[stop].get("content") and not messages[stop].get("tool_calls"):
            messages[stop]["content"] = (is_answered and answer["choices"][0]["message"]["content"]) or "OK."
    return taken


def _slide(server: int, counted: dict[str, int], window: int, messages: list[Wire]) -> list[Wire]:
    """The system message, and as many of the newest messages as fit."""
    left = window - ANSWER_TOKENS - _SPARE_TOKENS - _count(server, counted, messages[0])
    first = len(messages)
    while first > 1 and (left := left - _count(server, counted, messages[first - 1])) >= 0:
        first -= 1
    while first < len(messages) - 1 and messages[first]["role"] != "user":
        first += 1
    return [messages[0], *messages[first:]]


def _count(server: int, counted: dict[str, int], message: Wire) -> int:
    text = (message.get("content") or "") + "".join(str(call["function"]) for call in message.get("tool_calls") or ())
    if text not in counted:
        body = {"content": text, "model": "twin", "prompt": text}  # llama.cpp reads `content`, vLLM the others
        counted[text] = len(_post(server, "/tokenize", body)[1]["tokens"]) + _MESSAGE_TOKENS
    return counted[text]


def _wait_for_window(port: int) -> None:
    """The first request has trimtab ask the server for its window; a chat with a user begins a moment later."""
    _post(port, "/v1/chat/completions", {"model": "twin", "messages": [{"role": "user", "content": "Hello"}]})
    time.sleep(2)


def _post(port: int, path: str, body: Wire) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_SECONDS)
    connection.request("POST", path, orjson.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    said = orjson.loads(answer.read() or b"null")
    connection.close()
    return answer.status, said


def _read_metrics(server: int) -> list[float]:
    """The tokens that the server has read and written."""
    connection = http.client.HTTPConnection(HOST, server, timeout=TIMEOUT_SECONDS)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return [float(re.findall(rf"^{name} (\S+)", text, re.MULTILINE)[0]) for name in METRICS]


def _list_servers(rows: list[Row]) -> list[tuple[int, int]]:
    return [*dict.fromkeys((row.slots, row.cache_reuse) for row in rows)]


def show(rows: list[Row]) -> None:
    """Print a table for each server."""
    headings = ["", "prompt tokens read", "tokens written", "seconds, computed", "times", "seconds, real", "slowest"]
    for slots, cache_reuse in _list_servers(rows):
        own = [row for row in rows if (row.slots, row.cache_reuse) == (slots, cache_reuse)]
        cells = [
            [
                row.way,
                f"{row.read_tokens:,}",
                f"{row.written_tokens:,}",
                f"{row.computed_seconds:.0f}",
                f"{row.computed_seconds / own[0].computed_seconds:.2f}" if not own[0].refused else "-",
                f"{row.real_seconds:.1f}",
                f"{row.slowest_seconds:.1f}" + (f" ({row.refused} refused)" if row.refused else ""),
            ]
            for row in own
        ]
        print_table(f"Slots: {slots}; --cache-reuse {cache_reuse}.", headings, cells)


def draw(rows: list[Row], file: Path) -> None:
    """Draw a panel of bars for each server."""
    import matplotlib as mpl  # noqa: PLC0415 - of the bench extra: tables do without it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    servers = _list_servers(rows)
    figure, panels = plt.subplots(1, len(servers), figsize=(11, 3), layout="constrained", sharey=True)
    for axes, (slots, cache_reuse) in zip(panels, servers, strict=True):
        own = [row for row in rows if (row.slots, row.cache_reuse) == (slots, cache_reuse)][::-1]
        bars = axes.barh([row.way.replace("`", "") for row in own], [row.computed_seconds for row in own])
        axes.bar_label(bars, fmt="%.0f", padding=2)
        axes.set_title(f"{slots} slot{'s' * (slots > 1)}" + (f", --cache-reuse {cache_reuse}" if cache_reuse else ""))
        axes.set_xlabel("seconds, computed")
        axes.margins(x=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
