# SPDX-License-Identifier: Apache-2.0
"""Every command and every piece of Python in the docs is run, as it is written.

What takes hours or a server of the reader's own is run in small (SMALLER says how), or has its options parsed."""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WRITTEN = {
    "commands.md",
    "python.md",
    "c.md",
    "policies.md",
    "malloc-settings.md",
}  # from the code (test_reference.py)
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(
        page
        for folder in ("guides", "concepts", "reference", "results", "contributing")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
        if page.name not in WRITTEN
    ),
]

# What is added to a command, or replaced in it, so that it ends in seconds.
SMALLER = [
    (r"^memoir bench .*--suite servers.*", "memoir bench system --suite servers --smoke -n 2 --no-pictures"),
    (r"^memoir bench .*--suite.*", "memoir bench system --suite --smoke -n 2"),
    (
        r"^(memoir bench .*)-n 30 (.*)--jobs \{work\}",
        r"memoir bench system --threads 1,2 --load 1 -n 2 \2--jobs {work}",
    ),
    (
        r"^memoir bench system,jemalloc --threads 1,4,16 .*",
        "memoir bench system --threads 1,2 --load 1,2 -n 2 --no-pictures -- ./server --side '{=ceil(sqrt(work*100))}'",
    ),
    (
        r"^memoir bench system,jemalloc (--server .*)-n 100000 (.*)",
        r"memoir bench system -n 1 --warmup 0 --no-pictures \1-n 500 -t set \2",
    ),
    # With malloc's events, which tests/cli/test_record.py has, the trace of a Python program has millions.
    (r"^memoir record (?!.*--only|.*--lifetimes)(.*-- python)", r"memoir record --only tensors \1"),
    (r"^memoir show --live ", "memoir show --json "),  # it would not end; tests/views follows a file
    (r" --workers ray", ""),  # tests/sweep starts a Ray
    (r"^memoir bench jemalloc,je1m.*", "memoir bench system,again=system -n 2 -- ./server"),
]
SERVER = "#!/bin/sh\nfor i in 1 2 3; do ls / > /dev/null; done\n"
SERVE = """
import torch
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
with torch.inference_mode():
    net(torch.randn(1, 3, 32, 32))
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.M | re.S)


def files() -> dict[str, str]:
    """What pages show by `$ cat NAME` before a command of that block has made NAME."""
    found = {}
    for page in PAGES:
        for _, text in blocks(page):
            made = set(re.findall(r"-o (\S+)", text))
            for name, content in re.findall(r"^\$ cat (\S+)\n((?:(?!\$ ).*\n)*)", text, re.M):
                if name not in made:
                    assert found.setdefault(name, content) == content, f"{name} is shown with two contents"
    return found


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for language, text in blocks(page):
            if language not in ("", "sh", "console"):
                continue
            for line in text.splitlines():
                line = re.sub(r"^\$ ", "", line.strip())
                command = re.split(r"\s{2,}|\s#\s", line)[0].removeprefix(".venv/bin/")
                if re.match(r"(memoir|make|python3?|bench/\w+\.py)( |$)", command):
                    found.append((page.name, command))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("torch", reason="the docs record PyTorch programs")
    folder = tmp_path_factory.mktemp("docs")
    lay_out(folder, sys.executable)
    return folder


def lay_out(folder: Path, python: str | Path) -> None:
    """Puts there what the docs speak of: a program, a server, a trace, a plan, a problem, old results. They are made by
    the memoir of that Python."""
    for name, text in {"serve.py": SERVE, "my_program.py": SERVE, "server": SERVER}.items():
        (folder / name).write_text(text)
    (folder / "server").chmod(0o755)
    shutil.copy(ROOT / "tests/data/planning/minimalloc/input.12.csv", folder / "problem.csv")
    for name, text in files().items():
        (folder / name).write_text(text)
    shutil.copy(ROOT / "tests/data/snapshot.pickle", folder / "snapshot.pickle")
    shutil.copy(ROOT / "tests/data/small.v1.lifetimes", folder / "x.lifetimes")
    shutil.copy(ROOT / "tests/data/importers/open.onnx", folder / "model.onnx")
    for name, trace in (("step", "magma27_cs336"), ("other", "silmont_fwd_fp32_128")):
        shutil.copy(ROOT / f"tests/data/gpu/{trace}.d0.trace", folder / f"{name}.trace")
    shutil.copy(ROOT / "tests/data/gpu/gpt2m_varlen.trace", folder)
    header = "malloc,Threads,Work,Load,Replicate,Time\n"
    rows = [f"{{}},{threads},{threads},1,{i},{1 + i / 100}" for threads in (1, 2) for i in range(6)]
    for name, malloc in (("a", "default"), ("b", "hoard")):
        (folder / f"{name}.csv").write_text(header + "\n".join(row.format(malloc) for row in rows) + "\n")
    for words in (
        ["record", "--only", "tensors", "-o", "x.trace", "--", python, "serve.py"],
        ["plan", "x.trace", "-o", "x.plan"],
        ["plan", "x.trace", "-o", "y.plan"],
        ["bench", "system", "-n", "2", "-o", "before", "--", "./server"],
        ["bench", "system", "-n", "2", "-o", "after", "--", "./server"],
    ):
        subprocess.run([python, "-m", "memoir", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def ran():
    return set()


@pytest.mark.parametrize(("page", "command"), [c for c in commands() if c[1].startswith("memoir")])
def test_command(folder, ran, page, command):
    redis = "servers" in command or "redis-server" in command
    if redis and shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    for pattern, smaller in SMALLER:
        command = re.sub(pattern, smaller, command)
    if command in ran:
        pytest.skip("the same command, once made small, as on another page")
    ran.add(command)
    words = shlex.split(command)[1:]
    for output in [words[i + 1] for i, word in enumerate(words) if word == "-o"]:
        (folder / output).unlink(missing_ok=True)
        (folder / output).with_suffix(".index").unlink(missing_ok=True)  # of another page's recording
    shutil.rmtree(
        folder / "memoir-bench", ignore_errors=True
    )  # where `memoir bench` writes when nothing is said
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert shutil.which("memoir", path=environment["PATH"])  # by a shell, as a reader types it
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, env=environment
    )
    # 1 from `memoir plan --capacity` is an answer, "proven that none fits".
    assert done.returncode in ((0, 1) if "--capacity" in words else (0,)), done.stderr


@pytest.mark.parametrize(("page", "command"), [c for c in commands() if c[1].startswith("make")])
def test_make_target(page, command):
    help_text = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    targets = set(re.findall(r"make (\w+)", help_text))
    assert set(command.split()[1:]) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_shell_takes_what_is_shown(page):
    """Each block of shell as a whole; of a session what follows its prompts."""
    for language, text in blocks(page):
        if language in ("sh", "bash", "shell"):
            script = text
        elif language in ("console", "text", ""):
            script = "\n".join(re.findall(r"^\$ (.*)", text, re.M))
        else:
            continue
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, f"{page.name}: {done.stderr}\n{script}"


@functools.cache
def help_of(program: str) -> str:
    """Asked once: some of them import PyTorch first."""
    done = subprocess.run([sys.executable, ROOT / program, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    return done.stdout


@pytest.mark.parametrize(
    ("page", "command"),
    [c for c in commands() if re.match(r"(python3? )?bench/", c[1]) and "--smoke" not in c[1]],
)
def test_benchmark_options(page, command):
    """The benchmarks have tests of their own: here, that each names its options right."""
    words = shlex.split(re.sub(r"^python3? ", "", command))
    options = {word for word in words if word.startswith("--")}
    assert all(option in help_of(words[0]) for option in options)


@pytest.mark.parametrize(("page", "command"), [c for c in commands() if " -m pip install " in c[1]])
def test_installation(tmp_path, page, command):
    """All that comes before compiling: what the build needs is there without a package index."""
    words = [str(tmp_path) if word == "site" else word for word in shlex.split(command)[1:]]
    done = subprocess.run([sys.executable, *words, "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "Would install memoir" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("page", [*PAGES, ROOT / "src" / "memoir" / "README.md"], ids=lambda page: page.name)
def test_files_that_are_named_are_there(page):
    """Links, sources by name or by their end of a path, and in walk.md `folder/name` of the core."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    there = listed or [str(path.relative_to(ROOT)) for path in ROOT.glob("[!.]*/**/*")]
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if not re.match(r"https?:|mailto:", link)]
    assert [link for link in links if not (page.parent / link).exists()] == []
    made = set(files()) | {"serve.py", "container.py"}  # the latter is PyTorch's, in what a recording shows
    named = set(re.findall(r"\w[\w./-]*\.(?:h|cc|cpp|py)\b", text)) - made
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in there)] == []
    if page.name == "walk.md":
        rooms = set(
            re.findall(r"`((?:trace|plan|heap|malloc|record|process|remember|device|arena)/\w+)`", text)
        )
        assert (
            rooms and [room for room in rooms if not any(f"/memoir/{room}" in path for path in there)] == []
        )


@pytest.mark.parametrize(
    ("page", "text"),
    [(p.name, text) for p in PAGES for language, text in blocks(p) if language == "python"],
)
def test_python(folder, page, text, monkeypatch):
    import torch

    if page == "gpu.md":  # these change the allocator of their process: tests/gpu runs such on a GPU
        compile(text, page, "exec")
        import memoir.torch

        assert all(hasattr(memoir.torch, name) for name in re.findall(r"memoir\.torch\.(\w+)", text))
        return
    for framework in ("executorch", "tinygrad", "onnxruntime"):
        if f"memoir.{framework}" in text or f"import {framework}" in text:
            pytest.importorskip(framework, reason=f"{framework} is not here")
    monkeypatch.chdir(folder)
    (folder / "x.trace").unlink() if "record(" in text else None
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    space = {
        "torch": torch,
        "model": model,
        "x": torch.randn(2, 4),
        "criterion": torch.nn.functional.mse_loss,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    space |= {part: torch.nn.Linear(4, 4) for part in ("encoder", "unet", "decoder")}
    import memoir.torch

    space["memoir"] = memoir
    if "memoir.torch.stats(model)" in text and "remember(model" not in text:
        space["model"] = memoir.torch.remember(model)
    exec(compile(text, page, "exec"), space)
    if "step" in space:
        for _ in range(3):
            space["step"](torch.randn(2, 4), torch.randn(2, 4))


# Words of the glossary that a newcomer cannot guess, without those that are plain English as well.
TERMS = (
    "arena",
    "censored",
    "expandable segment",
    "external fragmentation",
    "granule",
    "huge page",
    "internal fragmentation",
    "lifetime class",
    "policy",
    "private pool",
    "replicate",
    "size class",
    "skeleton",
    "slab",
    "span",
    "turnover",
)


def first_uses(text: str) -> dict[str, tuple[int, bool]]:
    """Of each term that a page's prose uses: where first, and whether that is in a link. Headings, code and the words of
    programs' output are no prose."""
    blank = lambda match: re.sub(r"[^\n]", "\0", match[0])  # noqa: E731
    prose = re.sub(r"^```.*?^```|^    .*?$|^#.*?$", blank, text, flags=re.M | re.S)
    prose = re.sub(r"`[^`]*`|!\[[^\]]*\]\([^)]*\)|(?<=\])\([^)]*\)", blank, prose)
    links = [match.span() for match in re.finditer(r"\[[^\[\]]*\](?=\0)", prose)]
    found = {}
    for term in TERMS:
        word = term[:-1] + "(?:y|ies)" if term.endswith("y") else term + "(?:s|es)?"
        if match := re.search(rf"(?<![\w-]){word.replace(' ', chr(92) + 's+')}(?![\w-])", prose, re.I):
            found[term] = match.start(), any(low <= match.start() < high for low, high in links)
    return found


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs/guides").glob("*.md"))], ids=lambda page: page.name
)
def test_a_term_is_linked_where_it_is_first_used(page):
    """To the glossary, or to what explains it."""
    text = page.read_text()
    missing = [
        f"{page.name}:{text.count(chr(10), 0, at) + 1}: {term}"
        for term, (at, linked) in first_uses(text).items()
        if not linked
    ]
    assert not missing, "\n".join(missing)


def test_terms_are_in_the_glossary():
    rows = set(re.findall(r"^\| ([^|]+?) \|", (ROOT / "docs/reference/glossary.md").read_text(), re.M))
    assert set(TERMS) <= rows
