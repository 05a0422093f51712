# SPDX-License-Identifier: Apache-2.0
"""Whatever terminal there is: no name and no figure is cut."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from pathlib import Path

import click
import pytest
from memoir.cli import VERBS, _group
from memoir.cli.parts import patience
from memoir.views import text_table
from memoir.views.screen import Screen
from memoir.views.text_table import Table, columns_of, folded

DATA = Path(__file__).parents[1] / "data"
WIDTHS = (40, 60, 80, 120)
GPU = DATA / "gpu" / "silmont_mem.d0.trace"
TIGHT = "id,lower,upper,size\na,0,9,4\nb,3,7,3\nc,4,6,2\n"

# What prints tables, each with a file that is quick to look at.
VERBS_WITH_TABLES = {
    "simulate": (
        "simulate",
        GPU,
        "--policy",
        "pytorch",
        "--policy",
        "pytorch:roundup_power2_divisions:4",
        "--phases",
    ),
    "what-if": ("simulate", GPU, "--what-if", "--cap", "1.2x", "--workers", 1),
    "policies": ("simulate", "--policies"),
    "oom": ("oom", GPU, "--asked", "1GiB", "--cap", "3.5GiB", "--no-caps", "--workers", 1),
    "plan": ("plan", "p.csv", "--planner", "all", "--deadline", 0),
    "sweep": ("plan", "p.csv", DATA / "resnet18.trace", "--planner", "first_fit", "--workers", 1),
    "trace": ("show", DATA / "resnet18.trace"),
    "devices": ("show", DATA / "pools.trace"),
    "program": ("show", DATA / "native.v1.trace", "--all"),
    "lifetimes": ("show", DATA / "small.v1.lifetimes"),
    "model": ("show", DATA / "small.v1.model", "--against", DATA / "small.v1.lifetimes"),
    "plan shown": ("show", "o.csv", "--planner", "first_fit"),
    "diff": ("diff", DATA / "small.v1.trace", DATA / "resnet18.trace"),
}


def words_of(text):
    return Counter(text.split())


def check_whole(table):
    """Each word of each cell is whole at every width, and no line is longer than its terminal but for one long word."""
    wide = "\n".join(text_table.lines(table, None))
    for width in WIDTHS:
        lines = text_table.lines(table, width)
        lost = words_of(wide) - words_of("\n".join(lines))
        assert not lost, (width, table.title, table.columns, lost)
        for line in lines:
            longest = max((columns_of(word) for word in line.split()), default=0)
            figures = max(
                (columns_of(cell) for row in table.rows for cell in row if cell[:1].isdigit()), default=0
            )
            assert columns_of(line) <= max(width, 4 + longest, 4 + figures), (width, line)


@pytest.mark.parametrize("arguments", VERBS_WITH_TABLES.values(), ids=VERBS_WITH_TABLES)
def test_no_table_of_a_verb_is_cut(memoir, tmp_path, monkeypatch, arguments):
    (tmp_path / "p.csv").write_text(TIGHT)
    (tmp_path / "o.csv").write_text("id,lower,upper,size,offset\na,0,9,4,0\nb,3,7,3,4\nc,4,6,2,7\n")
    tables, show = [], Screen.table
    monkeypatch.setattr(Screen, "table", lambda self, table: (tables.append(table), show(self, table))[1])
    code, out, err = memoir(*arguments)
    assert code in (0, 1) and tables, err
    assert "…" not in out and "\x1b" not in out
    for table in tables:
        check_whole(table)
        for cell in (cell for row in table.rows for cell in row):
            assert not words_of(cell) - words_of(out)


def test_a_bench_is_whole(monkeypatch):
    from memoir.cli.parts import bench_report

    row = (
        "program --with a long name and many words",
        "mimalloc",
        "10",
        "1.25 s",
        "0.913 [0.90, 0.93]",
        "faster",
        "",
    )
    table = Table(
        "Time", ("program", "allocator", "n", "mean", "/ system [95 %]", "is", "far"), (row, row), (0,)
    )
    check_whole(table)
    shown = []
    monkeypatch.setattr(Screen, "table", lambda self, table: shown.append(table))
    bench_report.show(table)
    assert shown[0].styles == {(0, 5): "good", (1, 5): "good"}


def on_terminal(arguments, columns, **variables):
    """What a command writes to a terminal of so many columns, and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    command = [sys.executable, "-m", "memoir", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment | {"TERM": "xterm"} | variables
    ) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n"), process.returncode


SIMULATE = ("simulate", GPU, "--policy", "pytorch", "--policy", "expandable", "--workers", 1)


@pytest.mark.parametrize("columns", [60, 80])
def test_a_real_terminal(columns):
    text, code = on_terminal(SIMULATE, columns)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert plain != text and "…" not in plain
    assert re.search(r"^pytorch +3\.52 GiB", plain, re.M) and re.search(
        r"^expandable +3\.54 GiB", plain, re.M
    )
    table = plain.split("\n\n")[1:-1]
    assert all(len(line) <= columns for block in table for line in block.split("\n"))


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_no_colours_where_none_are_wanted(variables):
    text, code = on_terminal(("show", DATA / "small.v1.plan"), 60, **variables)
    assert code == 0 and "\x1b" not in text


@pytest.mark.parametrize(
    "variables",
    [{"LANG": "C", "LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}, {"TERM": "dumb", "FORCE_COLOR": "1"}],
)
def test_a_pipe_with_any_letters(variables):
    command = [sys.executable, "-m", "memoir", "show", DATA / "small.v1.trace"]
    ended = subprocess.run(command, capture_output=True, env=os.environ | variables, check=False)
    assert ended.returncode == 0, ended.stderr
    assert b"\x1b" not in ended.stdout and b"aten::relu" in ended.stdout


def test_letters_of_two_columns():
    assert columns_of("漢字") == 4 and columns_of("e\u0301") == 1
    assert folded("漢字 漢字", 6) == ["漢字", "漢字"]
    assert folded("about 3.03 GiB", 10) == ["about", "3.03 GiB"]


def test_no_whole_number_reaches_the_core_that_does_not_fit():
    """Every option that takes a whole number has an upper end."""

    def options(command, path):
        if isinstance(command, click.Group):
            for name in VERBS:
                found = command.get_command(click.Context(command), name)
                assert found is not None
                yield from options(found, f"{path} {name}")
            return
        for parameter in command.params:
            if isinstance(parameter.type, click.types.IntParamType | click.IntRange):
                yield path, parameter

    found = list(options(_group, "memoir"))
    assert len(found) > 10
    for path, parameter in found:
        for number in ("99999999999999999999", "9" * 5000):
            with pytest.raises(click.BadParameter):
                parameter.type.convert(number, parameter, None)
                print(path, parameter.name)


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "p.csv", "--seed", "99999999999999999999"),
        ("plan", "p.csv", "--seed", "1-99999999999999999999"),
        ("plan", "p.csv", "--seed", "99999999999999999999"),
        ("plan", "p.csv", "--capacity", "9" * 5000),
        ("simulate", GPU, "--cap", "1e20x"),
        ("simulate", GPU, "--search", "99999999999999999999s"),
        ("oom", GPU, "--asked", "99999999999999999999"),
        ("show", GPU, "--at", "99999999999999999999s"),
        ("plna", "p.csv"),
        ("plan",),
        ("plan", "p.csv", "--no-such-option"),
    ],
)
def test_bad_arguments_are_told_in_a_line(memoir, tmp_path, arguments):
    (tmp_path / "p.csv").write_text(TIGHT)
    code, out, err = memoir(*arguments)
    assert (code, out) == (2, "") and err.count("\n") == 1 and err.startswith("memoir: "), err
    assert "nanobind" not in err and "incompatible" not in err
    assert len(err) < 5000


def test_a_verb_that_is_nearly_right(memoir):
    assert "did you mean plan?" in memoir("plna")[2]
    assert "did you mean" not in memoir("zzzzzz")[2]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams(tmp_path, closed):
    """As of a daemon: the work is done, and no file becomes somebody's standard output."""
    (tmp_path / "p.csv").write_text(TIGHT)
    command = f"{sys.executable} -m memoir plan p.csv -o o.csv {closed}"
    ended = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and "Traceback" not in ended.stderr
    assert (tmp_path / "o.csv").read_text().splitlines()[0] == "id,lower,upper,size,offset"
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 4


def test_the_reader_goes(tmp_path):
    """`| head`: 141 from every table, since 1 is an answer of some verbs."""
    command = f"(sleep 0.2; {sys.executable} -m memoir show {DATA / 'resnet18.trace'}; echo $? >code) | true; sleep 0.1"
    subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=False)
    assert (tmp_path / "code").read_text() == "141\n"


def test_an_interrupt_is_130(memoir, monkeypatch):
    from memoir import simulation

    def interrupted(task):
        raise KeyboardInterrupt

    monkeypatch.setattr(simulation, "simulate_task", interrupted)
    code, out, err = memoir(*SIMULATE)
    assert (code, out) == (130, "") and err.endswith("memoir: interrupted\n")


@pytest.mark.parametrize(
    "suffix", [".trace", ".plan", ".model", ".lifetimes", ".tflite", ".pte", ".pickle", ".onnx"]
)
@pytest.mark.parametrize(
    ("content", "begins"),
    [
        (b"", "empty"),
        (b"\0\1\2\3\4\5\6\7\x08\x09", "00 01 02 03"),
        (b"id,lower,upper,size\na,0,1,2\n", "id,lower"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzip"),
    ],
)
@pytest.mark.parametrize("verb", ["show", "plan"])
def test_what_a_name_promises(memoir, tmp_path, suffix, content, begins, verb):
    (tmp_path / f"x{suffix}").write_bytes(content)
    code, out, err = memoir(verb, f"x{suffix}")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "column" not in err
    if suffix != ".onnx" or verb == "show":  # the importer has a word of its own
        assert "its name promises a" in err and begins in err, err


# Verbs that print lines, not results in tables; each leaves the file that the next one reads.
OTHER_VERBS = {
    "doctor": ("doctor",),
    "import": ("import", DATA / "snapshot.pickle", "-o", "s.trace", "-f"),
    "export": ("export", DATA / "resnet18.trace", "--to", "folded", "-o", "r.folded", "-f"),
    "export profile": ("export", DATA / "small.v1.lifetimes", "--to", "pprof", "-o", "l.pb.gz", "-f"),
    "merge": ("merge", DATA / "small.v1.lifetimes", "-o", "m.lifetimes", "-f"),
    "train": ("train", DATA / "small.v1.lifetimes", "--no-replay", "-o", "t.model", "-f"),
    "symbolize": ("symbolize", "n.trace"),
    "record": ("record", "--only", "malloc", "-o", "p.trace", "-f", "--", "/bin/true"),
    "shown": ("show", "p.trace"),
    "completion": ("completion", "bash"),
    "help": ("--help",),
    "help of a verb": ("simulate", "--help"),
}
SURROUNDINGS = {
    "60": (60, {}),
    "80": (80, {}),
    "120": (120, {}),
    "dumb": (80, {"TERM": "dumb"}),
    "no colour": (60, {"NO_COLOR": "1"}),
    "C": (60, {"LANG": "C", "LC_ALL": "C"}),
}


@pytest.mark.parametrize("name", OTHER_VERBS)
def test_no_word_of_another_verb_is_cut(tmp_path, monkeypatch, name):
    """What a pipe gets stands on every terminal, too: word by word, but for what differs from run to run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n.trace").write_bytes((DATA / "native.v1.trace").read_bytes())
    if name == "shown":
        on_terminal(OTHER_VERBS["record"], 80)
    arguments = [str(one) for one in OTHER_VERBS[name]]
    command = [sys.executable, "-m", "memoir", *arguments]
    piped = subprocess.run(command, capture_output=True, text=True, check=False)
    assert piped.returncode == 0, piped.stderr
    assert "\x1b" not in piped.stdout and "…" not in piped.stdout
    words = {word for word in piped.stdout.split() if not re.search(r"\d\.\d|[█▁-▇]", word)}
    for columns, variables in SURROUNDINGS.values():
        text, code = on_terminal(arguments, columns, **variables)
        assert code == 0 and "…" not in text and "Traceback" not in text
        assert ("\x1b" in text) <= (not variables or "LANG" in variables), variables
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
        joined = "".join(plain.split())
        lost = {word for word in words if word not in joined and not word.isdigit()}
        assert (
            not lost
            or name in ("record", "shown", "doctor")
            and all("/" in word or "," in word for word in lost)
        ), (
            columns,
            variables,
            lost,
        )


def test_top_is_whole(monkeypatch):
    """Of a process with every figure that there can be, and sites with long names."""
    from memoir.cli import top

    from memoir.malloc import LiveSite

    figures = dict.fromkeys([*top._SHOWN, "limit", "samples", "size_1152"], 123_456_789)
    site = LiveSite(**{
        name: {"module": "/lib/a_library_with_a_long_name.so", "file": "/src/" + "g" * 40 + ".cc", "function": "f" * 70,
               "offset": 16}.get(name, 1 << 20)
        for name in LiveSite.__dataclass_fields__
    })  # fmt: skip
    tables = []
    monkeypatch.setattr(Screen, "table", lambda self, table: tables.append(table))
    watch = top._Watch(1, clear=False)
    for _ in range(2):  # the second look has a column more
        watch.show(figures, [site])
    assert len(tables) == 4
    for table in tables:
        check_whole(table)


@pytest.mark.parametrize(
    ("wrong", "is_a"),
    [
        (DATA / "resnet18.trace", "a trace"),
        (DATA / "small.v1.plan", "a plan"),
        (DATA / "small.v1.model", "a model of lifetimes"),
        (DATA / "small.v1.lifetimes", "a lifetime profile"),
        (DATA / "importers" / "small.tflite", "a TFLite model"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
@pytest.mark.parametrize(
    ("verb", "takes"),
    [
        (("train", "{}", "-o", "x.model"), ("a lifetime profile",)),
        (("merge", "{}", "-o", "x.lifetimes"), ("a lifetime profile",)),
        (("merge", DATA / "small.v1.lifetimes", "{}", "-o", "x.lifetimes"), ("a lifetime profile",)),
        (("show", DATA / "small.v1.model", "--against", "{}"), ("a lifetime profile",)),
        (("run", "--model", "{}", "--", "true"), ("a model of lifetimes",)),
        (("simulate", "{}", "--policy", "span"), ("a trace",)),
        (("oom", "{}"), ("a trace",)),
        (("symbolize", "{}"), ("a trace", "a lifetime profile")),
        (("export", "{}", "--to", "pprof"), ("a trace", "a lifetime profile")),
        (("import", "{}", "-o", "x.trace"), ()),
        (("diff", "{}", "{}"), ("a trace",)),
    ],
    ids=lambda one: one[0] if isinstance(one, tuple) and one else "",
)
def test_a_file_of_another_kind_is_said_to_be_that(memoir, tmp_path, wrong, is_a, verb, takes):
    """Also under a name that promises what is wanted."""
    if is_a in takes:
        return
    code, out, err = memoir(*(str(one).format(wrong) for one in verb))
    assert (code, out) == (2, "") and err.count("\n") == 1, err
    if verb[0] != "import" or is_a != "a TFLite model":
        assert f"it is {is_a}" in err, err
        assert "promises" not in err
    if takes:
        suffix = {"a lifetime profile": ".lifetimes", "a model of lifetimes": ".model", "a trace": ".trace"}[
            takes[0]
        ]
        (tmp_path / f"named{suffix}").write_bytes(wrong.read_bytes())
        code, out, err = memoir(*(str(one).format(f"named{suffix}") for one in verb))
        assert (code, out) == (2, "") and f"its name promises {takes[0]}, but it begins like {is_a}" in err, (
            err
        )


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_long_work_says_what_it_does_and_takes_it_back(monkeypatch, tmp_path):
    monkeypatch.setattr(patience, "PATIENCE", 0.01)
    monkeypatch.setattr(sys, "stderr", _Terminal())
    (tmp_path / "x\n.trace").write_bytes(b"x" * 2048)
    with patience.reading(tmp_path / "x\n.trace"):
        for _ in range(1000):
            if sys.stderr.getvalue():
                break
            time.sleep(0.01)
    said = sys.stderr.getvalue()
    assert (
        said.startswith("\r\033[Kmemoir: reading x") and "(2.00 KiB), " in said and said.endswith("\r\033[K")
    )
    assert "\n" not in said
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # no terminal: nothing
    with patience.doing("work"):
        time.sleep(0.1)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("seconds", [0, 1000])
def test_a_line_for_each_result_once_they_take_their_time(memoir, tmp_path, monkeypatch, seconds):
    monkeypatch.setattr(patience, "PATIENCE", seconds)
    (tmp_path / "p.csv").write_text(TIGHT)
    code, out, err = memoir("plan", "p.csv", "--planner", "all", "--deadline", 0)
    assert code == 0
    lines = [line for line in err.splitlines() if re.match(r"[a-z_]+: ", line)]
    names = {line.split(":")[0] for line in lines}
    rows = {line.split()[0] for line in out.splitlines() if re.match(r"[a-z_]+ +(\d|-)", line)} - {"floor"}
    assert len(rows) > 10 and names == (rows if seconds == 0 else set()), err
    err = memoir(*SIMULATE)[2]
    assert len([line for line in err.splitlines() if " of the floor (" in line]) == (2 if seconds == 0 else 0)
