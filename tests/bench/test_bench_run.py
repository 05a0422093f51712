# SPDX-License-Identifier: Apache-2.0
"""memoir.bench.run and what it leaves, with a stub allocator so that it runs on any machine."""

import json

import memoir.bench
import pytest
from memoir.bench import Metric, journal, suite

import memoir


def test_a_grid_is_run_in_blocks_and_kept(built, tmp_path):
    result = memoir.bench.run(
        f"system,stub={built / 'stub.so'}",
        [str(built / "asks"), "{work}"],
        threads=[1, 2],
        load=[3],
        parameters={"size": ["small", "large"]},
        metrics=[Metric("ops", "ops: ([0-9]+)")],
        replicates=3,
        warmup=0,
        output=tmp_path / "out",
    )
    assert len(result.rows) == 2 * 2 * 2 * 3
    assert [row["replicate"] for row in result.rows] == sorted(row["replicate"] for row in result.rows)
    assert {row["status"] for row in result.rows} == {"ok"}
    assert {(row["work"], row["metrics"]["ops"]) for row in result.rows} == {(3, 3.0), (6, 6.0)}
    first = [(row["allocator"], row["threads"], row["parameters"]["size"]) for row in result.rows[:8]]
    assert first != sorted(first)
    assert journal.read(tmp_path / "out" / journal.NAME)[1] == result.rows
    exported = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(exported["results"]) == 8
    assert memoir.bench.read([tmp_path / "out"]).rows == result.rows
    with pytest.raises(memoir.Error, match="holds a bench already"):
        memoir.bench.run("system", [str(built / "asks")], output=tmp_path / "out")


def test_a_crash_under_one_allocator_is_a_row(built):
    script = f'echo "some words"; {built / "asks"}; if [ $MEMOIR_ALLOCATOR = stub ]; then kill -SEGV $$; fi'
    result = memoir.bench.run(
        f"system,stub={built / 'stub.so'}", ["sh", "-c", script], replicates=2, warmup=0
    )
    by_status = {row["allocator"]: row["status"] for row in result.rows}
    assert by_status == {"system": "ok", "stub": "SIGSEGV"}
    assert "some words" in result.failures[0]["tail"]
    assert result.failures[0]["signal"] == 11


def test_wrong_exit_codes_timeouts_and_missing_metrics_are_rows(built):
    def statuses(script, **options):
        command = ["sh", "-c", f"{built / 'asks'}; {script}"]
        return [
            row["status"]
            for row in memoir.bench.run("system", command, replicates=1, warmup=0, **options).rows
        ]

    assert statuses("exit 3") == ["exit code 3"]
    assert statuses("exit 3", exit_code=3) == ["ok"]
    assert statuses("sleep 30", timeout=0.2) == ["timeout"]
    sometimes = 'if [ -n "$MEMOIR_PROOF" ]; then echo found: 1; fi'
    assert statuses(sometimes, metrics=[Metric("m", "found: ([0-9])")]) == ["no metric"]


def test_prepare_runs_before_every_run(built, tmp_path):
    memoir.bench.run(
        "system",
        [str(built / "asks")],
        replicates=2,
        warmup=1,
        prepare=f"echo {{replicate}} >> {tmp_path}/log",
    )
    assert (tmp_path / "log").read_text().split() == ["0", "0", "0", "1"]  # proof, warm-up, two replicates
    with pytest.raises(memoir.Error, match="--prepare 'exit 4' ended with exit code 4"):
        memoir.bench.run("system", [str(built / "asks")], prepare="exit 4")


def test_until_adds_replicates_until_content_or_out_of_budget(built):
    command = [str(built / "asks")]
    allocators = f"system,stub={built / 'stub.so'}"
    content = memoir.bench.run(allocators, command, replicates=2, warmup=0, until=0.99, budget=60)
    narrow = memoir.bench.widest(content)
    assert len(content.rows) >= 4 and narrow <= 0.99
    alone = memoir.bench.run("system", command, replicates=2, warmup=0, until=0.99, budget=60)
    assert memoir.bench.widest(alone) <= 0.99 and not any("budget" in note for note in alone.notes)
    broke = memoir.bench.run(allocators, command, replicates=2, warmup=0, until=1e-6, budget=0.3)
    assert any("budget" in note for note in broke.notes)
    assert len(broke.rows) > 4


@pytest.mark.parametrize(
    "options, words",
    [
        (
            {"metrics": [Metric("m", "nothing: ([0-9]+)")]},
            "matches nothing that asks prints .last: 'ops: 1000'",
        ),
        ({"metrics": [Metric("m", "ops: [0-9]+")]}, "captures nothing"),
        ({"metrics": [Metric("m", "ops: ([0-9]+")]}, "is not a regular expression"),
        ({"pin": "4096"}, "core 4096 is not among"),
        ({"pin": "first"}, "use a list of cores"),
        ({"timeout": 0.0}, "--timeout 0.0"),
        ({"replicates": 0}, "-n 0"),
        ({"until": 1.5}, "--until 150%"),
    ],
)
def test_bad_options_are_refused_before_anything_is_measured(built, tmp_path, options, words):
    with pytest.raises(memoir.Error, match=words):
        memoir.bench.run("system", [str(built / "asks")], output=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("threads", [1, 3])
def test_every_workload_runs_and_prints_its_speed(threads):
    result = memoir.bench.run(suite="programs", smoke=True, threads=[threads], replicates=1, warmup=0)
    assert [row["status"] for row in result.rows] == ["ok"] * len(suite.PATTERNS)
    assert {row["program"] for row in result.rows} == set(suite.PATTERNS)
    assert all(row["metrics"]["operations_per_second"] > 0 for row in result.rows)
    (cycles,) = (row for row in result.rows if row["program"] == "cycles")
    live = [point[1] for point in cycles["memory"]]
    assert len(live) == 7 and live[0] > 5 * live[1] and live[-1] == 0
    assert all(resident > 0 for _, _, resident in cycles["memory"])


def test_workloads_notice_a_damaged_block(built, tmp_path):
    from small_programs import compile_c

    source = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdlib.h>
    static __thread void* last;   // every so often the same block is handed out twice
    static __thread int count;
    void* malloc(size_t size) {
      static void* (*next)(size_t);
      if (!next) next = dlsym(RTLD_NEXT, "malloc");
      if (size >= 64 && size <= 128 && ++count % 50 == 0 && last) return last;
      void* block = next(size < 128 ? 128 : size);
      if (size >= 64 && size <= 128) last = block;
      return block;
    }
    void free(void* block) { (void)block; }
    """
    broken = compile_c(source, tmp_path / "broken.so", "-shared", "-fPIC", "-ldl")
    result = memoir.bench.run(f"broken={broken}", suite="larson", smoke=True, replicates=1, warmup=0)
    assert [row["status"] for row in result.rows] == ["exit code 4"]
    assert "was damaged" in result.rows[0]["tail"][-1]


def test_redis_is_driven_from_outside():
    try:
        suite.programs("servers")
    except memoir.Error as error:
        pytest.skip(str(error))
    result = memoir.bench.run(suite="servers", smoke=True, replicates=1, warmup=0)
    (row,) = result.rows
    assert row["status"] == "ok", row["tail"]
    assert row["metrics"]["operations_per_second"] > 0
    live = [point[1] for point in row["memory"]]
    assert len(live) == 9 and live[1] > live[0] and live[2] < live[1]
    assert row["processes"] == 1  # the client is not in the account


def test_an_unknown_suite_is_refused():
    with pytest.raises(memoir.Error, match="unknown suite 'system': use programs, real, servers, churn"):
        suite.programs("system")
    with pytest.raises(memoir.Error, match="no command to measure"):
        memoir.bench.run("system")


def test_real_programs_run_and_those_that_are_missing_are_named(monkeypatch):
    programs = suite.programs("real", smoke=True)
    missing = suite.missing("real")
    assert len(programs) + len(missing) == len(suite.REAL)
    assert all("on the PATH: apt-get install" in line for line in missing)
    result = memoir.bench.run(suite="python", smoke=True, threads=[2], replicates=1, warmup=0)
    assert [row["status"] for row in result.rows] == ["ok"], result.rows[0].get("tail")
    assert result.header["proofs"][0]["share"] > 0.5
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(memoir.Error, match="no sqlite3 on the PATH: apt-get install sqlite3"):
        suite.programs("sqlite")
    assert [program.name for program in suite.programs("real")] == ["python"]


@pytest.mark.full
def test_every_real_program_that_is_here_runs():
    result = memoir.bench.run(suite="real", smoke=True, threads=[2], replicates=1, warmup=0)
    assert {row["status"] for row in result.rows} == {"ok"}, [row.get("tail") for row in result.rows]
