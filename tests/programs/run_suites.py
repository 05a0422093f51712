# SPDX-License-Identifier: Apache-2.0
"""Runs test suites of real programs plain and with memoir in front of their mallocs: the results must be the same.

python tests/programs/run_suites.py [--under record,malloc,malloc+model] [--only redis,git] [--install]
python tests/programs/run_suites.py --table      # of what was found so far

Each suite of suites.py and suites.sh runs plain, then under the recorder, under memoir's malloc, and under that with a
model of lifetimes that is trained on the suite itself. A test counts as different where it says something under memoir
that it says in no plain run, of up to three: tests have clocks, and machines are busy. The traces of processes that
have ended are read and removed. Sources come from Debian (apt-get source), crates from cargo; --install fetches the
programs too, by apt-get, which root may. What was found stays in the folder, and is not run again. Exits with 1 where
a test differs. docs/notebook/record/test-suites.md has results."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memoir._core import Error, Trace
from suite_sources import COMMANDS, fetch
from suites import SUITES, Suite

from memoir import malloc
from memoir.record import native

MODES = ("record", "malloc", "malloc+model")
ATTEMPTS = 3
Results = dict[str, str]  # of tests, by their names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--under", default=",".join(MODES))
    parser.add_argument("--only", default="", help="names of suites, with commas between")
    parser.add_argument("--folder", type=Path, default=Path("build/suites"))
    parser.add_argument("--install", action="store_true", help="install what is missing, by apt-get")
    parser.add_argument("--table", action="store_true", help="print what was found so far, and end")
    given = parser.parse_args()
    folder = given.folder.resolve()
    (folder / "found").mkdir(parents=True, exist_ok=True)
    wanted = [name for name in given.only.split(",") if name] or list(SUITES)
    for name in [] if given.table else wanted:
        suite = SUITES[name]
        if missing := [one for one in suite.needs if shutil.which(one) is None]:
            if not given.install:
                print(
                    f"{name}: skipped: no {', '.join(missing)} here: --install, or install {' '.join(suite.debian)}"
                )
                continue
            subprocess.run(
                ["apt-get", "install", "-q", "-y", "--no-install-recommends", *suite.debian], check=True
            )
        try:
            source = fetch(name, suite, folder)
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"{name}: skipped: its source cannot be had or prepared: {error}")
            print(f"{name}: it needs {' '.join(suite.debian)}")
            continue
        for mode in given.under.split(","):
            compare(name, suite, mode, folder, source)
    return print_table(folder, wanted)


# --- running ---


def run(
    name: str, suite: Suite, mode: str, folder: Path, source: Path, model: Path | None
) -> tuple[Results, dict[str, Any]]:
    """One run of a suite: what each test said, and figures."""
    scratch = folder / "runs" / name
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    log = folder / f"{name}.{mode}.log"
    base = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "SOURCE": str(source),
        "RUN": str(scratch),
        "PYTHON": sys.executable,
    }
    figures: dict[str, Any] = {}
    began = time.monotonic()
    with under(mode, scratch.with_suffix(".traces"), base, model, figures) as environment:
        command = ["bash", str(COMMANDS), f"run_{name}"]
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command,
                cwd=scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            process.wait(timeout=suite.limit)
        except subprocess.TimeoutExpired:
            figures["timed_out"] = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)  # servers that a suite has left
        process.wait()
    figures |= {"seconds": round(time.monotonic() - began), "status": process.returncode}
    text = log.read_text("utf-8", "replace")
    return parse(suite, text), figures


def parse(suite: Suite, text: str) -> Results:
    results: Results = {}
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # colours
    seen: collections.Counter[str] = collections.Counter()
    for match in re.finditer(suite.tests, text, re.MULTILINE):
        groups = match.groupdict()
        name = groups["name"].strip()
        seen[name] += 1
        # A suite may tell of its failures a second time: what it says nothing of was run.
        results[f"{name} #{seen[name]}" if seen[name] > 1 else name] = groups["status"] or "run"
    return results


@contextlib.contextmanager
def under(
    mode: str, traces: Path, base: dict[str, str], model: Path | None, figures: dict[str, Any]
) -> Iterator[dict[str, str]]:
    if mode == "record":
        shutil.rmtree(traces, ignore_errors=True)
        traces.mkdir()
        traces.chmod(0o777)  # a server runs as a user of its own
        with native.Clock() as clock, Reader(traces, figures):
            yield native.environment(traces / "x.trace", clock.path, base=base)
    elif mode == "plain":
        yield base
    else:
        yield malloc.environment({"model": str(model)} if model else {}, base)


class Reader:
    """Reads and removes the traces of processes that have ended: all of them would not fit the disk."""

    MOST = 32 << 20  # bytes of a trace that is read: the rest is only counted

    def __init__(self, traces: Path, figures: dict[str, Any]):
        self._traces, self._figures = traces, figures
        self._figures |= {"traces": 0, "bytes": 0, "events": 0, "unreadable": []}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._take(all=True)

    def _loop(self) -> None:
        while not self._stop.wait(1):
            self._take(all=False)

    def _take(self, all: bool) -> None:
        for path in self._traces.glob("*.trace"):
            pid = path.name.split(".")[1]
            if not all and (not pid.isdigit() or Path(f"/proc/{pid}").exists()):
                continue
            size = path.stat().st_size
            self._figures["traces"] += 1
            self._figures["bytes"] += size
            try:
                if size <= self.MOST:
                    self._figures["events"] += len(Trace.open(str(path)).events)
            except Error as error:
                self._figures["unreadable"].append(str(error))
            path.unlink()


def train(name: str, suite: Suite, folder: Path, source: Path) -> Path:
    """A model of the suite's own lifetimes: sampled in one run of it."""
    model = folder / f"{name}.model"
    if model.exists():
        return model
    profile = model.with_suffix(".lifetimes")
    scratch = folder / "runs" / name
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    variables = {
        **os.environ,
        "SOURCE": str(source),
        "RUN": str(scratch),
        "PYTHON": sys.executable,
    }
    memoir = [sys.executable, "-m", "memoir"]
    with open(folder / f"{name}.train.log", "w") as log:
        command = [
            "record",
            "--lifetimes",
            "--every",
            "16KiB",
            "-f",
            "-o",
            str(profile),
            "--",
            "bash",
            str(COMMANDS),
            f"run_{name}",
        ]
        subprocess.run(
            [*memoir, *command], cwd=scratch, env=variables, stdout=log, stderr=log, timeout=2 * suite.limit
        )
        subprocess.run(
            [*memoir, "train", str(profile), "-o", str(model), "-f"], stdout=log, stderr=log, check=True
        )
    profile.unlink()
    return model


# --- comparing ---


def compare(name: str, suite: Suite, mode: str, folder: Path, source: Path) -> None:
    found = folder / "found" / f"{name}.{mode}.json"
    if found.exists():
        return
    try:
        model = train(name, suite, folder, source) if mode == "malloc+model" else None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"{name}: no model of it: {error}", flush=True)
        return
    kept = folder / "found" / f"{name}.plain.json"
    plain: list[Results] = json.loads(kept.read_text()) if kept.exists() else []
    ours: list[Results] = []
    figures: dict[str, Any] = {}
    different: dict[str, list[str]] = {}
    for attempt in range(ATTEMPTS):
        if len(plain) <= attempt:
            plain.append(run(name, suite, "plain", folder, source, None)[0])
            kept.write_text(json.dumps(plain))
        results, figures_now = run(name, suite, mode, folder, source, model)
        figures = figures or figures_now
        ours.append(results)
        different = differing(plain, ours)
        print(
            f"{name} under {mode}: {len(results):,} tests, {len(different):,} different; {figures_now}",
            flush=True,
        )
        if not different:
            break
    row = {"tests": len(plain[0]), "different": different, "attempts": len(ours), **figures}
    found.write_text(json.dumps(row, indent=1))


def differing(plain: list[Results], ours: list[Results]) -> dict[str, list[str]]:
    """Tests that never said what they say in a plain run: (plain, ours)."""
    different = {}
    for name in {name for run in plain + ours for name in run}:
        was = {run.get(name, "not run") for run in plain}
        now = {run.get(name, "not run") for run in ours}
        if not was & now:
            different[name] = [" / ".join(sorted(was)), " / ".join(sorted(now))]
    return different


def print_table(folder: Path, wanted: list[str]) -> int:
    print("\n| program | what | tests | recorded | traces | events, 10^6 | malloc | malloc with a model |")
    print("|---|---|---:|---|---:|---:|---|---|")
    bad = 0
    for name in wanted:
        rows = {}
        for mode in MODES:
            path = folder / "found" / f"{name}.{mode}.json"
            rows[mode] = json.loads(path.read_text()) if path.exists() else None
        first = next(filter(None, rows.values()), None)
        if first is None:
            continue
        record = rows["record"] or {}
        bad += sum(bool(row["different"] or row.get("unreadable")) for row in rows.values() if row)
        cells = [name, SUITES[name].what, f"{first['tests']:,}", cell(rows["record"])]
        cells += [f"{record.get('traces', 0):,}", f"{record.get('events', 0) / 1e6:.1f}"]
        print("| " + " | ".join([*cells, cell(rows["malloc"]), cell(rows["malloc+model"])]) + " |")
    return 1 if bad else 0


def cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not run"
    said = f"{len(row['different']):,} different" if row["different"] else "same"
    return said + (f", {len(row['unreadable']):,} traces unreadable" if row.get("unreadable") else "")


if __name__ == "__main__":
    sys.exit(main())
