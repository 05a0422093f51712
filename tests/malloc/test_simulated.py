# SPDX-License-Identifier: Apache-2.0
"""The simulated malloc is the real one: recorded programs under both (replay.cpp), at their peaks and troughs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPLAY = HERE.parents[1] / "build/release/tests/malloc_replay"
SMALL = "background_from=1048576,split_from=1048576,sample=16384"  # the programs are small
# docs/concepts/simulation.md promises 3 %. Both decide by the same code, and so there is no difference; a rule that
# only one of them has shows here at once.
WITHIN = "0.001"
PROGRAMS = ["buffers", "pipe", "tree", "servers", "documents", "tables", "perl"]
PERL = """my $x = 7; sub r { $x = ($x * 1103515245 + 12345) % 2147483648; return $x % $_[0]; }
for my $wave (1..3) { my (%seen, @kept);
  for (1..4000) { my $k = "w" . r(2000); $seen{$k} .= "y" x (1 + r(60)); push @kept, [$k, r(100)] if r(5) == 0; }
  my @sorted = sort { length($seen{$a}) <=> length($seen{$b}) } keys %seen; %seen = (); select(undef, undef, undef, 0.4); }"""


@pytest.fixture(scope="module")
def trace(compiled, tmp_path_factory):
    """trace("pipe"): the recording of a program, made once."""
    folder = tmp_path_factory.mktemp("traces")

    def record(name: str) -> Path:
        path = folder / f"{name}.trace"
        if not path.exists():
            if name == "perl":
                command = ["perl", "-e", PERL]
            elif name in ("documents", "tables"):
                command = [sys.executable, HERE / "turns.py", name]
            else:
                command = [compiled("turns.cpp", "-std=c++17"), name]
            subprocess.run(
                [sys.executable, "-m", "memoir", "record", "-o", path, "--", *command],
                check=True,
                env={**os.environ, "PYTHONMALLOC": "malloc"},  # blocks of its own for each object
            )
        return path

    return record


@pytest.mark.parametrize("settings", [SMALL, "cache=0"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_holds_what_the_malloc_holds(name, settings, trace):
    if not REPLAY.exists():
        pytest.skip("malloc_replay is not built (make test does it)")
    if name == "perl" and not any(Path(path, "perl").exists() for path in os.environ["PATH"].split(":")):
        pytest.skip("no perl here")
    run = subprocess.run(
        [REPLAY, trace(name), "--set", settings, "--within", WITHIN], capture_output=True, text=True
    )
    print(run.stdout)
    assert run.returncode == 0, run.stderr
    assert len(re.findall(r"^(?:peak|trough) ", run.stdout, re.MULTILINE)) >= 2
