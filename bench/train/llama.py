# SPDX-License-Identifier: Apache-2.0
"""The LLAMA paper's Table 3 and Figure 8 again: what knowing lifetimes is worth where pages are of 2 MiB.

    python bench/train/llama.py -o llama.md -p llama.png    the four kinds of program that the paper has, made from seeds
    python bench/train/llama.py --recorded                  the same kinds, real programs, recorded now (minutes)
    python bench/train/llama.py a.trace b.trace             recorded programs
    python bench/train/llama.py a.trace --model x.model     and with what a model of memoir train predicts
    python bench/train/llama.py --trained redis,sqlite      programs of train_programs.py, with a model of another run of theirs
    python bench/train/llama.py --smoke                     seconds, for the tests

Programs run in simulation under a malloc with size classes in pages of 2 MiB (as the paper reconstructs TCMalloc), under
`llama` with true, predicted and shuffled lifetimes, and under memoir's own heap. A prediction is the 95th percentile of
its site's lifetimes in another run, with another seed; for traces that are named, in the same run.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
import recorded_programs
from lifetime_programs import PROGRAMS, write_program

from memoir import _core

MIB = 1 << 20
BASE = "size_classes_huge"
NAMES = {
    BASE: "size classes, 2 MiB",
    "size_classes": "size classes, small pages",
    "true": "llama, true",
    "predicted": "llama, predicted",
    "shuffled": "llama, shuffled",
    "lifetime": "lifetime",
    "lifetime_true": "lifetime, true",
}


@dataclass
class Program:
    name: str
    path: Path
    profile: Path | None = None  # of another run
    model: Path | None = None  # of other builds or versions
    executable: str = ""  # that the trace is of
    lines: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    accuracy: tuple[float, float] | None = None
    model_accuracy: tuple[float, float] | None = None


def policies(program: Program) -> dict[str, str]:
    """Of each column, as `memoir simulate` takes it."""
    profile = "sites" if program.profile is None else f"[{program.profile}]"
    found = {
        BASE: BASE,
        "size_classes": "size_classes",
        "true": "llama,lifetimes=true",
        "predicted": f"llama,lifetimes={profile}",
        "shuffled": "llama,lifetimes=shuffled",
        "lifetime": "lifetime",
        "lifetime_true": "lifetime,lifetimes=true",
    }
    if program.model is not None:
        found["model"] = f"llama,lifetimes=[{program.model}]"
        found["lifetime_model"] = f"lifetime,lifetimes=[{program.model}]"
    return found


def simulate(program: Program) -> None:
    workload = _core.Workload(_core.Trace.open(program.path))
    for column, policy in policies(program).items():
        done = _core.simulate(workload, policy, samples=4_000, timed=False)
        program.lines[column] = done.timeline
    program.accuracy = accuracy(program)
    program.model_accuracy = model_accuracy(program)


def mean(line: dict[str, np.ndarray], column: str) -> float:
    """Over time, each sample until the next."""
    times = line["time"].astype(float)
    spans = np.diff(times)
    return (
        float(np.dot(line[column][:-1], spans) / spans.sum()) if spans.sum() > 0 else float(line[column][-1])
    )


def reduction(program: Program, column: str, of: str) -> float:
    """Of the bytes beyond the live ones under size classes: the share that is not there under this policy."""
    value = {"final": lambda line, name: float(line[name][-1]), "mean": mean}[of]
    base, line = program.lines[BASE], program.lines[column]
    beyond = value(base, "reserved") - value(base, "live")
    return 1 - (value(line, "reserved") - value(line, "live")) / beyond if beyond > 0 else 0.0


# --- how well sites predict ---


def site_classes(path: Path) -> tuple[dict[int, int], dict[int, int]]:
    """(class of the 95th percentile, objects) of every site."""
    events = _core.Trace.open(path).events
    born = events[events["kind"] == int(_core.EventKind.kAllocate)]
    freed = events[events["kind"] == int(_core.EventKind.kFree)]
    order = np.argsort(born["object"])
    ends = np.full(len(born), np.inf)
    ends[order[np.searchsorted(born["object"], freed["object"], sorter=order)]] = freed["time"]
    lifetimes = ends - born["time"]
    sites, of, counts = np.unique(born["site"], return_inverse=True, return_counts=True)
    by_site = np.split(lifetimes[np.lexsort((lifetimes, of))], np.cumsum(counts)[:-1])
    classes = {}
    for site, ascending in zip(sites.tolist(), by_site, strict=True):
        longest = ascending[-(-95 * len(ascending) // 100) - 1]
        bounds = 10.0 ** np.arange(7, 13)
        classes[site] = 7 if longest == np.inf else int(np.searchsorted(bounds, longest, "right"))
    return classes, dict(zip(sites.tolist(), counts.tolist(), strict=True))


def accuracy(program: Program) -> tuple[float, float] | None:
    """Of the classes predicted by the other run, weighted by objects and by sites; None: there is no other run."""
    if program.profile is None:
        return None
    predicted, _ = site_classes(program.profile)
    true, counts = site_classes(program.path)
    right = {site: predicted.get(site) == label for site, label in true.items()}
    return (
        sum(counts[site] for site in true if right[site]) / sum(counts.values()),
        sum(right.values()) / len(true),
    )


def model_accuracy(program: Program) -> tuple[float, float] | None:
    """The same of the classes that the model predicts; what it abstains from counts as never freed, as `llama` takes it."""
    if program.model is None:
        return None
    model = _core.LifetimeModel.from_bytes(program.model.read_bytes(), str(program.model))
    trace = _core.Trace.open(program.path)
    true, counts = site_classes(program.path)
    right = {}
    for site, label in true.items():
        frames = trace.site_frames(site)[::-1]
        names = [str(frame["function"]) for frame in frames if not frame["is_inlined"]]
        answer = model.predict(names, program=program.executable)
        right[site] = label == (7 if answer is None else int(np.argmax(answer["wall"])))
    return (
        sum(counts[site] for site in true if right[site]) / sum(counts.values()),
        sum(right.values()) / len(true),
    )


def trained_program(name: str, folder: Path) -> Program:
    """A run of the program's base build with another input, and a model of its -O0 build's."""
    import train_programs
    from memoir.train import train

    from memoir import Lifetimes

    build = "O0" if any(each.name == "O0" for each in train_programs.PROGRAMS[name].builds) else "version"
    model = folder / f"{name}.model"
    found = Lifetimes.open(train_programs.profile(name, build))
    model.write_bytes(train([found], replayed=False).content)
    path = train_programs.trace(name, "input")
    made = train_programs.PROGRAMS[name]
    executable = train_programs.executable(made, made.builds[0])
    return Program(f"{name}, model of {build}", path, model=model, executable=str(executable))


def recorded(folder: Path, seed: int, scale: float, *, smoke: bool) -> Iterator[Program]:
    """Real programs, each recorded twice; those that cannot run here are named. smoke: only those that start at once."""
    for name, program in recorded_programs.PROGRAMS.items():
        if smoke and program.is_python:
            continue
        if missing := program.needs():
            click.echo(f"{name}: skipped, {missing}", err=True)
            continue
        paths = [folder / f"{name}-{number}.trace" for number in (seed, seed + 1)]
        for number, path in zip((seed, seed + 1), paths, strict=True):
            recorded_programs.record(name, path, folder, number, scale)
        yield Program(name, *paths)


# --- the report ---


def table(programs: list[Program], of: str) -> Iterator[str]:
    title = {"final": "at the end", "mean": "mean over time"}[of]
    yield f"MiB {title}; in brackets how much of the fragmentation is gone:"
    yield ""
    yield "| program | accuracy, weighted / sites | live | " + " | ".join(NAMES.values()) + " |"
    yield "|---" * (3 + len(NAMES)) + "|"
    for program in programs:
        cells = [program.name, percent(program.accuracy)]
        line = program.lines[BASE]
        value = (lambda row, name: float(row[name][-1])) if of == "final" else mean
        cells.append(f"{value(line, 'live') / MIB:.1f}")
        for column in NAMES:
            text = f"{value(program.lines[column], 'reserved') / MIB:.1f}"
            if column != BASE:
                text += f" ({100 * reduction(program, column, of):.0f} %)"
            cells.append(text)
        yield "| " + " | ".join(cells) + " |"
    yield ""


def model_table(programs: list[Program]) -> Iterator[str]:
    if all(program.model is None for program in programs):
        return
    yield "With a model of memoir train; MiB at the end and mean over time:"
    yield ""
    titles = [
        "live",
        NAMES[BASE],
        "llama, sites",
        "llama, model",
        NAMES["true"],
        "lifetime",
        "lifetime, model",
    ]
    yield "| program | accuracy, weighted / sites | " + " | ".join(titles) + " |"
    yield "|---" * 9 + "|"
    columns = (BASE, "predicted", "model", "true", "lifetime", "lifetime_model")
    for program in (each for each in programs if each.model is not None):
        cells = [program.name, percent(program.model_accuracy)]
        for column in columns:
            line = program.lines[column]
            if column == BASE:
                cells.append(f"{line['live'][-1] / MIB:.1f}, {mean(line, 'live') / MIB:.1f}")
            cells.append(f"{line['reserved'][-1] / MIB:.1f}, {mean(line, 'reserved') / MIB:.1f}")
        yield "| " + " | ".join(cells) + " |"
    yield ""


def percent(right: tuple[float, float] | None) -> str:
    return "-" if right is None else f"{100 * right[0]:.0f} % / {100 * right[1]:.0f} %"


def draw(programs: list[Program], output: Path) -> None:
    """Figure 8: bytes over time, a panel for each program."""
    from memoir.views.figures import new_figure

    figure = new_figure(9, 3.2 * len(programs))
    for index, program in enumerate(programs):
        axes = figure.add_subplot(len(programs), 1, index + 1)
        line = program.lines[BASE]
        seconds = line["time"] / 1e9
        axes.fill_between(seconds, line["live"] / MIB, color="#3b6ea8", alpha=0.35, linewidth=0, label="live")
        for column, name in NAMES.items():
            line = program.lines[column]
            axes.plot(line["time"] / 1e9, line["reserved"] / MIB, linewidth=1, label=name)
        axes.set_title(program.name)
        axes.set_xlabel("seconds")
        axes.set_ylabel("MiB")
        axes.legend(fontsize=7, loc="upper left")
    figure.savefig(output)


@click.command(help=__doc__)
@click.argument("traces", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--model",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of memoir train, for the traces.",
)
@click.option(
    "--trained", help="Programs of train_programs.py, with commas: recorded, and with a model of another run."
)
@click.option("--recorded", "real", is_flag=True, help="Real programs, recorded now (recorded_programs.py).")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the tables there as well.")
@click.option("-p", "--picture", type=click.Path(path_type=Path), help="Figure 8: .png, .svg or .pdf.")
@click.option(
    "--seed", default=1, show_default=True, help="Of the programs; predictions come from the next seed."
)
@click.option("--scale", default=1.0, show_default=True, help="Of the programs, in objects and bytes.")
@click.option("--smoke", is_flag=True, help="Small programs: does it work?")
def main(
    traces: tuple[Path, ...],
    model: Path | None,
    trained: str | None,
    real: bool,
    output: Path | None,
    picture: Path | None,
    seed: int,
    scale: float,
    smoke: bool,
) -> None:
    scale = 0.04 if smoke else scale
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        programs = [Program(path.name, path, model=model) for path in traces]
        if trained:
            programs = [trained_program(name, folder) for name in trained.split(",")]
        elif real:
            programs = list(recorded(folder, seed, scale, smoke=smoke))
        elif not traces:
            for name in PROGRAMS:
                paths = [folder / f"{name}-{number}.trace" for number in (seed, seed + 1)]
                for number, path in zip((seed, seed + 1), paths, strict=True):
                    write_program(name, path, number, scale)
                programs.append(Program(name, *paths))
        for program in programs:
            simulate(program)
            click.echo(f"{program.name}: simulated", err=True)
        lines = [*table(programs, "final"), *table(programs, "mean"), *model_table(programs)]
    click.echo("\n".join(lines))
    if output is not None:
        output.write_text("\n".join(lines) + "\n")
    if picture is not None:
        draw(programs, picture)
    if smoke and any(line["reserved"][-1] < line["live"][-1] for p in programs for line in p.lines.values()):
        sys.exit("a policy reserves less than what is live")


if __name__ == "__main__":
    main()
