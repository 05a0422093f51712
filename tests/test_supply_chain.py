# SPDX-License-Identifier: Apache-2.0
"""What memoir is built of is named, pinned and checked."""

import hashlib
import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked() -> set[str]:
    """The packages that pyproject.toml names: those of the build, of the package, of its extras."""
    text = (ROOT / "pyproject.toml").read_text().split("[tool.")[0].replace('dynamic = ["version"]', "")
    lists = re.findall(r"^(?:dependencies|requires|[a-z]+) = \[(.*?)\]", text, re.M)
    return {
        re.match(r"[\w-]+", word)[0]
        for one in lists
        for word in re.findall(r'"([^"]+)"', one)
        if word[0].isalpha()
    }


def test_actions_are_named_by_commit():
    used = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    assert len(used) > 5
    for line in used:
        assert re.fullmatch(r"(- )?uses: [\w/-]+@[0-9a-f]{40} # v[0-9.]+", line), line


def test_where_files_are_signed_nothing_runs_whose_hash_is_unknown():
    for path in WORKFLOWS:
        whole, _, jobs = path.read_text().partition("\njobs:\n")
        assert "id-token" not in whole, path
        for job in re.split(r"^  (?=[\w-]+:$)", jobs, flags=re.M):
            if "id-token: write" in job:
                for command in re.findall(r"^.*\b(?:pip|uv|npm|cargo|apt-get)\b.*$", job, re.M):
                    assert "--require-hashes" in command, (path, command)


def test_a_release_is_built_of_what_has_known_hashes():
    wheels = (ROOT / ".github/workflows/wheels.yml").read_text()
    assert "--require-hashes -r .ci/release.txt" in wheels and "make wheel" not in wheels
    assert "attest-build-provenance" in wheels and ".ci/sbom.py" in wheels
    tools = load("sbom").locked()
    assert len(tools) == len(re.findall(r"^[^ #\n].*==", (ROOT / ".ci/release.txt").read_text(), re.M))
    assert all(hashes for _, hashes in tools.values())
    for line in (ROOT / ".ci/release.in").read_text().split():
        assert re.match(r"[\w-]+", line)[0] in tools
    makefile = (ROOT / "Makefile").read_text()
    assert f"nanobind=={tools['nanobind'][0]}" in makefile
    for minor in load("wheel").supported():
        text = (ROOT / ".ci" / f"torch-{minor}.txt").read_text()
        assert re.search(rf"^torch=={minor}\.\d+ ", text, re.M) and text.count("--hash=sha256:") >= 5


def test_code_of_others_is_what_it_was():
    sums = dict(reversed(line.split()) for line in (ROOT / "third_party/SHA256SUMS").read_text().splitlines())
    files = {
        str(path.relative_to(ROOT / "third_party"))
        for path in (ROOT / "third_party").rglob("*")
        if path.is_file()
    }
    assert set(sums) == files - {"README.md", "SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((ROOT / "third_party" / name).read_bytes()).hexdigest() == digest, name


def test_every_licence_is_listed():
    page = (ROOT / "docs/reference/licences.md").read_text()
    listed = dict(re.findall(r"^\| ([\w-]+) \| ([^|]+) \|", page, re.M))
    folders = {path.name for path in (ROOT / "third_party").iterdir() if path.is_dir()}
    wanted = (
        asked()
        | folders
        | {re.match(r"[\w-]+", line)[0] for line in (ROOT / ".ci/release.in").read_text().split()}
    )
    assert wanted == set(listed) - {"what"}
    for name, licence in listed.items():
        if re.search("GPL", licence):
            assert "not linked" in next(
                line for line in page.splitlines() if line.startswith(f"| {name} ")
            ), name


def test_a_bill_of_materials_names_all_of_it(tmp_path):
    wheel = tmp_path / "memoir_alloc-0.1.0-cp312-cp312-linux_x86_64.whl"
    wheel.write_bytes(b"wheel")
    bill = json.loads(json.dumps(load("sbom").bill(wheel)))
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["hashes"][0]["content"] == hashlib.sha256(b"wheel").hexdigest()
    names = {part["name"] for part in bill["components"]}
    assert {"nanobind", "click", "numpy", "rich", "cmake", "auditwheel"} <= names
