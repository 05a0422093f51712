# SPDX-License-Identifier: Apache-2.0
"""memoir bench where something is wrong: said before anything runs, or survived."""

import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from memoir.bench import Options, journal, trust
from memoir.bench.lock import NAME as lock_file
from memoir.bench.lock import Lock
from test_bench_cli import LOADED, SH, cli  # noqa: F401

RAN = "touch ran; cat /dev/null"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--param", "a=1", "--param", "a=2", "--", "sh", "-c", f"{RAN} {{a}}"], "--param a is given twice"),
        (
            ["--metric", "a: (.)", "--metric", "b: (.)", "--", "sh", "-c", RAN],
            "two metrics are called 'metric'",
        ),
        (["--metric", "(?P<wall>.)", "--", "sh", "-c", RAN], "metric 'wall': every run has a quantity"),
        (["--metric", "(?P<rss_peak>.)", "--", "sh", "-c", RAN], "metric 'rss_peak': every run has"),
        (["--load", "1,2", "--", "sh", "-c", RAN], r"--load: nothing in the command takes it; write {load}"),
        (["--param", "size=1,2", "--", "sh", "-c", RAN], r"--param size: nothing in the command takes it"),
        (["-o", "file/x", "--", "sh", "-c", RAN], "file is not a folder|Not a directory"),
        (["-o", "/proc/x", "--", "sh", "-c", RAN], "/proc/x: cannot be written"),
        (["--sessions", "0", "--", "sh", "-c", RAN], "--sessions 0"),
        (["--sessions", "2", "--until", "2%", "--", "sh", "-c", RAN], "leave out --sessions"),
        (["--client", "x", "--", "sh", "-c", RAN], "--client is for --server"),
        (["--server", "sh -c x"], "--server needs a --client"),
        (["--", "sh", "-c", f"{RAN}; echo {{=sqrt(threads}}"], r"{=sqrt\(threads}"),
        (["--", "sh", "-c", f"{RAN}; echo {{=nope*2}}"], r"no axis fills {nope}"),
        (["--same", "0", "--", "sh", "-c", RAN], "--same 0: must be between"),
        (["ls", "-l"], r"the command to measure comes after --: memoir bench system -- ls -l"),
        (["-n", "3", "sh", "-c", RAN], r"comes after --: memoir bench system -n 3 -- sh -c 'touch ran"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(cli, tmp_path, arguments, words):  # noqa: F811
    (tmp_path / "file").touch()
    code, out, err = cli("bench", "system", *arguments)
    assert code == 2 and out == "" and re.search(words, err), err
    assert err.count("\n") == 1 and not (tmp_path / "ran").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_all_runs_failed_is_1(cli):  # noqa: F811
    code, _, err = cli(
        "bench", "system", "-n", 2, "--warmup", 0, "--no-pictures", "--", "sh", "-c", "cat /dev/null; exit 3"
    )
    assert code == 1 and "no run succeeded" in err


def test_shares_are_taken_with_and_without_a_percent_sign(cli, tmp_path):  # noqa: F811
    code, _, err = cli("bench", "system,b=system", "-n", 3, "--warmup", 0, "--no-pictures", "--", *SH)
    assert code == 0, err
    for option in ("0.9", "90%", "90 %"):
        code, out, err = cli("bench", "--from", "memoir-bench", "--confidence", option, "--same", "0.05")
        assert code == 0 and "[90 %]" in out, err
        code, out, err = cli("diff", "memoir-bench", "memoir-bench", "--confidence", option)
        assert code == 0 and "[90 %]" in out, err


def test_numbers_that_are_none_do_not_reach_json(cli):  # noqa: F811
    script = "cat /dev/null; echo ops: 7; echo ops: nan; echo x: inf; echo x: 1e999"
    code, out, err = cli(
        "bench", "system", "-n", 2, "--warmup", 0, "--json", "--no-pictures", "--metric", "(?P<ops>x)?ops: (\\S+)",
        "--", "sh", "-c", script,
    )  # fmt: skip
    assert code == 2 and "matches nothing" in err
    code, out, err = cli(
        "bench", "system", "-n", 2, "--warmup", 0, "--json", "--no-pictures", "-f", "--metric", "ops: (?P<ops>\\S+)",
        "--", "sh", "-c", script,
    )  # fmt: skip

    def refuse(name):
        raise AssertionError(name)

    content = json.loads(out, parse_constant=refuse)
    assert code == 0 and {row["metrics"]["ops"] for row in content["memoir"]["rows"]} == {7}


def test_names_that_are_not_utf_8_work(tmp_path):
    name = b"pro\xffgram\x1b[31m"
    program = os.path.join(os.fsencode(tmp_path), name)
    with open(program, "wb") as file:
        file.write(b'#!/bin/sh\ncat /dev/null; echo "last \xff \x1b[2J words"; [ -n "$MEMOIR_PROOF" ]\n')
    os.chmod(program, 0o755)
    done = subprocess.run(
        [sys.executable, "-m", "memoir", "bench", "system", "-n", "2", "--warmup", "0", "-o", b"o\xfe", "--", program],
        cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr.decode(errors="replace")
    assert b"pro\\udcffgram\\x1b[31m" in done.stdout and b"\x1b" not in done.stdout + done.stderr
    folder = os.path.join(os.fsencode(tmp_path), b"o\xfe")
    assert {b"results.json", b"results.csv", b"tables.md"} <= set(os.listdir(folder))
    again = subprocess.run([sys.executable, "-m", "memoir", "bench", "--from", folder], capture_output=True)
    assert again.returncode == 0, again.stderr


def test_two_processes_in_one_folder(cli, tmp_path):  # noqa: F811
    (tmp_path / "x").mkdir()
    lock = Lock(tmp_path / "x")
    code, _, err = cli("bench", "system", "-o", "x", "--", *SH)
    assert code == 2 and f"x is in use by process {os.getpid()}" in err
    assert not (tmp_path / "x" / journal.NAME).exists()
    lock.release()
    assert cli("bench", "system", "-n", 2, "--warmup", 0, "-o", "x", "--no-pictures", "--", *SH)[0] == 0
    lock = Lock(tmp_path / "x")
    code, _, err = cli("bench", "--resume", "x")
    assert code == 2 and "is in use by" in err
    lock.release()
    assert not (tmp_path / "x" / lock_file).exists()


def test_no_room_for_files_is_told_and_leaves_nothing(tmp_path):
    """As a full disk does, a limit on the size of files lets them be made, and nothing be written."""
    words = [sys.executable, "-m", "memoir", "bench", "system", "-n", "2", "-o", "x", "--", *SH]
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *words]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.endswith(
        f"x/{journal.NAME}: cannot be written: File too large\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_stranger_s_folder_is_shown_and_asked_about(cli, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = ["sh", "-c", "cat /dev/null; : mine"]
    cli("bench", "system", "-n", 2, "--warmup", 0, "-o", "x", "--no-pictures", "--", *words)
    assert cli("bench", "--resume", "x", "-n", 3, "--no-pictures")[0] == 0
    file = tmp_path / "x" / journal.NAME
    changed = []
    for line in file.read_bytes().splitlines():
        record = json.loads(line)
        record.pop("crc")
        if "grid" in record:
            record["grid"]["programs"][0]["command"][2] = "touch stolen"
        changed.append(journal.line_of(record))
    file.write_bytes(b"".join(changed))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, _, err = cli("bench", "--resume", "x", "-n", 4)
    assert code == 2 and "sh -c 'touch stolen'" in err and "add --yes" in err
    assert not (tmp_path / "stolen").exists()
    assert trust.is_ours(journal.read(tmp_path / "x" / journal.NAME)[0], tmp_path / "x") is False


def test_a_bench_that_somebody_sends_back_is_asked_about(cli, tmp_path, monkeypatch):  # noqa: F811
    """Its signature is this user's, and what stands beside it is not."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "prog").write_text(f"#!/bin/sh\ncat /dev/null; touch {tmp_path}/ran-{name}\n")
        (tmp_path / name / "prog").chmod(0o755)
    monkeypatch.chdir(tmp_path / "mine")
    cli("bench", "system", "-n", 2, "--warmup", 0, "-o", "x", "--no-pictures", "--", "./prog")
    assert cli("bench", "--resume", "x", "-n", 3, "--no-pictures")[0] == 0
    shutil.copytree("x", tmp_path / "theirs/x")
    monkeypatch.chdir(tmp_path / "theirs")
    for folder in ("x", tmp_path / "mine/x"):  # from here its commands begin here
        code, _, err = cli("bench", "--resume", folder, "-n", 4)
        assert code == 2 and "./prog" in err and "add --yes" in err
    assert (tmp_path / "ran-mine").exists() and not (tmp_path / "ran-theirs").exists()


def test_a_proof_that_fails_gives_back_what_f_set_aside(cli, tmp_path):  # noqa: F811
    cli("bench", "system", "-n", 2, "--warmup", 0, "-o", "x", "--no-pictures", "--", *SH)
    before = (tmp_path / "x" / journal.NAME).read_bytes()
    code, _, err = cli(
        "bench", "system", "-f", "-o", "x", "--", "env", "-i", "/bin/sh", "-c", "cat /dev/null"
    )
    assert code == 2 and "cleared LD_PRELOAD" in err
    assert (tmp_path / "x" / journal.NAME).read_bytes() == before
    assert cli("bench", "system", "-f", "-n", 2, "--warmup", 0, "-o", "x", "--no-pictures", "--", *SH)[0] == 0
    assert (tmp_path / "x" / journal.NAME).read_bytes() != before
    assert not [path for path in (tmp_path / "x").iterdir() if path.name.startswith(".")]


def test_ctrl_c_in_the_proof_is_130_and_goes_on(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "memoir", "bench", "system", "-n", "2", "--warmup", "0", "--no-pictures",
         "-o", "x", "--", "sh", "-c", 'cat /dev/null; [ -z "$MEMOIR_PROOF" ] || sleep $(cat slow)'],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    (tmp_path / "slow").write_text("60")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (tmp_path / "x" / journal.NAME).exists():
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Go on: memoir bench --resume x" in err, err
    (tmp_path / "slow").write_text("0")
    again = subprocess.run(
        [sys.executable, "-m", "memoir", "bench", "--resume", "x", "--no-pictures"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert len(journal.read(tmp_path / "x" / journal.NAME)[1]) == 2


def in_a_terminal(arguments, columns, folder):
    """What a terminal of so many columns is shown."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "memoir", *arguments],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=follower, stderr=subprocess.DEVNULL,
        env={key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")},
    )  # fmt: skip
    os.close(follower)
    text = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            piece = os.read(leader, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(leader)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).replace("\r", "")


def many_cells(path):
    header = "malloc,Threads,Work,Load,Replicate,Time,program,peak_rss,minor_faults,user,system\n"
    rows = []
    for name, factor in (("system", 1.0), ("jemalloc", 1.1), ("a-tuned-variant-of-mimalloc", 0.9)):
        for threads in (1, 16):
            for r in range(8):
                time_ = factor * threads * (1 + ((7 * r) % 5) / 1000) * (10 if r == 7 else 1)
                measured = f"{123456789 + r},{1000 + r},{time_},0.1"
                rows.append(f"{name},{threads},{threads},1,{r},{time_},a-program-with-a-long-name,{measured}")
    path.write_text(header + "\n".join(rows) + "\n")


@pytest.mark.parametrize("columns", [80, 110])
def test_tables_fit_a_terminal_and_nothing_is_cut(tmp_path, columns):
    many_cells(tmp_path / "x.csv")
    text = in_a_terminal(["bench", "--from", "x.csv"], columns, tmp_path)
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text and "..." not in text
    for word in ("no difference", "allocator", "mean", "[95 %]", "Overall", "Scaling", "Peak memory"):
        assert word in text
    # the same words as where there is no terminal
    wide = subprocess.run(
        [sys.executable, "-m", "memoir", "bench", "--from", "x.csv"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout
    numbers = r"\d+\.\d+(?: \[[^\]]*\])?"
    assert sorted(re.findall(numbers, text)) == sorted(re.findall(numbers, wide))


def test_a_program_that_prints_a_lot_does_not_cost_memory(tmp_path):
    code = """
import re
from memoir.bench import Metric
import memoir.bench
script = 'cat /dev/null; echo ops: 3; head -c 60000000 /dev/zero | tr "\\\\0" "x" | fold -w 99; echo ops: 4; echo end'
metrics = [Metric("ops", "ops: ([0-9]+)")]
result = memoir.bench.run("system", ["sh", "-c", script], replicates=1, warmup=0, metrics=metrics)
print(result.rows[0]["metrics"], result.rows[0]["status"], re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[:3] == ["{'ops':", "4.0}", "ok"]
    assert int(words[3]) < 110_000  # KiB; the text alone would be 60 MB more, and twice that as a string


def test_diff_fails_when_told_to(cli, tmp_path):  # noqa: F811
    header = "malloc,Threads,Work,Load,Replicate,Time\n"
    for name, factor in (("a", 1.0), ("b", 1.1)):
        rows = [f"x,1,1,1,{r},{factor * (1 + r / 1000)}" for r in range(8)]
        (tmp_path / f"{name}.csv").write_text(header + "\n".join(rows) + "\n")
    code, out, err = cli("diff", "a.csv", "b.csv", "--fail-if", "slower > 2%")
    assert code == 1 and "--fail-if holds: x in" in err and "slower" in out
    assert cli("diff", "a.csv", "b.csv", "--fail-if", "slower > 0.2")[0] == 0
    assert cli("diff", "b.csv", "a.csv", "--fail-if", "slower > 2%")[0] == 0
    assert cli("diff", "b.csv", "a.csv", "--fail-if", "faster > 2%")[0] == 1
    code, _, err = cli("diff", "a.csv", "b.csv", "--fail-if", "worse than ever")
    assert code == 2 and "write it as 'slower > 2%'" in err
    assert cli("diff", "a.csv", "b.csv", "--fail-if", "peak_rss more > 2%")[0] == 2


def forged(tmp_path, change):
    """A stranger's bench in tmp_path/x: of one program, whose header `change` has changed."""
    grid = {
        "programs": [{"name": "p", "command": ["true"], "client": [], "metrics": []}],
        "allocators": [{"name": "system", "library": None, "environment": {}}],
        "threads": [1], "loads": [1], "parameters": [], "threads_given": True, "extra_placeholders": [],
    }  # fmt: skip
    options = {**vars(Options(replicates=1, warmup=0, seed=1)), "counters": []}
    header = {
        "memoir_bench": journal.VERSION,
        "grid": grid,
        "options": options,
        "versions": {},
        "machine": {},
    }
    change(header)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / journal.NAME).write_bytes(journal.line_of(header))


def set_program(**fields):
    return lambda header: header["grid"]["programs"][0].update(fields)


def set_parameter(header):
    set_program(command=["sh", "-c", "{p}"])(header)
    header["grid"]["parameters"] = [["p", ["touch OWNED", "ls"]]]


def set_evaluated(header):
    set_program(command=["sh", "-c", 'eval "$MEMOIR_P"'])(header)
    header["grid"]["parameters"] = [["p", ["touch OWNED"]]]


def set_variable(header):
    header["grid"]["allocators"][0]["environment"] = {"LD_PRELOAD": "/tmp/evil.so", "X": "\x1b[2J"}


def set_library(header):
    header["grid"]["allocators"].append({"name": "evil", "library": "/tmp/evil.so", "environment": {}})


def set_prepare(header):
    header["options"]["prepare"] = "touch {p}"
    header["grid"]["parameters"] = [["p", ["OWNED"]]]


def set_port(prepare):
    def change(header):
        header["options"]["prepare"] = prepare
        header["grid"]["parameters"] = [["port", ["touch OWNED"]]]

    return change


def set_many(header):
    header["grid"]["programs"] = [
        {"name": f"p{i}", "command": ["sh", "-c", f": {i}"], "client": [], "metrics": []} for i in range(150)
    ] + [{"name": "last", "command": ["touch", "OWNED"], "client": [], "metrics": []}]


SHOWN = {
    "parameter": (
        set_parameter,
        ["'MEMOIR_P=touch OWNED' OMP_NUM_THREADS=1 sh -c 'touch OWNED'", "sh -c ls"],
    ),
    "variable of a parameter": (set_evaluated, ["'MEMOIR_P=touch OWNED'"]),
    "variables": (set_variable, ["LD_PRELOAD=/tmp/evil.so 'X=\\x1b[2J' true"]),
    "library": (set_library, ["LD_PRELOAD=/tmp/evil.so true"]),
    "prepare": (set_prepare, ["sh -c 'touch OWNED'"]),
    "client": (
        set_program(client=["sh", "-c", "a {port}"], ready=["b"], stop=["c"], server=True),
        ["  b\n", "  c\n"],
    ),
    "many": (set_many, ["touch OWNED", "these 151 commands"]),
    "escapes": (set_program(command=["true", "\x1b[2J\u202ehidden"]), ["true '\\x1b[2J\\u202ehidden'"]),
    "arithmetic": (
        set_program(command=["true", "{=replicate*2}", "run{replicate}.sh", "{=0*replicate*threads}"]),
        ["true '{=replicate*2}' 'run{replicate}.sh' '{=0*replicate*1}'"],
    ),
    "port that is a parameter": (set_port("{port}"), ["sh -c 'touch OWNED'"]),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_all_that_a_stranger_s_folder_would_run_is_shown(kind, cli, tmp_path, monkeypatch):  # noqa: F811
    change, lines = SHOWN[kind]
    forged(tmp_path, change)
    if kind == "client":
        header, _ = journal.read(tmp_path / "x" / journal.NAME)
        header["grid"]["extra_placeholders"] = ["port"]
        (tmp_path / "x" / journal.NAME).write_bytes(journal.line_of(header))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, _, err = cli("bench", "--resume", "x")
    assert code == 2 and "add --yes" in err and f"In {tmp_path} it would run" in err, err
    for line in lines:
        assert line in err, err
    assert "\x1b" not in err and not (tmp_path / "OWNED").exists()


def set_long(header):
    header["grid"]["programs"][0]["command"] = ["true", "x" * 1_000_000]
    header["grid"]["programs"].append(
        {"name": "b", "command": ["touch", "OWNED"], "client": [], "metrics": []}
    )


def set_too_many(header):
    header["grid"]["parameters"] = [["p", [str(i) for i in range(300)]]]


def set_endless(header):
    header["grid"]["parameters"] = [[f"p{i}", [str(i) for i in range(10)]] for i in range(12)]


@pytest.mark.parametrize("change", [set_long, set_too_many, set_endless])
def test_what_is_too_much_to_be_looked_at_is_refused(change, cli, tmp_path, monkeypatch):  # noqa: F811
    forged(tmp_path, change)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, err = cli("bench", "--resume", "x")
    assert code == 2 and "Nothing was run" in err and len(err) < 2000
    assert not (tmp_path / "OWNED").exists()


def set_entry(*place, to):
    def change(header):
        *path, last = place
        at = header
        for step in path:
            at = at[step]
        at[last] = to

    return change


NOTHING = {
    "no programs": (set_entry("grid", "programs", to=[]), "there are no programs to measure"),
    "no allocators": (set_entry("grid", "allocators", to=[]), "there are no allocators to measure"),
    "no command": (set_program(command=[]), "has no command"),
    "letters": (set_program(command=["sh", "run{{replicate}}.sh"]), "nobody can tell who fills them in"),
    "unfilled": (set_entry("options", "prepare", to="touch {x}"), "nothing fills {x}"),
    "unfilled port": (set_port("{=port}"), "which is not a number"),
    "digits": (set_program(command=["true", "{=round(1e5,-999999999)+round(8,9e9)}"]), "add --yes"),
    "large numbers": (
        set_program(command=["true", "{=" + "*".join(["9" * 4000] * 500) + "}"]),
        "too large to",
    ),
    "cores": (set_entry("options", "pin", to="0-99999999999"), "is not among"),
    "names": (
        set_entry("grid", "parameters", to=[[f"p{i}", ["1"]] for i in range(20_000)]),
        "more than anybody looks at",
    ),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_a_header_that_cannot_run_or_asks_for_much_ends_in_a_line(kind, cli, tmp_path, monkeypatch):  # noqa: F811
    change, said = NOTHING[kind]
    forged(tmp_path, change)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    begin = time.process_time()
    code, _, err = cli("bench", "--resume", "x")
    assert code == 2 and said in err and "Traceback" not in err, err[-2000:]
    assert time.process_time() - begin < 10  # without an end where a number has a billion digits
    assert not (tmp_path / "OWNED").exists()
