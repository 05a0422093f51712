#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well `memoir train` predicts lifetimes in other builds, versions and runs, and in other programs.

    bench/train/train.py -o train.md     all programs; the first time sources are fetched, built and recorded
    bench/train/train.py --only sqlite,redis          some of them
    bench/train/train.py --tables matches,rates       parts: accuracy, repeats, foreign, matches (the paper's Table 2), costs,
                                                rates (Figure 9)
    bench/train/train.py --networks                   the sequence models as well, which takes torch and some minutes
    bench/train/train.py --smoke                      seconds, without a network: does it work?

A model of a program's base build (-O2) is asked about the contexts of its other builds, and one of -O0 about -O2. The
truth is a profile with a sample of every allocation. Accuracy counts an abstention as wrong. Choices were made on
train_programs.TUNED alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import train_programs
from memoir._core import LifetimeModel
from memoir.train import learn
from memoir.train.assembly import NAMES, NEAR, NETWORK, WORDS, Parts, Settings, fit_words, model_bytes
from memoir.train.contexts import CLASSES, Contexts, read_contexts
from memoir.train.evaluation import Answers, ask, compare

from memoir import Lifetimes

RATES = (512, 4 << 10, 32 << 10, 256 << 10)  # bytes between samples
TAU = 2.0


@dataclass
class Learned:
    model: LifetimeModel
    settings: Settings
    seconds: float
    bytes: int


def contexts_of(program: str, build: str, every: int = train_programs.WHOLE) -> Contexts:
    return named_contexts(train_programs.profile(program, build, every))[0]


def named_contexts(path: Path) -> tuple[Contexts, list[tuple[Any, ...]]]:
    """The contexts of a profile that have names, and the code addresses of their stacks."""
    lifetimes = Lifetimes.open(path)
    found = read_contexts([lifetimes], TAU)
    named = np.array([bool(stack) for stack in found.stacks])
    frames = [
        (lifetimes.module_path(module) if module < len(lifetimes.modules) else "", offset)
        for module, offset in lifetimes.frames[["module", "offset"]].tolist()
    ]
    stacks, everything = [], lifetimes.stacks.tolist()
    for first, count in lifetimes.contexts[["first", "frames"]].tolist():
        stacks.append(tuple(frames[frame] for frame in everything[first : first + count]))
    return found.take(named), [stack for stack, has_name in zip(stacks, named, strict=True) if has_name]


def learned(contexts: Contexts, network: str | None = None, settings: Settings | None = None) -> Learned:
    """A model as memoir train makes it. With a network: uncalibrated, since each that is held out takes minutes."""
    settings = replace(settings or Settings(tau=TAU))
    begin = time.process_time()
    if network:
        from memoir.train.network import fit_network

        settings.stages |= NETWORK
        settings.network_in_words = 0.5
        parts = Parts(fit_words(contexts, settings), fit_network(contexts, network))
    else:
        parts, _ = learn(contexts, settings)
    content = model_bytes(contexts, settings, parts)
    seconds = time.process_time() - begin
    return Learned(LifetimeModel.from_bytes(content, "model"), settings, seconds, len(content))


def unseen_half(contexts: Contexts, seed: int = 5) -> tuple[Contexts, Contexts]:
    """By stacks: what is learned from, and what is asked about."""
    stacks = sorted(set(contexts.stacks))
    chosen = dict(zip(stacks, np.random.default_rng(seed).random(len(stacks)) < 0.5, strict=True))
    mask = np.array([chosen[stack] for stack in contexts.stacks])
    return contexts.take(mask), contexts.take(~mask)


# --- what is asked ---


@dataclass
class Row:
    program: str
    case: str
    figures: dict[str, Any]


def builds_of(program: str) -> list[str]:
    return [each.name for each in train_programs.PROGRAMS[program].builds if each.name != "base"]


class Study:
    """All programs, their models and rows; a model is made once."""

    def __init__(self, programs: list[str]):
        self.programs = programs
        self.contexts = {
            (program, build): contexts_of(program, build)
            for program in programs
            for build in ("base", *builds_of(program))
        }
        self.models: dict[Any, Learned] = {}

    def model(self, program: str, network: str | None = None, build: str = "base") -> Learned:
        key = (program, network, build)
        if key not in self.models:
            self.models[key] = learned(self.contexts[program, build], network)
        return self.models[key]

    def rows(
        self,
        answer: Callable[[Learned, Contexts], Answers],
        network: str | None = None,
        *,
        unseen: bool = True,
    ) -> list[Row]:
        rows = []
        for program in self.programs:
            model = self.model(program, network)
            for build in builds_of(program):
                target = self.contexts[program, build]
                rows.append(Row(program, build, compare(answer(model, target), target)))
            if (program, "O0") in self.contexts:
                other = self.model(program, network, "O0")
                target = self.contexts[program, "base"]
                rows.append(Row(program, "from O0", compare(answer(other, target), target)))
            if unseen:
                some, target = unseen_half(self.contexts[program, "base"])
                key = (program, network, "half")
                if key not in self.models:
                    self.models[key] = learned(some, network)
                half = self.models[key]
                rows.append(Row(program, "unseen", compare(answer(half, target), target)))
        return rows


def by_stages(mask: int, calibrated: bool = True) -> Callable[[Learned, Contexts], Answers]:
    return lambda model, contexts: ask(model.model, contexts, stages=mask, calibrated=calibrated)


CASES = {
    "O0": "other optimisation level",
    "from O0": "a model of -O0, asked of -O2",
    "version": "other version",
    "unseen": "half of the contexts unseen",
    "input": "same build, other run",
}


def of_case(rows: list[Row], case: str, programs: tuple[str, ...] | None = None) -> list[Row]:
    return [
        row for row in rows if row.case.startswith(case) and (programs is None or row.program in programs)
    ]


def mean(rows: list[Row], *path: str) -> float | None:
    values = []
    for row in rows:
        value: Any = row.figures
        for name in path:
            value = value[name]
        if value is not None:
            values.append(value)
    return float(np.mean(values)) if values else None


def percent(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f}"


def line(rows: list[Row]) -> str:
    long = ("long",)
    return (
        f"{percent(mean(rows, 'accuracy'))} ({percent(mean(rows, 'accuracy_off_by_one'))}) / "
        f"{percent(mean(rows, 'accuracy_by_objects'))}; {percent(mean(rows, *long, 'recall'))}/"
        f"{percent(mean(rows, *long, 'precision'))}"
    )


# --- the report ---


def variants(study: Study, networks: bool) -> dict[str, list[Row]]:
    found = {
        "names alone": study.rows(by_stages(NAMES)),
        "names and near (the trie)": study.rows(by_stages(NAMES | NEAR)),
        "words alone (linear)": study.rows(by_stages(WORDS)),
        "**all stages: the default**": study.rows(by_stages(31)),
    }
    if networks:
        for kind in ("lstm", "mingru"):
            found[f"{kind} alone"] = study.rows(by_stages(16), kind)
            found[f"all stages, {kind} and words evenly"] = study.rows(by_stages(31), kind)
    return found


def table_of_variants(found: dict[str, list[Row]], programs: tuple[str, ...], title: str) -> Iterator[str]:
    yield f"| {title} | " + " | ".join(CASES.values()) + " |"
    yield "|---" * (1 + len(CASES)) + "|"
    for name, rows in found.items():
        cells = [line(of_case(rows, case, programs)) for case in CASES]
        yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""


def table_of_programs(rows: list[Row]) -> Iterator[str]:
    yield (
        "| program | case | contexts | answered | classes: contexts (off by one) | by objects | "
        "decided, long | recall | precision | precision by bytes | short called long | calibration error |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        each, long = row.figures, row.figures["long"]
        yield (
            f"| {row.program} | {row.case} | {each['contexts']:,} | {percent(each['answered'])} | {percent(each['accuracy'])} "
            f"({percent(each['accuracy_off_by_one'])}) | {percent(each['accuracy_by_objects'])} | {long['decided']:,}, "
            f"{long['true']:,} | {percent(long['recall'])} | {percent(long['precision'])} | "
            f"{percent(long['precision_by_bytes'])} | {percent(long['short_called_long'], 1)} | "
            f"{percent(long['calibration_error'], 1)} |"
        )
    yield ""


def table_2(study: Study) -> Iterator[str]:
    yield "| program | build | contexts | the same names, frame by frame | the same when unknown names are dropped |"
    yield "|---|---|---:|---:|---:|"
    for program in study.programs:
        base = study.contexts[program, "base"]
        exact = {tuple(raw) for raw in base.raw}
        known = {name for stack in base.stacks for name in stack}
        reduced = {filtered(stack, known) for stack in base.stacks}
        for build in builds_of(program):
            target = study.contexts[program, build]
            same = np.mean([tuple(raw) in exact for raw in target.raw])
            close = np.mean([filtered(stack, known) in reduced for stack in target.stacks])
            yield f"| {program} | {build} | {len(target):,} | {percent(same, 1)} % | {percent(close, 1)} % |"
    yield ""


# --- how well a profile knows its own program ---


def second_run(program: str, build: str) -> Row:
    """What another run of the same build with the same input says of the very same call stacks."""
    contexts, stacks = named_contexts(train_programs.profile(program, build))
    other, others = named_contexts(train_programs.profile(program, build, again=True))
    numbers = dict(zip(others, range(len(others)), strict=True))
    of = np.array([numbers.get(stack, -1) for stack in stacks])
    there = of >= 0
    wall = np.zeros((len(of), CLASSES))
    wall[there, other.classes[of[there]]] = 1
    answers = Answers(
        stage=np.where(there, 0, -1),
        wall=wall,
        long=np.where(there, np.nan_to_num(other.long_share[of]), 0),
        samples=other.samples[of],
        coverage=np.ones(len(of)),
        whole=there,
        other_build=np.zeros(len(of), dtype=bool),
        called_long=there & other.is_long[of],
    )
    return Row(program, build, compare(answers, contexts))


def repeats(study: Study) -> Iterator[str]:
    rows = [
        second_run(program, build) for program in study.programs for build in ("base", *builds_of(program))
    ]
    yield "| program | build | found again | classes: contexts (off by one) / by objects; long recall/precision |"
    yield "|---|---|---:|---:|"
    for row in rows:
        yield f"| {row.program} | {row.case} | {percent(row.figures['answered'])} % | {line([row])} |"
    for title, programs in groups_of(study):
        for case in ("base", *CASES):
            some = of_case(rows, case, programs)
            if some:
                yield f"| {title} | {case}: mean | | {line(some)} |"
    yield ""


def groups_of(study: Study) -> list[tuple[str, tuple[str, ...]]]:
    tuned = tuple(name for name in study.programs if name in train_programs.TUNED)
    others = tuple(name for name in study.programs if name not in train_programs.TUNED)
    return [(title, names) for title, names in (("tuned on", tuned), ("others", others)) if names]


def filtered(stack: tuple[str, ...], known: set[str]) -> tuple[str, ...]:
    result: list[str] = []
    for name in stack:
        if name in known and (not result or result[-1] != name):
            result.append(name)
    return tuple(result)


def figure_9(study: Study) -> Iterator[str]:
    """Accuracy on the other run, by how often the profile that was learned from was sampled."""
    yield "| program | a sample every | samples | contexts | same build: contexts (off by one) / objects | -O0 | version |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for program in study.programs:
        for every in (train_programs.WHOLE, *RATES):
            found = contexts_of(program, "base", every)
            if len(found) < 2:
                continue
            model = study.model(program) if every == train_programs.WHOLE else learned(found)
            cells = []
            for build in ("input", "O0", "version"):
                if (program, build) not in study.contexts:
                    cells.append("-")
                    continue
                target = study.contexts[program, build]
                each = compare(ask(model.model, target), target)
                cells.append(
                    f"{percent(each['accuracy'])} ({percent(each['accuracy_off_by_one'])}) / "
                    f"{percent(each['accuracy_by_objects'])}"
                )
            yield (
                f"| {program} | {every:,} B | {found.samples.sum():,.0f} | {len(found):,} | "
                + " | ".join(cells)
                + " |"
            )
    yield ""


def foreign(study: Study) -> Iterator[str]:
    yield "| a model of | asked about | contexts | answered | of these right |"
    yield "|---|---|---:|---:|---:|"
    totals: dict[str, list[float]] = {"tuned": [0, 0, 0], "others": [0, 0, 0]}
    for program in study.programs:
        model = study.model(program)
        answered = right = count = 0
        for other in study.programs:
            if other == program:
                continue
            target = study.contexts[other, "base"]
            said = ask(model.model, target)
            known = said.known
            good = known & (np.abs(said.classes - target.classes) == 0)
            both = {program, other} <= set(train_programs.TUNED)
            for i, value in enumerate((len(target), known.sum(), good.sum())):
                totals["tuned" if both else "others"][i] += float(value)
            count, answered, right = count + len(target), answered + known.sum(), right + good.sum()
        shown = f"{percent(right / answered)} %" if answered else "-"
        share = percent(answered / max(count, 1), 1)
        yield f"| {program} | all others | {count:,} | {share} % | {shown} |"
    for name, (count, answered, right) in totals.items():
        if count:
            shown = f"{percent(right / answered)} %" if answered else "-"
            yield f"| {name} | | {count:,.0f} | {percent(answered / count, 1)} % | {shown} |"
    yield ""


def costs(study: Study) -> Iterator[str]:
    yield "| contexts | training, processor time | model | an answer | with what Python adds |"
    yield "|---:|---:|---:|---:|---:|"
    whole = [
        contexts
        for (_, build), contexts in study.contexts.items()
        if build in ("base", "version", "version13", "input")
    ]
    largest = whole[0]
    for more in whole[1:]:
        largest = joined(largest, more)
    for count in (1_000, 5_000, 25_000):
        if count > len(largest):
            break
        chosen = np.sort(np.random.default_rng(count).choice(len(largest), count, replace=False))
        some = largest.take(chosen)
        model = learned(some)
        asked = largest.take(np.arange(min(len(largest), 5_000)))
        programs = [names[0] if names else "" for names in asked.programs]
        begin = time.process_time()
        said = model.model.predict_many(asked.raw, asked.sizes.tolist(), programs=programs)
        with_python = 1e6 * (time.process_time() - begin) / len(asked)
        each = 1e6 * said["seconds"] / len(asked)
        yield (
            f"| {count:,} | {model.seconds:.1f} s | {model.bytes / 1024:,.0f} KiB | {each:.1f} us | "
            f"{with_python:.1f} us |"
        )
    yield ""


def joined(one: Contexts, other: Contexts) -> Contexts:
    values = {}
    for name in Contexts.__dataclass_fields__:
        first, second = getattr(one, name), getattr(other, name)
        values[name] = first + second if isinstance(first, list) else np.concatenate([first, second])
    return Contexts(**values)


def accuracy(study: Study, networks: bool) -> Iterator[str]:
    found = variants(study, networks)
    yield "Means over programs: classes of contexts (off by one) / by objects; long recall/precision, in per cent.\n"
    for title, programs in groups_of(study):
        yield from table_of_variants(found, programs, f"{title}: {', '.join(programs)}")
    yield "## Each program, the default\n"
    yield from table_of_programs(found["**all stages: the default**"])


TABLES: dict[str, tuple[str, Callable[[Study, bool], Iterator[str]]]] = {
    "accuracy": ("Which stage, which model", accuracy),
    "repeats": ("The same build and input, run again", lambda study, _: repeats(study)),
    "foreign": ("Another program", lambda study, _: foreign(study)),
    "matches": ("Contexts that match (the paper's Table 2)", lambda study, _: table_2(study)),
    "rates": ("By sampling rate (the paper's Figure 9)", lambda study, _: figure_9(study)),
    "costs": ("Cost", lambda study, _: costs(study)),
}


@click.command(help=__doc__)
@click.option("--only", help="Programs, with commas.")
@click.option("--tables", help="Some of the tables, with commas.")
@click.option("--networks", is_flag=True, help="The sequence models as well.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the tables there as well.")
@click.option("--smoke", is_flag=True, help="One small program: does it work?")
def main(only: str | None, tables: str | None, networks: bool, output: Path | None, smoke: bool) -> None:
    programs = [name for name in train_programs.PROGRAMS if name != "small"]
    chosen = list(TABLES)
    if smoke:
        programs = ["small"]
        chosen.remove("rates")
    elif only:
        programs = only.split(",")
    if tables:
        chosen = tables.split(",")
    for name in {*chosen} - {*TABLES}:
        sys.exit(f"no table {name!r}: use {', '.join(TABLES)}")
    study = Study(programs)
    lines = []
    for name in chosen:
        title, make = TABLES[name]
        for text in (f"## {title}\n", *make(study, networks)):
            print(text, flush=True)
            lines.append(text)
    if output is not None:
        output.write_text("\n".join(lines) + "\n")
    if smoke:
        rows = study.rows(by_stages(31), unseen=False)
        if not all(row.figures["answered"] > 0.5 for row in rows):
            sys.exit("a model does not know its own program")


if __name__ == "__main__":
    main()
