# SPDX-License-Identifier: Apache-2.0
"""memoir top: the figures of a running process, read from its memory."""

import json
import os
import re
import shutil
import signal
import socket
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


def test_who_holds_memory(server):
    for _ in range(600):
        found = malloc.sites(server.pid)
        held = sum(site.live for site in found)
        if held > 25e6:
            break
        time.sleep(0.1)
    # 62 MB, without the first 16 MiB, which are not sampled
    assert 25e6 < held < 90e6
    largest = max(found, key=lambda site: site.live)
    assert largest.module and largest.samples > 50 and 0 <= largest.old <= largest.live
    assert largest.live > 0.8 * held
    assert "Calloc" in largest.function or "alloc" in largest.function or not largest.function


def test_a_unix_socket_answers_prometheus(server, tmp_path):
    path = tmp_path / "metrics.sock"
    command = [sys.executable, "-m", "memoir", "top", str(server.pid), "--prometheus", "--socket", str(path)]
    with subprocess.Popen(command) as top:
        try:
            for _ in range(2):  # it goes on after an answer
                said = ask(path)
                head, _, body = said.partition("\r\n\r\n")
                assert head.startswith("HTTP/1.0 200") and f"Content-Length: {len(body)}" in head
                assert "memoir_malloc_live{" in body and "memoir_malloc_site_live{" in body
            assert path.stat().st_mode & 0o777 == 0o600
        finally:
            top.terminate()
    assert top.returncode == -signal.SIGTERM and not path.exists()


def ask(path, seconds=60):
    end = time.monotonic() + seconds
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(path))
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.1)
                continue
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def test_a_socket_that_cannot_be_made_is_said(server, memoir, tmp_path):
    (tmp_path / "file").write_text("kept")
    code, _, err = memoir("top", str(server.pid), "--socket", str(tmp_path / "file"))
    assert code == 2 and "no socket can be made there" in err
    assert (tmp_path / "file").read_text() == "kept"


def test_for_people_as_json_and_for_prometheus(server, memoir, tmp_path):
    code, out, _ = memoir("top", str(server.pid), "--once")
    assert code == 0 and f"({server.pid})" in out.splitlines()[0] and "1152: " in out
    code, out, _ = memoir("top", str(server.pid), "--once", "--json")
    said = json.loads(out)
    assert said["pid"] == server.pid and all(site["live"] >= site["old"] for site in said["sites"])
    (tmp_path / "thesis").write_text("mine")
    code, _, err = memoir("top", str(server.pid), "--once", "-o", str(tmp_path / "thesis"))
    assert code == 2 and "exists already" in err and (tmp_path / "thesis").read_text() == "mine"
    for _ in range(2):  # the second writes over the first
        assert (
            memoir("top", str(server.pid), "--once", "--prometheus", "-o", str(tmp_path / "x.prom"))[0] == 0
        )
    code, out, _ = memoir("top", str(server.pid), "--once", "--prometheus", "-o", str(tmp_path / "x.prom"))
    assert code == 0 and out == ""
    lines = (tmp_path / "x.prom").read_text().splitlines()
    assert all(
        re.fullmatch(r'# TYPE \w+ (gauge|counter)|\w+\{pid="\d+"(,size="\w+"|,site="[^"]*")?\} \d+', line)
        for line in lines
    )
    assert any(line.startswith("memoir_malloc_allocated_total{") for line in lines)


LEAK = """
#include <unistd.h>
#include <map>
#include <string>
#include <vector>
struct Session { char bytes[3000]; };
static std::map<int, Session*> sessions;
__attribute__((noinline)) void keep_session(int number) { sessions[number] = new Session; }
__attribute__((noinline)) std::vector<std::string>* make_names() {
  return new std::vector<std::string>(100, std::string(100, 'x'));
}
int main() {
  for (int number = 0; number < 20'000; ++number) {
    keep_session(number);
    delete make_names();
  }
  if (write(1, "up\\n", 3) != 3) return 1;
  char end;
  return read(0, &end, 1) < 0;
}
"""


@pytest.mark.parametrize("how", [["-O2"], ["-O2", "-no-pie"], ["-O0"]], ids=" ".join)
def test_the_culprit_stands_in_the_first_lines_by_its_name(how, memoir, tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    (tmp_path / "leak.cc").write_text(LEAK)
    subprocess.run(["g++", "-g", *how, "-o", tmp_path / "leak", tmp_path / "leak.cc"], check=True)
    command = [tmp_path / "leak"]
    with subprocess.Popen(
        command, env=malloc.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        for _ in range(600):
            try:
                if sum(site.live for site in malloc.sites(process.pid)) > 25e6:
                    break
            except Error as error:
                if "cannot be read" in str(error):
                    process.stdin.close()
                    pytest.skip(str(error))
            time.sleep(0.1)
        code, out, _ = memoir("top", str(process.pid), "--once")
        process.stdin.close()
    line = LEAK[: LEAK.index("new Session;")].count("\n") + 1
    first = out.splitlines()[:4]
    assert code == 0 and first[0].startswith(f"leak ({process.pid}): ")
    assert "keep_session" in first[0] and f"leak.cc:{line}" in first[0]
    assert (
        re.search(rf"keep_session +leak.cc:{line}", first[2]) and "+0x" not in out and "std::" not in first[0]
    )


def test_what_has_no_figures_is_said(memoir):
    code, _, err = memoir("top", str(2**22 + 1), "--once")
    assert code == 2 and "there is no process" in err
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"]}) as other:
        code, _, err = memoir("top", str(other.pid), "--once")
        other.kill()
    assert code == 2 and "another malloc" in err


def test_names_of_mapped_files_are_anybody_s(tmp_path):
    names = [b"a\xff", "b\u2028".encode(), b"c\x85", b"d\x0b7f0000000000-7f0000001000 r--p", b"e\nf", b"g h"]
    script = "import mmap, os, sys; held = []\nfor name in os.listdir(os.fsencode(sys.argv[1])):\n"
    script += "  file = os.open(os.path.join(os.fsencode(sys.argv[1]), name), os.O_RDONLY)\n"
    script += (
        "  held.append(mmap.mmap(file, 4096, prot=mmap.PROT_READ))\nprint('up', flush=True); sys.stdin.read()"
    )
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(bytes(4096))
    with subprocess.Popen(
        [sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as target:
        target.stdout.readline()
        found = {mapping.path for mapping in malloc._mappings(target.pid)}
        target.stdin.close()
    assert {str(tmp_path / os.fsdecode(name)) for name in names} <= found
    with pytest.raises(Error, match="it ends too early"), malloc._memory(os.getpid()) as memory:
        memory.seek(2**64 - 1)


def test_a_library_that_says_nothing(tmp_path):
    broken = tmp_path / "libmemoir_malloc.so"
    for content in (b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(100) + b"\xff" * 64):
        broken.write_bytes(content)
        try:
            assert malloc._dynamic_symbols(broken) == {}
        except Error as error:
            assert "libmemoir_malloc.so" in str(error)


# --- a process is not trusted because it is watched ---

# Maps a file, or a part of it, and waits.
MAPS = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
kept = mmap.mmap(file, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)
if len(sys.argv) > 2:
    os.unlink(sys.argv[1])
    os.mkfifo(sys.argv[1] + " (deleted)")  # what the kernel calls the mapping now
print("up", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["fifo", "sparse", "text"])
def test_a_library_that_is_none(kind, memoir, tmp_path):
    library = tmp_path / "libmemoir_malloc.so"
    with library.open("wb") as file:
        file.write(b"\x7fELF\x02\x01\x01" if kind == "sparse" else b"text")
        file.truncate(100 << 30 if kind == "sparse" else 5000)
    command = [sys.executable, "-c", MAPS, str(library), *(["fifo"] if kind == "fifo" else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        code, out, err = memoir("top", str(process.pid), "--once", "--prometheus")
        process.stdin.close()
    assert code == 2 and err.count("\n") == 1 and "libmemoir_malloc.so" in err and not out, err


@pytest.mark.parametrize("name", [b"caf\xe9", "a\u2028b".encode(), b"a\x0bb", b"x\ny", b"\x85"])
def test_it_maps_a_file_with_any_name(name, memoir, tmp_path):
    """Of another malloc, as before: no name of a mapped file is taken for a mapping, or ends the command."""
    path = os.fsencode(tmp_path) + b"/" + name
    with open(path, "wb") as file:
        file.write(bytes(5000))
    with subprocess.Popen(
        [sys.executable.encode(), b"-c", MAPS.encode(), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        mapped = {mapping.path for mapping in malloc._mappings(process.pid)}
        code, out, err = memoir("top", str(process.pid), "--once")
        process.stdin.close()
    assert os.fsdecode(path) in mapped
    assert code == 2 and "has another malloc" in err and not out, err


@pytest.mark.parametrize(
    "names",
    ['live held{pid="1",instance="victim"} x', "live held resident\x1b[2J", "live live held", "up\u202e held live",
     'live size_x"} held'],
)  # fmt: skip
def test_names_of_figures_are_names(names, memoir, compiled):
    """A malloc of somebody else's says what its figures are called, and each becomes a name of Prometheus'."""
    text = "".join(f"\\{byte:03o}" for byte in names.encode())
    source = f'''#include <stdint.h>
    uint64_t memoir_malloc_figures[16] = {{1, 3, 2, 11, 22, 33}};
    char memoir_malloc_figure_names[2048] = "{text}";
    uint64_t memoir_malloc_sites[64] = {{1, 0, 2}};'''
    library = compiled("libmemoir_malloc_fake.so", source, "-shared", "-fPIC")
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "LD_PRELOAD": str(library)}) as process:
        time.sleep(0.2)
        for form in (("--prometheus",), ("--json",), ()):
            code, out, err = memoir("top", str(process.pid), "--once", *form)
            assert code == 2 and "are not those of memoir's malloc" in err and not out, (out, err)
        process.kill()


@pytest.fixture
def compiled(tmp_path):
    def make(name, source, *options):
        (tmp_path / "x.c").write_text(source)
        try:
            subprocess.run(["cc", *options, "-o", tmp_path / name, tmp_path / "x.c"], check=True)
        except FileNotFoundError:
            pytest.skip("there is no C compiler")
        return tmp_path / name

    return make
