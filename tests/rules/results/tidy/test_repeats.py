"""Lines that say the same, folded; lines that differ in a number that counts, not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.results.tidy.repeats import fold_repeats


def test_equal_lines_become_one_and_a_count() -> None:
    text = "start\n" + "find: 'grep' terminated by signal 13\n" * 50 + "end\n"
    assert fold_repeats(text) == (
        "start\nfind: 'grep' terminated by signal 13\n"
        "[trimtab: 49 more lines equal to the one above omitted here]\nend\n"
    )


def test_a_fold_must_pay() -> None:
    """Where the marker would be longer, the lines stay; so do two equal lines, and blank ones."""
    for text in (
        "}\n}\n}\n}\n",
        "a long line that stands here twice, word for word, and is not folded\n" * 2,
        "\n" * 90,
    ):
        assert fold_repeats(text) is text


def test_lines_equal_but_for_their_time_are_folded() -> None:
    """First and last stay, with the times; between them the count."""
    beats = [f"2025-11-22T06:{minute:02}:07.123Z INFO heartbeat sent to broker" for minute in range(30)]
    folded = fold_repeats("\n".join(beats))
    marker = "[trimtab: 28 more lines like the one above, at other times, omitted here]"
    assert folded == f"{beats[0]}\n{marker}\n{beats[-1]}"


@pytest.mark.parametrize(
    "form",
    [
        "06:07:{0},123 INFO heartbeat sent to broker",
        "[06:07:{0}] heartbeat sent to broker",
        "Nov 22 06:07:{0} host heartbeat[12]: sent to broker",
        "INFO 2025-11-22 06:07:{0}.123+01:00 heartbeat sent to broker",
        "1.2.3.4 - - [22/Nov/2025:06:07:{0} +0000] GET /health 200",
    ],
)
def test_timestamps_are_known(form: str) -> None:
    """At the beginning, behind a date, in brackets: as loggers write them."""
    assert fold_repeats("\n".join(form.format(number) for number in range(10, 40))).count("\n") == 2


@pytest.mark.parametrize(
    "form",
    [
        "pulling 8eeb52dfb3bb: {0}% |####      | 1.{0} GB/4.7 GB",
        "Downloading {0}% [=====>     ] {0} MB",
        "model.gguf {0}% {0} MB eta 0:{0}",
        "train:  {0}%|\u2588\u2588   | {0}/100 [00:{0}<00:50, {0}.5it/s]",
    ],
)
def test_progress_beside_a_sign_of_it_is_folded(form: str) -> None:
    """Sizes and rates may vary where a bar, a rate or an ETA tells what they are."""
    assert fold_repeats("\n".join(form.format(number) for number in range(10, 40))).count("\n") == 2


def test_progress_is_folded() -> None:
    steps = [f"Downloading model.bin: {step}% ({step * 3.5:.1f} MB of 350 MB, 12.{step} MB/s)" for step in range(101)]
    folded = fold_repeats("\n".join(["begin", *steps, "done"]))
    marker = "[trimtab: 99 more lines of the same progress omitted here]"
    assert folded == f"begin\n{steps[0]}\n{marker}\n{steps[-1]}\ndone"
    layers = [f"3a1b: Pushing layer {step}/40" for step in range(1, 41)]
    assert fold_repeats("\n".join(layers)).count("\n") == 2


CONTENT = {
    "mypy": "app/wire.py:{0}: error: Call to untyped function in typed context  [no-untyped-call]",
    "tsc": "src/cli.ts({0},27): error TS2580: Cannot find name 'process'.",
    "grep -n": "{0}:    def get_group_by_cols(self, alias=None):",
    "cat -n": "{0:6}\t                    bases=self.bases,",
    "pytest -v": "tests/test_dask.py::test_transforms[{0}] PASSED                    [ {0}%]",
    "pytest -rA": "PASSED tests/test_dask.py::test_transforms[obj{0}]",
    "coverage": "package/module{0}.py     120     12    {0}%",
    "psql": " {0} | customer number {0} | 2025-11-22",
    "csv": "2025-11-22,{0},Main Street Office,open",
    "ls -l": "-rw-r--r-- 1 root root {0} May  6  2025 picture{0}.png",
    "gdb": "#{0}  0x00005555{0:04} in recurse (depth={0}) at deep.c:12",
    "hexdump": "{0:08}  48 65 6c 6c 6f 2c 20 77  6f 72 6c 64 {0:02}",
    "training": "Epoch {0}/40 loss: 0.{0} accuracy: 0.{0}",
    "shrinking": "Battery of the device at {1}% now",
    "durations": "2025-11-22 06:00:{0} GET /health answered in {0} ms",
    "numbers": "{0}",
    "clock": "12:30:{0:02}",
    "timetable": "Train to Berlin leaves at 07:{0}:00 platform same",
    "table of times": "| 07:{0}:00 | forecast temperature warm |",
    "MAC addresses": "lease 00:16:32:10:20:{0} static allowed here",
    "MAC address first": "00:16:{0}:10:20:32 dev eth0 lladdr reachable",
    "IPv6": "[10:20:{0}:fe] dev eth lladdr reachable",
    "spans": "[silencedetect] Silence detected from 00:10:{0} to 00:11:{0}",
    "two stamps": "2025-11-22 06:00:{0} next run planned for 2025-11-22 07:00:{0}",
    "quantiles": "quantile {0}% latency 00:{0} size {1} KB overall",
    "load": "CPU load at {0}% memory used {0} GB on node",
    "capacity": "Disk {0}/40 capacity {1} GB healthy",
    "lengths": "Chapter {0}/40 of the book has length 00:{1} here",
    "throughput": "epoch {0}/40 throughput {1} it/s grad norm",
}


@pytest.mark.parametrize("form", CONTENT.values(), ids=CONTENT.keys())
def test_digits_that_are_content_stay(form: str) -> None:
    """Line numbers, addresses, measures, names and tables: however alike, all of them stay."""
    text = "\n".join(form.format(number, 100 - number) for number in range(10, 40))
    assert fold_repeats(text) is text


LINES = st.sampled_from(
    [
        "",
        "}",
        "x" * 90,
        "the same line of a log",
        "12:00:01 tick of the clock",
        "12:00:02 tick of the clock",
        "é\ud800" * 40,
    ]
)


@given(runs=st.lists(st.tuples(LINES, st.integers(1, 30)), max_size=12))
def test_never_longer_and_every_line_accounted_for(runs: list[tuple[str, int]]) -> None:
    """Kept lines and counted lines together are the lines that came, in their order."""
    lines = [line for line, times in runs for _ in range(times)]
    folded = fold_repeats("\n".join(lines))
    assert len(folded) <= len("\n".join(lines))
    kept = folded.split("\n")
    counted = sum(int(line.split()[1]) - 1 for line in kept if line.startswith("[trimtab: "))
    assert len(kept) + counted == "\n".join(lines).count("\n") + 1
    remaining = iter("\n".join(lines).split("\n"))
    assert all(line.startswith("[trimtab: ") or line in remaining for line in kept)
    assert fold_repeats(folded) is folded


def test_long_runs_are_folded_piece_by_piece() -> None:
    folded = fold_repeats("the same line, again and again\n" * 100_000)
    assert len(folded) < 30_000
    assert folded.startswith("the same line, again and again\n[trimtab: ")
