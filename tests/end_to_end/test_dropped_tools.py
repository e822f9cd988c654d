"""Declarations of tools that the operator drops, through the running proxy in each dialect."""

import orjson
from support.client import post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.tools_validity import name_tools
from upstreams import strict
from upstreams.recording import error

DROPS = ('defaults.drop_tools=["mcp__*"]',)
NAMES = ("read", "mcp__jira__list", "write", "mcp__jira__add")
LONG = "This tool has a long description, of which an agent pays every word at each request. " * 20


def declare(name):
    """The declaration of a tool."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": LONG, "parameters": schema}}


def call(name, number, text):
    """A call and its result."""
    made = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": f"call_{number}", "content": text}
    return [{"role": "assistant", "content": None, "tool_calls": [made]}, result]


def write_lines(number):
    """A text in which no two lines are alike."""
    return "\n".join(f"line {at} of file {number} has words" for at in range(40))


def write(dialect, *said, names=NAMES, **more):
    """A request."""
    task = {"role": "user", "content": "Mend the build."}
    return orjson.dumps(dialect.write([task, *said], [declare(name) for name in names], max_tokens=500, **more))


def check(dialect, body):
    """What a strict upstream would refuse."""
    return strict.DIALECTS[dialect.path.removeprefix("/v1")].check(body)


def read_tokens(answer):
    """The figures in the header."""
    return {
        key: int(value)
        for key, value in (one.split("=") for one in answer.headers["x-trimtab-tokens"].split(", "))
        if value != "?1"  # high water
    }


@each_dialect
async def test_dropped_tools_are_not_sent_and_counted_as_saved(dialect, start_proxy, client, upstream, log):
    """In header, log and metrics. The rest of the body is sent byte for byte."""
    proxy = await start_proxy(*DROPS)
    body = write(dialect, tool_choice={"type": "auto"} if dialect.name == "messages" else "auto")
    answer, _ = await post(client, proxy.url + dialect.path, body)

    sent = upstream.chats[-1].body
    assert name_tools(orjson.loads(sent)) == ["read", "write"]
    assert sent == write(dialect, names=("read", "write"), tool_choice=orjson.loads(body)["tool_choice"])
    assert check(dialect, orjson.loads(sent)) == []
    tokens = read_tokens(answer)
    saved = tokens["original"] - tokens["sent"]
    assert saved > tokens["sent"] / 3
    assert f"drop_tools;saved={saved}" in answer.headers["x-trimtab-decisions"]
    line = log.lines[-1]
    assert [(one["rule"], one["saved_tokens"]) for one in line["decisions"]] == [("drop_tools", saved)]
    async with client.get(proxy.url + "/metrics") as page:
        metrics = await page.text()
    (counted,) = [
        one
        for one in metrics.splitlines()
        if one.startswith("trimtab_tokens_saved_total{") and 'rule="drop_tools"' in one
    ]
    assert float(counted.split()[-1]) == saved


@each_dialect
async def test_a_second_attempt_has_no_dropped_tools(dialect, start_proxy, client, upstream):
    """The upstream refuses the first for its length; the second one is shorter, without the dropped tools too."""
    plain = upstream.answer

    async def refuse_once(recorded, request):
        if len(upstream.chats) == 1:
            said = "This model's maximum context length is 6000 tokens. However, your messages resulted in 9000 tokens."
            return error(
                400, message=said, type="invalid_request_error", param="messages", code="context_length_exceeded"
            )
        return await plain(recorded, request)

    upstream.answer = refuse_once
    proxy = await start_proxy(*DROPS, "defaults.context_window=100000", "defaults.overflow_strategy=prune")
    said = [one for number in range(30) for one in call("read", number, f"line of file {number}\n" * 60)]
    answer, _ = await post(client, proxy.url + dialect.path, write(dialect, *said))

    first, second = (orjson.loads(one.body) for one in upstream.chats)
    assert name_tools(first) == name_tools(second) == ["read", "write"]
    assert check(dialect, second) == []
    assert len(upstream.chats[1].body) < len(upstream.chats[0].body)
    assert answer.headers["x-trimtab-decisions"].startswith("drop_tools;")


@each_dialect
async def test_a_summary_is_asked_for_without_dropped_tools(dialect, start_proxy, client, upstream):
    """The question behind the conversation has the tools that the conversation is sent with."""
    proxy = await start_proxy(
        *DROPS,
        "defaults.context_window=8000",
        "defaults.completion_reserve=1000",
        "defaults.overflow_strategy=summarize",
    )
    said = [one for number in range(40) for one in call("read", number, write_lines(number))]
    await post(client, proxy.url + dialect.path, write(dialect, *said))

    assert upstream.summaries
    for one in (*upstream.summaries, *upstream.chats):
        assert not [name for name in name_tools(one.json) if name.startswith("mcp__")]
