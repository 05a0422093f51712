# SPDX-License-Identifier: Apache-2.0
"""Forked children that give up rights before they first allocate: recorded or left alone, never killed."""

import os
import subprocess

import numpy as np
import pytest
from memoir._core import Trace


@pytest.mark.parametrize("what", ["prctl", "seccomp", "refused", "chroot", "setuid", "unshare"])
def test_children_that_give_up_rights(what, compiled, record, tmp_path):
    program = compiled("confined.c")
    alone = subprocess.run([program, what], timeout=60).returncode
    if alone != 3:
        pytest.skip(f"this machine refuses {what}, or kills for it: exit status {alone}")
    done = record(program, what)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    (child,) = (path for path in tmp_path.glob("x.*.trace"))
    events = Trace.open(str(child)).events
    count = int(np.sum((events["kind"] == 1) & (events["size"] == 200)))
    assert count == 200_000, "its trace begins before it gives up what that takes"


def test_a_trace_that_cannot_be_written_is_said_by_memoir_alone(compiled, record, tmp_path):
    # A child in a folder that nobody may write to any more: its own stderr stays empty.
    script = f"exec 3>&2; chmod 555 {tmp_path}; (/bin/true) 2>{tmp_path}/../of-child; chmod 755 {tmp_path}"
    if os.geteuid() == 0:
        script = f"(ulimit -f 0; exec /bin/true) 2>{tmp_path}/../of-child"
    done = record("sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".." / "of-child").read_text() == ""
    assert "processes could not write a trace" in done.stderr


def test_five_thousand_threads_at_once_lose_nothing(compiled, record, tmp_path):
    source = tmp_path / "many.c"
    source.write_text(
        "#include <pthread.h>\n#include <stdlib.h>\nstatic pthread_barrier_t all;\n"
        "static void* run(void* number) {\n  void* volatile block = malloc(1000);\n  pthread_barrier_wait(&all);\n"
        "  if ((long)number % 2) free(block);\n  return 0;\n}\n"
        "int main(void) {\n  enum { kCount = 5000 };\n  static pthread_t threads[kCount];\n  pthread_attr_t small;\n"
        "  pthread_barrier_init(&all, 0, kCount);\n  pthread_attr_init(&small);\n"
        "  pthread_attr_setstacksize(&small, 65536);\n"
        "  for (long i = 0; i < kCount; ++i)\n    if (pthread_create(&threads[i], &small, run, (void*)i)) return 77;\n"
        "  for (int i = 0; i < kCount; ++i) pthread_join(threads[i], 0);\n  return 0;\n}\n"
    )
    subprocess.run(["cc", "-O1", "-w", "-pthread", str(source), "-o", str(tmp_path / "many")], check=True)
    done = record(tmp_path / "many")
    if done.returncode == 77:
        pytest.skip("this machine has no 5,000 threads")
    assert done.returncode == 0 and "lost" not in done.stderr, done.stderr
    events = Trace.open(str(tmp_path / "x.trace")).events
    made = events[(events["kind"] == 1) & (events["size"] == 1000)]["object"]
    freed = events[events["kind"] == 2]["object"]
    assert len(made) == 5000 and np.isin(made, freed).sum() == 2500
