"""The plot: a turn's processor time by its old bytes and by its new bytes."""

from collections.abc import Sequence
from pathlib import Path

from bench.scale.turns import MEGABYTE, Point


def draw_plot(lengths: Sequence[Point], news: Sequence[Point], file: Path) -> None:
    """Draw two panels with a line for each gateway."""
    import matplotlib as mpl  # noqa: PLC0415 - of the bench extra: tables do without it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name in dict.fromkeys(point.gateway for point in lengths):
        own = [point for point in lengths if point.gateway == name]
        left.plot(
            [point.old_bytes / MEGABYTE for point in own], [point.processor_ms for point in own], "o-", label=name
        )
        own = [point for point in news if point.gateway == name]
        right.plot([point.new_bytes / 1000 for point in own], [point.processor_ms for point in own], "o-")
    left.set_xlabel("old bytes, MB (5 KB are new)")
    right.set_xlabel("new bytes, KB (1 MB is old)")
    for axes in (left, right):
        axes.set_ylabel("processor time of a turn, ms")
        axes.set_ylim(bottom=0)
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(file, dpi=110)
    plt.close(figure)
