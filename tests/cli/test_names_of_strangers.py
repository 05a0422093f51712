# SPDX-License-Identifier: Apache-2.0
"""Names of strangers in whatever memoir prints or writes for people: nothing that a terminal or a shell would obey."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from native_trace import NativeTrace

DATA = Path(__file__).parents[1] / "data"

BAD = ["\x1b]0;owned\x07\x1b[2J", "\u202egnp.exe\u2066x", "a\nb\rc", "\x9b31mC1\x85x", "\u2028\u200b\ufeff", "nul\x00x",
       "</script><script>", "a;b;c 1", "`$(touch x)`", "\U000e0041tag"]  # fmt: skip
COMMANDS = (
    ("show", "x.trace"), ("show", "x.trace", "--all"), ("show", "x.trace", "-o", "x.html"), ("simulate", "x.trace"),
    ("diff", "x.trace", "x.trace"), ("plan", "x.trace"), ("export", "x.trace", "--to", "folded"), ("symbolize", "x.trace"),
    ("oom", "x.trace"),
)  # fmt: skip


@pytest.fixture
def trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = NativeTrace()
    made.meta("command", "p; touch x " + " ".join(BAD))
    for i, bad in enumerate(BAD):
        stack = made.stack(
            made.native(f"/lib/{bad}.so", 256 + i, [(bad, bad, 3)]),
            made.python(bad, bad, 4),
            made.named(1, bad),
        )
        made.begin_thread(i + 1, 10 * i + 1, 100 + i, bad)
        for k in range(4):
            made.allocate(i + 1, 10 * i + k + 2, 0x100000 + 65536 * i + 4096 * k, 512 << k, stack)
        made.free(i + 1, 10 * i + 8, 0x100000 + 65536 * i)
    (tmp_path / "x.trace").write_bytes(made.bytes())
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_nothing_that_is_obeyed_is_printed(words, trace, memoir_cli):
    code, said, errors = memoir_cli(*words)
    assert code in (0, 1, 2), errors
    texts = [
        said,
        errors,
        *(path.read_text() for path in trace.iterdir() if path.suffix in (".folded", ".html")),
    ]
    for text in texts:
        found = {letter for letter in text if not letter.isprintable() and letter not in "\n\t"}
        assert not found, found
    # What is offered to be typed names no command of the trace: it has no quotes.
    assert "; touch x" not in said.partition("next:")[2]


@pytest.mark.parametrize("name", ["e\x1b[31m\u202e\nz.trace", "x\udcff.trace", "-o.trace", "a'b\\c d.trace"])
def test_a_file_s_own_name_is_escaped_and_can_be_typed(name, trace, memoir_cli):
    os.rename("x.trace", name)
    for words in (("show",), ("simulate",), ("plan",), ("symbolize",), ("export", "--to", "folded")):
        code, said, errors = memoir_cli(words[0], f"./{name}", *words[1:])
        assert code in (0, 1, 2), errors
        found = {letter for letter in said + errors if not letter.isprintable() and letter not in "\n\t"}
        assert not found, (words, found)
        for line in (said + errors).splitlines():
            command = line.partition("next: memoir ")[2]
            if command and f"memoir {command}" != line:
                typed = subprocess.run(
                    ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True
                )
                assert os.fsencode(name) in typed.stdout.replace(b"./", b"") or b"." in typed.stdout


@pytest.mark.parametrize("name", ["x\udcff$\\frac$", "$a$ \x1b[2J\u202e"])
def test_a_picture_or_another_format_of_such_a_file(name, trace, memoir_cli):
    os.rename("x.trace", f"{name}.trace")
    shutil.copy(DATA / "small.v1.lifetimes", f"{name}.lifetimes")
    shutil.copy(DATA / "small.v1.model", f"{name}.model")
    shutil.copy(DATA / "small.v1.plan", f"{name}.plan")
    shutil.copy(DATA / "snapshot.pickle", f"{name}.pickle")
    for words in (
        ("show", f"./{name}.trace", "-o", f"{name}.svg"),
        ("show", f"./{name}.trace", "-o", f"{name}.png"),
        ("simulate", f"./{name}.trace", "--policy", "pytorch", "-o", f"{name}2.png"),
        ("export", f"./{name}.trace", "--to", "chrome", "-o", f"{name}.json"),
        ("show", f"./{name}.lifetimes", "-o", f"{name}.html"),
        ("merge", f"./{name}.lifetimes", "-o", f"{name}2.lifetimes"),
        ("show", f"./{name}.model"),
        ("show", f"./{name}.plan"),
        ("import", f"./{name}.pickle", "-o", f"{name}2.trace"),
    ):
        code, said, errors = memoir_cli(*words)
        assert code == 0, (words, errors)
        assert all(letter.isprintable() or letter in "\n\t" for letter in said + errors), (
            words,
            said,
            errors,
        )
