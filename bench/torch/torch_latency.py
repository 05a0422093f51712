#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch networks under allocators: the evaluation of the MemoMalloc thesis, with intervals.

    bench/torch/torch_latency.py --smoke                                          under a minute: does it work here?
    bench/torch/torch_latency.py -o out/latency                                   the whole matrix, threads 1 and 2
    bench/torch/torch_latency.py --callers 1-8 --nets resnet50 --batch 1 -o out/callers
    bench/torch/torch_latency.py --resume out/latency                             go on where it stopped
    bench/torch/torch_latency.py --from out/latency --report bench/torch/reports   tables and pictures again
    bench/torch/torch_latency.py --verify --nets all                              outputs equal bit for bit?

How it measures, and what the numbers mean: bench/torch/reports/README.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import nets
from latency import records, runner
from latency.cells import CellKey, matrix
from latency.report import brief, write_report
from latency.runner import Design, Processes, Runner
from latency.summary import Summary, read_summary, summarise
from latency.variants import CANDIDATE, DEFAULT, VARIANTS, describe, why_unavailable
from memoir.bench.process.workers import Failure
from memoir.bench.recording import Recording, check_output

from memoir import Error


class _Numbers(click.ParamType):
    """Whole numbers from 1: 1,4,8 or 1-8."""

    name = "N,N,..."

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        numbers: list[int] = []
        for piece in value.split(","):
            first, dash, last = piece.partition("-")
            try:
                numbers += range(int(first), int(last) + 1) if dash else [int(first)]
            except ValueError:
                self.fail(f"{piece!r} is not a number or a range such as 1-8", parameter, context)
        if not numbers or min(numbers) < 1:
            self.fail(f"{value!r} must name numbers from 1 upwards", parameter, context)
        return tuple(dict.fromkeys(numbers))


class _Names(click.ParamType):
    """Comma-separated names out of a table; groups stand for several."""

    name = "NAME,..."

    def __init__(self, known: tuple[str, ...], groups: dict[str, tuple[str, ...]]) -> None:
        self._known, self._groups = known, groups

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names: list[str] = []
        for piece in filter(None, value.split(",")):
            if piece not in self._known and piece not in self._groups:
                known = ", ".join((*self._groups, *self._known))
                self.fail(f"{piece!r} is not one of {known}", parameter, context)
            names += self._groups.get(piece, (piece,))
        if not names:
            self.fail("names nothing", parameter, context)
        return tuple(dict.fromkeys(names))


_NETS = _Names(tuple(nets.NETS), {"all": nets.EVALUATION, "small": nets.SMALL})
_VARIANTS = _Names(tuple(VARIANTS), {"all": DEFAULT})


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--nets", "net_names", type=_NETS, default="all", show_default=True, help="Networks; also: small."
)
@click.option("--batch", type=_Numbers(), default="1,4,8", show_default=True)
@click.option("--side", type=_Numbers(), default="128,256", show_default=True, help="Pixels (or tokens).")
@click.option(
    "--threads", type=_Numbers(), default="1,2", show_default=True, help="Intra-op threads of one caller."
)
@click.option(
    "--callers", type=_Numbers(), default="1", show_default=True, help="Concurrent callers, one thread each."
)
@click.option("--variants", type=_VARIANTS, default="all", show_default=True, help="Allocators.")
@click.option("--replicates", type=click.IntRange(2), default=30, show_default=True)
@click.option(
    "--passes", type=click.IntRange(1), help="Timed passes per turn  [default: about 0.25 s of them]"
)
@click.option(
    "--warmup", type=click.IntRange(2), default=3, show_default=True, help="Passes before the first turn."
)
@click.option(
    "--settle", type=click.IntRange(0), default=1, show_default=True, help="Untimed passes in every turn."
)
@click.option(
    "--rounds", type=click.IntRange(1), default=3, show_default=True, help="Fresh processes per cell."
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--budget", type=click.FloatRange(0), help="Seconds in all, shared out among the cells.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=900, show_default=True, help="Seconds for one turn."
)
@click.option("--smoke", is_flag=True, help="squeezenet1_0 1x64, three replicates: does it work here?")
@click.option(
    "--verify", is_flag=True, help="Compare memoir's outputs with plain PyTorch's instead of timing."
)
@click.option("--maps", type=click.Path(path_type=Path), help="Draw heap maps into this folder instead.")
@click.option("--planners", default="auto", show_default=True, help="Whose plans --maps draws: auto,best_fit")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with the results in this folder.")
@click.option("--from", "source", type=click.Path(path_type=Path), help="Report on these; run nothing.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder for the results.")
@click.option(
    "--report", type=click.Path(path_type=Path), help="Folder for report.md, summary.json, pictures."
)
@click.option("-f", "--force", is_flag=True, help="Overwrite the output.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of Markdown.")
def command(**options: Any) -> None:
    """Times PyTorch networks under allocators and compares them with intervals; see bench/torch/reports/README.md."""
    if options["smoke"]:
        smoke = dict(
            net_names=("squeezenet1_0",),
            batch=(1,),
            side=(64,),
            threads=(1,),
            callers=(1,),
            replicates=3,
            rounds=1,
        )
        options |= smoke | {"passes": options["passes"] or 5, "warmup": 3}
    if options["source"] is not None:
        _show_again(options)
        return
    keys = _keys(options)
    if options["verify"] or options["maps"] is not None:
        sys.exit(_with_memoir(keys, options))
    _check_places(options)
    recording = _measure(keys, options)
    _finish(summarise(recording.result), recording.result.header, options, recording.folder)


def _show_again(options: dict[str, Any]) -> None:
    """--from: results, or the summary.json of a report, whose head is then not written again."""
    source = options["source"]
    summary = read_summary(source)
    if summary is None:
        result = records.read(source)
        _finish(summarise(result), result.header, options, source)
    elif options["report"] is not None:
        raise Error(f"{source}: a summary does not say how it was measured; --report needs the results")
    else:
        click.echo(summary.to_json() if options["as_json"] else brief(summary))


def _keys(options: dict[str, Any]) -> list[CellKey]:
    keys = matrix(*(options[name] for name in ("net_names", "batch", "side", "threads", "callers")))
    if not keys:
        raise Error("no cell to measure: --threads needs --callers to include 1")
    for key in keys:
        net = nets.NETS[key.net]
        if key.side < net.smallest_side:
            raise Error(f"--side {key.side}: {key.net} needs at least {net.smallest_side} {net.axis}")
    return keys


def _check_places(options: dict[str, Any]) -> None:
    """Refuses before anything starts what could not be written at its end."""
    output, resume = options["output"], options["resume"]
    if resume is not None:
        if output is not None and output != resume:
            raise Error(f"--resume {resume} goes on in that folder; leave -o away")
        records.read(resume)
    elif output is not None:
        check_output(output, options["force"])


def _measure(keys: list[CellKey], options: dict[str, Any]) -> Recording:
    names = [field.name for field in dataclasses.fields(Design)]
    design = Design(**{name: options[name] for name in names})
    reasons = {name: why_unavailable(VARIANTS[name]) for name in options["variants"]}
    variants = [name for name, reason in reasons.items() if reason is None]
    for name, reason in reasons.items():
        if reason is not None:
            _say(f"skipped: {name}: {reason}")
    if len(variants) < 2:
        raise Error("fewer than two allocators can run here; see the lines above, or choose --variants")
    end = time.monotonic() + (options["budget"] or float("inf"))
    with _terminated_like_interrupted(), Processes(design, variants, _libraries(keys)) as processes:
        for name, reason in processes.start().items():
            _say(f"skipped: {name}: {reason}")
            reasons[name] = reason
        with _recording(keys, design, reasons, processes.versions, options) as recording:
            measuring = Runner(design, processes, recording, _say)
            try:
                for index, key in enumerate(keys):
                    share = (end - time.monotonic()) / (len(keys) - index)
                    started = time.monotonic()
                    measuring.measure(key, started + share)
                    _progress(index, len(keys), key, recording, time.monotonic() - started)
            except KeyboardInterrupt:
                _interrupted(recording)
    recording.save()
    return recording


def _recording(
    keys: list[CellKey],
    design: Design,
    reasons: dict[str, str | None],
    versions: dict[str, str],
    options: dict[str, Any],
) -> Recording:
    """Where turns go: a new folder, the one to go on with, or memory."""
    used = {name: describe(VARIANTS[name]) for name, reason in reasons.items() if reason is None}
    skipped = {name: reason for name, reason in reasons.items() if reason is not None}
    commands = [" ".join([os.path.relpath(sys.argv[0]), *sys.argv[1:]])]
    header = records.header(keys, dataclasses.asdict(design), used, skipped, versions, commands)
    if options["resume"] is None:
        return Recording.begin(header, options["output"], options["force"])
    return records.resume(options["resume"], header, keys)


def _interrupted(recording: Recording) -> None:
    recording.close()
    recording.save()
    _say("interrupted: what was measured is kept")
    folder = recording.folder
    _say(f"next: {sys.argv[0]} --resume {folder}" if folder else "nothing was written: no -o")
    sys.exit(130)


def _libraries(keys: list[CellKey]) -> list[str]:
    """What the networks of the cells import."""
    return sorted({nets.NETS[key.net].library for key in keys} - {None})


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM keeps what was measured, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _progress(index: int, count: int, key: CellKey, recording: Recording, seconds: float) -> None:
    summary = summarise(recording.result, only=key)
    line = summary.cells[0].one_line() if summary.cells else "no block was completed"
    _say(f"[{index + 1}/{count}] {key.label}: {line}  ({seconds:.0f} s)")


def _with_memoir(keys: list[CellKey], options: dict[str, Any]) -> int:
    """--verify and --maps: what needs no timing, cell by cell; the exit code."""
    reason = why_unavailable(VARIANTS[CANDIDATE])
    if reason:
        raise Error(f"--verify and --maps need memoir, but {reason}")
    design = Design(seed=options["seed"], timeout=options["timeout"])
    wrong = 0
    with Processes(design, [CANDIDATE], _libraries(keys)) as processes:
        for name, reason in processes.start().items():
            raise Error(f"{name} cannot run: {reason}")
        for key in keys:
            try:
                if options["verify"]:
                    wrong += not _verify(processes, key)
                else:
                    _draw_maps(processes, key, options["maps"], options["planners"].split(","))
            except Failure as failure:
                wrong += 1
                click.echo(f"{key.label}: FAILED: {failure}")
                _say("\n".join(failure.last_lines))
    return 1 if wrong else 0


def _verify(processes: Processes, key: CellKey) -> bool:
    reply = runner.verify(processes, key)
    different, stats = reply["different"], reply["memoir"]
    verdict = f"DIFFERENT in calls {different}" if different else "equal bit for bit"
    note = "" if reply["plain_repeats_itself"] else " (plain PyTorch does not repeat itself either)"
    click.echo(
        f"{key.label}: {verdict} in {reply['calls']} calls{note}; "
        f"{stats['planned']} planned, {stats['fallen_back']} fallen back"
    )
    return not different


def _draw_maps(processes: Processes, key: CellKey, folder: Path, planners: list[str]) -> None:
    """The thesis's appendix: the cell's trace, plans of it, and their heap maps, by memoir's own verbs."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="memoir-maps-") as scratch:
        trace, plan = Path(scratch, f"{key.net}.trace"), Path(scratch, f"{key.net}.plan")
        runner.record(processes, key, trace)
        for planner in planners:
            picture = folder / f"{key.label.replace(' ', '_')}_{planner}.png"
            for verb in (
                ["plan", trace, "--planner", planner, "-o", plan, "--force"],
                ["show", plan, "-o", picture, "--force"],
            ):
                done = subprocess.run([sys.executable, "-m", "memoir", *verb], capture_output=True, text=True)
                if done.returncode != 0:
                    what = f"memoir {verb[0]} ended with exit code {done.returncode}"
                    raise Failure(what, done.stderr.splitlines())
            click.echo(f"{key.label}: {picture}")


def _finish(summary: Summary, header: dict[str, Any], options: dict[str, Any], path: Path | None) -> None:
    if not summary.cells:
        raise Error(f"{path}: holds no complete block")
    if options["report"] is not None:
        for written in write_report(summary, header, options["report"]):
            _say(f"wrote {written}")
    click.echo(summary.to_json() if options["as_json"] else brief(summary))
    if options["report"] is None and path is not None:
        _say(f"next: {sys.argv[0]} --from {path} --report out/report")


def _say(line: str) -> None:
    click.echo(line, err=True)


def main() -> None:
    try:
        command.main(prog_name="torch_latency.py", standalone_mode=True)
    except Error as error:
        click.echo(f"torch_latency.py: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
