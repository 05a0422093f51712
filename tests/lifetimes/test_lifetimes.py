# SPDX-License-Identifier: Apache-2.0
"""memoir.Lifetimes against plain counts; merging and exports from the command line."""

import gzip
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from memoir.lifetimes import BYTES, CENSORED, FREED, MILLISECONDS, RECORDS, bucket_begins
from memoir.lifetimes.merging import merge_files
from pprof_files import fields, pprof_program

import memoir

GOLDEN = Path(__file__).parents[1] / "data" / "small.v1.lifetimes"
SEEDS = sorted((Path(__file__).parents[2] / "fuzz" / "seeds" / "lifetimes_fuzz").glob("*.lifetimes"))


@pytest.fixture(scope="module")
def golden():
    return memoir.Lifetimes.open(GOLDEN)


def test_the_arrays_are_those_of_the_file(golden):
    assert golden.to_bytes() == GOLDEN.read_bytes()
    sizes = {"modules": 48, "frames": 24, "stacks": 4, "contexts": 320, "cells": 32, "runs": 104}
    sizes |= {"pairs": 72, "points": 32, "totals": 56}
    assert {name: dtype.itemsize for name, dtype in RECORDS.items()} == sizes
    assert golden.totals["samples"] == golden.runs["samples"].sum() == 285
    assert golden.contexts["estimates"]["samples"].sum() == 285
    assert not golden.contexts.flags.writeable
    assert len(golden.build_id(0)) == 40 and golden.module_path(0).startswith("/")
    assert {golden.program(run) for run in range(2)} == {"server", "client"}


def test_tallies_and_histograms_agree_with_each_other(golden):
    begins = bucket_begins()
    for clock in (MILLISECONDS, BYTES):
        for fate in (FREED, CENSORED):
            moments = golden.moments(clock, fate)
            for context in range(len(golden)):
                bars = golden.histogram(context, clock, fate, "samples")
                count = moments["count"][context]
                assert bars.sum() == count
                if count == 0:
                    assert math.isnan(moments["mean"][context])
                    continue
                first, last = np.flatnonzero(bars)[[0, -1]]
                assert begins[first] <= moments["least"][context] < begins[first + 1]
                assert begins[last] <= moments["most"][context] < begins[last + 1]
                assert (bars * begins).sum() / count <= moments["mean"][context] <= moments["most"][context]
    for weight, total in (("objects", golden.objects(FREED)), ("bytes", golden.bytes(FREED))):
        assert golden.histogram(weight=weight).sum() == pytest.approx(total.sum())


def test_pairs_are_of_their_runs_and_contexts(golden):
    for number, (pairs, points) in enumerate(golden.run_slices()):
        run, own = golden.runs[number], golden.pairs[pairs]
        assert (own["end"] <= run["milliseconds"]).all() and (own["begin"] <= own["end"]).all()
        sizes = golden.contexts[own["context"]]
        assert ((own["size"] >= sizes["least_size"]) & (own["size"] <= sizes["most_size"])).all()
        weight = [memoir._core.sample_weight(int(size), int(run["every"])) for size in own["size"]]
        assert own["weight"] / 2**16 == pytest.approx(weight)
        assert (np.diff(golden.points[points]["clock"].astype(np.int64)) >= 0).all()


def test_quantiles_take_censored_objects_as_living_on(golden):
    begins = bucket_begins()
    for context in range(len(golden)):
        freed = golden.histogram(context)
        censored = golden.histogram(context, MILLISECONDS, CENSORED)
        alive = 1.0  # Kaplan and Meier's estimate, in the plainest way
        expected = math.inf
        for bucket in range(len(begins)):
            at_risk = freed[bucket:].sum() + censored[bucket:].sum()
            if freed[bucket]:
                alive *= 1 - freed[bucket] / at_risk
                if 1 - alive >= 0.5 - 1e-12:
                    expected = float(begins[bucket + 1])
                    break
        assert golden.quantile(context, 0.5) == expected


def test_what_is_not_a_profile_is_refused(tmp_path):
    (tmp_path / "x.lifetimes").write_bytes(GOLDEN.read_bytes()[:-1])
    with pytest.raises(memoir.Error, match=r"x\.lifetimes: .*cut"):
        memoir.Lifetimes.open(tmp_path / "x.lifetimes")
    with pytest.raises(memoir.Error, match="cannot be read"):
        memoir.Lifetimes.open(tmp_path / "none")


def test_names_are_put_in_and_survive_a_merge(golden):
    nameless = [frame for frame in range(len(golden.frames)) if not golden.frame_names(frame)]
    names = {nameless[0]: "inner()\nouter(int)", nameless[1]: "other"}
    named = memoir.Lifetimes(golden.profile.with_names(names))
    assert [named.frame_names(frame) for frame in names] == [["inner()", "outer(int)"], ["other"]]
    assert named.totals == golden.totals and (named.contexts == golden.contexts).all()
    other = memoir.Lifetimes.open(SEEDS[0])
    merged = memoir.Lifetimes.merge([other, named])
    assert "other" in {name for frame in range(len(merged.frames)) for name in merged.frame_names(frame)}


def test_merging_is_the_same_in_any_order_and_on_any_engine(memoir_cli, tmp_path):
    paths = [str(path) for path in SEEDS]
    whole = merge_files(paths).to_bytes()
    assert merge_files(paths[::-1]).to_bytes() == whole
    merge_files(paths[1:]).write(tmp_path / "rest.lifetimes")
    output = tmp_path / "all.lifetimes"
    code, out, _ = memoir_cli(
        "merge", str(tmp_path / "rest.lifetimes"), paths[0], "-o", str(output), "--json"
    )
    assert code == 0 and json.loads(out)["runs"] == 3
    assert output.read_bytes() == whole
    code, _, error = memoir_cli("merge", paths[0], paths[0], "-o", str(tmp_path / "twice.lifetimes"))
    assert code == 2 and "twice" in error and not (tmp_path / "twice.lifetimes").exists()
    code, _, error = memoir_cli("merge", paths[0], "-o", str(output))
    assert code == 2 and "exists already" in error


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.full)])
def test_many_files_are_merged_in_groups(engine, tmp_path, monkeypatch):
    if engine == "ray":
        pytest.importorskip("ray", reason="Ray is not here: pip install 'memoir-alloc[ray]'")
    monkeypatch.setattr("memoir.lifetimes.merging._GROUP", 2)
    paths = [str(path) for path in SEEDS]
    assert (
        merge_files(paths, engine=engine, workers=1).to_bytes()
        == merge_files(paths[:2]).merge([memoir.Lifetimes.open(path) for path in paths], paths).to_bytes()
    )


# --- exports ---


def test_the_pprof_export_has_tcmallocs_names_and_the_estimates(golden):
    profile = fields(golden.profile.export("pprof"))
    strings = [value.decode() for field, value in profile if field == 6]
    types = [strings[dict(fields(value))[1]] for field, value in profile if field == 1]
    assert types == [
        "allocated_objects",
        "allocated_space",
        "deallocated_objects",
        "deallocated_space",
        "censored_allocated_objects",
        "censored_allocated_space",
    ]
    samples = [fields(value) for field, value in profile if field == 2]
    values = np.array([[value for field, value in sample if field == 2] for sample in samples])
    assert values[:, 1].sum() == values[:, 3].sum() == golden.bytes(FREED).sum()
    assert values[:, 5].sum() == golden.bytes(CENSORED).sum()
    labels = {strings[dict(fields(v))[1]] for sample in samples for field, v in sample if field == 3}
    assert {"callstack-pair-id", "avg_lifetime", "stddev_lifetime", "min_lifetime", "max_lifetime"} <= labels
    assert strings[dict(profile)[14]] == "deallocated_space"


def test_folded_stacks_hold_all_bytes(golden):
    lines = golden.profile.export("folded").decode().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == golden.bytes().sum()
    stack = golden.stack(5)
    assert any(line.startswith(";".join(stack[::-1]) + " ") for line in lines)


def test_a_profile_is_shown_and_exported_from_the_command_line(memoir_cli, tmp_path):
    code, out, _ = memoir_cli("show", str(GOLDEN))
    assert code == 0 and "never freed" in out and "285 samples in 24 contexts" in out
    code, out, _ = memoir_cli("show", str(GOLDEN), "--json")
    shown = json.loads(out)
    assert shown["samples"] == 285 and len(shown["largest"]) == 20
    assert sum(row["bytes"] for row in shown["classes"]) == shown["estimated"]["bytes"]
    target = tmp_path / "x.pb.gz"
    code, _, _ = memoir_cli("export", str(GOLDEN), "--to", "pprof", "-o", str(target))
    assert code == 0 and gzip.decompress(target.read_bytes()) == memoir.Lifetimes.open(GOLDEN).profile.export(
        "pprof"
    )
    code, _, error = memoir_cli("export", str(GOLDEN), "--to", "chrome", "-o", str(tmp_path / "x.json"))
    assert code == 2 and "pprof or folded" in error


@pytest.mark.full
def test_pprof_itself_opens_the_export(golden, tmp_path):
    program = pprof_program(tmp_path)
    target = tmp_path / "x.pb.gz"
    target.write_bytes(gzip.compress(golden.profile.export("pprof")))
    shown = subprocess.run(
        [program, "-top", "-sample_index=censored_allocated_objects", str(target)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.returncode == 0, shown.stderr
    assert "Type: censored_allocated_objects" in shown.stdout and "function_2_0" in shown.stdout
