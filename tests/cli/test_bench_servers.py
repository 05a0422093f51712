# SPDX-License-Identifier: Apache-2.0
"""memoir bench --server: started, waited for, put under load, stopped; only the server is accounted."""

import json
import re
import shutil
import sys

import pytest
from memoir.bench import reading
from memoir.bench.process import clients
from test_bench_cli import cli  # noqa: F401

SERVER = """
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
kept = []
while True:
    peer, _ = listening.accept()
    with peer:
        word = peer.recv(10)
        if word == b"die":
            sys.exit(3)
        kept.append(b"x" * (4 << 20))
        peer.sendall(word)
"""
CLIENT = """
import socket, sys, time
port, how = int(sys.argv[1]), sys.argv[2]
latencies = []
for phase in ("fill", "again"):
    for _ in range(4):
        began = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as server:
            server.sendall(how.encode()); server.recv(10)
        latencies.append(time.perf_counter() - began)
    time.sleep(0.5)
    print("phase", phase, flush=True)
print("ops: 8")
open(f"latencies.{port}", "w").write("\\n".join(f"{x:.6f} 1" for x in latencies))
sys.exit(how == "fail")
"""


@pytest.fixture
def serve(cli, tmp_path):  # noqa: F811
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "client.py").write_text(CLIENT)

    def run(how, *options):
        python = f"{sys.executable} -S"
        return cli(
            "bench", "system,again=system", "-n", 2, "--warmup", 0, "--no-pictures", "-o", "x", "--server",
            f"{python} server.py {{port}}", "--client", f"{python} client.py {{port}} {how}", *options,
        )  # fmt: skip

    return run


def test_a_server_is_started_loaded_and_stopped(serve, tmp_path):
    code, out, err = serve(
        "hello", "--metric", "ops: (?P<ops>.*)", "--histogram", "latencies.{port}", "--memory", "--settle", "0.1s",
    )  # fmt: skip
    assert code == 0, err
    rows = reading.read([tmp_path / "x"]).rows
    assert [row["status"] for row in rows] == ["ok"] * 4
    for row in rows:
        assert 0.2 < row["wall"] < row["server_wall"] and row["asked"] and row["processes"] == 1
        assert row["metrics"]["ops"] == 8 and 0 < row["metrics"]["p50"] <= row["metrics"]["p999"] < 5
        # how far a phase is seen to its end is a matter of when the sampler had a core
        assert row["rss_after_fill"] <= row["rss_after_again"] <= row["rss_peak"] + (1 << 20)
        assert row["peak_rss"] > 32 << 20 and row["rss_settled"] > 32 << 20
    assert "p99" in out and "rss_settled" in out and "Proof" in out
    header = json.loads((tmp_path / "x" / "runs.jsonl").read_text().splitlines()[0])
    assert header["grid"]["programs"][0]["server"] is True
    answer = reading.read([tmp_path / "x"]).leading_quantity
    assert answer == "ops"


@pytest.mark.parametrize(
    "how, options, words",
    [
        ("fail", (), "client: exit code 1"),
        ("die", (), "the server ended before its client"),
        ("hello", ("--ready", "sh -c 'exit 1'", "--timeout", "1s"), "not ready|ended before"),
        ("hello", ("--metric", "nothing: (.*)"), "matches nothing that the client prints"),
    ],
)
def test_what_goes_wrong_is_said_before_anything_is_measured(
    serve, tmp_path, monkeypatch, how, options, words
):
    if "--ready" in options:  # the others have to become ready, however busy the machine is
        monkeypatch.setattr(clients, "PATIENCE", 0.5)
    code, out, err = serve(how, *options)
    assert code == 2 and re.search(words, err), err
    assert not (tmp_path / "x").exists()


@pytest.mark.full
@pytest.mark.parametrize(
    "needs, server, ready, client, metric",
    [
        (
            ("redis-server", "redis-benchmark"),
            "redis-server --port {port} --save '' --appendonly no",
            "redis-cli -p {port} ping",
            "redis-benchmark -p {port} -n 500 -t set --csv",
            '"SET","(?P<rps>[0-9.]+)"',
        ),
        (
            ("memcached",),
            "memcached -u nobody -p {port} -U 0",
            None,
            f'{sys.executable} -c \'import socket; s = socket.create_connection(("127.0.0.1", {{port}})); '
            's.sendall(b"set k 0 0 1\\r\\nx\\r\\n"); print("got:", len(s.recv(99)))\'',
            "got: (?P<got>[0-9]+)",
        ),
    ],
)
def test_real_servers(cli, needs, server, ready, client, metric):  # noqa: F811
    for program in needs:
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here")
    more = ("--ready", ready) if ready else ()
    code, out, err = cli(
        "bench", "system,again=system", "-n", 2, "--warmup", 0, "--no-pictures", "--server", server, "--client",
        client, "--metric", metric, *more,
    )  # fmt: skip
    assert code == 0, err
    assert "Proof" in out
