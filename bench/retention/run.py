"""Measures which facts survive when tool outputs are shortened to a budget, and how long that takes.

    python -m bench.retention.run --plot bench/results/retention.png
    python -m bench.retention.run --only facts --per-file trimtab
    python -m bench.retention.run --only savings --only speed

Parts: facts (kept at 500, 1000, 2000 and 4000 tokens by trimtab, head and tail, Headroom, LLMLingua-2), savings (what
tidying, and tidying with deduplication, save in recorded sessions), speed (MB/s of tidying and truncation, long texts,
and how long the event loop is blocked). See README.md, "What do tool results lose?". The status is 1 if an output of
trimtab breaks a law: it exceeds its limit, is no longer JSON, or has an altered numbered line.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import orjson

from bench.figures import describe_machine
from bench.material.corpora import TOOL_OUTPUTS
from bench.material.tool_outputs import load_outputs
from bench.peers.environments import PEERS
from bench.retention.facts import measure_facts
from bench.retention.savings import show_savings
from bench.retention.shorteners import load_counter
from bench.retention.speed import show_speed
from bench.retention.tables import draw_plot, show_facts, show_files, show_violations

BUDGETS_TOKENS = "500,1000,2000,4000"


def show_retention(arguments: argparse.Namespace) -> bool:
    """Whether no law was broken."""
    outputs = load_outputs(arguments.folder, arguments.calls)
    budgets = [int(budget) for budget in arguments.budgets.split(",")]
    tokens = fmean(load_counter()(output.text) for output in outputs)
    diagnostics = sum(output.is_diagnostic for output in outputs)
    print(f"{len(outputs)} outputs, {tokens:,.0f} tokens on average, {diagnostics} of them diagnostics", flush=True)
    runs = measure_facts(outputs, budgets, arguments)
    rows = show_facts(runs, budgets)
    if arguments.per_file:
        show_files(runs, arguments.per_file)
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
    if arguments.plot:
        draw_plot(rows, arguments.plot)
    return not show_violations(runs)


def show_saved(_: argparse.Namespace) -> bool:
    """Show what is saved. It has no law to break."""
    show_savings()
    return True


def show_times(arguments: argparse.Namespace) -> bool:
    """Show how long it takes. It has no law to break."""
    sizes_mb = [int(size) for size in arguments.sizes.split(",")]
    show_speed(load_outputs(arguments.folder), arguments.rounds, sizes_mb)
    return True


PARTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "facts": show_retention,
    "savings": show_saved,
    "speed": show_times,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("folder", nargs="?", type=Path, default=TOOL_OUTPUTS, help="folder of outputs with an index.jsonl")
    add("--only", choices=PARTS, action="append", help="only this part; may be repeated")
    add("--calls", type=Path, help="JSONL of {file, call: {name, arguments}}: the calls behind the outputs")
    add("--budgets", default=BUDGETS_TOKENS, help="tokens, comma-separated")
    add("--contestant", action="append", help="only this contestant; may be repeated")
    add("--per-file", action="append", metavar="CONTESTANT", help="show each file's facts and which are missing")
    add("--peers", type=Path, default=PEERS, help="folder in which bench.peers.install put the peers")
    add("--llmlingua-model", type=Path, help="a folder with LLMLingua-2's model, named as it is on Hugging Face")
    add("--json", type=Path, help="write the rows of facts to this file")
    add("--plot", type=Path, help="draw the plot of facts as this PNG file")
    add("--rounds", type=int, default=5, help="rounds of the speed part over all texts")
    add("--sizes", default="1,5,20", help="sizes of the long texts in MB, ascending, comma-separated")
    arguments = parser.parse_args()
    print(describe_machine(), flush=True)
    done = [PARTS[name](arguments) for name in arguments.only or PARTS]
    sys.exit(0 if all(done) else 1)


if __name__ == "__main__":
    main()
