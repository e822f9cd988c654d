"""Tool results through a running proxy: tidied, truncated and deduplicated as configured for their tool."""

import threading
from typing import Any

import orjson
import pytest
from support.client import post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.ids import make_uuid

from trimtab.proxy.compaction.compactor import Compactor

SHOWN = "x-trimtab-decisions"


def talk(dialect: Dialect, *turns: tuple[str, dict[str, Any], str]) -> dict[str, Any]:
    """A body with one call and one result per turn: the tool's name, its arguments, its result.

    The transcript is its last member.
    """
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Mend the build."}]
    for number, (name, arguments, content) in enumerate(turns):
        function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": content})
    body = dialect.write(messages)
    return body | {dialect.transcript: body.pop(dialect.transcript)}


def log(lines: int = 60) -> str:
    """Coloured lines that are all different and unique to this call."""
    return "".join(f"\x1b[1;32m{make_uuid()} was built\x1b[0m\n" for _ in range(lines))


def plain(text: str) -> str:
    """The text without the colours."""
    return text.replace("\x1b[1;32m", "").replace("\x1b[0m", "")


async def send(
    client: Any, upstream: Any, proxy: Any, dialect: Dialect, body: Any, **headers: str
) -> tuple[list[str], str]:
    """Send a request. Returns the results as the upstream received them, and the rules that acted."""
    response, _ = await post(client, proxy.url + dialect.path, body, **headers)
    assert response.status == 200
    rules = [item.partition(";")[0] for item in response.headers.get(SHOWN, "").split(", ")]
    return dialect.read_results(upstream.chats[-1].json), " ".join(rules)


@each_dialect
async def test_colours_and_repetitions_go(dialect, client, upstream, start_proxy):
    """By default, colours, repeated results and text over the budget are removed. Header and metrics name the rules."""
    text, long = log(), "".join(f"{make_uuid()} {make_uuid()}\n" for _ in range(300))
    proxy = await start_proxy()
    run = ("run", {}, text)
    results, rules = await send(client, upstream, proxy, dialect, talk(dialect, run, ("run", {}, long), run))

    assert rules == "tidy truncate dedupe"
    assert results[0] == plain(text)
    assert 4000 < len(results[1]) < len(long)
    assert results[2].startswith("[trimtab: same as the tool result 2 ")
    text = (await (await client.get(proxy.url + "/metrics")).read()).decode()
    saved = {rule: f'trimtab_tokens_saved_total{{model="m",rule="{rule}"}}' for rule in rules.split()}
    values = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if not line.startswith("#")}
    assert all(values[name] > 100 for name in saved.values())


@each_dialect
@pytest.mark.parametrize("exclude", ["true", "['*AGENTS.md']"])
async def test_what_is_excluded_goes_out_as_it_came(dialect, exclude, client, upstream, start_proxy):
    """Coloured, long and repeated results are unchanged, if excluded by tool or by an argument of the call."""
    proxy = await start_proxy(
        f"defaults.tools={{'read*': {{exclude: {exclude}}}}}", "defaults.max_tool_result_tokens=99"
    )
    read = ("read_file", {"path": "/repo/AGENTS.md"}, log())
    body = orjson.dumps(talk(dialect, read, ("list", {}, "a.py"), read), option=orjson.OPT_INDENT_2)
    await send(client, upstream, proxy, dialect, body)
    assert upstream.chats[-1].body == body

    other = ("read_file", {"path": "/repo/build.log"}, log())
    results, rules = await send(client, upstream, proxy, dialect, talk(dialect, read, other))
    assert results[0] == read[2]
    assert (results[1] == other[2], rules) == ((True, "") if exclude == "true" else (False, "tidy truncate"))


async def test_results_that_were_forgotten_are_worked_out_in_a_thread(client, upstream, start_proxy, monkeypatch):
    """The messages are cached, but not their edits. The same bytes are sent, and a thread does all of the work."""
    proxy = await start_proxy("defaults.max_tool_result_tokens=100000")
    body = talk(CHAT, *(("run", {}, log(400)) for _ in range(4)))
    first, _ = await send(client, upstream, proxy, CHAT, body)
    for holder in proxy.services.compactors._holders.values():
        for cache in (holder.caches.results, holder.caches.sketches, holder.caches.states):
            for key in dict(cache.items()):
                cache.pop(key)
    threads = watch_threads(monkeypatch)
    assert (await send(client, upstream, proxy, CHAT, body))[0] == first
    assert threads == {"plan": [True, False], "apply": [True, False]}


def watch_threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bool]]:
    """For each step, whether each of its calls ran on the event loop's thread."""
    seen: dict[str, list[bool]] = {}
    for name in ("plan", "apply"):
        method = getattr(Compactor, name)

        def watch(self: Any, *given: Any, method: Any = method, name: str = name, **more: Any) -> Any:
            seen.setdefault(name, []).append(threading.current_thread() is threading.main_thread())
            return method(self, *given, **more)

        monkeypatch.setattr(Compactor, name, watch)
    return seen
