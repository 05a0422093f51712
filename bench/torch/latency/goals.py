# SPDX-License-Identifier: Apache-2.0
"""The verdicts: each goal, what was measured, and every cell that misses it, with its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memoir.bench.statistics import correct_many, differs, geometric_mean

from latency.summary import CellSummary, Summary
from latency.variants import CANDIDATE, REFERENCE

MIB = 1 << 20
RESOLUTION = (
    1 * MIB
)  # of a peak: the kernel keeps resident sizes in per-CPU counters of some dozen pages each
MEAN_RATIO, BEST_RATIO = 0.75, 0.55
SLAB_OVERHEAD = 1.01  # slab bytes / peak live bytes


@dataclass(frozen=True)
class Goal:
    """One goal: `met` is None when the results cannot say."""

    text: str
    measured: str
    met: bool | None
    misses: tuple[str, ...] = ()


def goals(summary: Summary) -> list[Goal]:
    """All goals, in the order of the report; empty when memoir is not among the variants."""
    if summary.candidate != CANDIDATE:
        return []
    cells = [cell for cell in summary.cells if CANDIDATE in cell.variants]
    return [
        _mean_ratio(summary, cells),
        _best_ratio(cells),
        _never_slower(cells),
        _tail(cells),
        _slab(cells),
        _process_peak(cells),
        _faults(cells),
        _outputs(cells),
        _complete(summary),
    ]


def _mean_ratio(summary: Summary, cells: list[CellSummary]) -> Goal:
    text = f"geometric-mean latency at most {MEAN_RATIO} of {REFERENCE}'s"
    mean = summary.means.get(REFERENCE)
    if mean is None:
        return Goal(text, f"{REFERENCE} was not measured", None)
    count = sum(REFERENCE in cell.comparisons for cell in cells)
    return Goal(text, f"{mean.ratio:.3f} over {count} cells", mean.ratio <= MEAN_RATIO)


def _best_ratio(cells: list[CellSummary]) -> Goal:
    text = f"at best at most {BEST_RATIO} of {REFERENCE}'s latency"
    compared = [
        (cell.ratio(REFERENCE).ratio, cell.key.label) for cell in cells if REFERENCE in cell.comparisons
    ]
    if not compared:
        return Goal(text, f"{REFERENCE} was not measured", None)
    ratio, label = min(compared)
    return Goal(text, f"{ratio:.3f} ({label})", ratio <= BEST_RATIO)


def _never_slower(cells: list[CellSummary]) -> Goal:
    """Slower beyond the 95 % interval; marked when Holm's correction for many cells takes it back."""
    text = "on no cell slower than the best other allocator, beyond the interval"
    compared = [(cell, cell.comparisons[cell.best_other]) for cell in cells if cell.best_other]
    if not compared:
        return Goal(text, "nothing to compare", None)
    corrected = correct_many([comparison.p_value for _, comparison in compared])
    misses = []
    for (cell, comparison), p_value in zip(compared, corrected, strict=True):
        interval = comparison.interval
        if interval.low > 1.0:
            sure = (
                ""
                if differs(comparison, p_value)
                else "; not significant when corrected for the number of cells"
            )
            misses.append(
                f"{cell.key.label}: {interval.ratio:.3f} [{interval.low:.3f}, {interval.high:.3f}] of "
                f"{cell.best_other}'s ({cell.variants[CANDIDATE].median_ms:.2f} ms against "
                f"{cell.variants[cell.best_other].median_ms:.2f} ms, {comparison.n} replicates{sure})"
            )
    faster = sum(comparison.interval.high < 1.0 for _, comparison in compared)
    even = len(compared) - faster - len(misses)
    return Goal(
        text, f"faster on {faster}, even on {even}, slower on {len(misses)} cells", not misses, tuple(misses)
    )


def _tail(cells: list[CellSummary]) -> Goal:
    """One cell's tail is a number without an interval, so the verdict is on the geometric mean."""
    text = "p99.9 / median no worse than theirs (geometric mean over the cells)"
    means = tails(cells)
    others = {name: tail for name, tail in means.items() if name != CANDIDATE}
    if not others:
        return Goal(text, "nothing to compare", None)
    mine, best = means[CANDIDATE], min(others, key=others.get)
    misses = [
        f"{cell.key.label}: {cell.variants[CANDIDATE].tail:.2f}, worse than every other (the worst of them: "
        f"{max(one.tail for one in cell.others.values()):.2f}; {cell.variants[CANDIDATE].passes} passes)"
        for cell in cells
        if cell.others and cell.variants[CANDIDATE].tail > max(one.tail for one in cell.others.values())
    ]
    return Goal(text, f"{mine:.3f} against {others[best]:.3f} of {best}", mine <= others[best], tuple(misses))


def tails(cells: list[CellSummary]) -> dict[str, float]:
    """Per variant the geometric mean of p99.9 / median over the cells in which it was measured."""
    values: dict[str, list[float]] = {}
    for cell in cells:
        for name, one in cell.variants.items():
            values.setdefault(name, []).append(one.tail)
    return {name: geometric_mean(several) for name, several in values.items()}


def _per_cell(
    text: str,
    cells: list[CellSummary],
    judge: Callable[[CellSummary], tuple[float, str | None] | None],
    unit: str,
) -> Goal:
    """A goal on every cell: judge gives a number and, when missed, the line to list; None when unknown."""
    judged = [verdict for verdict in map(judge, cells) if verdict is not None]
    if not judged:
        return Goal(text, "not measured", None)
    misses = tuple(line for _, line in judged if line)
    worst = max(number for number, _ in judged)
    return Goal(
        text,
        f"met on {len(judged) - len(misses)} of {len(judged)} cells; worst {worst:.3f}{unit}",
        not misses,
        misses,
    )


def _slab(cells: list[CellSummary]) -> Goal:
    def judge(cell: CellSummary) -> tuple[float, str | None] | None:
        ratio = slab_ratio(cell)
        if ratio is None:
            return None
        stats = cell.variants[CANDIDATE].memoir
        line = (
            f"{cell.key.label}: {stats['slabs']} slabs of {stats['slab_bytes'] / MIB:.2f} MiB in all, "
            f"peak live {stats['peak_live_bytes'] / MIB:.2f} MiB"
        )
        return ratio, line if ratio > SLAB_OVERHEAD else None

    return _per_cell("slab within 1 % of the peak live bytes", cells, judge, " x peak live")


def slab_ratio(cell: CellSummary) -> float | None:
    """Bytes of one slab over the peak live bytes of one pass; None when memoir has no slab."""
    stats = cell.variants[CANDIDATE].memoir if CANDIDATE in cell.variants else None
    if not stats or not stats["peak_live_bytes"] or not stats["slabs"]:
        return None
    return stats["slab_bytes"] / stats["slabs"] / stats["peak_live_bytes"]


def _process_peak(cells: list[CellSummary]) -> Goal:
    def judge(cell: CellSummary) -> tuple[float, str | None] | None:
        mine, smallest = cell.variants[CANDIDATE].peak_anonymous, cell.smallest_other
        if mine is None or smallest is None:
            return None
        theirs = cell.variants[smallest].peak_anonymous
        line = (
            f"{cell.key.label}: {mine / MIB:.1f} MiB against {theirs / MIB:.1f} MiB of {smallest}; after the "
            f"warm-up {cell.variants[CANDIDATE].steady_peak / MIB:.1f} against "
            f"{cell.variants[smallest].steady_peak / MIB:.1f}"
        )
        return mine / theirs, line if mine > theirs + RESOLUTION else None

    text = "process peak (anonymous memory) at or under the smallest of theirs"
    return _per_cell(text, cells, judge, " of the smallest")


def _faults(cells: list[CellSummary]) -> Goal:
    def judge(cell: CellSummary) -> tuple[float, str | None]:
        faults = cell.variants[CANDIDATE].minor
        return faults, f"{cell.key.label}: {faults:.1f} minor faults per pass" if faults >= 0.5 else None

    return _per_cell("no page fault in a steady pass", cells, judge, " per pass")


def _outputs(cells: list[CellSummary]) -> Goal:
    """Every allocator's output of the same input, compared by hash; plain PyTorch on glibc is the judge."""
    text = "outputs equal those of plain PyTorch bit for bit"
    known = [cell for cell in cells if cell.variants[CANDIDATE].output and "glibc" in cell.variants]
    if not known:
        return Goal(text, "not measured", None)
    misses = tuple(
        cell.key.label for cell in known if cell.variants[CANDIDATE].output != cell.variants["glibc"].output
    )
    return Goal(text, f"on {len(known) - len(misses)} of {len(known)} cells", not misses, misses)


def _complete(summary: Summary) -> Goal:
    misses = tuple(
        f"{cell.key.label}: {name}: {what}" for cell in summary.cells for name, what in cell.failures.items()
    )
    return Goal("no allocator fails on any cell", f"{len(misses)} failures", not misses, misses)
