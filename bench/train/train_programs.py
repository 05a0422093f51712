# SPDX-License-Identifier: Apache-2.0
"""The programs that `bench/train/train.py` learns from: fetched from registries, built in several ways, and recorded.

All of it is kept in a cache outside the repository, and made only once: sources of crates by cargo, sources and binaries of
Debian by apt-get, which needs neither root nor a change of this machine's lists.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template

from memoir._core import finish_trace
from memoir.lifetimes.names import name_frames
from memoir.lifetimes.sampling import Collector

from memoir.record import native

INPUTS = Path(__file__).resolve().parent / "train_inputs"
SCRIPT = "local t = {} for i = 1, 20 do t[i] = ARGV[1] .. i end redis.call('SET', ARGV[2], t[3]) return t"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
WHOLE = 1  # byte between samples of the profiles that are the truth: every allocation


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "memoir-bench" / "train"


def run(command: list[str | Path], folder: Path | None = None, **more: str) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))[:300]} failed:\n{done.stdout[-3000:]}")


# --- sources ---


def crate(name: str, version: str) -> Path:
    """Its sources, as cargo unpacks them."""
    folder, home = cache() / "crates" / f"{name}-{version}", cache() / "cargo"
    if not (folder / "done").exists():
        (folder / "src").mkdir(parents=True, exist_ok=True)
        (folder / "src" / "lib.rs").touch()
        package = '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n'
        (folder / "Cargo.toml").write_text(package + f'{name} = "={version}"\n')
        run(["cargo", "fetch"], folder, CARGO_HOME=str(home))
        (folder / "done").touch()
    (unpacked,) = home.glob(f"registry/src/*/{name}-{version}")
    return unpacked


def _mirror() -> str:
    """Where this machine's own lists have Debian's packages from."""
    sites = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=True
    ).stdout.split()
    for site in sites:
        if site.rstrip("/").endswith("/debian"):
            return site
    raise SystemExit("no mirror of Debian is in the lists of apt: this needs one")


def _apt() -> list[str | Path]:
    folder = cache() / "apt"
    options = {
        "Dir::Etc::sourcelist": folder / "list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "",
    }
    command: list[str | Path] = ["apt-get", "-qq"]
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    if not (folder / "done").exists():
        for each in ("lists/partial", "cache/archives/partial"):
            (folder / each).mkdir(parents=True, exist_ok=True)
        suites = ("bullseye", "bookworm", "trixie")
        kinds = [("deb-src", suite) for suite in suites] + [("deb", "bookworm")]
        lines = [f"{kind} [signed-by={KEYS}] {_mirror()} {suite} main\n" for kind, suite in kinds]
        (folder / "list").write_text("".join(lines))
        run([*command, "update"])
        (folder / "done").touch()
    return command


def debian_source(name: str, version: str) -> Path:
    """The original sources of a package, unpacked. version: up to Debian's own part of it."""
    folder = cache() / "debian" / f"{name}-{version}"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shown = subprocess.run(
            [*_apt()[:0], "apt-cache", *_apt()[2:], "showsrc", name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        versions = [line.split()[1] for line in shown.splitlines() if line.startswith("Version: ")]
        (full, *_) = [each for each in versions if each.split(":")[-1].startswith(version)]
        run([*_apt(), "source", "--download-only", f"{name}={full}"], folder)
        (archive,) = folder.glob("*.orig.tar.*")
        (folder / "tree").mkdir()
        run(["tar", "xf", archive, "-C", folder / "tree", "--strip-components=1"])
        (folder / "done").touch()
    return folder / "tree"


def debian_binaries(name: str, packages: list[str]) -> Path:
    """Packages unpacked into one folder; nothing is installed."""
    folder = cache() / "debian" / name
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run([*_apt(), "download", *packages], folder)
        for package in folder.glob("*.deb"):
            run(["dpkg-deb", "-x", package, folder])
            package.unlink()
        (folder / "done").touch()
    return folder


# --- programs ---


@dataclass(frozen=True)
class Build:
    """One way to make and run a program. make: into a folder, gives the executable's path."""

    name: str  # base, O0, version, input
    make: Callable[[Path], Path]
    seed: int
    of: str = ""  # another build whose executable this one is


@dataclass(frozen=True)
class Program:
    name: str
    run: Callable[
        [Path, int, Path, dict[str, str]], None
    ]  # executable, seed, a folder to write to, environment
    builds: tuple[Build, ...]


def _compile(sources: list[Path], output: Path, *options: str, compiler: str = "cc") -> Path:
    run([compiler, "-g0", *options, *sources, "-o", output, "-lm", "-lpthread", "-ldl"])
    return output


def _work(environment: dict[str, str], *command: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")


def _sqlite(version: str, level: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        source = crate("libsqlite3-sys", version) / "sqlite3"
        options = (
            f"-I{source}",
            level,
            "-DSQLITE_ENABLE_FTS5",
            "-DSQLITE_ENABLE_RTREE",
            "-DSQLITE_ENABLE_MATH_FUNCTIONS",
        )
        return _compile([INPUTS / "sqlite.c", source / "sqlite3.c"], folder / "sqlite", *options)

    return make


def _sql(seed: int) -> str:
    """Statements, one a line."""
    draw = random.Random(seed)
    lines = (INPUTS / "tables.sql").read_text().splitlines()
    statements = [Template(text) for text in (INPUTS / "statements.sql").read_text().splitlines()]
    words = ["red", "green", "blue", "fast", "slow", "long", "short", "old", "new", "warm"]
    for i in range(700):
        number, age, amount = draw.randrange(500), draw.randrange(90), f"{draw.random() * 100:.3f}"
        many, few = (" ".join(draw.choices(words, k=count)) for count in (30, 4))
        lines += [
            f"INSERT OR REPLACE INTO person VALUES({number}, 'n{number}', {age}, '{many}');",
            f"INSERT INTO orders(person, amount, at) VALUES({number}, {amount}, datetime('now', '-{age} days'));",
            draw.choice(statements).substitute(
                i=i,
                number=number,
                age=age,
                amount=amount,
                many=many,
                few=few,
                word=draw.choice(words),
                place=3 + number % 20,
                few_numbers=number % 40,
            ),
        ]
        if i % 150 == 149:
            lines.append("VACUUM; ANALYZE;")
    return "\n".join(lines) + "\n"


def _run_sqlite(program: Path, seed: int, folder: Path, environment: dict[str, str]) -> None:
    (folder / "work.sql").write_text(_sql(seed))
    _work(environment, program, folder / "work.sql")


def _lua(tree: str, level: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        source = crate("lua-src", "546.0.2") / tree
        files = sorted(
            each for each in source.rglob("*.c") if each.name not in ("lua.c", "luac.c", "onelua.c")
        )
        return _compile(
            [INPUTS / "lua.c", *files],
            folder / "lua",
            f"-I{source}",
            level,
            "-DLUA_USE_LINUX",
            "-DLUA_COMPAT_5_3",
            "-Wl,-E",
        )

    return make


def _run_lua(program: Path, seed: int, folder: Path, environment: dict[str, str]) -> None:
    _work(environment, program, str(seed), str(400 + 50 * (seed % 3)), INPUTS / "script.lua")


def _quickjs(name: str, version: str, inner: str, level: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        source = crate(name, version) / inner
        files = [source / f"{each}.c" for each in ("quickjs", "libregexp", "libunicode", "cutils", "libbf")]
        options = (f"-I{source}", level, "-D_GNU_SOURCE", '-DCONFIG_VERSION="0"', "-DCONFIG_BIGNUM", "-w")
        return _compile([INPUTS / "quickjs.c", *files], folder / "quickjs", *options)

    return make


def _run_quickjs(program: Path, seed: int, folder: Path, environment: dict[str, str]) -> None:
    head = f"const SEED = {seed}, ROUNDS = {250 + 50 * (seed % 3)};\n"
    (folder / "script.js").write_text(head + (INPUTS / "script.js").read_text())
    _work(environment, program, folder / "script.js")


def _leveldb(version: str, level: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if version == "1.22":
            source = crate("leveldb-sys", "2.0.9") / "deps" / "leveldb-1.22"
        else:
            source = debian_source("leveldb", version)
        parts = ("db", "table", "util")
        ends = (
            "_test.cc",
            "_bench.cc",
            "leveldbutil.cc",
            "testutil.cc",
            "testharness.cc",
            "env_windows.cc",
            "_main.cc",
        )
        files = [
            each for part in parts for each in (source / part).glob("*.cc") if not each.name.endswith(ends)
        ]
        make_port(folder, source)
        options = (
            f"-I{source}",
            f"-I{source}/include",
            f"-I{folder}/include",
            level,
            "-std=c++17",
            "-DLEVELDB_PLATFORM_POSIX=1",
            "-DLEVELDB_HAS_PORT_CONFIG_H=1",
            "-DLEVELDB_IS_BIG_ENDIAN=0",
            "-fno-rtti",
            "-w",
        )
        return _compile([INPUTS / "leveldb.cc", *sorted(files)], folder / "leveldb", *options, compiler="c++")

    def make_port(folder: Path, source: Path) -> None:
        (folder / "include" / "port").mkdir(parents=True, exist_ok=True)
        config = "#define HAVE_FDATASYNC 1\n#define HAVE_FULLFSYNC 0\n#define HAVE_O_CLOEXEC 1\n"
        config += "#define HAVE_CRC32C 0\n#define HAVE_SNAPPY 0\n"
        (folder / "include" / "port" / "port_config.h").write_text(config)

    return make


def _run_leveldb(program: Path, seed: int, folder: Path, environment: dict[str, str]) -> None:
    _work(environment, program, folder / "database", str(seed), "60000")


def _redis(version: str, level: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(debian_source("redis", version), folder / "tree")
        options = ["MALLOC=libc", f"OPTIMIZATION={level}", "USE_SYSTEMD=no", "CFLAGS=-fcommon -w", "-j2"]
        run(["make", "-C", folder / "tree" / "src", *options, "redis-server"])
        shutil.copy(folder / "tree" / "src" / "redis-server", folder / "redis-server")
        shutil.rmtree(folder / "tree")
        return folder / "redis-server"

    return make


def _commands(seed: int) -> list[list[str]]:
    """What clients ask of Redis: values that stay, values that expire, and work on them."""
    draw = random.Random(seed)
    done: list[list[str]] = []
    for i in range(30_000):
        key, other = draw.randrange(4000), draw.randrange(300)
        value = "v" * draw.randrange(8, 400)
        done.append(
            [
                ["SET", f"s{key}", value],
                ["SETEX", f"x{key}", "1", value],
                ["GET", f"s{key}"],
                ["APPEND", f"s{key}", "tail"],
                ["HSET", f"h{other}", f"f{key}", value],
                ["HGETALL", f"h{other}"],
                ["LPUSH", f"l{other}", value, "b"],
                ["RPOP", f"l{other}"],
                ["LRANGE", f"l{other}", "0", "10"],
                ["SADD", f"m{other}", str(key), f"w{key}"],
                ["SINTER", f"m{other}", f"m{other // 2}"],
                ["ZADD", f"z{other}", str(key), f"w{key}"],
                ["ZRANGEBYSCORE", f"z{other}", "10", "900"],
                ["XADD", f"q{other % 20}", "*", "name", value],
                ["XREAD", "COUNT", "5", "STREAMS", f"q{other % 20}", "0"],
                ["EVAL", SCRIPT, "0", "a", f"e{other}"],
                ["DEL", f"s{key}", f"x{key}"],
                ["INCRBY", f"n{key}", "3"],
                ["SORT", f"m{other}", "ALPHA", "LIMIT", "0", "5"],
                ["MGET", f"s{key}", f"s{key + 1}", f"n{key}"],
                ["PFADD", f"p{other % 30}", str(key)],
                ["GEOADD", f"g{other % 10}", f"{key / 100:.3f}", f"{other / 10:.3f}", f"w{key}"],
                ["UNLINK", f"h{other}"] if i % 40 == 0 else ["EXISTS", f"h{other}"],
                ["ZUNIONSTORE", f"u{other % 9}", "2", f"z{other}", f"z{other // 3}"],
                ["SUBSCRIBE", "news"] if i > 10**9 else ["PUBLISH", "news", value],
            ][draw.randrange(25)]
        )
    return done


def _run_redis(program: Path, seed: int, folder: Path, environment: dict[str, str]) -> None:
    place = folder / "socket"
    options = ["--port", "0", "--unixsocket", place, "--save", "", "--appendonly", "no", "--dir", folder]
    server = subprocess.Popen(
        [str(word) for word in [program, *options]],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not place.exists():
            if time.monotonic() > deadline or server.poll() is not None:
                raise RuntimeError(f"{program} did not start")
            time.sleep(0.02)
        commands = _commands(seed)
        for begin in range(0, len(commands), 3000):  # a new client each
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(120)
                client.connect(str(place))
                for first in range(begin, min(begin + 3000, len(commands)), 50):
                    _ask(client, commands[first : first + 50])
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(place))
            client.sendall(b"SHUTDOWN NOSAVE\r\n")
            server.wait(60)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def _ask(client: socket.socket, commands: list[list[str]]) -> None:
    """A pipeline that ends with a PING of its own, and all its answers."""
    packed = b"".join(
        b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)
        for words in commands
    )
    mark = b"end-of-the-pipeline"
    client.sendall(packed + b"*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n" % (len(mark), mark))
    tail = b""
    while not tail.endswith(mark + b"\r\n"):
        part = client.recv(1 << 20)
        if not part:
            raise RuntimeError("the server closed the connection")
        tail = (tail + part)[-64:]


def _clang(version: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        packages = [f"clang-{version}", f"libclang-cpp{version}", f"libllvm{version}"]
        unpacked = debian_binaries(f"clang-{version}", packages)
        return unpacked / "usr" / "bin" / f"clang-{version}"

    return make


def _run_clang(program: Path, seed: int, folder: Path, environment: dict[str, str]) -> None:
    program = program.resolve()
    libraries = program.parents[1] / "lib"
    paths = [libraries, program.parents[2] / "x86_64-linux-gnu"]
    environment = {**environment, "LD_LIBRARY_PATH": ":".join(map(str, paths))}
    options = [f"-DSEED={seed}", "-std=c++20", "-O1" if seed == 1 else "-O2", "-c", "-fintegrated-cc1"]
    _work(environment, program, *options, INPUTS / "shapes.cc", "-o", folder / "shapes.o")


def _small(version: int, level: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        return _compile(
            [INPUTS / "small.cc"], folder / "small", level, f"-DVERSION={version}", compiler="c++"
        )

    return make


def _run_small(program: Path, seed: int, folder: Path, environment: dict[str, str]) -> None:
    _work(environment, program, str(seed), "20000")


def _builds(
    make: Callable[..., Callable[[Path], Path]], sources: tuple[object, ...], others: tuple[object, ...]
) -> tuple[Build, ...]:
    """Of the same sources at two levels, of another version, and with another input."""
    return (
        Build("base", make(*sources, "-O2"), 1),
        Build("O0", make(*sources, "-O0"), 1),
        Build("version", make(*others, "-O2"), 1),
        Build("input", make(*sources, "-O2"), 4, of="base"),
    )


PROGRAMS = {
    each.name: each
    for each in (
        Program(
            "small",
            _run_small,
            _builds(_small, (1,), (2,)),
        ),
        Program(
            "sqlite",
            _run_sqlite,
            _builds(_sqlite, ("0.25.2",), ("0.35.0",)),
        ),
        Program(
            "lua",
            _run_lua,
            _builds(_lua, ("lua-5.4.6",), ("lua-5.3.6",)),
        ),
        Program(
            "redis",
            _run_redis,
            _builds(_redis, ("7.0.15",), ("6.0.16",)),
        ),
        Program(
            "leveldb",
            _run_leveldb,
            _builds(_leveldb, ("1.23",), ("1.22",)),
        ),
        Program(
            "clang",
            _run_clang,
            (
                Build("base", _clang(14), 1),
                Build("version", _clang(16), 1),
                Build("version13", _clang(13), 1),
                Build("input", _clang(14), 2, of="base"),
            ),
        ),
        Program(
            "quickjs",
            _run_quickjs,
            _builds(
                _quickjs, ("rquickjs-sys", "0.4.0", "quickjs"), ("libquickjs-sys", "0.9.0", "embed/quickjs")
            ),
        ),
    )
}
# Choices of the models were made on these two, and are reported on the others as well.
TUNED = ("sqlite", "lua")
OTHERS = ("redis", "leveldb", "clang", "quickjs")


def executable(program: Program, build: Build) -> Path:
    folder = cache() / "builds" / f"{program.name}-{build.of or build.name}"
    note = folder / "executable"
    if not note.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        note.write_text(str(build.make(folder)))
    return Path(note.read_text())


def profile(name: str, build_name: str, every: int = WHOLE, *, again: bool = False) -> Path:
    """The .lifetimes of one run of a build, or of another run of it with the same input. It is recorded when it is not in
    the cache."""
    path = cache() / "profiles" / f"{name}-{build_name}-{'again-' * again}{every}.lifetimes"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"{name} {build_name}: recorded, a sample every {every} bytes", file=sys.stderr, flush=True)
        with Collector(every) as collector:
            run_build(name, build_name, collector.environment)
        name_frames(collector.lifetimes()).write(path, force=True)
    return path


def trace(name: str, build_name: str) -> Path:
    """The .trace of one run of a build: all allocations, with their stacks' names. Kept as profile() keeps its files."""
    path = cache() / "traces" / f"{name}-{build_name}.trace"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"{name} {build_name}: all of it recorded", file=sys.stderr, flush=True)
        with native.Clock() as clock:
            run_build(name, build_name, native.environment(path.with_suffix(".part"), clock=clock.path))
        finish_trace(str(path.with_suffix(".part")), 0)
        path.with_suffix(".part").rename(path)
        run([sys.executable, "-m", "memoir", "symbolize", path])
    return path


def run_build(name: str, build_name: str, environment: dict[str, str]) -> None:
    """One run of a build, with these variables."""
    program = PROGRAMS[name]
    build = next(each for each in program.builds if each.name == build_name)
    made = executable(program, build)
    folder = cache() / "work" / f"{name}-{build_name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    program.run(made, build.seed, folder, environment)
    shutil.rmtree(folder)
