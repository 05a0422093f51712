# SPDX-License-Identifier: Apache-2.0
"""Private pools (CUDA graphs, MemPools) in snapshots: told by every entry (torch 2.13), or by the segments alone (older)."""

import json
import pickle
import subprocess
import sys

import pytest
from memoir._core import (
    EventKind,
    Trace,
    export_trace_bytes,
    import_snapshot_bytes,
)
from snapshots import BASE, MIB, block, entry, imported, oom, segment, snapshot

GRAPH, USER = (3, 0), (0, 1)  # as PyTorch numbers them: of a graph of its own, and one made beforehand


def pools(trace: Trace) -> list[tuple[int, int]]:
    """PyTorch's numbers of the private pools, pool 1 first."""
    rows = [event for event in trace.events if event["kind"] == EventKind.kPool]
    assert [row["thread"] for row in rows] == list(range(1, len(rows) + 1))
    return [(int(row["object"]), int(row["size"])) for row in rows]


def told(trace: Trace) -> list[tuple]:
    """(kind, address, PyTorch's numbers of its pool) of segments, objects and failures, in order."""
    names = [(0, 0), *pools(trace)]
    result = []
    for event in trace.events:
        kind = EventKind(int(event["kind"]))
        pool = names[int(event["thread"])] if kind >= EventKind.kSegmentAllocate else None
        if kind == EventKind.kAddress:
            result.append(("object", int(event["size"]) - BASE, pool))
        elif kind == EventKind.kOutOfMemory:
            result.append(("oom", 0, pool))
        elif EventKind.kSegmentAllocate <= kind <= EventKind.kSegmentUnmap:
            result.append((kind.name[8:], int(event["object"]) - BASE, pool))
    return result


def story(with_pool_ids: bool) -> dict:
    """An object and a segment from before in each pool; a graph's segment is taken, used and kept; the default pool
    gives a segment back, whose place a MemPool gets."""

    def of(pool):
        return {"pool_id": pool} if with_pool_ids else {}

    default = (0, 0)
    return snapshot(
        [
            entry("alloc", BASE + 512, 512, 0, **of(default)),
            entry("segment_alloc", BASE + 40 * MIB, 20 * MIB, 1, **of(GRAPH)),
            entry("alloc", BASE + 40 * MIB, 3 * MIB, 2, **of(GRAPH)),
            entry("alloc", BASE + 20 * MIB, 2 * MIB, 3, **of(default)),
            entry("free_requested", BASE + 20 * MIB, 2 * MIB, 4, **of(default)),
            entry("free_completed", BASE + 20 * MIB, 2 * MIB, 4, **of(default)),
            entry("segment_free", BASE + 20 * MIB, 20 * MIB, 5, **of(default)),
            entry("segment_alloc", BASE + 20 * MIB, 10 * MIB, 6, **of(USER)),
            entry("alloc", BASE + 20 * MIB, 4 * MIB, 7, **of(USER)),
            entry("free_requested", BASE + 80 * MIB, 4096, 8, **of(USER)),
            entry("free_completed", BASE + 80 * MIB, 4096, 8, **of(USER)),
            entry("alloc", BASE + 46 * MIB, 2 * MIB, 9, **of(GRAPH)),
        ],
        segments=[
            segment(BASE, 2 * MIB, [block(BASE, 512), block(BASE + 512, 512)]),
            segment(BASE + 20 * MIB, 10 * MIB, [block(BASE + 20 * MIB, 4 * MIB)], pool=USER),
            segment(
                BASE + 40 * MIB,
                20 * MIB,
                [block(BASE + 40 * MIB, 3 * MIB), block(BASE + 46 * MIB, 2 * MIB)],
                pool=GRAPH,
            ),
            segment(BASE + 80 * MIB, 2 * MIB, [block(BASE + 81 * MIB, 512)], pool=USER),
        ],
    )


@pytest.mark.parametrize("with_pool_ids", [True, False])
def test_every_object_and_segment_has_its_pool(with_pool_ids):
    trace = imported(story(with_pool_ids))
    assert told(trace) == [
        ("Allocate", 0, (0, 0)),
        ("Allocate", 20 * MIB, (0, 0)),
        ("Allocate", 80 * MIB, USER),
        ("object", 0, (0, 0)),
        ("object", 80 * MIB, USER),
        ("object", 81 * MIB, USER),
        ("object", 512, (0, 0)),
        ("Allocate", 40 * MIB, GRAPH),
        ("object", 40 * MIB, GRAPH),
        ("object", 20 * MIB, (0, 0)),
        ("Free", 20 * MIB, (0, 0)),
        ("Allocate", 20 * MIB, USER),
        ("object", 20 * MIB, USER),
        ("object", 46 * MIB, GRAPH),
    ]
    assert pools(trace) == [USER, GRAPH]  # in the order in which the trace speaks of them


def test_both_forms_are_one_trace():
    assert imported(story(True)).events.tobytes() == imported(story(False)).events.tobytes()


@pytest.mark.parametrize("with_pool_ids", [True, False])
def test_they_come_back_from_an_export(with_pool_ids):
    first = imported(story(with_pool_ids))
    data = export_trace_bytes(first, "snapshot")
    again = Trace.from_bytes(import_snapshot_bytes(data))
    assert again.events.tobytes() == first.events.tobytes()
    chrome = json.loads(export_trace_bytes(first, "chrome"))["traceEvents"]
    shown = [row["args"].get("pool", 0) for row in chrome if row["ph"] == "b"]
    assert sorted(shown) == [0, 0, 0, 1, 1, 1, 2, 2]
    assert b"pool" in export_trace_bytes(first, "perfetto")


def test_without_private_pools_nothing_is_said_of_pools():
    content = snapshot([entry("alloc", BASE, 512, 0, pool_id=(0, 0)), oom(1, 2, 1, pool_id=(0, 0))])
    plain = snapshot([entry("alloc", BASE, 512, 0), oom(1, 2, 1)])
    assert imported(content).events.tobytes() == imported(plain).events.tobytes()
    assert b"pool_id" not in export_trace_bytes(imported(content), "snapshot").replace(
        b"segment_pool_id", b""
    )


def test_areas_of_expandable_segments():
    """Two areas of one stream; what was unmapped in the middle of a pool's was the pool's."""
    half = 20 * MIB
    trace = imported(
        snapshot(
            [
                entry("alloc", BASE + half, MIB, 0),
                entry("free_requested", BASE + half, MIB, 1),
                entry("free_completed", BASE + half, MIB, 1),
                entry("segment_unmap", BASE + half, half, 2),
                entry("segment_map", BASE + 100 * half, half, 3),
                entry("alloc", BASE + 100 * half, 2 * MIB, 4),
                entry("alloc", BASE, 2 * MIB, 5),
            ],
            segments=[
                segment(BASE, half, [block(BASE, 2 * MIB)], pool=GRAPH, expandable=True),
                segment(BASE + 100 * half, half, expandable=True),
            ],
        )
    )
    assert told(trace) == [
        ("Map", 0, GRAPH),
        ("object", half, GRAPH),
        ("Unmap", half, GRAPH),
        ("Map", 100 * half, (0, 0)),
        ("object", 100 * half, (0, 0)),
        ("object", 0, GRAPH),
    ]


def test_ranges_that_touch_stay_apart():
    trace = imported(
        snapshot(
            segments=[
                segment(BASE, 20 * MIB, expandable=True),
                segment(BASE + 20 * MIB, 20 * MIB, pool=USER, expandable=True),
            ]
        )
    )
    assert told(trace) == [("Map", 0, (0, 0)), ("Map", 20 * MIB, USER)]


def test_what_only_entries_know():
    """A pool of which nothing is left at the end, a failure, two devices with pools of the same numbers."""
    rows = [
        entry("segment_alloc", BASE, 2 * MIB, 0, pool_id=GRAPH),
        entry("alloc", BASE, 512, 1, pool_id=GRAPH),
        entry("free_requested", BASE, 512, 2, pool_id=GRAPH),
        entry("free_completed", BASE, 512, 2, pool_id=GRAPH),
        entry("segment_free", BASE, 2 * MIB, 3, pool_id=GRAPH),
        oom(2**40, 3, 4, pool_id=GRAPH),
    ]
    trace = imported(snapshot(rows, [dict(row) for row in rows]))
    assert pools(trace) == [GRAPH]
    assert {row[2] for row in told(trace)} == {GRAPH} and len(told(trace)) == 8
    older = [{key: value for key, value in row.items() if key != "pool_id"} for row in rows]
    assert pools(imported(snapshot(older))) == []  # then nobody knows


def test_the_command_line_tells_of_them(tmp_path):
    (tmp_path / "x.pickle").write_bytes(pickle.dumps(story(True)))

    def memoir(*words):
        done = subprocess.run(
            [sys.executable, "-m", "memoir", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done

    assert "note: 2 private pools" in memoir("import", "x.pickle", "-o", "x.trace").stderr
    shown = memoir("show", "x.trace").stdout
    assert "private pools" in shown and "2 of 32.0 MiB" in shown
    device = json.loads(memoir("show", "x.trace", "--json").stdout)["devices"][0]
    assert device["private_pools"] == [
        {"pool": 1, "id": list(USER), "peak_reserved_bytes": 12 * MIB},
        {"pool": 2, "id": list(GRAPH), "peak_reserved_bytes": 20 * MIB},
    ]
    policies = ("--policy", "pytorch", "--policy", "memoir")
    simulated = memoir("simulate", "x.trace", *policies).stdout
    assert "1 stream, 2 private pools, " in simulated and " private " in simulated
    rows = json.loads(memoir("simulate", "x.trace", *policies, "--json", "--cap", "40MiB").stdout)["results"]
    assert [row["workload"]["private_pools"] for row in rows] == [2, 2]
    assert all(0 < row["private_reserved"] <= row["peak_reserved"] <= 40 * MIB for row in rows)
    assert rows[0]["out_of_memory"]["any_layout_fits"] is None  # pools decide, not the bytes live
