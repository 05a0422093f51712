# SPDX-License-Identifier: Apache-2.0
"""Programs with a planted leak, peak and churn: whoever asked stands in the first 20 lines of `memoir show`, and on the page's
first screen without a click."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = Path(__file__).parent / "planted"
sys.path.insert(0, str(Path(__file__).parents[1] / "support" / "browser"))

#: file -> how it is built ({source}, {program}) or run, and who must be named: leak, peak, churn
PROGRAMS = {
    "tables.c": (["cc", "-O2", "-g", "{source}", "-o", "{program}"], ["table_put", "load_image", "compare"]),
    "server.cc": (
        ["c++", "-O2", "-g", "-pthread", "{source}", "-o", "{program}"],
        ["SessionCache::add", "Report::build", "Parser::parse"],
    ),
    "jobs.py": ([], ["Job.remember", "export", "encode"]),
    "shop.rs": (
        ["rustc", "-O", "-g", "{source}", "-o", "{program}"],
        ["shop::keep_cart", "shop::invoice", "<str as shop::Price>::price"],
    ),
    "bridge.go": (
        ["go", "build", "-buildmode=pie", "-o", "{program}", "{source}"],
        ["main.openHandle", "main.renderFrame", "main.nameOf"],
    ),
}
LONG = ("shop.rs", "bridge.go")  # their compilers take their time


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The trace of one of PROGRAMS, recorded once."""
    traces: dict[str, Path] = {}

    def trace(name: str) -> Path:
        if name not in traces:
            folder = tmp_path_factory.mktemp("planted")
            program = _program(name, folder)
            traces[name] = folder / "x.trace"
            command = [sys.executable, "-m", "memoir", "record", "-o", str(traces[name]), "--", *program]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
        return traces[name]

    return trace


def _program(name: str, folder: Path) -> list[str]:
    source, program = PLANTED / name, folder / "program"
    build, _ = PROGRAMS[name]
    if not build:
        return [str(Path(sys.executable).resolve()), str(source)]
    if shutil.which(build[0]) is None:
        pytest.skip(f"no {build[0]} here")
    command = [word.format(source=source, program=program) for word in build]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stderr
    return [str(program)]


def show(trace: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "memoir", "show", str(trace), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def names() -> list:
    return [pytest.param(name, marks=[pytest.mark.full] * (name in LONG)) for name in PROGRAMS]


@pytest.mark.parametrize("name", names())
def test_the_first_lines_name_who_asked(planted, name):
    _, (leak, peak, churn) = PROGRAMS[name]
    lines = show(planted(name))
    begins = [
        number for number, line in enumerate(lines) if line.startswith(("Never freed:", "Peak:", "Churn:"))
    ]
    sentences = [
        " ".join(line.strip() for line in lines[begin:end])
        for begin, end in zip(begins, [*begins[1:], lines.index("")], strict=True)
    ]
    assert begins[-1] < 20
    for who, sentence in zip((leak, peak, churn), sentences, strict=True):
        assert f"by {who} (" in sentence and PLANTED.joinpath(name).name in sentence, sentence
    assert max(map(len, lines[:-1])) <= 80 and len(lines) < 20 + 40
    assert not any("0x" in line for line in lines)
    assert lines[-1] == f"next: memoir show {planted(name)} -o {planted(name).with_suffix('.html').name}"


def test_all_frames_and_all_tables(planted):
    text = "\n".join(show(planted("server.cc"), "--all-frames"))
    assert "operator new" in text.split("\n\n")[0]
    everything = "\n".join(show(planted("server.cc"), "--all"))
    assert "held then, by library" in everything and "with all that it called" in everything


def test_what_grew_by_the_same_names(planted, tmp_path):
    """A build that keeps three times as much, at other lines."""
    source = PLANTED.joinpath("server.cc").read_text().replace("state.resize(3000)", "state.resize(9000)")
    (tmp_path / "server.cc").write_text("// one line more\n" + source)
    build = [
        word.format(source=tmp_path / "server.cc", program=tmp_path / "program")
        for word in PROGRAMS["server.cc"][0]
    ]
    subprocess.run(build, check=True)
    after = tmp_path / "after.trace"
    record = [sys.executable, "-m", "memoir", "record", "-o", str(after), "--", str(tmp_path / "program")]
    assert subprocess.run(record, capture_output=True).returncode == 0
    command = [sys.executable, "-m", "memoir", "diff", str(planted("server.cc")), str(after)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first = " ".join(line.strip() for line in done.stdout.splitlines()[1:4])
    assert "Never freed: +4.58 MiB, +4.58 MiB of it asked for by SessionCache::add (server.cc:24)" in first
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80


@pytest.mark.full
@pytest.mark.parametrize("name", names())
def test_the_first_screen_names_who_asked(planted, tmp_path, name):
    import browser as browser_module

    if browser_module.find() is None:
        pytest.skip("no Chromium here (apt-get install chromium)")
    page_file = tmp_path / "x.html"
    show(planted(name), "-o", str(page_file))
    # What is seen: text in boxes that lie within the window, and what the flame graph draws.
    seen = (
        "(() => { const all = []; const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); "
        "while (walk.nextNode()) { const range = document.createRange(); range.selectNodeContents(walk.currentNode); "
        "const box = range.getBoundingClientRect(); if (box.height && box.bottom <= innerHeight) "
        "all.push(walk.currentNode.textContent); } return all.join('\\n'); })()"
    )
    with browser_module.Browser() as browser:
        page = browser.open(page_file, 1200, 800)
        assert page.run("document.documentElement.dataset.ready") == "yes"
        assert page.complaints() == []
        text = page.run(seen)
        for who in PROGRAMS[name][1]:
            assert who in text, who
        flame = "memoirPage.panels.find((panel) => panel.tabs)"
        total = page.run(f"{flame}.root.value")
        page.run(f"{flame}.follow('held', {PROGRAMS[name][1][1]!r})")
        shown = page.run(f"{flame}.functions.map((one) => {flame}.set.frames[one.frame])")
        assert any(one.startswith(f"{PROGRAMS[name][1][1]} (") for one in shown)
        page.run(f"{flame}.set_({{ measure: {flame}.data.measures[0][0], ownOnly: true, bottomUp: true }})")
        assert page.run(f"{flame}.root.value") == total  # nothing is lost where frames are left out
        assert page.complaints() == []
