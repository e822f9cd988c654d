"""The cost of a message, and of what is around the messages."""

from itertools import pairwise
from typing import Any

import orjson
import pytest
from support.builders import (
    assistant,
    call,
    count,
    count_words,
    read,
    result,
    system,
    user,
)

from trimtab.rules.conversation import CountTokens, Message, Role
from trimtab.rules.tokens.families import GENERIC, Costs
from trimtab.rules.tokens.messages import (
    FORMAT_TOKENS,
    FUNCTION_TOKENS,
    MESSAGE_TOKENS,
    NAME_TOKENS,
    NAMED_CHOICE_TOKENS,
    NO_CHOICE,
    NO_CHOICE_TOKENS,
    OTHER_TOOL_TOKENS,
    ROLE_TOKENS,
    SYSTEM_TOKENS,
    TAIL_CHARS,
    ToolsAndFormat,
    count_format,
    count_message,
    count_shared_frame,
    count_tools,
    render_tools,
)

FRAME = MESSAGE_TOKENS + ROLE_TOKENS
GPT = Costs(priming_tokens=3, reads_typescript=True, tools_tokens=9)
REASONING = Costs(priming_tokens=2, reads_typescript=True, is_reasoning=True, tools_tokens=91, call_tokens=10)
JSON = GENERIC.costs


def test_a_message_costs_its_frame_and_its_texts() -> None:
    """A message without text costs its frame. Each text adds its own tokens, also a text outside the content."""
    assert count_message(assistant(), count_words) == FRAME
    assert count_message(user("one two three"), count_words) == FRAME + 3
    assert count_message(user("one two three"), count_words, extra_texts=["four five"]) == FRAME + 5


@pytest.mark.parametrize(
    ("wire", "tokens"),
    [
        ({"role": "user", "content": "one", "name": "ada lovelace"}, 1 + NAME_TOKENS + 2),
        ({"role": "user", "content": "one", "name": ""}, 1),
        ({"role": "user", "content": "one", "name": "user"}, 1 + 1),
        ({"role": "tool", "content": "one", "name": "read file"}, 1),
        ({"role": "function", "content": "one", "name": "run"}, FUNCTION_TOKENS + 1 + NAME_TOKENS + 1),
    ],
)
def test_a_name_costs_itself_and_a_token(wire: dict[str, Any], tokens: int) -> None:
    """A name that repeats the role saves the token. For a tool result, the name in its call counts."""
    assert count_message(read(wire), count_words) == FRAME + tokens


@pytest.mark.parametrize("costs", [GPT, REASONING, JSON])
def test_a_call_is_a_message_to_its_function(costs: Costs) -> None:
    """It costs its frame, its name and its arguments. Its name counts again, with `functions.`, in the answer."""
    one = count_message(assistant(None, call("1", "run it", "a b c")), count_words, costs)
    assert one == FRAME + costs.call_tokens + 2 + 3 + 2


def test_calls_that_the_server_leaves_out_cost_nothing() -> None:
    """Their message costs its frame and its texts, and the result all that it costs elsewhere."""
    costs = Costs(drops_calls=True)
    assert count_message(assistant(None, call("1", "run it", "a b c")), count_words, costs) == FRAME
    assert (
        count_message(assistant("one two", *[call(id_, "run", "a") for id_ in "12"]), count_words, costs) == FRAME + 2
    )
    assert count_message(result("1", "one two"), count_words, costs) == FRAME + 2


def test_calls_made_together_are_one_call() -> None:
    """They are read as one JSON text. Each further call costs something, but less than twice a single call."""
    calls = [call(str(number), "run", '{"path":"src/part.py"}') for number in range(6)]
    tokens = [count_message(assistant(None, *calls[:number]), count) for number in range(7)]
    alone = tokens[1] - tokens[0]
    steps = [after - before for before, after in pairwise(tokens[2:])]
    assert tokens[2] > tokens[1] > tokens[0] == FRAME
    assert all(0 < step < 2 * alone for step in steps)


FUNCTION = {"name": "run", "parameters": {"properties": {"path": {"type": "string"}}}}
TYPESCRIPT = render_tools([FUNCTION])


def _count_around(costs: Costs, **around: Any) -> int:
    whole = ToolsAndFormat(**around)
    return count_format(whole, len, costs) + count_tools(whole, len, costs)


@pytest.mark.parametrize("costs", [GPT, REASONING, JSON])
def test_without_anything_around_only_the_priming_is_paid(costs: Costs) -> None:
    assert _count_around(costs) == costs.priming_tokens
    assert _count_around(costs, choice=NO_CHOICE) == _count_around(costs, choice="run") == costs.priming_tokens


@pytest.mark.parametrize(
    ("costs", "choice", "tokens"),
    [
        (GPT, None, 3 + 9 + len(TYPESCRIPT)),
        (GPT, NO_CHOICE, 3 + 9 + len(TYPESCRIPT) + NO_CHOICE_TOKENS),
        (GPT, "run", 3 + 9 + len(TYPESCRIPT) + NAMED_CHOICE_TOKENS + len("run")),
        (REASONING, None, 2 + 91 + len(TYPESCRIPT)),
        (REASONING, "run", 2 + 91 + len(TYPESCRIPT)),
        (JSON, None, 3 + len("json")),
        (JSON, "run", 3 + len("json")),
    ],
)
def test_functions_are_read_as_the_family_reads_them(costs: Costs, choice: str | None, tokens: int) -> None:
    """They are read as TypeScript or as JSON. For some models, the name of a required function takes more words."""
    assert _count_around(costs, functions=[FUNCTION], functions_json="json", choice=choice) == tokens


def test_a_large_schema_is_counted_to_its_end() -> None:
    """The bound for hostile schemas depends on the size of the JSON. So an honest schema of megabytes fits."""
    properties = {f"property_{number}": {"type": "string", "description": "d" * 200} for number in range(6000)}
    functions = [{"name": "run", "parameters": {"properties": properties}}]
    json = orjson.dumps(functions).decode()
    rendered = render_tools(functions, max_chars=10**9)
    assert rendered.count("d" * 200) == 6000
    assert _count_around(GPT, functions=functions, functions_json=json) == 3 + 9 + len(rendered)


@pytest.mark.parametrize("costs", [GPT, JSON])
def test_other_tools_and_the_response_format_cost_their_text(costs: Costs) -> None:
    """A tool that is no function costs its JSON, in any family. A response format costs all of its texts."""
    bare = _count_around(costs)
    two = _count_around(costs, others=["abc", "de"])
    assert two == bare + costs.tools_tokens + 5 + 2 * OTHER_TOOL_TOKENS
    assert _count_around(costs, format_texts=["abc", "de"]) == bare + 5 + FORMAT_TOKENS


@pytest.mark.parametrize(
    ("first", "costs", "tokens"),
    [
        (system("Be brief."), GPT, SYSTEM_TOKENS + 1),
        (system("Be brief.", role="developer"), GPT, SYSTEM_TOKENS + 1),
        (system("Be brief.\n"), GPT, SYSTEM_TOKENS),
        (system(""), GPT, SYSTEM_TOKENS),
        (Message(Role.SYSTEM), GPT, SYSTEM_TOKENS),
        (user("Be brief."), GPT, 0),
        (system("Be brief."), REASONING, 0),
        (system("Be brief."), JSON, 0),
    ],
)
def test_a_system_message_shares_the_frame_of_the_tools(first: Message, costs: Costs, tokens: int) -> None:
    """They follow it after a line break, if the family reads them as TypeScript and does not reason."""
    assert count_shared_frame(first, len, costs) == tokens


def test_only_the_end_of_a_system_message_is_counted_for_its_line_break() -> None:
    seen: list[int] = []

    def spy(text: str) -> int:
        seen.append(len(text))
        return count(text)

    counted: CountTokens = spy
    count_shared_frame(system("x" * 100_000), counted, GPT)
    assert max(seen) <= TAIL_CHARS + 1
