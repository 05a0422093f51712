# SPDX-License-Identifier: Apache-2.0
"""The files that forges and contributors read name what there is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path):
    return pytest.importorskip("yaml", reason="PyYAML reads them").safe_load(path.read_text())


def test_workflows_call_gates_and_targets_that_exist():
    gates = subprocess.run(
        [sys.executable, ROOT / ".ci/gates.py", "--list"], capture_output=True, text=True, check=True
    ).stdout
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    steps = 0
    for path in WORKFLOWS:
        for job in read(path)["jobs"].values():
            assert job["timeout-minutes"] if "gate" in str(job) else True
            matrix = job.get("strategy", {}).get("matrix", {})
            for step in job["steps"]:
                command = step.get("run", "")
                for name in re.findall(r"\.ci/run ([a-z-]+)", command) + (
                    matrix.get("gate", []) if "matrix.gate" in command else []
                ):
                    assert f"`{name}`" in gates, f"{path.name}: no gate {name}"
                for name in re.findall(r"^make ([a-z]+)", command, re.MULTILINE):
                    assert name in targets, f"{path.name}: no target {name}"
                steps += 1
    assert steps > 5
    pythons = read(ROOT / ".github/workflows/wheels.yml")["jobs"]["wheel"]["strategy"]["matrix"]["python"]
    assert (
        pythons[0] == re.search(r'requires-python = ">=([0-9.]+)"', (ROOT / "pyproject.toml").read_text())[1]
    )


def test_forms_have_what_forges_ask_for():
    for path in FORMS:
        form = read(path)
        assert {"name", "description", "body"} <= set(form), path.name
        identifiers = [field["id"] for field in form["body"]]
        assert len(set(identifiers)) == len(identifiers)


def test_one_version():
    version = (ROOT / "VERSION").read_text().strip()
    assert read(ROOT / "CITATION.cff")["version"] == version
    assert version in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "docs/reference/bibliography.md",
        "docs/contributing/style.md",
    ],
)
def test_links_lead_somewhere(name):
    page = ROOT / name
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_the_bibliography_names_rooms_that_exist():
    text = (ROOT / "docs/reference/bibliography.md").read_text()
    rooms = [
        room
        for room in re.findall(r"`([a-z_]+(?:/[a-z_.]+)+)`", text)
        if not any(list(base.glob(f"{room}*")) for base in (ROOT / "src/memoir", ROOT / "python/memoir"))
    ]
    assert not rooms


@pytest.mark.full
def test_the_site_is_whole_and_asks_nobody(tmp_path):
    for module in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(module, reason="make docs brings it")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # a dead link is a warning, and that an error
    for page in (tmp_path / "site").rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)[^>]*>", page.read_text()):
            assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag) or "canonical" in tag, (
                f"{page}: {tag}"
            )


def test_promises_of_security_name_their_tests():
    """Each row of the table names tests that exist and that say something of what is promised."""
    text = (ROOT / "SECURITY.md").read_text()
    table = text.split("## Which test holds what")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE)[1:]
    assert len(rows) >= 14
    for promise, holders in rows:
        named = re.findall(r"`((?:tests|fuzz)/[^`]*)`", holders)
        assert named, promise
        for name in named:
            path = ROOT / name
            assert path.exists(), f"{promise}: no {name}"
            assert path.is_dir() or re.search(r"def test_|TEST_CASE|def main|no crash", path.read_text()), (
                name
            )
