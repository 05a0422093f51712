# SPDX-License-Identifier: Apache-2.0
"""One rule: a remembered call never fails, hangs, leaks or changes where the plain call would not."""

import copy
import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import memoir.torch
import pytest
import torch

from memoir import _torch

# As conftest.py has it for tests in this process.
FREE_LEARNING = "import memoir.torch.memory; memoir.torch.memory.new_ledger = lambda: None\n"


def in_a_process(program: str, *, timeout: float = 240, limit_kib: int | None = None) -> str:
    """What the program prints; it must end well."""
    limit = f"ulimit -v {limit_kib}; " if limit_kib else ""
    program = FREE_LEARNING + textwrap.dedent(program)
    ran = subprocess.run(
        ["bash", "-c", f'{limit}exec "$0" -c "$1"', sys.executable, program],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


# --- memory is bounded ---


def test_two_shapes_that_each_keep_a_tensor_stay_below_the_limit():
    kept: list[torch.Tensor] = []
    keeps = [False]
    most = 8 * 2**20

    def work(x):
        y = x + 1
        small = y[:16].clone()
        if keeps[0]:
            kept.append(small)
        return (y * 2).sum()

    model = memoir.torch.remember(work, max_bytes=most)
    generator = random.Random(1)
    with torch.inference_mode():
        for call in range(600):
            keeps[0] = call > 6 and generator.random() < 0.5
            model(torch.ones(200_000 + 100_000 * (call % 2)))
            if kept and generator.random() < 0.3:
                kept.pop(generator.randrange(len(kept)))
            assert memoir.torch.stats(model).slab_bytes <= most
    stats = memoir.torch.stats(model)
    assert stats.slab_bytes <= 2 * 300_000 * 4 + 4096 * 3  # the slab, and what is kept of the first one
    assert stats.plan_hits > 500 and stats.escaping > 1000  # the result and, once it was kept, the clone


def test_what_outlived_a_pass_once_is_planned_no_more():
    kept = []

    def work(x):
        y = x * 2
        kept.append(y + 1)
        return y.sum()

    model = memoir.torch.remember(work)
    with torch.inference_mode():
        model(torch.ones(5000))  # everything that is kept here was seen to be
        kept.clear()

        def keeps_more(x):
            kept.append(x.clone())

        keep_late = memoir.torch.remember(lambda x: (keeps_more(x + 1) if kept else None, (x + 3).sum())[1])
        for _ in range(3):
            keep_late(torch.ones(5000))
        kept.append(None)
        for _ in range(20):
            keep_late(torch.ones(5000))
    stats = memoir.torch.stats(keep_late)
    assert len(kept) == 21
    assert stats.slab_bytes < 3 * 5000 * 4
    assert stats.occupied == 0


# --- nothing is believed for ever ---


def test_a_recording_without_memory_is_tried_again():
    print(
        in_a_process(
            """
            import resource, torch, memoir.torch
            torch.set_num_threads(1)
            short = [True]
            def work(x):
                y = x
                for _ in range(50):
                    y = y * 2 + 1
                if short[0]:  # no memory for whatever memoir wants as the recorded pass ends
                    resource.setrlimit(resource.RLIMIT_AS, (1, resource.RLIM_INFINITY))
                return y.sum()
            model = memoir.torch.remember(work)
            x = torch.ones(10000)
            model(x)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            short[0] = False
            for _ in range(80):
                model(x)
            assert memoir.torch.stats(model).in_step_passes > 0, memoir.torch.stats(model)
            """
        )
    )


def test_under_a_limit_on_address_space_the_program_keeps_it():
    """A third of the limit is there for a tensor, before and after the first plan."""
    in_a_process(
        """
        import torch, memoir.torch
        limit = 12 * 2**30
        torch.empty(limit // 3 // 4)
        model = memoir.torch.remember(lambda x: (x + 1).sum())
        for _ in range(4):
            model(torch.ones(10000))
        assert memoir.torch.stats(model).plan_hits > 0
        torch.empty(limit // 3 // 4)
        """,
        limit_kib=12 * 2**20,
    )


def test_idle_slabs_go_before_pytorch_finds_no_memory():
    in_a_process(
        """
        import resource, torch, memoir.torch
        torch.set_num_threads(1)
        model = memoir.torch.remember(lambda x: (x * 2 + 1).sum())
        x = torch.ones(20_000_000)
        for _ in range(3):
            model(x)
        held = memoir.torch.stats(model).slab_bytes
        assert held > 70_000_000
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        assert used > 0
        # c10 raises when malloc finds nothing; what memoir holds idle goes then, and the request is tried again.
        try:
            torch.empty(2**46)
        except RuntimeError:
            pass
        assert memoir.torch.stats(model).slab_bytes == 0
        model(x)
        """
    )


# --- exceptions ---


class Interrupted(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_storm_of_signals_leaves_no_thread_in_a_pass():
    net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32)).eval()
    model = memoir.torch.remember(net)
    generator = random.Random(3)

    def interrupt(_number, _frame):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupts = 0
    inputs = [torch.randn(rows, 32) for rows in (4, 8, 16, 5)]
    try:
        with torch.inference_mode():
            for round_ in range(600):
                try:
                    signal.setitimer(signal.ITIMER_REAL, generator.uniform(1e-6, 3e-4))
                    for call in range(4):
                        model(inputs[(round_ + call) % 4])
                except Interrupted:
                    interrupts += 1
                finally:
                    while True:
                        try:
                            signal.setitimer(signal.ITIMER_REAL, 0)
                            break
                        except Interrupted:
                            interrupts += 1
                assert not _torch.in_pass()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with torch.inference_mode():
        hits = memoir.torch.stats(model).plan_hits
        for x in inputs * 3:
            assert torch.equal(model(x), net(x))
    stats = memoir.torch.stats(model)
    assert stats.plan_hits > hits
    assert stats.slabs == 1


def test_an_exception_at_every_line_of_ours_ends_the_pass():
    import memoir.torch.memory as memory
    import memoir.torch.remembered as remembered

    net = torch.nn.Linear(8, 8).eval()
    ours = {memory.__file__, remembered.__file__}
    for lines_before in range(40):
        model = memoir.torch.remember(net)
        function = memoir.torch.remember(lambda x: net(x) + 1)
        left = [lines_before]

        def trace(frame, event, _argument, left=left):
            if frame.f_code.co_filename not in ours:
                return None
            if event == "line":
                if left[0] == 0:
                    left[0] -= 1
                    raise Interrupted
                left[0] -= 1
            return trace

        x = torch.ones(2, 8)
        sys.settrace(trace)
        try:
            for _ in range(4):
                model(x)
                function(x)
        except Interrupted:
            pass
        finally:
            sys.settrace(None)
        assert not _torch.in_pass()
        for one in (model, function):
            for _ in range(4):
                one(x)
            assert memoir.torch.stats(one).plan_hits > 0
            assert memoir.torch.stats(one).slabs == 1


def test_the_callables_own_exceptions_pass_through():
    def work(x, fails):
        y = x * 2
        if fails:
            raise KeyError("mine")
        return y.sum()

    model = memoir.torch.remember(work)
    x = torch.ones(1000)
    for fails in [[1], [], [], [1], [], [1], []]:
        if fails:
            with pytest.raises(KeyError, match="mine"):
                model(x, fails)
        else:
            assert model(x, fails) == 2000
    assert memoir.torch.stats(model).plan_hits > 0


# --- arguments of every kind ---


def test_arguments_that_have_no_signature_run_plain():
    model = memoir.torch.remember(lambda value: (torch.ones(10) + 1).sum())
    circle: list = []
    circle.append(circle)
    circle.append(circle)
    deep: list = []
    for _ in range(5000):
        deep = [deep]

    class Unhashable(int):
        __hash__ = None  # type: ignore[assignment]

    class Hostile(str):
        def __hash__(self):
            raise RuntimeError("no hash")

    class Slots:
        __slots__ = ("a",)

    values = [
        circle,
        deep,
        Unhashable(3),
        10**40,
        Hostile("x"),
        {1: 2, None: 3},
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]),
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged),
        torch.nn.parameter.UninitializedParameter(),
        torch.eye(3).to_sparse(),
        torch.ones(3, device="meta"),
        torch.ones(4, 4).t(),
        Slots(),
        object(),
        (torch.ones(2),) * 5000,
    ]
    for value in values:
        for _ in range(3):
            assert model(value) == 20


@pytest.mark.filterwarnings("ignore")
def test_compilers_and_exporters_see_the_module_alone():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    x = torch.randn(3, 4)
    model = memoir.torch.remember(net)
    function = memoir.torch.remember(lambda x: net(x) * 2)
    expected = net(x)
    for one, result in ((model, expected), (function, expected * 2)):
        compiled = torch.compile(one, backend="eager", fullgraph=True)
        assert torch.equal(compiled(x), result)
        assert memoir.torch.stats(one).calls == 0
    batch = torch.export.Dim("batch", min=2, max=64)
    for strict in (False, True):
        exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},), strict=strict)
        assert torch.equal(exported.module()(torch.ones(7, 4)), net(torch.ones(7, 4)))
    plain = memoir.torch.remember(lambda x: x * 2 + 1)
    assert torch.equal(torch.jit.trace(plain, (x,))(x), x * 2 + 1)
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        assert memoir.torch.remember(lambda x: x + 1)(mode.from_tensor(x)).shape == (3, 4)
    assert torch.equal(torch.func.vmap(model)(x[None])[0], expected)


# --- fork ---


def test_children_of_a_threaded_program_do_not_hang():
    printed = in_a_process(
        """
        import os, signal, threading, torch, memoir.torch
        torch.set_num_threads(1)
        net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16)).eval()
        model = memoir.torch.remember(net, max_slabs=3)
        x = torch.ones(4, 16)
        with torch.inference_mode():
            expected = net(x)
        stop = threading.Event()
        def call():
            torch.set_num_threads(1)
            with torch.inference_mode():
                while not stop.is_set():
                    model(x)
                    if threading.get_ident() % 3 == 0:
                        memoir.torch.forget(model)
        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        bad = 0
        for round in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                good = False
                with torch.inference_mode():
                    before = memoir.torch.stats(model).plan_hits
                    for _ in range(12):
                        good = torch.equal(model(x), expected)
                    good = good and memoir.torch.stats(model).plan_hits > before
                os._exit(0 if good else 1)
            bad += os.waitpid(child, 0)[1] != 0
        stop.set()
        for thread in threads:
            thread.join()
        print("bad", bad)
        """
    )
    assert printed.split()[-2:] == ["bad", "0"]


def test_a_child_forked_while_another_thread_records_plans_of_its_own():
    in_a_process(
        """
        import os, signal, threading, torch, memoir.torch
        torch.set_num_threads(1)
        inside, go_on = threading.Event(), threading.Event()
        def work(x):
            y = x * 2
            if not inside.is_set():
                inside.set()
                go_on.wait()
            return y.sum()
        model = memoir.torch.remember(work)
        x = torch.ones(100_000)
        def call():
            torch.set_num_threads(1)
            model(x)
        thread = threading.Thread(target=call)
        thread.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            for _ in range(4):
                model(x)
            os._exit(0 if memoir.torch.stats(model).plan_hits >= 2 else 1)
        status = os.waitpid(child, 0)[1]
        go_on.set()
        thread.join()
        assert status == 0, status
        for _ in range(4):
            model(x)
        assert memoir.torch.stats(model).plan_hits >= 2
        """
    )


# --- identity ---


class Halves(torch.nn.Module):
    def forward(self, matrix):
        return matrix / 2


def test_the_class_keeps_its_name_and_the_module_its_ways(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    model = memoir.torch.remember(net)
    assert type(model).__name__ == "Sequential" and type(model).__qualname__ == "Sequential"
    assert type(model).__module__ == type(net).__module__
    assert repr(model) == repr(net)
    assert isinstance(model, torch.nn.Sequential) and memoir.torch.stats(model).calls == 0
    shallow = copy.copy(model)
    assert shallow is not model and shallow[0] is model[0] and type(shallow).__name__ == "Sequential"
    shallow.training = False
    assert model.training  # a dictionary of its own, as a module's copy has
    deep = copy.deepcopy([model, model])
    assert deep[0] is deep[1] and deep[0][0] is not model[0]
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again[0].weight, model[0].weight)
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    x = torch.ones(2, 3)
    assert torch.equal(loaded(x), net(x)) and memoir.torch.stats(loaded).calls == 1


def test_hooks_get_the_module_that_they_were_put_on():
    linear = torch.nn.Linear(3, 3)
    model = memoir.torch.remember(linear)
    given = []
    model.register_forward_hook(lambda module, args, output: given.append(module))
    model.register_forward_pre_hook(lambda module, args: given.append(module))
    model(torch.ones(1, 3))
    assert given == [model, model]


@pytest.mark.parametrize("on_wrapper", [False, True])
def test_parametrizations_on_either_hold_for_both(on_wrapper):
    from torch.nn.utils import parametrize

    linear = torch.nn.Linear(3, 3, bias=False)
    model = memoir.torch.remember(linear)
    x = torch.ones(1, 3)
    plain = linear(x)
    one = model if on_wrapper else linear
    parametrize.register_parametrization(one, "weight", Halves())
    for _ in range(3):
        assert torch.allclose(model(x), plain / 2) and torch.allclose(linear(x), plain / 2)
    assert parametrize.is_parametrized(model) and parametrize.is_parametrized(linear)
    assert torch.equal(model.weight, linear.weight)
    parametrize.remove_parametrizations(one, "weight", leave_parametrized=False)
    assert torch.allclose(model(x), plain) and torch.allclose(linear(x), plain)
    assert list(model.state_dict()) == list(linear.state_dict()) == ["weight"]


def test_what_returns_before_it_allocates_is_refused():
    async def coroutine(x):
        return x

    def generator(x):
        yield x

    async def both(x):
        yield x

    class Module(torch.nn.Module):
        def forward(self, x):
            yield x

    class Callable:
        async def __call__(self, x):
            return x

    for one in (coroutine, generator, both, Module(), Callable()):
        with pytest.raises(TypeError, match=r"generator function|coroutine function"):
            memoir.torch.remember(one)


# --- who does not ask is left alone ---


def test_pytorchs_allocator_stays_until_something_is_remembered():
    in_a_process(
        """
        import torch, memoir.torch
        def space():
            return sum(int(line.split()[0].split("-")[1], 16) - int(line.split()[0].split("-")[0], 16)
                       for line in open("/proc/self/maps"))
        before = space()
        torch.ones(10) + 1
        model = memoir.torch.remember(lambda x: (x + 1).sum())
        assert space() - before < 2**30
        for _ in range(3):
            model(torch.ones(10))
        assert memoir.torch.stats(model).plan_hits == 2
        """
    )


# --- callables that share ---


def test_models_that_do_not_run_together_share_one_arena():
    nets = [
        torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 64)).eval()
        for width in (128, 512, 256)
    ]
    share = memoir.torch.Share()
    models = memoir.torch.remember(nets, share=share)
    assert isinstance(models, list)
    x = torch.randn(100, 64)
    with torch.inference_mode():
        for _ in range(4):
            for model, net in zip(models, nets, strict=True):
                assert torch.equal(model(x), net(x))
    stats = [memoir.torch.stats(model) for model in models]
    assert all(one.in_step_passes == one.plan_hits == 3 for one in stats)
    assert all(one.slabs == 1 for one in stats)
    assert (
        share.slab_bytes == max(one.slab_bytes for one in stats) < 1.2 * max(one.arena_size for one in stats)
    )

    def call(model):
        torch.set_num_threads(1)
        with torch.inference_mode():
            for _ in range(20):
                model(x)

    threads = [threading.Thread(target=call, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memoir.torch.stats(models[0]).slabs == 1
    with pytest.raises(ValueError, match="Share"):
        memoir.torch.remember(nets[0], share=share, max_bytes=100)


def test_what_nobody_holds_any_more_takes_its_memory_along():
    group = memoir.torch.Share()
    for share in (None, group):
        remembered = memoir.torch.remember(
            torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.ReLU()), share=share
        )
        for _ in range(5):
            remembered(torch.ones(16, 64))
        memory = weakref.ref(remembered.__memoir__)
        del remembered
        gc.collect()
        assert memory() is None
