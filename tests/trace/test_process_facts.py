# SPDX-License-Identifier: Apache-2.0
"""What is added to a trace once its program has ended, and how plans read the tensors of a whole program's trace."""

import native_trace as native
import pytest
from memoir._core import Error, EventKind, Only, Trace, add_process_facts, add_symbols, child_site

ALLOCATE = int(EventKind.kAllocate)


def test_mappings_and_names_are_added(tmp_path):
    trace = native.NativeTrace()
    trace.allocate(1, 5, 0x1000, 100, trace.stack(trace.native("/bin/p", 8)))
    trace.begin_thread(1, 0, 77, "")
    path = tmp_path / "x.trace"
    path.write_bytes(trace.bytes())
    before = Trace.open(str(path))
    groups = [(5, "/lib/a.so", 2, 9000, 5000, 100, 0), (1, "", 1, 4096, 4096, 4096, 0)]
    rows = [(3_000_000, 1, 9000, groups), (4_000_000, 3, 99_000, groups[:1])]
    add_process_facts(str(path), rows, [(1, 77, "worker")])
    add_symbols(str(path), [(1, 8, [("main", "p.c", 3)])])
    add_process_facts(str(path), [], [(1, 77, "worker bee")])
    after = Trace.open(str(path))
    assert after.complete and (after.events == before.events).all()
    assert [(row["time_ns"], row["moment"], row["resident"]) for row in after.mappings] == [
        (3_000_000, "start", 9000),
        (4_000_000, "peak", 99_000),
    ]
    names = [(group["name"], group["resident"]) for group in after.mappings[0]["groups"]]
    assert names == [("/lib/a.so", 5000), ("", 4096)]
    assert [(row["thread"], row["name"]) for row in after.threads] == [(1, "worker bee")]
    assert after.site_frames(int(after.events[0]["site"]))[0]["function"] == "main"


def test_nothing_is_added_to_what_is_still_recorded(tmp_path):
    path = tmp_path / "x.trace"
    path.write_bytes(b"nothing")
    with pytest.raises(Error, match="x.trace"):
        add_process_facts(str(path), [], [])


def test_plans_see_the_operators_alone(tmp_path):
    trace = native.NativeTrace()
    main, eval = trace.native("/bin/p", 8), trace.native("/bin/p", 16)
    line = trace.python("f", "f.py", 3)
    linear, addmm = trace.named(native.OPERATOR, "aten::linear"), trace.named(native.OPERATOR, "aten::addmm")
    inner = trace.stack(main, eval, line, linear, eval, addmm, main)
    outside = trace.stack(main, eval, line)
    trace.allocate(1, 1, 0x1000, 100, inner, family=native.MALLOC)
    trace.allocate(1, 1, 0x1000, 96, 0, family=native.TENSOR)
    trace.allocate(1, 2, 0x2000, 50, outside, family=native.MALLOC)
    trace.allocate(1, 2, 0x2000, 48, 0, family=native.TENSOR)
    trace.allocate(1, 2, 0x3000, 48, outside, family=native.MALLOC)
    path = tmp_path / "x.trace"
    path.write_bytes(trace.bytes())

    plannable = Trace.open_plannable(str(path))
    made = plannable.events[plannable.events["kind"] == ALLOCATE]
    assert made["size"].tolist() == [96, 48]
    sites = made["site"].tolist()
    outside = child_site(0, "(no operator)")  # where a running program's scopes begin, too
    assert sites == [child_site(child_site(outside, "aten::linear"), "aten::addmm"), outside]
    assert [plannable.site_chain(site) for site in sites] == ["aten::linear > aten::addmm", "(no operator)"]

    tensors = Trace.open(str(path), Only.kTensors)
    whole = tensors.site_frames(int(tensors.events[tensors.events["kind"] == ALLOCATE]["site"][0]))
    assert len(whole) == 7
