# SPDX-License-Identifier: Apache-2.0
"""Planning problems of any size, the same for a seed on every machine.

    python bench/plan/instances.py random 100000 --seed 1 -o random.csv
    python bench/plan/instances.py training 10000 -o training.csv
    python bench/plan/instances.py --smoke                         a thousand buffers of each family, looked at

random    births uniform in [0, n), lifetimes 1 + Exp(60), 2 % of them thirty times longer, sizes
          log-uniform from 64 B to 1 MiB in steps of 64
training  micro-batches through the layers of a network, forward and backward: activations are freed in reverse,
          each operator has temporaries, gradients pass from layer to layer
full      a rectangle cut in two again and again: a third as many ticks as buffers, and every tick as loaded as any;
          a plan without any gap exists
swept     a row of pieces, full at every tick too: each tick ends one or two runs of neighbours, and others take their
          place; no two need come from one cut
stencils  the line buffers of stages that read some rows of earlier ones, each row a round
unrolled  the body of a loop, unrolled, with values that later rounds read, weights, and code before and after
streamed  a pipeline whose stages begin one after another and keep up to four rounds
pinwheels a rectangle cut into pinwheels of five, in which no two are a rectangle together, and in two
"""

from __future__ import annotations

import sys

import click
import numpy as np

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]  # lower, upper (exclusive), size in bytes


def random(count: int, seed: int = 1) -> Arrays:
    draw = np.random.default_rng(seed)
    lower = draw.integers(0, count, count)
    length = draw.exponential(60.0, count)
    length[draw.random(count) < 0.02] *= 30
    size = 64 * np.maximum(1, np.exp(draw.random(count) * np.log(2**14))).astype(np.uint64)
    return lower.astype(np.uint64), (lower + 1 + length.astype(np.int64)).astype(np.uint64), size


def training(count: int, seed: int = 1, layers: int = 200) -> Arrays:
    """Two activations a layer that live until its backward, two temporaries forward, one backward, and the
    gradient that the layer above hands down: seven buffers for each layer and micro-batch."""
    draw = np.random.default_rng(seed)
    kept, scratch = (64 * draw.integers(16, 16385, layers) for _ in range(2))
    lower, upper, size = [], [], []

    def live(begin: int, end: int, bytes: int) -> None:
        lower.append(begin), upper.append(end), size.append(max(64, bytes // 64 * 64))

    tick = 0
    while len(lower) < count:
        born = []
        for layer in range(layers):
            born.append((tick, tick + 1))
            live(tick + 2, tick + 4, int(scratch[layer]))
            live(tick + 3, tick + 4, int(scratch[layer]) // 2)
            tick += 4
        handed = tick
        for layer in reversed(range(layers)):
            live(handed, tick + 3, int(kept[layer]))
            handed = tick + 1
            live(tick + 1, tick + 2, int(scratch[layer]))
            live(born[layer][1], tick + 3, int(kept[layer]) // 2)
            live(born[layer][0], tick + 4, int(kept[layer]))
            tick += 5
    return tuple(np.array(values[:count], np.uint64) for values in (lower, upper, size))


def full(count: int, seed: int = 1, left_out: float = 0.0, height: int = 2**20) -> Arrays:
    """`left_out` of the buffers are taken away again: then the arena that is needed is at most the load's."""
    draw = np.random.default_rng(seed)
    made = int(round(count / (1 - left_out)))
    parts = [(0, max(2, made // 3), height // 64)]  # begin, end, units of 64 bytes
    areas = [float(parts[0][1] * parts[0][2])]
    while len(parts) < made:
        # A large one is cut more often than a small one.
        weights = np.sqrt(np.array(areas))
        at = int(draw.choice(len(parts), p=weights / weights.sum()))
        begin, end, size = parts[at]
        if draw.random() < 0.5 and end - begin > 1:
            middle = int(draw.integers(begin + 1, end))
            pair = [(begin, middle, size), (middle, end, size)]
        elif size > 1:
            lower = int(draw.integers(1, size))
            pair = [(begin, end, lower), (begin, end, size - lower)]
        else:
            continue
        parts[at] = pair[0]
        parts.append(pair[1])
        areas[at] = float((pair[0][1] - pair[0][0]) * pair[0][2])
        areas.append(float((pair[1][1] - pair[1][0]) * pair[1][2]))
    order = draw.permutation(len(parts))[:count]
    lower, upper, size = (np.array([parts[i][k] for i in order], np.uint64) for k in range(3))
    return lower, upper, size * np.uint64(64)


def swept(
    count: int, seed: int = 1, left_out: float = 0.0, height: int = 2**20, live: int = 16, unit: int = 64
) -> Arrays:
    """About `count` buffers, about `live` of them at a time; `left_out` as in full()."""
    draw = np.random.default_rng(seed)
    made = int(round(count / (1 - left_out)))

    def split(size: int, parts: int) -> list[int]:
        cuts = (
            np.sort(draw.choice(np.arange(1, size), min(parts, size) - 1, replace=False)) if size > 1 else []
        )
        return [int(part) for part in np.diff([0, *cuts, size])]

    row = [(0, size) for size in split(height // unit, live)]  # begin, size in units
    ended: list[tuple[int, int, int]] = []
    tick = 0
    while len(ended) + len(row) < made:
        tick += 1
        for _ in range(int(draw.integers(1, 3))):
            run = min(len(row), int(draw.geometric(0.45)))
            at = int(draw.integers(0, len(row) - run + 1))
            if any(begin == tick for begin, _ in row[at : at + run]):
                continue
            ended += [(begin, tick, size) for begin, size in row[at : at + run]]
            parts = max(1, int(draw.poisson(run * live / len(row))))
            total = sum(size for _, size in row[at : at + run])
            row[at : at + run] = [(tick, size) for size in split(total, parts)]
    ended += [(begin, tick + 1, size) for begin, size in row]
    order = draw.permutation(len(ended))[: int(len(ended) * (1 - left_out))]
    lower, upper, size = (np.array([ended[i][k] for i in order], np.uint64) for k in range(3))
    return lower, upper, size * np.uint64(unit)


def pinwheels(count: int, seed: int = 1, height: int = 2**14) -> Arrays:
    """Up to four more buffers than `count`."""
    draw = np.random.default_rng(seed)
    parts, whole = [(0, max(4, count), height)], []  # begin, end, units of 64 bytes; those that cannot be cut
    while parts and len(parts) + len(whole) < count:
        begin, end, size = parts.pop(int(draw.integers(len(parts))))
        if end - begin >= 3 and size >= 3 and draw.random() < 0.7:
            first, last = sorted(draw.choice(np.arange(begin + 1, end), 2, replace=False).tolist())
            low, high = sorted(draw.choice(np.arange(1, size), 2, replace=False).tolist())
            parts += [(begin, first, size - low), (begin, last, low), (first, last, high - low)]
            parts += [(first, end, size - high), (last, end, high)]
        elif end - begin >= 2 and (draw.random() < 0.5 or size < 2):
            middle = int(draw.integers(begin + 1, end))
            parts += [(begin, middle, size), (middle, end, size)]
        elif size >= 2:
            middle = int(draw.integers(1, size))
            parts += [(begin, end, middle), (begin, end, size - middle)]
        else:
            whole.append((begin, end, size))
    rows = np.array(parts + whole, np.uint64)[draw.permutation(len(parts) + len(whole))]
    return rows[:, 0], rows[:, 1], rows[:, 2] * np.uint64(64)


def stencils(count: int, seed: int = 1) -> Arrays:
    """In each round each stage writes a row; later stages read up to seven of them, some every other round."""
    draw = np.random.default_rng(50_000 + seed)
    stages = int(draw.integers(3, 11))
    width = 16 * draw.integers(4, 2048, stages)
    taps = draw.integers(0, 7, stages)
    reader = [
        int(draw.integers(k + 1, min(stages, k + 4) + 1)) for k in range(stages)
    ]  # the last is the sink
    scratch = np.where(draw.random(stages) < 0.6, 16 * draw.integers(1, 1024, stages), 0)
    every = np.where(draw.random(stages) < 0.2, 2, 1)
    rows = []
    r = 0
    while len(rows) < count:
        for k in range(stages):
            if r % every[k]:
                continue
            tick = r * stages + k
            rows.append((tick, (r + int(taps[k])) * stages + reader[k] + 1, int(width[k])))
            if scratch[k]:
                rows.append((tick, tick + 1, int(scratch[k])))
        r += 1
    return tuple(np.array([row[k] for row in rows[:count]], np.uint64) for k in range(3))


def unrolled(count: int, seed: int = 1) -> Arrays:
    draw = np.random.default_rng(60_000 + seed)
    body = int(draw.integers(6, 40))
    begin = np.arange(body)
    length = 1 + np.minimum(draw.exponential(body / 4, body).astype(np.int64), 3 * body)
    size = 64 * np.maximum(1, np.exp(draw.random(body) * np.log(2**12)).astype(np.int64))
    rows = []
    around = max(body, count // 50)
    for _ in range(around):  # before
        at = int(draw.integers(0, around))
        rows.append((at, at + 1 + int(draw.integers(0, body // 3)), int(size[draw.integers(body)])))
    rounds = max(1, (count - 2 * around) // body)
    for r in range(rounds):
        for k in range(body):
            at = around + r * body + int(begin[k])
            rows.append((at, at + int(length[k]), int(size[k])))
    end = around + rounds * body
    for _ in range(around):  # after
        at = end + int(draw.integers(0, around))
        rows.append((at, at + 1 + int(draw.integers(0, body // 3)), int(size[draw.integers(body)])))
    rows += [(0, end + 2 * around + body, int(draw.integers(1, 1000)) * 64) for _ in range(3)]
    order = draw.permutation(len(rows))
    return tuple(np.array([rows[i][k] for i in order], np.uint64) for k in range(3))


def streamed(count: int, seed: int = 1) -> Arrays:
    draw = np.random.default_rng(70_000 + seed)
    stages, period = int(draw.integers(8, 30)), int(draw.integers(8, 24))
    begin = np.sort(draw.integers(0, 6 * period, stages))
    length = 1 + draw.integers(period // 3, 4 * period, stages)
    size = draw.choice([4096, 16384, 24576, 65536], stages) + 256 * draw.integers(0, 64, stages)
    rows = [
        (r * period + int(begin[k]), r * period + int(begin[k] + length[k]), int(size[k]))
        for r in range(max(1, count // stages))
        for k in range(stages)
    ]
    return tuple(np.array([row[k] for row in rows], np.uint64) for k in range(3))


def clustered(count: int, seed: int = 1) -> Arrays:
    """Sizes around a few powers of two and lives of a few lengths, as the tensors of one network have."""
    draw = np.random.default_rng(seed)
    lower = draw.integers(0, count, count)
    length = draw.choice([1, 2, 3, 8, 60], count, p=[0.16, 0.36, 0.17, 0.17, 0.14])
    size = draw.choice([2048, 4096, 16384, 65536, 204800], count) + 16 * draw.integers(0, 128, count)
    return lower.astype(np.uint64), (lower + length).astype(np.uint64), size.astype(np.uint64)


def weights_of(arrays: Arrays, seed: int) -> np.ndarray:
    """What each buffer loses where a byte costs more, for several arenas: its bytes, times how often they are touched."""
    draw = np.random.default_rng(40_000 + seed)
    return (arrays[2] * draw.exponential(0.4, len(arrays[2]))).astype(np.uint64) + np.uint64(1)


def retold(arrays: Arrays, seed: int) -> Arrays:
    """The same problem with its time stretched at random, perhaps reversed, and its buffers in another order."""
    draw = np.random.default_rng(seed)
    lower, upper, size = arrays
    ticks = np.unique(np.concatenate([lower, upper]))
    steps = draw.integers(1, 6, len(ticks)) * np.where(draw.random(len(ticks)) < 0.25, 200, 1)
    moved = np.cumsum(steps).astype(np.uint64)
    lower, upper = moved[np.searchsorted(ticks, lower)], moved[np.searchsorted(ticks, upper)]
    if draw.random() < 0.5:
        lower, upper = moved[-1] - upper, moved[-1] - lower
    order = draw.permutation(len(size))
    return lower[order], upper[order], size[order]


def gaps_of(arrays: Arrays, seed: int, share: float = 0.5) -> list[str]:
    """For that share of the buffers a time in which they are not needed, a fifth to three fifths of their lives, as the
    column gaps has it; the others "". None in lives of less than four ticks."""
    draw = np.random.default_rng(10_000 + seed)
    gaps = []
    for lower, upper, _ in zip(*(values.tolist() for values in arrays), strict=True):
        gap = ""
        if upper - lower >= 4 and draw.random() < share:
            length = max(1, int((upper - lower) * draw.uniform(0.2, 0.6)))
            begin = lower + 1 + int(draw.integers(0, max(1, upper - lower - 1 - length)))
            gap = f"{begin}-{min(begin + length, upper - 1)}"
        gaps.append(gap)
    return gaps


def fixed_of(offsets: list[int], seed: int, share: float = 0.1) -> list[int | str]:
    """Of a plan's offsets, that share; the others "", as the column fixed has it. The rest of the plan still fits."""
    kept = np.random.default_rng(20_000 + seed).random(len(offsets)) < share
    return [offset if keep else "" for offset, keep in zip(offsets, kept.tolist(), strict=True)]


def holes_of(arrays: Arrays, seed: int) -> list[tuple[int, int]]:
    """Two ranges of bytes below the load that no buffer may touch, each 2 % of it, in steps of 64."""
    draw = np.random.default_rng(30_000 + seed)
    units = load_of(arrays) // 64
    length = max(1, units // 50)
    begins = sorted(int(draw.integers(0, units - 2 * length)) for _ in range(2))
    return [
        (64 * begins[0], 64 * (begins[0] + length)),
        (64 * (begins[1] + length), 64 * (begins[1] + 2 * length)),
    ]


def load_of(arrays: Arrays) -> int:
    """The most bytes that are live at one tick."""
    lower, upper, size = (values.astype(np.int64) for values in arrays)
    order = np.argsort(np.concatenate([upper, lower]), kind="stable")  # deaths first
    return int(np.cumsum(np.concatenate([-size, size])[order]).max())


FAMILIES = {
    "random": random,
    "training": training,
    "full": full,
    "swept": swept,
    "pinwheels": pinwheels,
    "stencils": stencils,
    "unrolled": unrolled,
    "streamed": streamed,
}


def smoke() -> None:
    """Every family in small: whole buffers, the same ones each time."""
    for name, make in FAMILIES.items():
        lower, upper, size = make(1000)
        if not (abs(len(size) - 1000) < 20 and (lower < upper).all() and (size > 0).all()):
            raise SystemExit(f"{name}: buffers that cannot be")
        if any((one != other).any() for one, other in zip((lower, upper, size), make(1000), strict=True)):
            raise SystemExit(f"{name}: another problem for the same seed")
    arrays = random(1000)
    first, second = holes_of(arrays, 1)
    if not 0 <= first[0] < first[1] <= second[0] < second[1] <= load_of(arrays):
        raise SystemExit("holes that overlap, or lie above the load")
    if not 50 < sum(offset != "" for offset in fixed_of(list(range(1000)), 1)) < 150:
        raise SystemExit("another share of the buffers is fixed than was asked for")


@click.command()
@click.argument("family", type=click.Choice(list(FAMILIES)), required=False)
@click.argument("count", type=click.IntRange(min=1), required=False)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("-o", "--output", type=click.File("w"), default="-")
@click.option("--smoke", "small", is_flag=True, help="Make a small problem of each family and look at it.")
def main(family: str | None, count: int | None, seed: int, output, small: bool) -> None:
    """Writes COUNT buffers of FAMILY as minimalloc's CSV."""
    if small:
        smoke()
        return
    if family is None or count is None:
        raise click.UsageError(f"give a family ({', '.join(FAMILIES)}) and how many buffers, or --smoke")
    lower, upper, size = FAMILIES[family](count, seed)
    output.write("id,lower,upper,size\n")
    for row in zip(range(len(size)), lower.tolist(), upper.tolist(), size.tolist(), strict=True):
        output.write(",".join(map(str, row)) + "\n")


if __name__ == "__main__":
    sys.exit(main())
