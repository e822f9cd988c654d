"""Gateways side by side on one core: processor time for a request and a chunk, requests a second, memory.

    python -m bench.gateways.run --quick
    python -m bench.gateways.run --targets direct,aiohttp,trimtab --rounds 3 --json rows.json
    python -m bench.gateways.run --targets sglang,aiohttp,trimtab,trimtab_cut --publish

See README.md, "How fast is it beside other gateways?". Linux, at least two cores.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import orjson

from bench.figures import describe_machine
from bench.gateways.published import publish, read_commit
from bench.gateways.report import show
from bench.gateways.running import BrokenTargetError, run_target, run_upstream
from bench.gateways.samples import ATTEMPTS, Bench, Load, Memory, Running, Sample, measure
from bench.gateways.scenarios import QUICK_EVENTS, SCENARIOS, Scenario, write_bodies
from bench.gateways.targets import TARGETS, Surroundings, Target, find_targets
from bench.harness.accounts import read_resident_mb, share_cores
from bench.harness.native import describe_native, find_native
from bench.peers.environments import PEERS, MissingPeerError

QUICK_TARGETS = "direct,nginx,aiohttp,sglang,trimtab_off,trimtab,trimtab_cut"
_SETTLE_SECONDS = 0.5
"""Chosen: time for a started target to become quiet before its memory is read."""


def main() -> None:
    # So that a run that `timeout` ends still ends the gateways that it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = parse_arguments()
    targets, scenarios = find_targets(arguments.targets), find_scenarios(arguments.scenarios, quick=arguments.quick)
    rows: list[Sample | Memory] = []
    with prepare(arguments) as (bench, place, gateway_cores):
        for number in range(arguments.rounds):
            # Every second round goes backwards: a machine that becomes slower over time affects all targets alike.
            for target in targets if number % 2 == 0 else targets[::-1]:
                own = replace(place, folder=place.folder / f"{target.name}-{number}")
                bodies = write_bodies(place.folder / "bodies" / target.name, target.model)
                try:
                    with run_target(target, own, gateway_cores, bodies) as running:
                        attempts = 1 if arguments.quick else ATTEMPTS
                        rows += load(bench, target, running, scenarios, (number, bodies, attempts))
                except MissingPeerError as error:
                    print(f"{target.label}: left out, {error} is not installed (bench.peers.install)", flush=True)
                    targets = [other for other in targets if other is not target]
                except BrokenTargetError as error:
                    print(f"{target.label}: left out, {error}", flush=True)
                    targets = [other for other in targets if other is not target]
                if arguments.json:
                    arguments.json.write_bytes(orjson.dumps([asdict(row) for row in rows], option=orjson.OPT_INDENT_2))
    samples, memories = (
        [row for row in rows if isinstance(row, Sample)],
        [row for row in rows if isinstance(row, Memory)],
    )
    show(samples, memories)
    if arguments.publish:
        publish(samples, memories, read_commit())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--targets", help=f"comma-separated, from {', '.join(target.name for target in TARGETS)}")
    add("--scenarios", help=f"comma-separated, from {', '.join(scenario.name for scenario in SCENARIOS)}")
    add("--rounds", type=int, help="rounds over all targets (default: 3, with --quick 1)")
    add("--quick", action="store_true", help="one short round without LiteLLM and TensorZero; takes a minute")
    add("--peers", type=Path, default=PEERS, help="folder in which bench.peers.install put the peers")
    add("--folder", type=Path, help="folder for logs and bodies (default: a folder that is removed at the end)")
    add("--json", type=Path, help="write the rows to this file after each target")
    add("--publish", action="store_true", help="write the README's table, and bench/results/gateways.json")
    arguments = parser.parse_args()
    everybody = ",".join(target.name for target in TARGETS)
    arguments.targets = arguments.targets or (QUICK_TARGETS if arguments.quick else everybody)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    return arguments


def find_scenarios(names: str | None, *, quick: bool) -> list[Scenario]:
    """Scenarios by name, all if no name is given. Raises SystemExit if a name is unknown."""
    known = {scenario.name: scenario for scenario in SCENARIOS}
    wanted = names.split(",") if names else list(known)
    if unknown := set(wanted) - set(known):
        message = f"no such scenario: {', '.join(sorted(unknown))}; known: {', '.join(known)}"
        raise SystemExit(message)
    chosen = (known[name] for name in known if name in wanted)
    return [shorten(one) if quick else one for one in chosen]


def shorten(scenario: Scenario) -> Scenario:
    """The scenario with the options of the quick mode."""
    return replace(scenario, options=scenario.quick_options, events=min(scenario.events, QUICK_EVENTS))


@contextmanager
def prepare(arguments: argparse.Namespace) -> Iterator[tuple[Bench, Surroundings, set[int]]]:
    """The generator, the upstream, a folder, and the core of the gateway."""
    gateway_cores, other_cores = share_cores()
    generator, upstream = find_native("generator"), find_native("upstream")
    print(f"{describe_machine()}; generator and upstream {describe_native(generator)}", flush=True)
    if gateway_cores == other_cores:
        print("This machine has one core: the figures are not the gateway's alone.", file=sys.stderr)
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-gateways-") as passing,
        run_upstream(upstream, other_cores) as (port, pid),
    ):
        folder = (arguments.folder or Path(passing)).resolve()
        yield (
            Bench(generator, other_cores, port, pid),
            Surroundings(port, folder, arguments.peers.resolve()),
            gateway_cores,
        )


def load(
    bench: Bench,
    target: Target,
    running: Running,
    scenarios: Sequence[Scenario],
    how: tuple[int, dict[str, Path], int],
) -> Iterator[Sample | Memory]:
    """Run all scenarios on one target. `how` is the round, the bodies, and how often a disturbed sample is repeated."""
    number, bodies, attempts = how
    time.sleep(_SETTLE_SECONDS)
    before_mb = read_resident_mb(running.find_processes())
    for scenario in scenarios:
        if scenario.name in target.skips:
            continue
        asked = Load(target.name, target.path, number, bodies[scenario.body], scenario.options)
        sample = measure(bench, running, scenario, asked, attempts=attempts)
        cost = "-" if sample.cost_us is None else f"{sample.cost_us:.1f} us"
        said = (
            f"{sample.per_second:.0f}/s, {cost}, {sample.failed} failed, other programs {sample.foreign:.2f} of a core"
        )
        print(f"round {number}, {target.label}, {scenario.name}: {said}", file=sys.stderr, flush=True)
        yield sample
    if running.pid is not None:
        after_mb = read_resident_mb(running.find_processes())
        yield Memory(target.name, number, running.ready_seconds, before_mb, after_mb)


if __name__ == "__main__":
    main()
