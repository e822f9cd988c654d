"""The file that `trimtab init` writes: what was chosen, and the most useful other keys as comments.

Law: it is valid, and holds no key: only the name of a variable with one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from proxy.cli.setup.probe import FoundModel

MAX_UNKNOWN = 5
"""How many models without a known window are written. Chosen: an example for the others."""
DEFAULT_ECONOMY = "balanced"


@dataclass(frozen=True, slots=True)
class Choices:
    """The answers. `own_key`: the variable with the key that trimtab keeps; empty if clients bring their own."""

    base_url: str
    own_key: str = ""
    economy: str = DEFAULT_ECONOMY
    mode: str = "enforce"


def write_document(choices: Choices, unknown: Sequence[FoundModel] = ()) -> str:
    """The text of the file, in YAML. `unknown`: models without a known window."""
    sections = (
        _write_upstream(choices),
        _write_models(unknown),
        _write_mode(choices),
        _write_defaults(choices),
        _write_rest(),
    )
    head = "# Written by trimtab init. Check it with: trimtab check FILE. What is in comments has no effect."
    return "\n\n".join([head, *map("\n".join, sections)]) + "\n"


def _write_upstream(choices: Choices) -> list[str]:
    lines = ["upstream:", f"  base_url: {_quote(choices.base_url)}"]
    if choices.own_key:
        return [*lines, f"  api_key: ${{{choices.own_key}}}   # sent instead of the clients' keys"]
    return [*lines, "  # api_key: ${OPENAI_API_KEY}   # if it is set, trimtab sends it instead of the clients' keys"]


def _write_models(unknown: Sequence[FoundModel]) -> list[str]:
    if unknown:
        lines = ["# The windows of these models are not known; 128000 tokens are assumed. Write the true ones:"]
        names = [model.name for model in unknown[:MAX_UNKNOWN]]
    else:
        lines = ["# Settings for some models. The first match wins. A window that is not set is asked of the upstream."]
        names = ["NAME*"]
    lines.append("# models:")
    for name in names:
        lines += [f"#   - match: {_quote(name)}", "#     context_window: 128000"]
    return lines


def _write_mode(choices: Choices) -> list[str]:
    told = "# With observe, trimtab only counts and logs what it would do."
    return [told, f"{'# ' if choices.mode == 'enforce' else ''}mode: {choices.mode}"]


def _write_defaults(choices: Choices) -> list[str]:
    is_set = choices.economy != DEFAULT_ECONOMY
    mark, inner = ("", "  # ") if is_set else ("# ", "#   ")
    return [
        f"{mark}defaults:",
        f"{mark}  economy: {choices.economy}   # careful: cuts late, forgets least. frugal: cuts early, costs least",
        f"{inner}max_tool_result_tokens: 4000   # longer tool results are shortened",
        f"{inner}summary: {{model: gpt-4o-mini}}   # by default, the model of the request writes summaries",
    ]


def _write_rest() -> list[str]:
    return [
        "# listen: 127.0.0.1:8790   # only this machine; for other machines set client_keys, too",
        '# client_keys: {alice: "${ALICE_KEY}"}   # whoever has no such key is refused',
        "# admin_token: ${ADMIN_TOKEN}   # the password of the dashboard and the metrics",
        "# dashboard: {keep_text: true}   # also show the text of what was changed",
        "# prices: {input: 1.25, cached_input: 0.125, output: 10, unit: usd}   # by default, list prices if known",
        "# log: {format: auto, level: info}",
    ]


def _quote(text: str) -> str:
    """A text as YAML, which has JSON's form of a text, too. `${` would be read as the beginning of a variable."""
    return orjson.dumps(text.replace("${", "$ {")).decode()
