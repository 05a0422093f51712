# SPDX-License-Identifier: Apache-2.0
"""memoir bench and its peers on the same questions: equal programs, a static one, one that fails.

    python bench/compare/peers.py                     60 benches of one program against itself, with every tool that is here
    python bench/compare/peers.py hyperfine --equal 6     one tool, six benches
    python bench/compare/peers.py --smoke             one bench of each tool that starts at once

memoir asserts a difference where its report names one in any of its quantities; hyperfine where the second command is
slower by more than the deviation that it prints (its sentence "ran 1.1 times faster" is always there); pyperf where it does
not say "not significant"; criterion where it says "regressed" or "improved". ReBench prints a mean per executor and
compares nothing. mimalloc-bench has no package; docs/notebook/bench/next-to-other-tools.md says how it was tried by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from memoir.bench.process import allocators, machine

RUNS = 10  # of each side in a bench
STATIC = (
    "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 100000; ++i) free(malloc(i)); return 0; }\n"
)
REBENCH = """
default_experiment: all
runs: {{invocations: {runs}, env: {environment}}}
benchmark_suites:
  suite: {{gauge_adapter: Time, command: " ", benchmarks: [one]}}
executors: {{a: {{path: {folder}, executable: {name}}}, b: {{path: {folder}, executable: sound}}}}
experiments: {{all: {{suites: [suite], executions: [a, b]}}}}
"""
CARGO = """
[package]
name = "equal"
version = "1.0.0"
edition = "2021"
[dev-dependencies]
criterion = { version = "*", default-features = false }
[[bench]]
name = "equal"
harness = false
"""
CRITERION = """
use criterion::{criterion_group, criterion_main, Criterion};
use std::{process, time::Duration};
fn run() {
    let program = std::env::var("PROGRAM").unwrap();
    assert!(process::Command::new(program).stdout(process::Stdio::null()).status().unwrap().success());
}
fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("equal");
    group.sample_size(RUNS).warm_up_time(Duration::from_millis(50)).measurement_time(Duration::from_millis(100));
    group.bench_function("first", |b| b.iter(run));
    if std::env::var("BOTH").is_ok() { group.bench_function("second", |b| b.iter(run)); }
}
criterion_group!(benches, bench);
criterion_main!(benches);
"""


class Tool:
    """A peer: what it is called, and how it is asked. Each answer is a sentence, or None where it has none."""

    name: str
    slow = False  # to set up

    def __init__(self, folder: Path, programs: dict[str, Path]) -> None:
        self.folder, self.programs = folder, programs

    def missing(self) -> str | None:
        """Why it cannot be asked here."""
        return None

    def version(self) -> str:
        raise NotImplementedError

    def equal(self, number: int) -> bool | None:
        """Whether it names a difference between a program and itself; None: it compares nothing."""
        return None

    def preloaded(self) -> str:
        """What becomes of a static program under LD_PRELOAD."""
        done = self.measure("static", {"LD_PRELOAD": str(allocators.find("memoir"))})
        return "measured, without a word" if done.returncode == 0 else f"refused: {last_line(done)}"

    def failing(self) -> str:
        """What becomes of a program that fails, and of the sound one after it."""
        done = self.measure("fails", {})
        return f"exit code {done.returncode}: {last_line(done)}"

    def measure(self, program: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Measures this program, and where it measures several in one go a sound one after it."""
        raise NotImplementedError


class Memoir(Tool):
    name = "memoir bench"

    def version(self) -> str:
        return version("memoir-alloc")

    def equal(self, number: int) -> bool:
        done = self._bench("system,again=system", "equal", "--json", "-n", str(RUNS))
        return bool(json.loads(done.stdout)["memoir"]["asserts"])

    def preloaded(self) -> str:
        done = self._bench("system,memoir", "static")
        return "measured, without a word" if done.returncode == 0 else f"refused: {last_line(done)}"

    def failing(self) -> str:
        done = self._bench("system", "fails", "-n", "2")
        return f"exit code {done.returncode}: {last_line(done)}"

    def _bench(self, allocator_list: str, program: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "memoir",
            "bench",
            allocator_list,
            "--no-pictures",
            "-f",
            "-o",
            "memoir-bench",
        ]
        return ask([*command, *options, "--", str(self.programs[program])], self.folder)


class Hyperfine(Tool):
    name = "hyperfine"

    def missing(self) -> str | None:
        return None if shutil.which("hyperfine") else "no hyperfine on the PATH"

    def version(self) -> str:
        return ask(["hyperfine", "--version"], self.folder).stdout.split()[1]

    def equal(self, number: int) -> bool:
        program = str(self.programs["equal"])
        said = ask(
            ["hyperfine", "-N", "-w", "1", "-r", str(RUNS), program, f"{program} "], self.folder
        ).stdout
        found = re.search(r"([0-9.]+) ± ([0-9.]+) times faster", said)
        return bool(found) and float(found[1]) - float(found[2]) > 1.0

    def measure(self, program: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        both = [str(self.programs[program]), str(self.programs["equal"])]
        return ask(["hyperfine", "-N", "-r", "2", *both], self.folder, environment)


class Pyperf(Tool):
    name = "pyperf"

    def missing(self) -> str | None:
        return None if shutil.which("pyperf") else "no pyperf on the PATH: pip install pyperf"

    def version(self) -> str:
        return re.search(r"perf_version: (\S+)", ask(["pyperf", "collect_metadata"], self.folder).stdout)[1]

    def equal(self, number: int) -> bool:
        for side in ("a", "b"):
            (self.folder / f"{side}.json").unlink(missing_ok=True)
            self.measure("equal", {}, "-o", f"{side}.json", "-p", str(RUNS))
        said = ask(["pyperf", "compare_to", "a.json", "b.json"], self.folder).stdout
        return "faster" in said or "slower" in said

    def measure(
        self, program: str, environment: dict[str, str], *options: str
    ) -> subprocess.CompletedProcess[str]:
        options = options or ("-p", "2")
        command = [
            "pyperf",
            "command",
            "-q",
            "-n",
            "1",
            "-w",
            "1",
            "-l",
            "1",
            "--inherit-environ",
            "LD_PRELOAD",
        ]
        return ask([*command, *options, "--", str(self.programs[program])], self.folder, environment)


class Criterion(Tool):
    name = "criterion"
    slow = True

    def missing(self) -> str | None:
        return None if shutil.which("cargo") else "no cargo on the PATH"

    def version(self) -> str:
        (self.folder / "benches").mkdir()
        (self.folder / "src").mkdir()
        (self.folder / "src" / "lib.rs").write_text("")
        (self.folder / "Cargo.toml").write_text(CARGO)
        (self.folder / "benches" / "equal.rs").write_text(CRITERION.replace("RUNS", str(RUNS)))
        done = ask(["cargo", "bench", "--no-run", "-q"], self.folder)
        if done.returncode:
            raise SystemExit(f"criterion cannot be built: {last_line(done)}")
        lock = (self.folder / "Cargo.lock").read_text()
        return re.search(r'name = "criterion"\nversion = "([^"]+)"', lock)[1]

    def equal(self, number: int) -> bool:
        environment = {"PROGRAM": str(self.programs["equal"])}
        self._bench(environment, "--save-baseline", "before")
        said = self._bench(environment, "--baseline", "before").stdout
        return "regressed" in said or "improved" in said

    def measure(self, program: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return self._bench({**environment, "PROGRAM": str(self.programs[program]), "BOTH": "1"})

    def _bench(self, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
        return ask(["cargo", "bench", "-q", "--bench", "equal", "--", *options], self.folder, environment)


class ReBench(Tool):
    name = "ReBench"

    def missing(self) -> str | None:
        return None if shutil.which("rebench") else "no rebench on the PATH: pip install rebench"

    def version(self) -> str:
        return ask(["rebench", "--version"], self.folder).stdout.split()[-1]

    def measure(self, program: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        for name, target in (("tried", program), ("sound", "equal")):
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / name).symlink_to(self.programs[target])
        (self.folder / "rebench.conf").write_text(
            REBENCH.format(runs=2, folder=self.folder, name="tried", environment=json.dumps(environment))
        )  # it clears the environment of what it measures
        return ask(["rebench", "-c", "-D", "rebench.conf"], self.folder)


TOOLS: tuple[type[Tool], ...] = (Memoir, Hyperfine, Pyperf, Criterion, ReBench)


def ask(
    command: list[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        errors="replace",
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it said nothing"


def programs(folder: Path) -> dict[str, Path]:
    """A short program; a static one that asks for memory; one that fails."""
    source, static, fails = folder / "static.c", folder / "static", folder / "fails"
    source.write_text(STATIC)
    done = ask(["cc", "-O1", "-fno-builtin", "-static", str(source), "-o", str(static)], folder)
    if done.returncode:
        raise SystemExit(f"a static program cannot be built here: {last_line(done)}")
    fails.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    fails.chmod(0o755)
    equal = folder / "equal"
    equal.write_text(f"#!/bin/sh\nexec {machine.tool('bench-numbers')} --smoke --load 2\n")
    equal.chmod(0o755)
    return {"equal": equal, "static": static, "fails": fails}


def row(tool: Tool, equal: int, say: Callable[[str], None]) -> None:
    name = f"{tool.name} {tool.version()}"
    began, named = time.monotonic(), []
    for number in range(equal):
        found = tool.equal(number)
        if found is None:
            break
        named.append(found)
    took = time.monotonic() - began
    compared = (
        f"{sum(named)} of {len(named)} ({took / len(named):.1f} s each)" if named else "compares nothing"
    )
    say(f"{name}")
    say(f"  equal programs, a difference is named: {compared}")
    say(f"  a static program under LD_PRELOAD:     {tool.preloaded()}")
    say(f"  a program that fails:                  {tool.failing()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=", ".join(tool.name for tool in TOOLS))
    parser.add_argument("--equal", type=int, default=60, help="benches of a program against itself  [60]")
    parser.add_argument("--smoke", action="store_true", help="one bench of each tool: does it work?")
    options = parser.parse_args()
    chosen = [tool for tool in TOOLS if not options.tools or tool.name.split()[0] in options.tools]
    if options.smoke:
        chosen = [tool for tool in chosen if not tool.slow]
    with tempfile.TemporaryDirectory(prefix="memoir-peers-") as place:
        made = programs(Path(place))
        for kind in chosen:
            folder = Path(place) / kind.__name__
            folder.mkdir()
            tool = kind(folder, made)
            missing = tool.missing()
            if missing:
                print(f"{tool.name}: {missing}", flush=True)
                continue
            row(tool, 1 if options.smoke else options.equal, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
