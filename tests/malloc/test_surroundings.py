# SPDX-License-Identifier: Apache-2.0
"""What the malloc promises (promises.c) where servers run (surroundings.h): each promise in each surrounding, a spread
of them by default and all as `full`. What it prints must be what it prints under the C library's own malloc."""

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CASES = ["contents", "drop", "inside", "trim", "forks", "threads"]
LOCKED = ["later lock"]
LAST = 0.55  # of what was resident before the drop: may stay at most, where memory can be given back


@pytest.fixture(scope="session")
def promises(compiled):
    return compiled("promises.c")


@pytest.fixture(scope="session")
def expected(promises):
    """What a case prints without the malloc, in a surrounding: None where the C library's malloc does not get there."""
    known = {}

    def without(case, where):
        key = case, where
        if key not in known:
            command = [promises, case, *where.split()]
            run = subprocess.run(
                command, env=os.environ | {"BUSY": "1"}, capture_output=True, text=True, timeout=120
            )
            known[key] = run.stdout if run.returncode == 0 else None
        return known[key]

    return without


def resident_share(said):
    there, before = re.search(r"resident (-?[\d.]+) of (-?[\d.]+)", said).groups()
    return float(there) / float(before) if float(before) > 0 else 0  # it may not be read there


def check(case, where, promises, expected, under, gives_back=True, **options):
    wanted = expected(case, where)
    if wanted is None:  # the C library's malloc does not do it either
        return None
    run = under([promises, case, *where.split()], **options)
    assert (run.returncode, run.stdout) == (0, wanted), run.stderr
    if gives_back and case in ("drop", "trim"):
        assert resident_share(run.stderr) < LAST, run.stderr
    return run


def one(*arguments, **options):
    run = check(*arguments, **options)
    if run is None:
        pytest.skip("the C library's malloc does not get there either")
    return run


def test_every_case_is_listed(promises):
    assert subprocess.run([promises], capture_output=True, text=True).stdout.split() == CASES


@pytest.mark.parametrize("case", CASES)
def test_where_nothing_is_special(case, promises, expected, under):
    one(case, "", promises, expected, under)


# Nothing can be given back: what was not given back must not be taken for zeros, nor be tried for ever.
@pytest.mark.parametrize("where", LOCKED)
@pytest.mark.parametrize("case", ["inside", "trim"])
def test_locked_memory(case, where, promises, expected, under):
    one(case, where, promises, expected, under, gives_back=False)


# System calls that no program needs to make for its malloc's sake: one that is refused changes nothing that the program
# sees, and one that ends the program is not made.
OWN = [
    "mincore",
    "membarrier",
    "process_madvise",
    "cpu_clock",
    "prctl",
    "getpid",
    "gettid",
    "sched_yield",
    "nanosleep",
    "process_vm_readv",
    "pread64",
]
# What any malloc calls. All may be refused, as where there is no memory; who kills for them has no program.
ANY = ["mremap", "munmap", "madvise", "mprotect", "futex", "brk", "clone+clone3"]
SPREAD = [
    ("contents", "later kill=" + "+".join(OWN)),
    ("trim", "exec kill=" + "+".join(one for one in OWN if one != "pread64")),
    ("drop", "later kill=clone+clone3+mincore"),
    ("inside", "later absent=membarrier+mincore"),
    ("contents", "exec refuse=mremap"),
    ("contents", "later absent=mremap+madvise+munmap"),
    ("threads", "later refuse=madvise+membarrier"),
    ("forks", "later kill=membarrier+mincore"),
]
LIMITS = [
    ("contents", "exec hide=/proc hide=/sys hide=/dev/shm"),
    ("trim", "exec as=600"),
    ("contents", "later data=200"),
    ("threads", "exec stack=256"),
    ("trim", "now threads=1"),
]
REFUSED_BACK = {"madvise", "munmap"}


def in_filter(case, where, promises, expected, under):
    gives_back = not REFUSED_BACK & set(re.split("[=+ ]", where))
    # By itself memory goes back where a thread may be there.
    if case == "drop" and "clone" in where and where.startswith("exec"):
        gives_back = False
    return check(case, where, promises, expected, under, gives_back)


@pytest.mark.parametrize(("case", "where"), SPREAD)
def test_filters_of_system_calls(case, where, promises, expected, under):
    if in_filter(case, where, promises, expected, under) is None:
        pytest.skip("the C library's malloc does not get there either")


@pytest.mark.parametrize("where", ["later refuse=mprotect", "exec kill=mincore+membarrier"])
def test_the_checked_build_behind_filters(where, promises, expected, under):
    one("contents", where, promises, expected, under, settings={"secure": "1"})


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("when", ["exec", "later"])
@pytest.mark.parametrize("how", ["refuse", "absent", "kill"])
def test_every_filter(case, when, how, promises, expected, under):
    own = "+".join(one for one in OWN if when == "later" or one != "pread64")  # the loader reads so
    for calls in [own, "prctl"] if how == "kill" else [own, *ANY]:
        in_filter(case, f"{when} {how}={calls}", promises, expected, under)


@pytest.mark.parametrize(("case", "where"), LIMITS)
def test_limits(case, where, promises, expected, under):
    one(case, where, promises, expected, under)


@pytest.mark.full
@pytest.mark.parametrize("where", [where for _, where in LIMITS])
@pytest.mark.parametrize("case", CASES)
def test_every_limit(case, where, promises, expected, under):
    check(case, where, promises, expected, under)


# One that gave back 4 KiB of a larger page would take live blocks along.
@pytest.mark.parametrize(
    ("pages", "case"),
    [
        pytest.param(
            pages, case, marks=[] if pages != 16 and case in ("contents", "inside") else pytest.mark.full
        )
        for pages in (4, 16, 64)
        for case in CASES
    ],
)
def test_larger_pages(pages, case, promises, expected, under, compiled):
    shim = compiled("larger_pages.c", "-shared", "-fPIC", f"-DPAGES={pages}", name=f"pages{pages}.so")
    run = one(case, "", promises, expected, under, gives_back=pages == 4, preloaded=shim)
    told = f"memoir: pages are {pages} KiB here, memoir's malloc knows 4 KiB: the system's malloc serves\n"
    assert (told in run.stderr) == (pages != 4), run.stderr


@pytest.fixture(scope="session")
def fork_handlers(compiled):
    """A library that registers handlers of fork before anybody called malloc, and a program linked with it."""
    library = compiled("fork_handlers.c", "-shared", "-fPIC", name="libfork_handlers.so")
    flags = [f"-L{library.parent}", "-lfork_handlers", f"-Wl,-rpath,{library.parent}"]
    return library, lambda name, *more: compiled("fork_handlers.c", "-DPROGRAM", *more, *flags, name=name)


def forks(command, preloaded=()):
    environment = os.environ | {"LD_PRELOAD": " ".join(str(one) for one in preloaded)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout) == (0, "forked 10 times\n"), run.stderr


@pytest.mark.parametrize("order", ["alone", "before", "after"])
def test_handlers_of_fork_that_allocate(order, fork_handlers, library):
    handlers, program = fork_handlers
    preloaded = {"alone": [library], "before": [handlers, library], "after": [library, handlers]}[order]
    forks([program("forks")], preloaded)


@pytest.mark.parametrize("order", ["before", "after"])
def test_handlers_of_fork_that_allocate_in_linked_libraries(order, fork_handlers, library):
    """Linked before the malloc and after it: the loader runs the constructors of the last one first."""
    _, program = fork_handlers
    malloc = [f"-L{library.parent}", f"-l:{library.name}", f"-Wl,-rpath,{library.parent}"]
    first = ["-Wl,--no-as-needed", *malloc] if order == "before" else []
    last = [] if order == "before" else malloc
    forks([program(f"forks_{order}", *first, *last)])


def test_handlers_of_fork_that_come_before_the_archives(fork_handlers):
    """A library's constructor runs before those of the program, where the archive is: the handlers that it registers
    run while the malloc holds its locks."""
    archive = Path(__file__).parents[2] / "build/release/src/memoir/malloc/preload/libmemoir_malloc.a"
    if not archive.exists():
        pytest.skip("the release preset is not built (make test builds it)")
    _, program = fork_handlers
    forks([program("forks_static", "-Wl,-u,malloc", str(archive))])


@pytest.mark.parametrize("how", ["NAMED", "PATCH"])
def test_what_goes_back_is_seen_by_registration_caches(how, promises, compiled, under):
    """They put themselves in front of madvise(): all that the malloc counts as given back passes there."""
    if how == "PATCH" and platform.machine() != "x86_64":
        pytest.skip("the jump that is written over madvise() is x86-64's")
    cache = compiled("registration_cache.c", "-shared", "-fPIC", f"-D{how}", name=f"cache_{how}.so")
    run = under([promises, "drop"], {"stats": "1"}, preloaded=cache)
    assert run.returncode == 0, run.stderr
    seen = float(re.search(r"seen ([\d.]+) MiB leave", run.stderr)[1])
    given_back = float(re.search(r"given back ([\d.]+)", run.stderr)[1])
    assert seen >= given_back - 0.1 and given_back > 20, run.stderr


def test_a_setuid_program_reads_no_settings(compiled, library):
    """Its environment is written by who has fewer rights: a model would be opened, and told about, with all of them."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a setuid program for another user to run")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        copy = root / "libmemoir_malloc.so"
        shutil.copy(library, copy)
        copy.chmod(0o755)
        flags = ["-Wl,--no-as-needed", f"-L{root}", "-lmemoir_malloc", f"-Wl,-rpath,{root}"]
        program = root / "program"
        shutil.copy(compiled("promises.c", *flags, name="promises_linked"), program)
        settings = {"MEMOIR_MALLOC": "model=/etc/shadow,stats,background_from=1,sorry"}

        def said():
            run = subprocess.run(
                [program, "trim"], env=settings, user=65534, capture_output=True, text=True, timeout=120
            )
            assert run.returncode == 0, run.stderr
            return run.stderr

        program.chmod(0o755)
        assert "'sorry' is not a setting" in said()
        program.chmod(0o4755)
        if os.statvfs(root).f_flag & os.ST_NOSUID:
            pytest.skip("setuid has no effect in the folder for temporary files")
        assert "memoir" not in said()


def test_the_guide_says_what_is_called():
    """The table of calls names what the matrix refuses."""
    page = (Path(__file__).parents[2] / "docs/guides/malloc.md").read_text()
    rows = re.findall(r"^\| (`[^|]+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    named = {call: kept for calls, kept in rows for call in re.findall(r"`(\w+)`", calls)}
    wanted = {"cpu_clock": "clock_gettime"}
    refused = {wanted.get(one, one) for calls in ANY for one in calls.split("+")} - {"brk"}
    assert refused | {"mmap", "openat", "read", "close"} <= named.keys() | {"clock_gettime"}
    for call in set(OWN) & named.keys():
        assert named[call] == "not made", call
