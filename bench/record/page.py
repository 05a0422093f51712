# SPDX-License-Identifier: Apache-2.0
"""What memoir's page takes: bytes, time to its first picture, processor time of a draw, memory; next to PyTorch's viewer.

    python bench/record/page.py                             a million objects, recorded and at random; 10^5 next to PyTorch's
    python bench/record/page.py --objects 100000 --json
    python bench/record/page.py --viewer FOLDER             next to PyTorch's viewer: MemoryViz.js and d3.min.js are in there
    python bench/record/page.py --smoke                     3,000 objects

Times of draws are processor time of the page's own thread, so that other work on the machine does not count; the first
picture is wall time as well, of several runs. PyTorch's page fetches its viewer, and d3, from the network when it opens;
here both come from a folder, over the loopback address as memoir's page does, in turns. Put there
torch/utils/viz/MemoryViz.js of PyTorch's sources and dist/d3.min.js of d3 5 (`npm pack d3@5`). Without the folder only the
files are compared.
"""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
import re
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import numpy as np
from memoir._core import Trace, import_snapshot_bytes
from memoir.traces.files import open_trace
from memoir.views.page import Flame, HeapMaps, Lifetimes, Map, ObjectSet, Page, SiteTree
from memoir.views.page.objects import objects_of
from memoir.views.page.of_trace import trace_page
from memoir.views.page.placed import placed_map
from memoir.views.trace_summary import summarize

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support" / "browser"))
RECORDED = ROOT / "tests" / "data" / "gpu" / "gpt2m_varlen.trace"
MAP = "memoirPage.panels[0].maps[0]"
PARTS = ("recorded", "random", "flame", "pytorch")
PATIENCE = 50  # seconds for PyTorch's viewer to show something


def repeated(count: int) -> tuple[ObjectSet, np.ndarray]:
    """A recorded training run, over and over until there are so many objects, as a long recording is."""
    trace = open_trace(RECORDED)
    once = objects_of(trace)
    addresses = placed_map(trace, 0, "span", once, name="").addresses
    rounds = -(-count // len(once))
    shift = np.repeat(np.arange(rounds) * once.ticks, len(once))
    born, died = np.tile(once.born, rounds) + shift, np.tile(once.died, rounds) + shift
    tree = SiteTree()
    steps = ("forward", "backward", "step")
    sites = [
        tree.add_stack(
            ["train.py:10 main", f"train.py:{20 + k % 3} {steps[k % 3]}", f"model.py:{k} layer{k}"]
        )
        for k in range(300)
    ]
    site = np.tile(np.array(sites)[np.arange(len(once)) % 300], rounds)
    random = np.random.default_rng(1)
    time_of = np.cumsum(random.integers(200, 3000, rounds * once.ticks + 1))
    keep = slice(0, count)
    return (
        ObjectSet(
            born[keep],
            died[keep],
            np.tile(once.size, rounds)[keep],
            rounds * once.ticks,
            "event",
            tree,
            {"site": site[keep]},
            time=time_of,
        ),
        np.tile(addresses, rounds)[keep],
    )


def at_random(count: int) -> tuple[ObjectSet, np.ndarray]:
    """Sizes, lifetimes and addresses without any order: nothing packs worse."""
    random = np.random.default_rng(2)
    ticks = 2 * count
    born = np.sort(random.integers(0, ticks, count))
    died = np.minimum(born + 1 + (random.pareto(0.8, count) * 20).astype(np.int64), ticks)
    size = (2 ** random.uniform(5, 16, count)).astype(np.int64)
    addresses = random.integers(0, 2**31, count).astype(np.uint64)
    tree = SiteTree()
    sites = np.array([tree.add_stack(["main", f"f{k % 7}", f"g{k}"]) for k in range(500)])
    site = sites[random.integers(0, 500, count)]
    return ObjectSet(born, died, size, ticks, "event", tree, {"site": site}), addresses


def deep(nodes: int) -> ObjectSet:
    """One object each for so many nodes of an icicle."""
    random = np.random.default_rng(3)
    tree = SiteTree()
    sites = [tree.add("main")]
    while len(tree) < nodes:
        below = sites[int(random.integers(max(0, len(sites) - 2000), len(sites)))]
        sites.append(tree.add(f"f{int(random.integers(0, 3000))}", below))
    count = len(sites)
    size = random.integers(16, 4096, count)
    return ObjectSet(
        np.arange(count), np.full(count, count), size, count, "event", tree, {"site": np.array(sites)}
    )


def renderer_memory(browser: Any) -> int:
    """Bytes resident in the browser's largest renderer, less what its files are mapped for."""
    most = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if b"--type=renderer" not in (status.parent / "cmdline").read_bytes():
                continue
            if f"\nNSsid:\t{browser.pid}" not in status.read_text():
                continue
            line = next(one for one in status.read_text().splitlines() if one.startswith("RssAnon"))
        except (OSError, StopIteration):
            continue
        most = max(most, int(line.split()[1]) * 1024)
    return most


def busy(page: Any) -> float:
    """Seconds that the page's thread has worked."""
    return page.metrics()["TaskDuration"]


def open_timed(browser: Any, path: Path, ratio: float = 1) -> tuple[Any, dict[str, float]]:
    page = browser.open("about:blank", 1200, 700, ratio=ratio, ready=False)
    page.call("Performance.disable")
    page.call("Performance.setTimeDomain", timeDomain="threadTicks")
    page.call("Performance.enable")
    page.go(path.as_uri())
    page.wait_for("document.documentElement.dataset && document.documentElement.dataset.ready")
    first = "performance.getEntriesByName('memoir-first-picture')[0]"
    wall = page.run(f"{first}.startTime + {first}.duration")
    return page, {"first_picture_ms": wall, "all_panels_cpu_ms": 1000 * busy(page)}


def gestures(page: Any, steps: int) -> list[float]:
    """Milliseconds of processor time of each draw of a zoom into the middle and a pan along it."""
    moves = [f"{MAP}.view.zoom(1.08, 1.08, 0.4, 0.5)"] * (steps // 2)
    moves += [f"{MAP}.view.pan(0.03, 0.01)"] * (steps - steps // 2)
    costs: list[float] = []
    for move in [
        *moves[: steps // 4],
        f"{MAP}.view.reset()",
        *moves,
    ]:  # the first run while they are compiled
        before = busy(page)
        page.run(
            f"(() => {{ {move}; cancelAnimationFrame({MAP}.frame); {MAP}.frame = 0; {MAP}.draw(true); }})()"
        )
        costs.append(1000 * (busy(page) - before))
    return costs[-steps:]


def measure(
    browser: Any, name: str, objects: ObjectSet, addresses: np.ndarray, steps: int, rounds: int
) -> dict[str, Any]:
    began = time.perf_counter()
    page = Page(name).add(
        HeapMaps("Where did every object lie?", objects, [Map("", addresses)]),
        Flame("Who holds the memory?", objects),
        Lifetimes("How long do objects live?", objects),
    )
    text = page.render()
    made = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.html"
        path.write_text(text)
        found: dict[str, Any] = {"data": name, "objects": len(objects), "bytes": len(text.encode())}
        found |= {"bytes_per_object": len(text.encode()) / len(objects), "seconds_to_make": made}
        found["given_up"] = "To keep the page small" in text
        opened, first = open_timed(browser, path)
        runs = [first]
        for _ in range(rounds - 1):
            opened.close()
            opened, first = open_timed(browser, path)
            runs.append(first)
        for key in first:
            found[key] = statistics.median(run[key] for run in runs)
            found[f"{key}_least"] = min(run[key] for run in runs)
        opened.wait_for(f"{MAP}.raster.levels.length || {MAP}.raster.count <= 50000")
        found["drawn"] = opened.run(f"{MAP}.found.drawn")
        costs = gestures(opened, steps)
        found["gesture_ms_median"] = statistics.median(costs)
        found["gesture_ms_p95"] = float(np.quantile(costs, 0.95))
        before = busy(opened)
        opened.run(f"(() => {{ {MAP}.view.reset(); {MAP}.draw(false); }})()")
        found["exact_ms"] = 1000 * (busy(opened) - before)
        found["renderer_bytes"] = renderer_memory(browser)
        opened.close()
        sharp, _ = open_timed(browser, path, ratio=2)
        sharp.wait_for(f"{MAP}.raster.levels.length || {MAP}.raster.count <= 50000")
        found["gesture_ms_p95_ratio_2"] = float(np.quantile(gestures(sharp, steps), 0.95))
        before = busy(sharp)
        sharp.run(f"{MAP}.draw(false)")
        found["exact_ms_ratio_2"] = 1000 * (busy(sharp) - before)
        sharp.close()
    return found


def flame(browser: Any, nodes: int) -> dict[str, Any]:
    text = Page("deep").add(Flame("Who holds the memory?", deep(nodes))).render()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.html"
        path.write_text(text)
        page, _ = open_timed(browser, path)
        clicks = []
        panel = "memoirPage.panels[0]"
        for _ in range(8):
            before = busy(page)
            page.run(
                f"(() => {{ const p = {panel}; const next = [...p.focused.children.values()][0] || p.root; "
                "p.focus(next); p.canvas.now(); })()"
            )
            clicks.append(1000 * (busy(page) - before))
        page.close()
    return {"flame_nodes": nodes, "click_ms_worst": max(clicks)}


def next_to_pytorch(entries: int, viewer: Path | None, rounds: int) -> dict[str, Any]:
    """The same snapshot in both pages: bytes of the files, and time to the first picture, in turns."""
    from snapshot_import import snapshot
    from torch.cuda import _memory_viz

    content = snapshot(entries, 30, True)
    raw = pickle.dumps(content, protocol=4)
    trace = Trace.from_bytes(import_snapshot_bytes(raw))
    summary = summarize(trace)
    ours = trace_page("snapshot", trace, summary).render()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = _memory_viz.trace_plot(content)
    found: dict[str, Any] = {"allocations": summary["allocations"]["count"]}
    found |= {"bytes": len(ours.encode()), "pytorch_bytes": len(theirs.encode())}
    found["times_smaller"] = found["pytorch_bytes"] / found["bytes"]
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as address:
        Path(folder, "ours.html").write_text(ours)
        if viewer is not None:
            Path(folder, "theirs.html").write_text(
                re.sub(r"https://[^\"']+/MemoryViz.js", "./MemoryViz.js", theirs)
            )
            put_viewer(viewer, Path(folder))
        times: dict[str, list[dict[str, float]]] = {"": [], "pytorch_": []}
        for _ in range(rounds):
            times[""].append(first_picture(f"{address}/ours.html", _OURS, found, ""))
            if viewer is not None:
                times["pytorch_"].append(first_picture(f"{address}/theirs.html", _THEIRS, found, "pytorch_"))
    for whose, runs in times.items():
        for name in ("first_picture_ms", "cpu_ms") if runs else ():
            values = [run[name] for run in runs]
            found[f"{whose}{name}"], found[f"{whose}{name}_least"] = statistics.median(values), min(values)
    if viewer is not None:
        found["times_sooner"] = found["pytorch_first_picture_ms"] / found["first_picture_ms"]
        found["times_sooner_of_the_least"] = (
            found["pytorch_first_picture_ms_least"] / found["first_picture_ms_least"]
        )
        found["times_less_cpu"] = found["pytorch_cpu_ms"] / found["cpu_ms"]
    return found


# (there is a picture, how many objects are drawn)
_OURS = ("performance.getEntriesByName('memoir-first-picture').length > 0", f"{MAP}.found.drawn")
_THEIRS = (
    "document.querySelectorAll('svg polygon').length > 10",
    "document.querySelectorAll('svg polygon').length",
)


def first_picture(
    address: str, asked: tuple[str, str], found: dict[str, Any], whose: str
) -> dict[str, float]:
    """Milliseconds from opening until a frame after the picture, by the clock and of processor time of the page's thread."""
    import browser as browsers

    there, drawn = asked
    with browsers.Browser() as browser:
        page = browser.open("about:blank", 1200, 700, offline=False, ready=False)
        page.call("Performance.disable")
        page.call("Performance.setTimeDomain", timeDomain="threadTicks")
        page.call("Performance.enable")
        page.go(address)
        page.wait_for(there, PATIENCE)
        frame = (
            "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0)))"
        )
        wall = page.run(frame)
        cpu = 1000 * busy(page)
        found[f"{whose}drawn"] = page.run(drawn)
        return {"first_picture_ms": wall, "cpu_ms": cpu}


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder on the loopback address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def put_viewer(viewer: Path, folder: Path) -> None:
    """PyTorch's viewer as it is, but that its modules of d3 come from the folder."""
    script = (viewer / "MemoryViz.js").read_text()
    script = re.sub(r"import \* as d3 from [^;]+;", 'import "./d3.min.js"; const d3 = self.d3;', script)
    script = re.sub(r"import (\{[^}]+\}) from [^;]+;", r"const \1 = d3;", script)
    (folder / "MemoryViz.js").write_text(script)
    (folder / "d3.min.js").write_bytes((viewer / "d3.min.js").read_bytes())


@click.command()
@click.option("--objects", default=1_000_000, show_default=True)
@click.option("--steps", default=60, show_default=True, help="Draws of a gesture.")
@click.option("--rounds", default=5, show_default=True, help="Times that each page is opened.")
@click.option("--viewer", type=click.Path(path_type=Path, exists=True), help="Where MemoryViz.js is.")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this. Repeatable.")
@click.option("--smoke", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    objects: int,
    steps: int,
    rounds: int,
    viewer: Path | None,
    parts: tuple[str, ...],
    smoke: bool,
    as_json: bool,
) -> None:
    import browser as browsers

    if browsers.find() is None:
        sys.exit("bench/record/page.py needs Chromium: apt-get install chromium")
    if smoke:
        objects, steps, rounds = 3000, 4, 1
    result: dict[str, Any] = {}
    parts = parts or PARTS
    for name, make in (("recorded", repeated), ("random", at_random)):
        if name in parts:
            with browsers.Browser() as browser:
                result[name] = measure(browser, name, *make(objects), steps, rounds)
    if "flame" in parts:
        with browsers.Browser() as browser:
            result["flame"] = flame(browser, 2000 if smoke else 100_000)
    if "pytorch" in parts:
        try:
            import torch  # noqa: F401
        except ImportError:
            result["pytorch"] = {"pytorch_viewer": "no torch here"}
        else:
            result["pytorch"] = next_to_pytorch(900 if smoke else 300_000, viewer, rounds)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    for name, row in result.items():
        print(name)
        for key, value in row.items():
            text = (
                f"{value:,.2f}"
                if isinstance(value, float)
                else f"{value:,}"
                if isinstance(value, int)
                else value
            )
            print(f"  {key:<26} {text}")


if __name__ == "__main__":
    main()
