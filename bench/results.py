#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Remakes a door's results: runs its benches, writes docs/results/data/DOOR.json and the pages made of it, and says what
changed beyond noise.

    bench/results.py malloc --budget 20min
    bench/results.py malloc                the rest, after Ctrl-C or a spent budget
    bench/results.py malloc --list         what it would run

The steps stand in that file, under `remake`: a command, the measurement that it makes, and where in its output each
figure stands. A step that ended is not run again until all have ended (build/results/DOOR keeps what it printed), so a
stop costs one step at most. A step whose command takes {seconds} ends by itself in its share of the budget.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIGURE = re.compile(r"(-?\d[\d,]*(?:\.\d+)?)(?: \[(-?[\d,.]+), (-?[\d,.]+)\])?")


def writer():
    """docs/make_results.py as a module."""
    spec = importlib.util.spec_from_file_location("make_results", ROOT / "docs" / "make_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds(text: str) -> float:
    """Seconds of a budget such as 90s, 20min or 2h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text}: write it as 90s, 20min or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2]]


def tables(text: str) -> list[list[list[str]]]:
    """The markdown tables of a bench's output, a list of rows of cells each."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [re.sub(r"[`*]", "", cell).strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                rows.append(cells)
        elif rows:
            found.append(rows)
            rows = []
    return found


def pick(text: str, where: str | list[Any]) -> tuple[Decimal, Decimal | None, Decimal | None] | None:
    """A figure of an output, with its interval: by row and column of a table (and which number of that cell), or by a
    pattern whose group is the figure. None where it is not there."""
    if isinstance(where, str):
        match = re.search(where, text)
        cell, number = (match[1], 0) if match else ("", 0)
    else:
        row, column, number = [*where, 0][:3]
        cell = next(
            (
                line[table[0].index(column)]
                for table in tables(text)
                if column in table[0]
                for line in table[1:]
                if line[0] == row and len(line) == len(table[0])
            ),
            "",
        )
    found = list(FIGURE.finditer(cell))
    if len(found) <= int(number):
        return None
    value, low, high = (one and Decimal(one.replace(",", "")) for one in found[int(number)].groups())
    return value, low, high


def verdict(old: dict[str, Any], value: Decimal, low: Decimal | None, high: Decimal | None) -> str | None:
    """What is to be said of a figure that was `old` and is now `value`; None where it is the same."""
    if value == old["value"]:
        return None
    if low is not None and "low" in old:
        return "changed" if low > old["high"] or high < old["low"] else "within noise"
    return "differs; one run says nothing of noise"


def command_of(step: dict[str, Any], folder: Path, left: float) -> list[str]:
    begun = folder / step["step"]
    words = step["again"] if "again" in step and begun.exists() else step["command"]
    filled = [word.replace("{seconds}", str(int(left))).replace("{folder}", str(begun)) for word in words]
    return [sys.executable, str(ROOT / filled[0]), *filled[1:]]


def run(words: list[str], output: Path, left: float) -> str:
    """Runs a step for at most `left` seconds, with all that it starts: "done", or why there is no output."""
    part = output.with_suffix(".part")
    errors = output.with_suffix(".log")
    with part.open("w") as file, errors.open("w") as log:
        process = subprocess.Popen(words, stdout=file, stderr=log, cwd=ROOT, start_new_session=True)
        try:
            code = process.wait(timeout=left)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as stop:
            for sent in (signal.SIGINT, signal.SIGKILL):
                try:
                    os.killpg(process.pid, sent)
                    process.wait(timeout=10)
                except (subprocess.TimeoutExpired, ProcessLookupError):
                    continue
            if isinstance(stop, KeyboardInterrupt):
                raise
            return "out of time"
    if code != 0:
        last = errors.read_text(errors="replace").strip().rpartition("\n")[2]
        return f"exit code {code}: {last or errors}"
    part.rename(output)
    return "done"


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "not in git") + (
        "+" if git("status", "--porcelain") else ""
    )


def machine() -> tuple[str, str]:
    """Its class and its load."""
    from memoir.bench.process.machine import describe

    here = describe()
    virtual = "virtual " if here["virtual"] else ""
    memory = here["memory_bytes"] / 2**30
    kind = f"{here['processor']}, {here['cores']} {virtual}cores, {memory:.0f} GiB, {here['kernel']}"
    return kind, str(here["load_average"])


def mean(results: dict[str, Any], members: list[Any]) -> tuple[Decimal, Decimal | None, Decimal | None]:
    """The geometric mean of figures, or of ratios of two, with Student's 95 % interval over them; digits of the last."""
    from memoir.bench.statistics import mean_interval

    def value(name: str) -> float:
        return float(results["figures"][name]["value"])

    ratios = [value(one) if isinstance(one, str) else value(one[0]) / value(one[1]) for one in members]
    ends = mean_interval([math.log(one) for one in ratios])
    return tuple(Decimal(f"{math.exp(end):.2f}") for end in ends)


def take(results: dict[str, Any], step: dict[str, Any], text: str, when: dict[str, Any]) -> list[str]:
    """Puts a step's figures into the results, and says what changed. Where a bench made only some figures of a
    measurement, these get a measurement of their own."""
    figures, lines, made = results["figures"], [], []
    missing = [name for name, where in step["picks"].items() if pick(text, where) is None]
    if missing:
        lines.append(f"  not in what {step['step']} printed: {', '.join(missing)}")
    means = step.get("means", {})  # of figures that this step makes, and so without any that it lacks
    for name, where in [*step["picks"].items(), *means.items()]:
        if name in missing:
            continue
        if name in means:
            names = {each for one in where for each in ([one] if isinstance(one, str) else one)}
            if names & set(missing):
                lines.append(f"  {name}: kept, since some of what it is the mean of is missing")
                continue
            value, low, high = mean(results, where)
        else:
            value, low, high = pick(text, where)
        old = figures[name]
        said = verdict(old, value, low, high)
        if said:
            now = f"{value:,}" + (f" [{low}, {high}]" if low is not None else "")
            was = f"{old['value']:,}" + (f" [{old['low']}, {old['high']}]" if "low" in old else "")
            lines.append(f"  {name}: {now}, was {was}: {said}")
        kept = {key: old[key] for key in ("what", "of")}
        figures[name] = {**kept, "value": value, **({} if low is None else {"low": low, "high": high})}
        made.append(name)
    of = step["measured"]
    if made:
        programs = results["measured"][of]["programs"]
        whole = all(name in made for name, one in figures.items() if one["of"] == of)
        key = of if whole else f"{of}, {when['date']}"
        results["measured"][key] = {**when, "replicates": step["replicates"], "programs": programs}
        for name in made:
            figures[name]["of"] = key
    used = {one["of"] for one in figures.values()}
    results["measured"] = {key: one for key, one in results["measured"].items() if key in used}
    return lines


def main(arguments: list[str] | None = None) -> int:
    make = writer()
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("door", choices=make.DOORS)
    parser.add_argument("--budget", type=seconds, default=seconds("20min"), help="90s, 20min, 2h [20min]")
    parser.add_argument("--only", help="these steps, with commas between")
    parser.add_argument("--list", action="store_true", help="say what would be run, and end")
    parser.add_argument("--data", type=Path, default=make.RESULTS / "data", help="another folder of results")
    parser.add_argument(
        "--state", type=Path, default=ROOT / "build" / "results", help="where outputs are kept"
    )
    options = parser.parse_args(arguments)

    path = options.data / f"{options.door}.json"
    results = make.parse(path.read_text())
    steps = results["remake"]
    if options.only:
        wanted = options.only.split(",")
        if missing := set(wanted) - {step["step"] for step in steps}:
            parser.error(
                f"no step {', '.join(sorted(missing))}; there are {', '.join(s['step'] for s in steps)}"
            )
        steps = [step for step in steps if step["step"] in wanted]
    folder = options.state / options.door
    if options.list:
        for step in steps:
            ended = " (ended)" if (folder / f"{step['step']}.txt").exists() else ""
            print(f"{step['step']}: {' '.join(step['command'])}{ended}")
        return 0

    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.budget
    unfinished, lines = [], []
    for number, step in enumerate(steps):
        output = folder / f"{step['step']}.txt"
        note = output.with_suffix(".json")
        if output.exists() and note.exists():
            print(f"{step['step']}: ended before", flush=True)
            continue
        same = [folder / f"{one['step']}.txt" for one in steps[:number] if one["command"] == step["command"]]
        if same and same[0].exists():
            shutil.copy(same[0], output)
            shutil.copy(same[0].with_suffix(".json"), note)
            print(f"{step['step']}: as {same[0].stem}", flush=True)
            continue
        left = end - time.monotonic()
        if left < 1:
            unfinished.append(step["step"])
            continue
        kind, load = machine()
        when = {"date": str(datetime.date.today()), "machine": kind, "load": load, "commit": commit()}
        print(f"{step['step']}: {' '.join(step['command'])}", flush=True)
        said = run(command_of(step, folder, left / (len(steps) - number)), output, left)
        print(f"{step['step']}: {said}", flush=True)
        if said == "done":
            note.write_text(json.dumps(when) + "\n")
        else:
            unfinished.append(step["step"])

    for step in steps:
        output = folder / f"{step['step']}.txt"
        if output.exists():
            when = json.loads(output.with_suffix(".json").read_text())
            before = results["measured"].get(step["measured"], {}).get("machine")
            changed = take(results, step, output.read_text(), when)
            lines.append(
                f"{step['step']}: {len(step['picks'])} figures" + ("" if changed else ", none changed")
            )
            if before and before != when["machine"]:
                lines.append(f"  another machine than before: {when['machine']}; was {before}")
            lines += changed
    print("\n".join(lines))
    path.write_text(make.dump(results))
    if options.data == make.RESULTS / "data":
        for page, text in make.written().items():
            page.write_text(text)
    if unfinished:
        print(f"not ended: {', '.join(unfinished)}; the same command goes on there")
        return 3
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
