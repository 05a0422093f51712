# SPDX-License-Identifier: Apache-2.0
"""The Python tests in other surroundings: processors, threads, users, languages, folders, orders and load.

A test says what must hold anywhere. A float's last digit, what a library allocates on one processor, the words of an
error in English, the order of the tests: none of these is ours to expect. Prints a line for each surrounding, and ends
with 1 if a test failed in one.

  .venv/bin/python .ci/surroundings.py             all of them, some minutes each
  .venv/bin/python .ci/surroundings.py sse41 load  these two
  .venv/bin/python .ci/surroundings.py order --seed 7 -- tests/cli   one folder alone
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv" / "bin" / "python"
LOGS = ROOT / "build" / "surroundings"


class Missing(Exception):
    """This surrounding cannot be had here; the text says why."""


@dataclass(frozen=True)
class Surrounding:
    name: str
    what: str  # for people
    variables: dict[str, str] = field(default_factory=dict)
    torch: bool = False  # only the tests that use PyTorch differ
    busy: int = 0  # loops beside the tests
    user: str = ""  # who runs them
    away: bool = False  # TMPDIR and HOME elsewhere, with a letter beyond ASCII (LD_PRELOAD takes no space)
    shuffled: bool = False


SURROUNDINGS = (
    Surrounding(
        "sse41",
        "oneDNN and MKL at SSE 4",
        {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
        torch=True,
    ),
    Surrounding(
        "avx2",
        "AVX2, eight threads of OpenMP",
        {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "8"},
        torch=True,
    ),
    Surrounding(
        "avx512",
        "AVX-512 where there is one, three threads",
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "OMP_NUM_THREADS": "3"},
        torch=True,
    ),
    Surrounding(
        "plain",
        "PyTorch's plainest code, one thread",
        {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        torch=True,
    ),
    Surrounding(
        "abroad",
        "another language, time zone, home and folder for temporary files",
        {"LC_ALL": "tr_TR.UTF-8", "LANGUAGE": "tr", "TZ": "Asia/Kathmandu"},
        away=True,
    ),
    Surrounding(
        "bytes",
        "the C locale, and a dumb, narrow terminal",
        {
            "LC_ALL": "C",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "COLUMNS": "60",
        },
    ),
    Surrounding(
        "colour",
        "a terminal that is asked for colour and is very wide",
        {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color", "COLUMNS": "300"},
    ),
    Surrounding("order", "files and tests in random order", shuffled=True),
    Surrounding("user", "a user without rights and without a home", user="nobody"),
    Surrounding("load", "twenty busy loops beside them", busy=20),
)


def torch_tests() -> list[str]:
    """Files of tests that import PyTorch, or start what does."""
    return [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "torch" in path.read_text()
    ]


@contextlib.contextmanager
def around(surrounding: Surrounding) -> Iterator[tuple[list[str], dict[str, str]]]:
    """What stands before the command, and its variables."""
    with contextlib.ExitStack() as stack:
        variables = {**os.environ, "OMP_WAIT_POLICY": "passive", **surrounding.variables}
        prefix = []
        if surrounding.away or surrounding.user:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mémoir-away-")))
            variables.update(
                TMPDIR=str(folder), HOME=str(folder / "home"), XDG_CACHE_HOME=str(folder / "cache")
            )
            if surrounding.user:
                if os.geteuid() != 0:
                    raise Missing("only root can become another user")
                person = pwd.getpwnam(surrounding.user)
                os.chown(folder, person.pw_uid, person.pw_gid)
                prefix = ["setpriv", f"--reuid={person.pw_uid}", f"--regid={person.pw_gid}", "--clear-groups"]
                if subprocess.run([*prefix, "test", "-x", str(PYTHON)]).returncode != 0:
                    raise Missing(f"{surrounding.user} may not read {ROOT}")
        for _ in range(surrounding.busy):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lambda: os.nice(5))
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        yield prefix, variables


def run(surrounding: Surrounding, seed: int, tests: list[str]) -> bool:
    """Whether all passed."""
    begin = time.monotonic()
    log = LOGS / f"{surrounding.name}.log"
    command = [str(PYTHON), "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    command += ["-o", "faulthandler_timeout=1500"] if surrounding.busy else []
    command += ["--order", str(seed)] if surrounding.shuffled else []
    try:
        with around(surrounding) as (prefix, variables), log.open("w") as file:
            wanted = tests or (torch_tests() if surrounding.torch else [])
            code = subprocess.run(
                [*prefix, *command, *wanted], cwd=ROOT, env=variables, stdout=file, stderr=subprocess.STDOUT
            ).returncode
    except (Missing, KeyError) as missing:
        print(f"{surrounding.name:8} skipped: {missing}", flush=True)
        return True
    lines = log.read_text(errors="replace").splitlines()
    failed = [line for line in lines if re.match("(FAILED|ERROR) ", line)]
    print(
        "\n".join(
            [
                f"{surrounding.name:8} {lines[-1] if lines else 'said nothing'}  [{time.monotonic() - begin:.0f} s]",
                *failed,
            ]
        ),
        flush=True,
    )
    return code == 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [surrounding.name for surrounding in SURROUNDINGS]
    parser.add_argument("names", nargs="*", metavar="SURROUNDING", help=f"these alone: {', '.join(names)}")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the order")
    before, _, tests = " ".join(sys.argv[1:]).partition(" -- ")
    arguments = parser.parse_args(before.split())
    if unknown := set(arguments.names) - set(names):
        parser.error(f"no surrounding {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    print(f"seed of the order: {arguments.seed}", flush=True)
    passed = [
        run(surrounding, arguments.seed, tests.split())
        for surrounding in SURROUNDINGS
        if not arguments.names or surrounding.name in arguments.names
    ]
    print(f"{sum(passed)} of {len(passed)} surroundings passed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
