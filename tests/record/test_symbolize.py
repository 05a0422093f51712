# SPDX-License-Identifier: Apache-2.0
"""memoir symbolize: names of functions, files and lines, where debug information is and where it is not."""

import contextlib
import functools
import http.server
import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from memoir._core import Trace
from memoir.record.name_reader import NameReader

from memoir.record import debuginfod, symbols

SOURCE = """
#include <cstdlib>
#include <vector>
namespace deep {
inline __attribute__((always_inline)) void* inlined(int size) { return std::malloc(size); }
template <int kSize> __attribute__((noinline)) void* make() {
  void* volatile block = inlined(kSize);
  return block;
}
}
int main() {
  std::free(deep::make<4242>());
  return 0;
}
"""


@pytest.fixture
def built(tmp_path):
    def build(*flags):
        (tmp_path / "program.cc").write_text(SOURCE)
        command = [
            "c++",
            "-O1",
            "-fno-builtin",
            *flags,
            str(tmp_path / "program.cc"),
            "-o",
            str(tmp_path / "program"),
        ]
        subprocess.run(command, check=True)
        return tmp_path / "program"

    return build


def frames(trace) -> list[dict]:
    """Of the one allocation of 4,242 bytes, outermost first."""
    opened = Trace.open(str(trace))
    events = opened.events
    (site,) = events["site"][(events["kind"] == 1) & (events["size"] == 4242)]
    return opened.site_frames(int(site))


def symbolize(trace, *options) -> dict:
    command = [sys.executable, "-m", "memoir", "symbolize", "--json", *options, str(trace)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {row["path"]: row for row in json.loads(done.stdout)["modules"]}


def test_lines_and_inlined_functions(built, record, tmp_path):
    pytest.importorskip("symbolic")
    program = built("-g")
    assert record(program).returncode == 0
    rows = symbolize(tmp_path / "x.trace")
    assert rows[str(program)]["named"] == rows[str(program)]["addresses"]
    names = [frame["function"] for frame in frames(tmp_path / "x.trace")]
    assert any("make<4242>" in name for name in names) and any("inlined" in name for name in names)
    assert any(
        frame["file"].endswith("program.cc") and frame["line"] > 0 for frame in frames(tmp_path / "x.trace")
    )
    before = frames(tmp_path / "x.trace")
    symbolize(tmp_path / "x.trace")  # again: the same
    assert frames(tmp_path / "x.trace") == before


def test_split_debug_files(built, record, tmp_path):
    pytest.importorskip("symbolic")
    if shutil.which("objcopy") is None:
        pytest.skip("no objcopy here")
    program = built("-g", "-Wl,--build-id")
    debug = tmp_path / "program.debug"
    subprocess.run(["objcopy", "--only-keep-debug", str(program), str(debug)], check=True)
    subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", str(program)], check=True)
    assert record(program).returncode == 0
    symbolize(tmp_path / "x.trace")
    assert any("make<4242>" in frame["function"] for frame in frames(tmp_path / "x.trace"))


@pytest.fixture
def server(tmp_path):
    """A debuginfod server: the folder of its files, its address, and the paths that it was asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *_):
            pass

    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()
        thread.join()


def test_debuginfod_is_asked_only_on_demand(built, record, server, tmp_path, monkeypatch):
    if shutil.which("objcopy") is None:
        pytest.skip("no objcopy here")
    folder, url, asked = server
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    program = built("-g", "-Wl,--build-id")
    debug = tmp_path / "debuginfo"
    subprocess.run(["objcopy", "--only-keep-debug", str(program), str(debug)], check=True)
    subprocess.run(["objcopy", "--strip-all", str(program)], check=True)
    assert record(program).returncode == 0
    trace = tmp_path / "x.trace"
    refused = subprocess.run(
        [sys.executable, "-m", "memoir", "symbolize", "--debuginfod", str(trace)],
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 2 and "DEBUGINFOD_URLS names no server" in refused.stderr

    monkeypatch.setenv("DEBUGINFOD_URLS", f"ftp://no.such {url}/")
    symbolize(trace)
    assert not asked and not any("make<4242>" in frame["function"] for frame in frames(trace))
    row = symbolize(trace, "--debuginfod")[str(program)]  # the server lacks it
    assert asked and "no debuginfod server has it" in row["why"]

    (build_id,) = {
        module["build_id"] for module in Trace.open(trace).modules if module["path"] == str(program)
    }
    (folder / "buildid" / build_id).mkdir(parents=True)
    debug.rename(folder / "buildid" / build_id / "debuginfo")
    symbolize(trace, "--debuginfod")
    assert f"/buildid/{build_id}/debuginfo" in asked
    assert any("make<4242>" in frame["function"] for frame in frames(trace))
    before = asked.count(f"/buildid/{build_id}/debuginfo")
    program.unlink()  # the debug file alone is enough
    assert symbolize(trace, "--debuginfod")[str(program)]["named"] >= 1
    assert asked.count(f"/buildid/{build_id}/debuginfo") == before, "the file is kept"


class Cut(http.server.BaseHTTPRequestHandler):
    """Announces more than it sends."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(b"x" * 5000)

    def log_message(self, *_):
        pass


class Chunks(Cut):
    """Ends within a chunk."""

    def do_GET(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4000\r\nxxx")


class Noise(Cut):
    """Says nothing that is HTTP."""

    def do_GET(self):
        self.wfile.write(b"220 mail.example ESMTP\r\n")


class Slow(Cut):
    """A byte now and then, without an end."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.drip(b"x")

    def drip(self, part):
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(part)
                time.sleep(0.05)


class SlowHeaders(Slow):
    def do_GET(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        self.drip(b"x")


@pytest.mark.parametrize("handler", [Slow, SlowHeaders])
def test_no_server_is_waited_for_without_an_end(handler, tmp_path, monkeypatch):
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        serving.daemon_threads = True
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            with NameReader(seconds=0.5, patience=0.01) as reader:
                found, why = reader.find_lines(
                    tmp_path / "gone.so", "abcd", [1], [f"http://127.0.0.1:{serving.server_port}"]
                )
                late = "took more time" in why
                again = reader.find_lines(Path(sys.executable), "", [1])[1] if late else ""
        finally:
            serving.shutdown()
            thread.join()
    assert found == {} and ("not whole after" in why or "the reader took more time" in why)
    assert not late or "that of another module took too long" in again  # nobody waits twice
    assert handler is SlowHeaders or [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("handler", [Cut, Chunks, Noise])
def test_what_a_server_sends_in_part_is_not_kept(handler, tmp_path, monkeypatch):
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{serving.server_port}"
        try:
            kept, why = debuginfod.fetch("abcd", [url])
        finally:
            serving.shutdown()
            thread.join()
    assert kept is None and why.startswith(url) and len(why) > len(url) + 5
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_kept_file_of_another_build_is_named(built, record, tmp_path, monkeypatch):
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:9")
    program = built("-Wl,--build-id")
    assert record(program).returncode == 0
    trace = tmp_path / "x.trace"
    (build_id,) = {
        module["build_id"] for module in Trace.open(trace).modules if module["path"] == str(program)
    }
    kept = tmp_path / "cache" / build_id / "debuginfo"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"not its debug file")
    program.unlink()
    why = {row.path: row.why for row in symbols.symbolize(trace, debuginfod.servers())}[str(program)]
    assert "the file is gone" in why and str(kept) in why


def test_symbol_tables_alone(built, record, tmp_path, monkeypatch):
    program = built()
    assert record(program).returncode == 0
    (tmp_path / "first").mkdir()
    (tmp_path / "first/symbolic.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path / "first")
    rows = {row.path: row for row in symbols.symbolize(tmp_path / "x.trace")}
    assert rows[str(program)].named >= 2 and "symbolic" in rows[str(program)].why
    assert any("make<4242>" in frame["function"] for frame in frames(tmp_path / "x.trace"))


def test_another_build_is_not_named(built, record, tmp_path):
    program = built("-Wl,--build-id")
    assert record(program).returncode == 0
    built("-Wl,--build-id", "-O2", "-DOTHER")
    rows = symbolize(tmp_path / "x.trace")
    assert rows[str(program)]["named"] == 0 and "another build" in rows[str(program)]["why"]
    program.unlink()
    assert "gone" in symbolize(tmp_path / "x.trace")[str(program)]["why"]


def test_names_are_taken_apart():
    assert symbols.demangle("_ZN3foo3barILi3EEEvi") == "void foo::bar<3>(int)"
    assert symbols.demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE") == "core::fmt::Formatter::pad"
    assert symbols.demangle("main") == "main" and symbols.demangle("_Z") == "_Z"
