# SPDX-License-Identifier: Apache-2.0
"""Members that stay alive between their turns: order, pairing, failures, resuming, and that all are closed."""

import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from memoir.bench import analysis, experiment, journal, reading
from memoir.bench.grid import Cell, Grid, Program
from memoir.bench.process.allocators import Allocator
from memoir.bench.process.clients import free_port
from memoir.bench.process.workers import Failure
from memoir.bench.recording import Recording
from memoir.bench.sessions import FEWEST_BLOCKS, Session, top_up

NAMES = ("a", "b", "c")


def header():
    grid = Grid((Program("server", ()),), tuple(map(Allocator, NAMES)))
    return experiment.new_header(grid, {}) | {"unit": "request"}


class Pretended:
    """Takes turns of a made-up length: `drift` is what disturbs all members of one session."""

    log: list = []
    drift = 1.0

    def __init__(self, name, seconds=1.0, survives=10**9, opens=True):
        self.cell = Cell("server", name, 1, 1)
        self._seconds, self._survives, self._opens = seconds, survives, opens

    def open(self):
        if not self._opens:
            raise Failure("cannot", ["why not"])
        self.log.append(("open", self.cell.allocator))
        return {"size": 1}

    def turn(self):
        self._survives -= 1
        if self._survives < 0:
            raise Failure("killed by SIGSEGV", ["its last words"])
        self.log.append(("turn", self.cell.allocator))
        return {"wall": self._seconds * Pretended.drift}

    def close(self):
        self.log.append(("close", self.cell.allocator))
        return {"size": 2}


@pytest.fixture(autouse=True)
def fresh():
    Pretended.log, Pretended.drift = [], 1.0


def members(**options):
    return [Pretended(name, **options) for name in NAMES]


def test_everybody_takes_a_turn_in_every_block_in_an_order_of_the_block_s_own():
    recording = Recording.begin(header())
    top_up(recording, members(), replicates=6, label="7")
    rows = recording.result.rows
    orders = [tuple(row["allocator"] for row in rows[at : at + 3]) for at in range(0, 18, 3)]
    assert all(sorted(order) == list(NAMES) for order in orders) and len(set(orders)) > 1
    assert [row["position"] for row in rows] == [0, 1, 2] * 6
    assert [row["replicate"] for row in rows] == sorted(row["replicate"] for row in rows)
    again = Recording.begin(header())
    top_up(again, members(), replicates=6, label="7")
    assert [row["allocator"] for row in again.result.rows] == [row["allocator"] for row in rows]
    assert [name for what, name in Pretended.log[:3]] == list(NAMES)
    assert [(m["allocator"], m["opened"], m["closed"]) for m in recording.result.members] == [
        (name, {"size": 1}, {"size": 2}) for name in NAMES
    ]


def test_runs_are_paired_within_their_session():
    """Between sessions the machine got five times slower; a is twice as fast as b in both."""
    recording = Recording.begin(header())
    for number, drift in enumerate((1.0, 5.0)):
        Pretended.drift = drift
        with Session(recording, number) as session:
            for member in (Pretended("a", 1.0), Pretended("b", 2.0))[:: 1 if number else -1]:
                session.open(member)
            for replicate in range(3):
                session.block(replicate, str(replicate))
    (line,) = [line for line in analysis.analyse(recording.result).lines() if line.comparison]
    assert line.comparison.n == 6
    assert line.comparison.interval.ratio == pytest.approx(2.0)
    assert line.comparison.interval.half_width < 1e-5


def test_a_member_that_fails_is_a_row_and_the_others_go_on():
    recording, said = Recording.begin(header()), []
    team = [Pretended("a"), Pretended("b", survives=2), Pretended("c", opens=False)]
    top_up(
        recording,
        team,
        replicates=4,
        on_failure=lambda cell, failure: said.append((cell.allocator, str(failure))),
    )
    assert [recording.done(member.cell) for member in team] == [4, 2, 0]
    assert said == [("c", "cannot"), ("b", "killed by SIGSEGV")]
    failed = {
        row["allocator"]: (row["status"], row["replicate"], row["tail"]) for row in recording.result.failures
    }
    assert failed == {"c": ("cannot", 0, ["why not"]), "b": ("killed by SIGSEGV", 2, ["its last words"])}
    assert ("close", "a") in Pretended.log and ("close", "b") not in Pretended.log
    assert recording.result.to_csv().count("\n") == 1 + 6


def test_what_is_stopped_goes_on_in_a_session_of_its_own(tmp_path):
    class Interrupted(Pretended):
        def turn(self):
            if len([1 for what, _ in self.log if what == "turn"]) > 7:
                raise KeyboardInterrupt
            return super().turn()

    team = [Interrupted(name) for name in NAMES]
    with pytest.raises(KeyboardInterrupt), Recording.begin(header(), tmp_path) as recording:
        top_up(recording, team, replicates=5)
    assert {name for what, name in Pretended.log if what == "close"} == set(NAMES)
    with Recording.resume(tmp_path) as recording:
        assert {recording.done(member.cell) for member in team} == {2}  # whole blocks only
        assert len(recording.result.members) == 3
        top_up(recording, members(), replicates=5)
        recording.save()
    for cell, rows in reading.read([tmp_path]).cells().items():
        labels = [(row["session"], row["replicate"]) for row in rows]
        assert labels == [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4)], cell
    assert len(reading.read([tmp_path / "results.json"]).members) == 6


def test_rounds_share_out_the_replicates_among_fresh_members():
    recording = Recording.begin(header())
    top_up(recording, members(), replicates=7, rounds=2)
    assert [row["session"] for row in recording.result.rows] == [0] * 9 + [1] * 12


def test_those_that_find_no_room_have_sessions_with_the_first():
    recording, short = Recording.begin(header()), []
    top_up(
        recording,
        members(),
        replicates=2,
        room=lambda opened: False,
        on_short=lambda cell: short.append(cell.allocator),
    )
    assert [name for what, name in Pretended.log if what == "open"] == ["a", "b", "a", "c"]
    assert short == ["c"]
    assert recording.done(Cell("server", "a", 1, 1)) == 4


def test_when_time_is_over_the_fewest_blocks_are_made():
    recording = Recording.begin(header())
    top_up(recording, members(), replicates=30, rounds=3, in_time=lambda: False)
    assert recording.done(Cell("server", "a", 1, 1)) == FEWEST_BLOCKS


def test_a_changed_header_is_the_one_that_counts(tmp_path):
    with Recording.begin(header(), tmp_path) as recording:
        top_up(recording, members(), replicates=1)
        recording.change_header(recording.result.header | {"options": {"replicates": 2}})
    kept = journal.read_all(tmp_path / journal.NAME)
    assert kept.header["options"] == {"replicates": 2}
    assert (len(kept.rows), len(kept.members)) == (3, 3)


class HttpServer:
    """What a benchmark of servers is made of: started, waited for until it answers, put under load, stopped."""

    def __init__(self, name):
        self.cell = Cell("http", name, 1, 1)

    def open(self):
        self._port = free_port()
        command = [sys.executable, "-m", "http.server", str(self._port), "--bind", "127.0.0.1"]
        self._server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began = time.monotonic()
        while True:
            if self._server.poll() is not None:
                raise Failure(f"ended with exit code {self._server.returncode}")
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return {"ready": time.monotonic() - began}
            except OSError:
                time.sleep(0.01)

    def turn(self):
        began = time.perf_counter()
        for _ in range(3):
            urllib.request.urlopen(f"http://127.0.0.1:{self._port}/", timeout=30).read()
        return {"wall": (time.perf_counter() - began) / 3, "metrics": {"requests": 3.0}}

    def close(self):
        self._server.terminate()
        return {"exit_code": self._server.wait()}


def test_servers_are_members(tmp_path):
    with Recording.begin(header(), tmp_path) as recording:
        top_up(recording, [HttpServer("a"), HttpServer("b")], replicates=2)
        recording.save()
    result = reading.read([tmp_path])
    assert [row["status"] for row in result.rows] == ["ok"] * 4
    assert {row["metrics"]["requests"] for row in result.rows} == {3.0}
    assert {member["closed"]["exit_code"] for member in result.members} == {-15}
