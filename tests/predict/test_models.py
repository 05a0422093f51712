# SPDX-License-Identifier: Apache-2.0
"""Models as Python and simulations see them: the golden file, names, predicted lifetimes of a trace."""

from pathlib import Path

import pytest

from memoir import Error, _core

DATA = Path(__file__).parents[1] / "data"
MODEL = DATA / "small.v1.model"


def test_names_are_those_of_the_golden_file():
    lines = (DATA / "model_names.txt").read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    assert len(rows) >= 30
    for name, plain, words in rows:
        assert _core.plain_name(name) == plain
        assert " ".join(_core.name_words(plain)) == words


def test_one_answer_and_many_are_the_same():
    model = _core.LifetimeModel.from_bytes(MODEL.read_bytes(), "small.v1.model")
    stacks = [
        ["malloc", "insert", "table_add", "serve", "main"],
        ["insert(int)", "table_add", "other", "serve"],
        ["TableInsert", "ReadFile"],
        ["another", "program"],
    ]
    many = model.predict_many(stacks, [64] * len(stacks))
    assert many["stage"].tolist() == [1, 2, 3, -1]
    assert many["seconds"] > 0
    for index, stack in enumerate(stacks):
        one = model.predict(stack, size=64)
        if one is None:
            assert many["stage"][index] == -1
            continue
        assert one["wall"] == pytest.approx(many["wall"][index].tolist())
        assert one["long"] == pytest.approx(many["long"][index])
    by_address = model.predict(["", ""], frames=[(b"0123456789abcdefghij".hex(), 0x1000)], height=80)
    assert by_address is not None and by_address["stage"] == 0


def test_what_no_reader_takes_is_not_written():
    with pytest.raises(Error, match="no section 'nonsense'"):
        _core.write_model({"nonsense": b""})
    with pytest.raises(Error, match="a section is missing"):
        _core.write_model({"settings": bytes(64)})


@pytest.fixture
def trace(tmp_path):
    """A million bytes from each of two stacks; what the model calls never freed is never freed."""
    path = tmp_path / "x.trace"
    writer = _core.TraceWriter(path)
    sites = {}
    for stack in (("main", "serve", "table_add", "insert"), ("main", "serve", "read_file", "parse")):
        site = 0
        for name in stack:
            parent, site = site, _core.child_site(site, name)
            if site not in sites.values():
                writer.define_site(site, parent, name)
            sites[name] = site
    for number in range(2000):
        writer.set_time(number * 1_000_000)
        writer.allocate(2 * number + 1, sites["insert"], 500, 16, 0)
        writer.allocate(2 * number + 2, sites["parse"], 500, 16, 0)
        writer.free(2 * number + 2, 0)
    writer.close()
    return path


def test_a_simulation_asks_a_model(trace):
    workload = _core.Workload(_core.Trace.open(trace))

    def placed(policy):
        done = _core.simulate(workload, policy, samples=50, timed=False)
        return done.timeline["reserved"].tolist()

    # The model knows both stacks, as the sites of this very run do.
    assert placed(f"llama,lifetimes=[{MODEL}]") == placed("llama,lifetimes=sites")
    assert placed(f"llama,lifetimes=[{MODEL}]") != placed("llama,lifetimes=none")
    with pytest.raises(Error, match="cannot be read"):
        placed("llama,lifetimes=[nowhere.model]")
    with pytest.raises(Error, match="not a model"):
        placed(f"llama,lifetimes=[{copy_of_trace(trace)}]")


def test_a_simulation_asks_a_model_again(tmp_path):
    """Two stacks of one call, depth and size share an answer; the longer one stays, once it was asked for."""
    path = tmp_path / "x.trace"
    writer = _core.TraceWriter(path)
    ends = {}
    for outer in ("load", "serve"):
        site = 0
        for name in ("main", outer, "table_add", "insert"):
            parent, site = site, _core.child_site(site, name)
            if (outer, name) != ("serve", "main"):
                writer.define_site(site, parent, name)
        ends[outer] = site
    for number in range(2000):
        writer.set_time(number * 1_000_000)
        for place, outer in enumerate(ends):
            writer.allocate(2 * number + place + 1, ends[outer], 500, 16, 0)
        writer.free(2 * number + 1, 0)
    writer.close()
    workload = _core.Workload(_core.Trace.open(path))

    def placed(more):
        done = _core.simulate(workload, f"llama,lifetimes=[{MODEL}]{more}", samples=50, timed=False)
        return done.timeline["reserved"].tolist()

    never_again, often, each = placed(",ask_again=1000000"), placed(",ask_again=3"), placed("")
    assert never_again == placed(",ask_again=5000") != each  # the first answer is everybody's
    assert often != never_again and often[-1] >= max(live_at_end(workload), 1)


def live_at_end(workload):
    return int(_core.simulate(workload, "llama", samples=50, timed=False).timeline["live"][-1])


def copy_of_trace(trace):
    other = trace.with_suffix(".model")
    other.write_bytes(trace.read_bytes())
    return other


@pytest.mark.parametrize("name", ["resnet18.trace", "small.v1.plan", "small.v1.lifetimes", "small.v1.model"])
def test_another_file_of_memoir_is_told_apart(name):
    content = (DATA / name).read_bytes()
    for read, suffix in (
        (_core.LifetimeModel.from_bytes, ".model"),
        (_core.LifetimeProfile.from_bytes, ".lifetimes"),
    ):
        if not name.endswith(suffix):
            with pytest.raises(Error, match="but another file of memoir's"):
                read(content, name)
            with pytest.raises(Error, match=r"not a (model|lifetime profile)$"):
                read(b"\x88" + content[1:], name)
