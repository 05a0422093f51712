# SPDX-License-Identifier: Apache-2.0
"""Every figure that a page says as text, in its head and in its tables, is one of --json of the same command, or follows
from it in a line here. What the page's script makes of its data is in test_page_figures.py."""

import json
import pickle
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from figures import figures, said
from memoir.cli.parts.show_plan import open_shown
from memoir.lifetimes import Lifetimes
from memoir.traces.files import open_trace
from memoir.views.model_text import CLASSES
from memoir.views.page.addresses import Segments
from memoir.views.page.objects import objects_of, recorded_addresses
from memoir.views.page.placed import placed_map, room_of
from pages import DATA

sys.path += [str(Path(__file__).parents[1] / name) for name in ("formats", "cli")]
from snapshots import snapshot  # noqa: E402
from test_oom_cli import combed  # noqa: E402

GPU = DATA / "gpu" / "silmont_mem.d0.trace"


class Sections(HTMLParser):
    """The text of a page's head and of each panel, without its scripts; and the data that its script reads."""

    def __init__(self, html):
        super().__init__()
        self.texts, self.data, self._now, self._silent = {}, None, None, None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        at = dict(attributes)
        if tag == "header":
            self._now = "head"
        elif tag == "section" and at.get("id", "").startswith("panel-"):
            self._now = at["id"]
        elif tag in ("script", "style", "svg"):
            self._silent = at.get("id") or tag
        if self._now and not self._silent:
            self.texts[self._now] = self.texts.get(self._now, "") + "\n"

    def handle_endtag(self, tag):
        if tag in ("script", "style", "svg"):
            self._silent = None
        elif tag in ("header", "main"):
            self._now = None

    def handle_data(self, text):
        if self._silent == "page-data":
            self.data = json.loads(text)
        elif self._now and not self._silent:
            self.texts[self._now] += text


def check(html, known, least):
    """Every figure of the page's text is known; `least`: so many are there."""
    seen, page = 0, Sections(html)
    for name, text in page.texts.items():
        found = figures(text)
        seen += len(found)
        strange = [one for one in found if one not in known]
        assert not strange, (name, strange, text[:1500])
    assert seen >= least
    return page


def shown(memoir, *command):
    """The page and the JSON of one command."""
    code, out, err = memoir(*command, "-o", "x.html", "--json")
    assert code in (0, 1) and "wrote x.html" in err, err
    return Path("x.html").read_text(), json.loads(out)


@pytest.fixture
def memoir(tmp_path, monkeypatch, memoir_cli):
    monkeypatch.chdir(tmp_path)
    return memoir_cli


def room(trace, device):
    """What a recorded allocator held at the moment it held most: event by event."""
    events, objects = trace.events, objects_of(trace, device)
    segments = Segments.of(events, device)
    change = np.zeros(len(events) + 1, np.int64)
    for size, born, died in zip(segments.size, segments.born, segments.died, strict=True):
        change[born] += size
        change[died] -= size
    held = np.cumsum(change)[:-1]
    live = np.array([objects.size[objects.at(tick)].sum() for tick in range(len(events))])
    best = max(range(len(events)), key=lambda tick: (held[tick], live[tick], -tick))
    found = {"event": best, "live": int(live[best]), "ratio": held[best] / max(live[best], 1)}
    known, addresses = recorded_addresses(trace, objects)
    if not known.any():
        return found
    at = np.zeros(len(objects), np.uint64)
    at[known] = addresses
    alive = objects.at(best) & known
    used = sorted(zip(at[alive].tolist(), objects.size[alive].tolist(), strict=True))
    largest = free = 0
    then = segments.at(best)
    spans = [[low, low + size] for low, size in sorted(zip(then.address, then.size, strict=True))]
    if segments.joined:
        joined = []
        for low, high in spans:
            if joined and joined[-1][1] == low:
                joined[-1][1] = high
            else:
                joined.append([low, high])
        spans = joined
    for low, high in spans:
        now = low
        for begin, size in [one for one in used if low <= one[0] < high] + [(high, 0)]:
            largest, free = max(largest, begin - now), free + max(begin - now, 0)
            now = max(now, begin + size)
    return found | {"largest": largest, "free": free}


def of_trace(trace):
    """What a trace's page derives: of each device, and of each site at the peak."""
    from memoir._core import devices_of

    found = []
    devices = devices_of(trace)
    for device in devices:
        found.append(room(trace, device) if len(trace.events) else {})
        objects = objects_of(trace, device if len(devices) > 1 else None)
        peak, tick = objects.peak()
        live = objects.at(tick)
        sums: dict[int, list[int]] = {}
        sites = objects.columns.get("site", np.zeros(len(objects), int))
        for size, site in zip(objects.size[live].tolist(), sites[live].tolist(), strict=True):
            row = sums.setdefault(site, [0, 0])
            row[0] += size
            row[1] += 1
        found.append([[size, size / max(peak, 1), count] for size, count in sums.values()])
        found.append([device, len(objects)])
    return found


TRACES = [
    "resnet18.trace",
    "small.v1.trace",
    "pools.trace",
    "snapshot.pickle",
    "gpu/constructorsun_codeloc.d2.trace",
]


@pytest.mark.parametrize("name", TRACES)
def test_a_trace(memoir, name):
    html, said_there = shown(memoir, "show", DATA / name)
    derived = of_trace(open_trace(DATA / name))
    check(html, said([said_there, derived, len(said_there["passes"])]), 20)


@pytest.mark.parametrize("only", ["tensors", "malloc", "both"])
def test_a_native_program(memoir, only):
    html, said_there = shown(memoir, "show", DATA / "native.v1.trace", "--only", only)
    assert said_there["devices"] == []  # it has none
    known = said([said_there, "0", "100.0 %"])
    page = Sections(html)
    assert not [one for one in figures(page.texts["head"]) if one not in known]
    text = " ".join(page.texts.values())
    for word in ("device", "bytes held", "Largest request", "Grey", "reserved"):
        assert word not in text, word


def test_a_program_of_python(memoir):
    """The record of a real one: what GPU pools have is not said of it, and what freed again is all that was."""
    program = (
        "import json\nkeep=[bytearray(1000+k) for k in range(900)]\nfor k in range(900): json.dumps([k])"
    )
    code, _, err = memoir(
        "record", "--only", "malloc", "-o", "p.trace", "--", sys.executable, "-S", "-c", program
    )
    assert code == 0, err
    html, said_there = shown(memoir, "show", "p.trace")
    assert said_there["devices"] == []
    page = Sections(html)
    strange = [one for one in figures(page.texts["head"]) if one not in said(said_there)]
    assert not strange, page.texts["head"]
    assert f"{said_there['frees']['count']:,} objects freed again" in page.texts["head"]
    code, out, _ = memoir("show", "p.trace", "--all")
    for text in (out, " ".join(page.texts.values())):
        assert not re.search(r"\bdevice|reserved|segments got|still fits", text)


PLAN = "id,lower,upper,size,offset\na,0,9,40,0\nb,3,7,30,40\nc,4,6,20,70\nd,7,9,30,50\n"


def holes(path):
    """Of a plan at its peak: the tick, the bytes live, the largest stretch between them."""
    plan = open_shown(str(path), str(path).endswith(".plan"))
    lower, upper, size = (getattr(plan.problem, name).tolist() for name in ("lower", "upper", "size"))
    rows = list(zip(lower, upper, size, plan.offsets.tolist(), strict=True))
    at = {tick: sum(row[2] for row in rows if row[0] <= tick < row[1]) for tick in sorted(lower)}
    tick = max(at, key=lambda one: (at[one], -one))
    edges, now = [], 0
    for _, _, length, offset in sorted(
        (row for row in rows if row[0] <= tick < row[1]), key=lambda row: row[3]
    ):
        edges.append(offset - now)
        now = max(now, offset + length)
    return [at[tick], tick - min(lower), max([*edges, plan.arena_size - now])]


@pytest.mark.parametrize("name", ["small.v1.plan", "p.csv"])
def test_a_plan(memoir, name):
    Path("p.csv").write_text(PLAN)
    path = DATA / name if name != "p.csv" else name
    html, found = shown(memoir, "show", path, *(["--planner", "all"] if name == "p.csv" else []))
    floor, arena = found["lower_bound"], found["arena_size"]
    over = 100 * (arena - floor) / floor
    shares = [one["arena_size"] / floor for one in found.get("planners", [])]
    check(html, said([found, arena / floor, shares, f"{over:.3g} %", holes(path)]), 8)


def test_a_profile(memoir):
    html, said_there = shown(memoir, "show", DATA / "small.v1.lifetimes")
    profile = Lifetimes.open(DATA / "small.v1.lifetimes")
    quantiles = [profile.quantile(one, share) * 1e6 for one in range(len(profile)) for share in (0.5, 0.95)]
    rest = [
        [profile.bytes()[one], profile.objects()[one], profile.share_freed(one)]
        for one in range(len(profile))
    ]
    page = check(
        html, said([said_there, [one for one in quantiles if one < 1e30], np.array(rest).tolist()]), 60
    )
    # The script's panels have the same sums.
    (flame,) = page.data["sets"]
    assert flame["objects"] == said_there["estimated"]["objects"]


@pytest.mark.parametrize(
    "against", [(), ("--against", DATA / "small.v1.lifetimes")], ids=["alone", "against"]
)
def test_a_model(memoir, against):
    html, said_there = shown(memoir, "show", DATA / "small.v1.model", *against)
    check(html, said([said_there, list(CLASSES), 0]), 10)


def test_a_diff(memoir):
    html, said_there = shown(memoir, "diff", DATA / "small.v1.trace", DATA / "resnet18.trace")
    check(
        html, said(said_there) | said([abs(row["change_bytes"]) for row in said_there["totals"].values()]), 30
    )


def simulated(said_there):
    """Of each result: held over live at its peak, and what the maps' facts say."""
    found = []
    results = said_there["results"] if isinstance(said_there, dict) else said_there
    for row in results:
        share = row["fragmentation_at_peak"]
        found.append(
            [1 / (1 - share) if share < 1 else 0, row["reserved_ratio"], row["peak_reserved"] / row["floor"]]
        )
        trace = open_trace(Path(row["trace"]))
        objects = objects_of(trace, row["device"])
        here = room_of(
            placed_map(trace, row["device"], row["policy"], objects, name="", cap=row["cap"]), objects
        )
        if here:
            found.append(
                [here.tick, here.held, here.live, here.largest, here.free, here.held / max(here.live, 1)]
            )
    return found


def test_a_simulation(memoir):
    policies = [word for name in ("pytorch", "span", "expandable") for word in ("--policy", name)]
    html, said_there = shown(memoir, "simulate", GPU, *policies, "--workers", 1, "--timeline")
    page = check(html, said([said_there, simulated(said_there), 3]), 20)
    (lines,) = [one for one in page.data["panels"] if one["kind"] == "lines"]
    results = said_there["results"] if isinstance(said_there, dict) else said_there
    for row in results:
        (series,) = [one for one in lines["series"] if one["name"].split(" ")[0].rstrip(",") == row["policy"]]
        assert (
            series["y"][:-1] == row["timeline"]["reserved"] and series["x"][:-1] == row["timeline"]["event"]
        )


def test_a_failed_request(memoir):
    Path("failed.pickle").write_bytes(pickle.dumps(snapshot(combed()), protocol=4))
    html, said_there = shown(memoir, "oom", "failed.pickle", "--workers", 1)
    failure = said_there["failure"]
    trace = open_trace(Path("failed.pickle"))
    objects = objects_of(trace, said_there["device"]).until(failure["event"])
    derived = [
        failure["reserved"] / failure["live"],
        said_there["cap"] - said_there["needed"],
        of_trace(trace),
    ]
    derived.append(len(said_there["rows"]))
    rows = [[row.get("room"), row.get("peak_reserved")] for row in said_there["rows"]]
    assert len(objects)
    strange = set()
    page = Sections(html)
    for text in page.texts.values():
        strange |= {one for one in figures(text) if one not in said([said_there, derived, rows])}
    assert not strange


def test_a_bench(memoir):
    code, out, _ = memoir("bench", "--from", DATA / "hyperfine-1.15.json", "-o", "b")
    assert code == 0
    results = json.loads(Path("b/results.json").read_text())
    page = check(Path("b/report.html").read_text(), said(results) | set(figures(out)), 60)
    assert set(figures(" ".join(page.texts.values()))) >= {"2.314", "0.051"}
