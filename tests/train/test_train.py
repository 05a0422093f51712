# SPDX-License-Identifier: Apache-2.0
"""Models learned from profiles that are made up, so that what they must answer is known."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_profiles import LONG, SHORT, Made, Site, server
from memoir._core import Error, LifetimeModel
from memoir.train import learn, train
from memoir.train.assembly import Settings, model_bytes
from memoir.train.calibration import isotonic, least_long
from memoir.train.calls import MOST_BETWEEN, Calls
from memoir.train.contexts import NEVER, read_contexts
from memoir.train.evaluation import ask, compare
from memoir.train.summary import summarize


@pytest.fixture(scope="module")
def profile():
    return server().profile()


@pytest.fixture(scope="module")
def trained(profile):
    return train([profile])


def contexts_of(*sites, **more):
    return read_contexts([Made(list(sites), **more).profile()], tau=2.0)


def test_classes_are_those_of_the_95th_percentile():
    often, seldom = (3, 10, False), (500, 10, False)
    found = contexts_of(
        Site(("a", "main"), [often] * 100),
        Site(("b", "main"), [often] * 96 + [seldom] * 4),
        Site(("c", "main"), [often] * 90 + [seldom] * 10),
        Site(("d", "main"), [often] * 90 + [(7, 10, True)] * 10),
    )
    assert found.classes.tolist() == [0, 0, 2, NEVER]


def test_what_is_alive_at_the_end_counts_as_what_it_outlived():
    horizon = 2 << 20  # tau times the peak
    found = contexts_of(
        Site(("young", "main"), [(1, horizon // 2, True)] * 5),
        Site(("old", "main"), [(1, horizon * 2, True)] * 5),
        Site(("mixed", "main"), [(1, 100, False)] * 6 + [(1, horizon * 2, False)] * 4 + [(1, 5, True)] * 90),
        Site(("few", "main"), [(1, 100, False)] * 8 + [(1, horizon * 2, False)] * 2),
    )
    assert found.is_decided.tolist() == [False, True, True, True]
    assert found.is_long.tolist() == [False, True, True, False]
    assert found.decided.tolist() == [0, 5, 10, 10]


def test_allocation_functions_and_frames_without_names_are_no_part_of_a_stack():
    found = contexts_of(
        Site(("malloc", "operator new(unsigned long)", "ns::make(int)", "", "main"), [(1, 1, False)])
    )
    assert found.stacks == [("ns::make", "main")]


def test_a_model_knows_what_it_was_trained_on(profile, trained):
    contexts = read_contexts([profile], 2.0)
    answers = ask(trained.model, contexts)
    found = compare(answers, contexts)
    assert found["answered"] == 1 and found["accuracy"] == 1
    assert found["long"]["recall"] == found["long"]["precision"] == 1
    assert found["stages"]["names"] == 100


def test_a_stack_with_more_frames_is_found_without_them(trained):
    inlined = [
        "make_parse_registry",
        "helper_of_o0",
        "parse_handler",
        "another_layer",
        "serve_parse",
        "run_server",
        "main",
    ]
    said = trained.model.predict(inlined, 64)
    assert said is not None and said["stage"] <= 2 and said["long"] > 0.5


def test_ways_between_frames_against_brute_force():
    random = np.random.default_rng(5)
    stacks = {tuple(random.integers(0, 9, random.integers(1, 12)).tolist()) for _ in range(60)}
    stacks = {tuple(name for i, name in enumerate(one) if not i or one[i - 1] != name) for one in stacks}
    ways: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    for stack in stacks:
        for i, callee in enumerate(stack):
            for j in range(i + 1, min(i + 2 + MOST_BETWEEN, len(stack))):
                if stack[j] != callee:
                    of_pair = ways.setdefault((callee, stack[j]), {})
                    of_pair[j - i, stack[i + 1]] = of_pair.get((j - i, stack[i + 1]), 0) + 1
    for most in (MOST_BETWEEN, 1, 0):
        expected = []
        for pair, of_pair in sorted(ways.items()):
            (away, following), _ = min(of_pair.items(), key=lambda way: (way[0][0], -way[1], way[0][1]))
            if away - 1 <= most:
                expected.append((*pair, following))
        found = np.frombuffer(Calls(stacks).section(most), "<u2").reshape(-1, 3)
        assert found.tolist() == [list(row) for row in expected]
    assert Calls([]).section() == Calls([(3,)]).section() == b""


def test_a_debug_build_s_model_knows_the_optimised_build():
    """Whose stacks lack what was inlined: more frames than are passed over, of names that the model all knows."""
    layers = ["grow", "reserve", "allocate_checked", "allocate"]
    sites = []
    for i in range(40):
        lived = 1 << 25 if i % 2 else 1 << 10
        stack = ("raw", *layers, f"fill_{i}", "touch", f"handle_{i % 5}", "run_server", "main")
        sites.append(Site(stack, [(2000 if i % 2 else 1, lived, False)] * 8))
        other = ("raw", "fresh", f"fill_{i}", f"handle_{i % 5}", "run_server", "main")
        sites.append(Site(other, [(1, 1 << 10, False)] * 8))
    model = train([Made(sites).profile()], replayed=False).model
    for i in range(40):
        said = model.predict(
            ["raw", "grow", f"fill_{i}", "touch", f"handle_{i % 5}", "run_server", "main"], 64
        )
        assert said is not None and said["stage"] == 2
        assert (said["long"] > 0.5) == bool(i % 2)


def test_words_answer_for_functions_with_new_names(trained):
    long = trained.model.predict(
        [f"make_cache_{LONG}2", "page_handler2", "serve_query2", "run_server2", "main"], 64
    )
    short = trained.model.predict(
        [f"make_cache_{SHORT}2", "page_handler2", "serve_query2", "run_server2", "main"], 64
    )
    assert long["stage"] == short["stage"] == 3
    assert long["long"] > short["long"] + 0.25
    assert np.argmax(long["wall"]) == 3 and np.argmax(short["wall"]) == 0


def test_sizes_tell_apart_what_one_stack_allocates():
    """Sixteen bytes are kept, a kilobyte is not; of other sizes the stack says what both say."""
    stack = ("make_node", "serve_page", "run_server", "main")
    sites = [
        Site(stack, [(5000, 1 << 22, True)] * 20, size=16, offset=1),
        Site(stack, [(5, 9, False)] * 20, size=1024, offset=2),
    ]
    model = train([replace(server(), sites=[*server().sites, *sites], text=bytearray()).profile()]).model
    long = {size: model.predict(list(stack), size)["long"] for size in (16, 18, 1024, 1100, 100)}
    assert long[16] == long[18] > 0.7 and long[1024] == long[1100] < 0.3
    assert long[1024] < long[100] < long[16]
    shown = [row for row in summarize(model, 0)["sites"] if row["stack"] == list(stack[:-1])]
    assert {row["size"] for row in shown} == {None, 16, 1024}


def test_a_program_of_the_same_name_needs_fewer_words(trained):
    renamed = ["cache2", "main"]
    assert trained.model.predict(renamed, 64) is None
    same = trained.model.predict(renamed, 64, program="/opt/server-2.0")
    assert same is not None and same["stage"] == 3
    assert trained.model.predict(renamed, 64, program="/opt/browser") is None


def test_another_program_gets_no_answer(trained):
    foreign = [
        ["allocate_tensor", "conv2d_forward", "launch_kernel", "torch_main", "main", "_start"],
        ["main", "_start"],
        [],
    ]
    assert (trained.model.predict_many(foreign, [64] * 3)["stage"] == -1).all()


def test_an_address_answers_without_names(profile, trained):
    contexts = read_contexts([profile], 2.0)
    for number in (0, 1):
        build, offset = contexts.calls[number]
        said = trained.model.predict([""], 0, [(build, offset)])
        assert said["stage"] == 0
        assert (said["long"] > 0.5) == contexts.is_long[number]


def test_half_of_the_stacks_unseen(profile):
    made = server()
    known = replace(made, sites=made.sites[::2] + made.sites[1::4], text=bytearray()).profile()
    rest = replace(made, sites=made.sites[3::4], text=bytearray()).profile()
    model = train([known], replayed=False).model
    contexts = read_contexts([rest], 2.0)
    found = compare(ask(model, contexts), contexts)
    assert found["answered"] > 0.9 and found["accuracy"] > 0.9


def test_the_same_profiles_give_the_same_bytes(profile, trained):
    assert train([profile]).content == trained.content


def test_profiles_add_up():
    both = train([server(build=1).profile(), server(seed=2, build=2).profile()], replayed=False)
    assert both.facts["profiles"] == 2 and both.facts["contexts"] == 200 and both.facts["stacks"] == 100
    assert both.model.count("modules") == 2


def test_a_private_model_has_no_names(profile, trained):
    private = train([profile], private=True, replayed=False)
    assert private.model.key != 0
    for word in (b"registry", b"parse_handler", b"server"):
        assert word in trained.content and word not in private.content
    contexts = read_contexts([profile], 2.0)
    assert compare(ask(private.model, contexts), contexts)["accuracy"] == 1


def test_a_private_model_knows_other_builds_as_well(profile, trained):
    """What it says does not depend on what the hashes are made with, but for words that share a row."""
    private = train([profile], private=True, replayed=False)
    changed = [
        ["helper_of_o0", f"make_cache_{LONG}", "page_handler", "another_layer", "serve_query", "main"],
        ["make_log_scratch", "inlined", "render_handler", "run_server", "main"],
        [f"make_cache_{LONG}2", "page_handler2", "serve_query2", "run_server2", "main"],
        ["allocate_tensor", "conv2d_forward", "launch_kernel", "torch_main", "main"],
    ]
    one, other = (each.model.predict_many(changed, [64] * 4) for each in (trained, private))
    assert (one["stage"] == other["stage"]).all() and {2, 3, -1} <= set(one["stage"].tolist())
    assert np.abs(one["long"] - other["long"]).max() < 0.1
    assert (one["called_long"] == other["called_long"]).all()


def test_libraries_that_all_programs_have_are_no_evidence(profile):
    """A stack whose outer end is another program's gets no answer, though its inner end is known."""
    buffers = Site(
        ("grow_buffer", "put_line", "write_text", "serve_log", "run_server", "main"), [(5, 9, False)] * 9
    )
    model = train([replace(server(), sites=[*server().sites, buffers], text=bytearray()).profile()]).model
    inner = ["grow_buffer", "put_line", "write_text"]
    own = model.predict([*inner, "helper_of_o0", "serve_log", "run_server", "main"], 64)
    assert own is not None and own["stage"] in (1, 2)
    outer = [
        "print_page",
        "make_report",
        "each_month",
        "do_all",
        "parse_options",
        "begin_job",
        "run_all",
        "start_app",
    ]
    assert model.predict([*inner, *outer, "main"], 64) is None


def test_a_malloc_is_told_long_contexts_by_height(profile):
    made = server()
    contexts = read_contexts([made.profile()], 2.0)
    contexts.heights[:] = 512 + 16 * np.arange(len(contexts))
    settings = Settings()
    parts, _ = learn(contexts, settings)
    model = LifetimeModel.from_bytes(model_bytes(contexts, settings, parts))
    rows = model.records("addresses").view(
        [("offset", "<u4"), ("height", "<u4"), ("module", "<u2"), ("answer", "<u2")]
    )
    told = {(int(row["offset"]), int(row["height"])) for row in rows if row["height"]}
    wanted = {
        (call[1], int(height))
        for call, height, long in zip(contexts.calls, contexts.heights, contexts.is_long, strict=True)
        if long
    }
    assert told == wanted and wanted


def test_two_classes_only_where_they_pay(profile, trained):
    """A heap of one MiB has nothing to gain: the replay says so."""
    assert trained.facts["gain"] <= 0.03 and trained.one_class
    assert not train([profile], replayed=False).one_class


def test_profiles_without_names_and_builds_are_refused():
    made = Made([Site(("",), [(1, 1, False)])])
    contexts = made.profile()
    if read_contexts([contexts], 2.0).calls[0] is None:
        with pytest.raises(Error, match="symbolize"):
            train([contexts])
    else:  # its build is known: an address is learned
        assert train([contexts], replayed=False).model.count("addresses") == 1


def test_isotonic_regression_against_brute_force():
    random = np.random.default_rng(7)
    for _ in range(50):
        values, weights = random.random(6), random.random(6) + 0.1
        best = isotonic(values, weights)
        assert (np.diff(best) >= -1e-12).all()
        assert np.dot(best, weights) == pytest.approx(np.dot(values, weights))
        cost = np.dot(weights, (best - values) ** 2)
        for _ in range(30):
            other = np.sort(best + random.normal(0, 0.05, 6))
            assert np.dot(weights, (other - values) ** 2) >= cost - 1e-12


def test_the_threshold_holds_the_precision():
    long = np.array([0.9, 0.9, 0.8, 0.7, 0.6, 0.55])
    true = np.array([True, True, True, False, True, False])
    weights = np.array([1.0, 1, 1, 1, 1, 1])
    assert least_long(long, true, weights, 0.9) == 0.8
    assert least_long(long, true, weights, 0.75) == 0.6
    assert least_long(long, ~true, weights, 0.9) == 0.95


def test_hot_is_meant_of_an_answer_which_counts_all_profiles(profile, trained):
    once, twice = (summarize(each.model, 0)["hot_samples"] for each in (trained, train([profile, profile])))
    assert twice == 2 * once > 0


def test_the_command_line(memoir_cli, profile, tmp_path):
    first, output = tmp_path / "a.lifetimes", tmp_path / "x.model"
    profile.write(first)
    status, _, error = memoir_cli("train", first, "-o", output)
    assert status == 0 and "one class" in error
    assert LifetimeModel.from_bytes(output.read_bytes()).count("names") > 10
    assert memoir_cli("train", first, "-o", output)[0] == 2  # it is there already
    status, out, _ = memoir_cli("show", output)
    assert status == 0 and "make_parse_registry" in out and "words that speak for long" in out
    status, out, _ = memoir_cli("show", output, "--against", first, "--json")
    shown = json.loads(out)
    assert shown["against"]["accuracy"] == 1 and shown["one_class"]
    assert {row["word"] for row in shown["facts"]["words_for_long"]} >= {"registry"}


def test_settings_out_of_bounds_are_refused(profile):
    with pytest.raises(Error, match="model"):
        train([profile], settings=Settings(prior_worth=9), replayed=False)
