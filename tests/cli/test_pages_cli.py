# SPDX-License-Identifier: Apache-2.0
"""Pages by the command line: of a model, of two traces, of what was just recorded or trained."""

import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def questions(path):
    """The panels' heads; the page is whole, and asks nobody for anything."""
    html = Path(path).read_text()
    assert html.startswith("<!doctype html>") and html.rstrip().endswith("</html>")
    assert "connect-src 'none'" in html
    return [part.split("</h2>")[0] for part in html.split("<h2>")[1:]]


def test_a_model_and_what_it_says_of_a_profile(memoir):
    model, profile = str(DATA / "small.v1.model"), str(DATA / "small.v1.lifetimes")
    code, _, err = memoir("show", model, "-o", "m.html")
    assert code == 0 and "wrote m.html" in err
    assert "What does it say of which sites, and how surely?" in questions("m.html")
    code, _, _ = memoir("show", model, "--against", profile, "-o", "a.html")
    assert code == 0 and questions("a.html")[:2] == [
        "How well does it answer this profile?",
        "What does it take for what?",
    ]
    code, _, err = memoir("show", model, "-o", "m.html")
    assert code == 2 and "m.html" in err  # it is there
    assert memoir("show", model, "-o", "m.png")[0] == 2
    assert memoir("show", model, "--planner", "all")[0] == 2


def test_two_traces_by_diff_and_by_show(memoir):
    before, after = str(DATA / "small.v1.trace"), str(DATA / "pools.trace")
    code, out, err = memoir("diff", before, after, "-o", "d.html")
    assert code == 0 and "live at the peak" in out and "wrote d.html" in err
    assert any(one.startswith("Where did every object lie, before and after") for one in questions("d.html"))
    code, _, _ = memoir("show", "--diff", before, after, "-o", "s.html")
    assert code == 0 and Path("s.html").read_bytes() == Path("d.html").read_bytes()
    code, _, err = memoir("diff", before, str(DATA / "small.v1.plan"))
    assert code == 2 and "small.v1.plan is not a trace" in err
    code, _, err = memoir("diff", before, after, "--relative", "system")
    assert code == 2 and "two traces are compared without intervals" in err


def test_what_was_recorded_has_its_page_at_once(memoir):
    command = ["--", sys.executable, "-c", "x = [bytes(9000) for _ in range(50)]"]
    code, _, err = memoir("record", "--only", "malloc", "-o", "x.trace", "--page", "x.html", *command)
    assert code == 0 and "wrote x.html" in err
    assert "Where did every object lie?" in questions("x.html")
    code, _, err = memoir("record", "--lifetimes", "-o", "x.lifetimes", "--page", "x.html", *command)
    assert code == 2 and "x.html" in err  # it is there, and nothing was run
    assert not Path("x.lifetimes").exists()
    code, _, _ = memoir(
        "record", "--lifetimes", "--every", "4KiB", "-o", "x.lifetimes", "--page", "l.html", *command
    )
    assert code == 0 and "Who allocates?" in questions("l.html")


def test_what_was_trained_has_its_page_at_once(memoir):
    profile = str(DATA / "small.v1.lifetimes")
    code, _, err = memoir("train", profile, "--no-replay", "-o", "x.model", "--page", "x.html")
    assert code == 0 and "wrote x.html" in err
    assert "How does it answer?" in questions("x.html")
