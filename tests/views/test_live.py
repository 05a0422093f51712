# SPDX-License-Identifier: Apache-2.0
"""`memoir show --live`: on the loopback address, behind a token, following a file that grows; Ctrl-C ends it."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from memoir._core import Error, TraceWriter, child_site
from memoir.cli.parts.show_live import LivePage, make_server


def trace_of(objects):
    writer = TraceWriter()
    writer.define_site(child_site(0, "main"), 0, "main")
    for number in range(1, objects + 1):
        writer.set_time(number)
        writer.allocate(number, child_site(0, "main"), 1000 * number)
    return writer.bytes()


@pytest.fixture
def server(tmp_path):
    path = tmp_path / "x.trace"
    path.write_bytes(trace_of(3))
    made, address = make_server(str(path))
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield path, address
    made.shutdown()
    thread.join()
    made.server_close()


def get(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, "", dict(error.headers)


def test_it_answers_this_machine_with_the_token_and_nobody_else(server):
    _, address = server
    assert address.startswith("http://127.0.0.1:") and len(address.rsplit("/", 2)[1]) >= 32
    code, page, headers = get(address)
    assert code == 200 and "connect-src 'self'" in page and "3 allocations" in page
    assert headers["Cache-Control"] == "no-store"
    assert get(address, **{"If-None-Match": headers["ETag"]})[0] == 304
    root = address.split("/", 3)
    assert get("/".join(root[:3]) + "/")[0] == 404
    assert get(address[:-2] + "x/")[0] == 404
    assert get(address, Host="evil.example")[0] == 404


def test_the_browser_follows_the_file(server, browser):
    path, address = server
    page = browser.open(address, offline=False)
    assert page.run("memoirPage.panels[0].maps[0].set.count") == 3
    page.run("memoirPage.panels[0].setMode('size')")
    (path.parent / "new").write_bytes(trace_of(50))
    (path.parent / "new").replace(path)
    page.wait_for("document.querySelector('.sub').textContent.includes('50 allocations')")
    page.wait_for("document.documentElement.dataset.ready === 'yes'")
    assert page.complaints() == []
    assert {one.split("/", 3)[2] for one in page.requests()} == {address.split("/", 3)[2]}
    page.close()


def test_it_reads_on_in_a_file_that_its_writer_still_has(tmp_path):
    path = tmp_path / "grows.trace"
    writer = TraceWriter(path)
    writer.define_site(child_site(0, "main"), 0, "main")
    writer.allocate(1, child_site(0, "main"), 4096)
    page = LivePage(str(path))
    counts = set()
    for number in range(2, 400):
        writer.allocate(number, child_site(0, "main"), 4096)
        if number % 50 == 0:
            time.sleep(0.6)  # the writer flushes each half second
            page._looked = -10.0
            try:
                counts.add(re.search(r"([\d,]+) allocation", page.get()[0].decode())[1])
            except Error:  # nothing is in it yet
                continue
    writer.close()
    page._looked = -10.0
    assert "399 allocations" in page.get()[0].decode()
    assert len(counts) >= 2  # it was seen to grow
    tag = page.get()[1]
    page._looked = -10.0
    assert page.get()[1] == tag  # nothing new: the same page


def test_what_a_program_that_allocates_seldom_has_written_is_seen(tmp_path):
    """A native recorder says "all until then is in the file" once in thousands of events; readers see them before."""
    program = "import time, sys\nkept = []\nfor line in sys.stdin: kept.append(bytearray(100_000)); print(flush=True)"
    path = tmp_path / "slow.trace"
    command = [
        sys.executable,
        "-m",
        "memoir",
        "record",
        "-o",
        path,
        "--",
        sys._base_executable,
        "-c",
        program,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:

        def allocate():
            started.stdin.write("\n")
            started.stdin.flush()
            assert started.stdout.readline() == "\n"

        allocate()
        page = LivePage(str(path))

        def seen():
            page._looked = -10.0
            return int(re.search(r"([\d,]+) allocation", page.get()[0].decode())[1].replace(",", ""))

        before = seen()
        for _ in range(20):
            allocate()
        assert seen() >= before + 20
        started.stdin.close()
        assert started.wait(60) == 0


def test_a_torn_file_leaves_the_last_page(server):
    path, address = server
    assert get(address)[0] == 200
    path.write_bytes(b"\x89memoirT")
    code, page, _ = get(address)
    assert code == 200 and "3 allocations" in page


def test_a_pipe_in_its_place_holds_nobody(server):
    path, address = server
    assert get(address)[0] == 200
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    get(address)  # whatever it says, it says it
    path.unlink()
    path.write_bytes(content)
    assert get(address)[0] == 200


def test_what_is_no_trace_is_told_at_once(tmp_path):
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(Error, match="not a trace"):
        make_server(str(tmp_path / "x.txt"))
    with pytest.raises(Error, match="cannot be read"):
        make_server(str(tmp_path / "missing.trace"))


def test_ctrl_c_ends_it(tmp_path):
    path = tmp_path / "x.trace"
    path.write_bytes(trace_of(3))
    command = [sys.executable, "-m", "memoir", "show", "--live", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
