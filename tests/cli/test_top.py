# SPDX-License-Identifier: Apache-2.0
"""memoir top: the figures of a running process, read from its memory."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from memoir import Error, malloc

PROGRAM = """
import sys
blocks = [bytes(1000) for _ in range(60_000)]
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server():
    """A process with 60 MB in blocks of 1,033 bytes that waits, and whose figures can be read."""
    try:
        environment = malloc.environment()
    except Error as error:
        pytest.skip(str(error))
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        for _ in range(600):
            try:
                if malloc.figures(process.pid)["live"] > 65e6:
                    break
            except Error as error:
                if "cannot be read" in str(error):
                    pytest.skip(str(error))
                assert "no figures yet" in str(error)
            time.sleep(0.1)
        yield process
        process.stdin.close()


def test_figures_of_a_running_process(server):
    figures = malloc.figures(server.pid)
    assert 65e6 < figures["live"] < 80e6
    assert figures["live"] <= figures["held"] <= figures["resident"]
    assert figures["short_lived"] + figures["long_lived"] + figures["large"] == figures["held"]
    by_size = {name: value for name, value in figures.items() if name.startswith("size_")}
    assert max(by_size, key=by_size.get) == "size_1152"
    assert sum(by_size.values()) + figures["large"] == figures["live"]


def test_for_people_as_json_and_for_prometheus(server, memoir, tmp_path):
    code, out, _ = memoir("top", str(server.pid), "--once")
    assert code == 0 and f"process {server.pid}" in out and "1152: " in out
    code, out, _ = memoir("top", str(server.pid), "--once", "--json")
    assert json.loads(out)["pid"] == server.pid
    code, out, _ = memoir("top", str(server.pid), "--once", "--prometheus", "-o", str(tmp_path / "x.prom"))
    assert code == 0 and out == ""
    lines = (tmp_path / "x.prom").read_text().splitlines()
    assert all(
        re.fullmatch(r'# TYPE \w+ (gauge|counter)|\w+\{pid="\d+"(,size="\w+")?\} \d+', line) for line in lines
    )
    assert any(line.startswith("memoir_malloc_allocated_total{") for line in lines)


def test_what_has_no_figures_is_said(memoir):
    code, _, err = memoir("top", str(2**22 + 1), "--once")
    assert code == 2 and "there is no process" in err
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"]}) as other:
        code, _, err = memoir("top", str(other.pid), "--once")
        other.kill()
    assert code == 2 and "another malloc" in err


def test_a_library_that_says_nothing(tmp_path):
    broken = tmp_path / "libmemoir_malloc.so"
    for content in (b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(100) + b"\xff" * 64):
        broken.write_bytes(content)
        try:
            assert malloc._dynamic_symbols(broken) == {}
        except Error as error:
            assert "libmemoir_malloc.so" in str(error)
