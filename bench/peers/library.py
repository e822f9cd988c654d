"""Runs inside a peer's environment: sessions in, the requests that the library would send out, as JSON lines.

    python -m bench.peers.library NAME LIMIT_TOKENS NOTE_TOKENS SESSION_SECONDS

Input: {messages, tokens (of each), fixed_tokens, stops}. Output: {turns: [{messages, summaries}], complete}. A message
is an index into the session or a new message; a summary is [prompt, text]. `complete` is false if the session took too
long.
"""

import json  # noqa: TID251 - a peer's environment has no orjson
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Wire = dict[str, Any]
Turns = Iterator[dict[str, Any]]

TRIGGER = 0.8
"""Share of the limit at which LangChain summarises. Source: LangChain's own examples."""


def run_langchain(session: Wire, limit_tokens: int, note_tokens: int, **options: Any) -> Turns:
    """`SummarizationMiddleware` with its defaults except the trigger (it keeps 20 messages); the model reports usage.

    Its result replaces the history, as in an agent's state. Leading system messages are not part of the history, as an
    agent's system prompt is not.
    """
    from langchain.agents.middleware import SummarizationMiddleware  # noqa: PLC0415
    from langchain_core.messages import RemoveMessage  # noqa: PLC0415

    from bench.peers.langchain_adapter import NoteModel, read_message, write_message  # noqa: PLC0415

    model = NoteModel(note_tokens=note_tokens)
    middleware = SummarizationMiddleware(model, trigger=("tokens", int(TRIGGER * limit_tokens)), **options)
    wires = session["messages"]
    leading = next(
        (index for index, wire in enumerate(wires) if wire["role"] not in {"system", "developer"}), len(wires)
    )
    tokens = session["tokens"]
    fixed = session["fixed_tokens"] + sum(tokens[:leading])
    state: list[Any] = []
    at, used = leading, 0
    for stop in session["stops"]:
        # The answer to the last request carries the usage that the upstream reported for it.
        state.extend(read_message(index, wires[index], used, tokens[index]) for index in range(at, stop))
        at = max(at, stop)
        changed = middleware.before_model({"messages": state}, None)
        if changed:
            state = [message for message in changed["messages"] if not isinstance(message, RemoveMessage)]
        sent = [*range(min(leading, stop)), *map(write_message, state)]
        used = fixed + sum(
            tokens[item] if isinstance(item, int) else len(item["content"]) // 4 for item in sent[leading:]
        )
        yield {"messages": sent, "summaries": model.take_calls()}


def run_litellm(session: Wire, limit_tokens: int, _: int) -> Turns:
    """`trim_messages` on the whole transcript of each request, with the limit as `max_tokens`."""
    from litellm.utils import trim_messages  # noqa: PLC0415

    from bench.peers.litellm_counts import forget_messages, remember_counts  # noqa: PLC0415

    remember_counts()
    wires = session["messages"]
    for stop in session["stops"]:
        # Each message carries its index, so that an unchanged one can be recognised.
        marked = [{**wire, "index": index} for index, wire in enumerate(wires[:stop])]
        forget_messages()
        trimmed = trim_messages(marked, model="gpt-4o", max_tokens=limit_tokens)
        yield {"messages": [_unmark(message, wires) for message in trimmed], "summaries": []}


def _unmark(message: Wire, wires: list[Wire]) -> int | Wire:
    """The index of an unchanged message, else the message."""
    index = message.pop("index", None)
    return index if index is not None and wires[index] == message else message


RUNNERS: dict[str, Callable[[Wire, int, int], Turns]] = {
    "langchain": run_langchain,
    # By default the summary's input is cut to 4,000 tokens that begin with a user message. An agent's session seldom
    # has such a message there; then a stock sentence replaces its history.
    "langchain-untrimmed": partial(run_langchain, trim_tokens_to_summarize=None),
    "litellm": run_litellm,
}


def main() -> None:
    name, limit_tokens, note_tokens, seconds = sys.argv[1:]
    output = sys.stdout
    # What a library prints must not get between the answers.
    sys.stdout = sys.stderr
    for line in sys.stdin:
        session = json.loads(line)
        deadline = time.process_time() + float(seconds)
        turns = []
        for turn in RUNNERS[name](session, int(limit_tokens), int(note_tokens)):
            turns.append(turn)
            if time.process_time() > deadline:
                break
        output.write(json.dumps({"turns": turns, "complete": len(turns) == len(session["stops"])}) + "\n")


if __name__ == "__main__":
    main()
