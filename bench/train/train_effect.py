#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a model of `memoir train` is worth to memoir's malloc: resident over live bytes of a server whose load comes in waves.

    python bench/train/train_effect.py                      waves.cc of the shared data, 1 run of each, some ten minutes
    python bench/train/train_effect.py --replicates 3       interleaved; the table has medians
    python bench/train/train_effect.py --one-class          programs of train_programs.py whose replay says one class: peaks
    python bench/train/train_effect.py --smoke              seconds: does it work?

The program runs under models of its own build, of its -O0 build, of a build whose functions have other names, and of its own
inverted (what is long is called short); without a model (cold start), in one class, and told the true classes by a malloc
that the wheel does not have (the CMake target memoir_malloc_classes).
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import train_programs
from memoir.lifetimes.names import name_frames
from memoir.lifetimes.sampling import Collector
from memoir.train import learn, train
from memoir.train.assembly import Settings, model_bytes
from memoir.train.contexts import read_contexts

from memoir import Lifetimes, malloc

ROOT = Path(__file__).resolve().parents[2]
WAVES = ROOT.parent / "shared" / "malloc" / "waves.cc"
LOAD = [
    "2",
    "4",
    "10000",
    "500",
    "60000",
]  # threads, waves, requests held at the peak and at the trough, requests
SMALL = ["2", "2", "400", "40", "3000"]
EVERY = 16 << 10  # bytes between samples of the profiles
# Other names for the functions that allocate, as somebody might give them.
RENAMED = {
    "short_": "make_short_object",
    "session_": "begin_session_group",
    "perm_": "keep_perm_record",
    "mk": "make_block",
    "rm": "drop_block",
}
BUILDS = {
    "own": ["-O2"],
    "O0": ["-O0"],
    "renamed": ["-O2", *(f"-D{old}={new}" for old, new in RENAMED.items())],
}
LINE = re.compile(r"(PEAK|TROUGH) wave (\d+) .* ratio ([\d.]+)")


def build(folder: Path, name: str, smoke: bool) -> Path:
    """The program; `smoke`: with a short wait at its troughs."""
    text = WAVES.read_text()
    if smoke:
        text = text.replace("now() + 6;", "now() + 0.2;")
    source, program = folder / "waves.cc", folder / name / "waves"
    program.parent.mkdir(exist_ok=True)
    source.write_text(text)
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-w", "-pthread", *BUILDS[name]]
    subprocess.run([*command, str(source), "-ldl", "-o", str(program)], check=True)
    return program


def profile(program: Path, load: list[str], path: Path) -> Lifetimes:
    with Collector(EVERY) as collector:
        subprocess.run(
            [str(program), *load], env=collector.environment, check=True, stdout=subprocess.DEVNULL
        )
    name_frames(collector.lifetimes()).write(path, force=True)
    return Lifetimes.open(path)


def write_model(found: Lifetimes, path: Path, *, inverted: bool = False) -> Path:
    settings = Settings()
    contexts = read_contexts([found], settings.tau)
    if inverted:
        contexts = replace(contexts, long_share=1 - contexts.long_share)
    parts, _ = learn(contexts, settings)
    path.write_bytes(model_bytes(contexts, settings, parts))
    return path


def ratios(
    program: Path, load: list[str], settings: dict[str, str], oracle: bool = False
) -> dict[str, float]:
    """Resident over live bytes, by peak and trough: P0, T0, P1, ..."""
    environment = malloc.environment(settings) | {"VERB": "1"}
    if oracle:
        environment |= {"ORACLE": "1", "LD_PRELOAD": str(oracle_library())}
    done = subprocess.run([str(program), *load], env=environment, check=True, capture_output=True, text=True)
    return {match[1][0] + match[2]: float(match[3]) for match in LINE.finditer(done.stdout)}


def oracle_library() -> Path:
    """The malloc that a program may tell classes, if it was built (target memoir_malloc_classes): the wheel has none."""
    return (
        ROOT / "build" / "release" / "src" / "memoir" / "malloc" / "preload" / "libmemoir_malloc_classes.so"
    )


def cases(folder: Path, load: list[str], smoke: bool) -> dict[str, tuple[dict[str, str], bool]]:
    """By title: settings of the malloc, and whether the program tells the classes."""
    found = {name: profile(build(folder, name, smoke), load, folder / f"{name}.lifetimes") for name in BUILDS}
    models = {name: write_model(each, folder / f"{name}.model") for name, each in found.items()}
    inverted = write_model(found["own"], folder / "inverted.model", inverted=True)
    result: dict[str, tuple[dict[str, str], bool]] = {
        "one class (`split=false`)": ({"split": "false"}, False),
        "cold start: learns while it runs": ({}, False),
        "model of its own build": ({"model": str(models["own"])}, False),
        "model of the -O0 build": ({"model": str(models["O0"])}, False),
        "model of a build with other names": ({"model": str(models["renamed"])}, False),
        "inverted model": ({"model": str(inverted)}, False),
    }
    if oracle_library().exists():
        result["true lifetimes"] = ({}, True)
    return result


def report(rows: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    places = list(next(iter(rows.values()))[0])
    places = [name for name in places if name.startswith("T")] + ["P0"]
    medians = {
        title: {place: statistics.median(run[place] for run in runs) for place in places}
        for title, runs in rows.items()
    }
    yield "| resident over live bytes | " + " | ".join(places) + " |"
    yield "|---" + "|---:" * len(places) + "|"
    for title, values in medians.items():
        yield f"| {title} | " + " | ".join(f"{values[place]:.2f}" for place in places) + " |"
    yield ""
    own, cold = medians["model of its own build"], medians["cold start: learns while it runs"]
    yield "| over | " + " | ".join(places) + " |"
    yield "|---" + "|---:" * len(places) + "|"
    pairs = [
        ("model of the -O0 build", own, "own build"),
        ("model of a build with other names", own, "own build"),
        ("inverted model", cold, "cold start"),
    ]
    if "true lifetimes" in medians:
        pairs.append(("model of its own build", medians["true lifetimes"], "true lifetimes"))
    for title, base, name in pairs:
        cells = " | ".join(f"{medians[title][place] / base[place]:.2f}" for place in places)
        yield f"| {title} / {name} | {cells} |"


# --- programs that the replay calls one class ---


def _peak(name: str, settings: dict[str, str]) -> int:
    """KiB resident at most in one run of the program's base build. In a process of its own: it counts its children's."""
    train_programs.run_build(name, "base", malloc.environment(settings))
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def one_class(names: list[str], folder: Path, replicates: int) -> Iterator[str]:
    yield "| program | the model says | peak under it, over one class |"
    yield "|---|---|---:|"
    for name in names:
        trained = train([Lifetimes.open(train_programs.profile(name, "base"))])
        path = folder / f"{name}.model"
        path.write_bytes(trained.content)
        pairs = []
        for _ in range(replicates):
            peaks = []
            for settings in ({"model": str(path)}, {"split": "false"}):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    peaks.append(pool.apply(_peak, (name, settings)))
            pairs.append(peaks[0] / peaks[1])
        said = "one class" if trained.one_class else "two classes"
        yield f"| {name} | {said} | {statistics.median(pairs):.3f} |"


@click.command(help=__doc__)
@click.option("--replicates", default=1, show_default=True, type=click.IntRange(1))
@click.option("--one-class", "compare_one", is_flag=True, help="The peaks of small programs instead.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the tables there as well.")
@click.option("--smoke", is_flag=True, help="A small load: does it work?")
def main(replicates: int, compare_one: bool, output: Path | None, smoke: bool) -> None:
    if compare_one:
        names = [name for name in train_programs.PROGRAMS if name != "small"]
        with tempfile.TemporaryDirectory() as name:
            for line in one_class(names, Path(name), replicates):
                print(line, flush=True)
        return
    if not WAVES.exists():
        print(f"{WAVES} is not there: nothing was run", file=sys.stderr)
        return
    load = SMALL if smoke else LOAD
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = cases(folder, load, smoke)
        rows: dict[str, list[dict[str, float]]] = {title: [] for title in chosen}
        for _ in range(replicates):
            for title, (settings, oracle) in chosen.items():
                rows[title].append(ratios(folder / "own" / "waves", load, settings, oracle))
                print(title, rows[title][-1], file=sys.stderr, flush=True)
    lines = list(report(rows))
    print("\n".join(lines))
    if output is not None:
        output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
