"""The requests that are sent to the gateways."""

from pathlib import Path

import orjson

from bench.gateways.run import find_scenarios
from bench.gateways.scenarios import LARGE_BYTES, SCENARIOS, mark_fresh, write_bodies
from bench.material.transcript import build_body


def test_bodies_are_the_same_in_every_run_but_for_the_models_name(tmp_path: Path) -> None:
    first, second = (write_bodies(tmp_path / name, "m") for name in "ab")
    assert {name: file.read_bytes() for name, file in first.items()} == {
        name: file.read_bytes() for name, file in second.items()
    }
    other = write_bodies(tmp_path / "c", "n")
    assert orjson.loads(other["large"].read_bytes()) == orjson.loads(first["large"].read_bytes()) | {"model": "n"}


def test_the_large_body_has_its_size(tmp_path: Path) -> None:
    assert abs(write_bodies(tmp_path, "m")["large"].stat().st_size / LARGE_BYTES - 1) < 0.05


def test_every_result_of_a_fresh_body_holds_a_nonce() -> None:
    """The generator counts in the ten digits after each nonce. The rest of the body is unchanged."""
    body = build_body(40_000, steps=20)
    fresh = orjson.loads(mark_fresh(body))
    results = [message["content"] for message in fresh["messages"] if message["role"] == "tool"]
    assert len(results) == 20
    assert all(result.startswith("NONCE-0000000000\n") for result in results)
    assert mark_fresh(body).replace(b"NONCE-0000000000\\n", b"") == body


def test_a_stream_asks_for_usage_in_one_scenario_only(tmp_path: Path) -> None:
    bodies = write_bodies(tmp_path, "m")
    asking = {scenario.name for scenario in SCENARIOS if b"include_usage" in bodies[scenario.body].read_bytes()}
    assert asking == {"events_usage"}


def test_the_quick_mode_asks_the_same_for_less_long() -> None:
    quick, full = find_scenarios(None, quick=True), find_scenarios(None, quick=False)
    assert [(one.name, one.body) for one in quick] == [(one.name, one.body) for one in full]
    assert all(one.events <= other.events for one, other in zip(quick, full, strict=True))
