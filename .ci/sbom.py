# SPDX-License-Identifier: Apache-2.0
"""Says what the wheels in a folder are made of: a bill of materials next to each, in CycloneDX's JSON.

    .venv/bin/python .ci/sbom.py dist

It has the wheel with its SHA-256, what is compiled into it, what it asks for at run time, and the tools that built it,
with the hashes of .ci/release.txt.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILED_IN = ("nanobind",)  # its runtime is linked into the extension


def locked() -> dict[str, tuple[str, list[str]]]:
    """By name, the version and the hashes of each tool of .ci/release.txt."""
    text = (ROOT / ".ci/release.txt").read_text()
    found = {}
    for name, version, hashes in re.findall(
        r"^([\w.-]+)==([\w.+-]+)(?: ;[^\\\n]*)? \\\n((?:    --hash=.*\n?)+)", text, re.M
    ):
        found[name] = (version, re.findall(r"sha256:([0-9a-f]{64})", hashes))
    return found


def runtime() -> list[tuple[str, str]]:
    """What the package asks for: names with their ranges."""
    wanted = re.search(r"^dependencies = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.M)[1]
    return re.findall(r'"([\w-]+)([^"]*)"', wanted)


def component(name: str, version: str, scope: str, hashes: list[str] = (), **more) -> dict:
    entry = {"type": "library", "name": name, "scope": scope, "purl": f"pkg:pypi/{name}"} | more
    if version:
        entry |= {"version": version, "purl": f"pkg:pypi/{name}@{version}"}
    if hashes:
        entry["properties"] = [{"name": "memoir:sha256", "value": digest} for digest in hashes]
    return entry


def bill(wheel: Path) -> dict:
    name, version = wheel.name.split("-")[:2]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    tools = locked()
    parts = [component(one, tools[one][0], "required", tools[one][1]) for one in COMPILED_IN]
    parts += [
        component(one, "", "required", description=f"at run time: {one}{span}") for one, span in runtime()
    ]
    parts += [
        component(one, found[0], "excluded", found[1])
        for one, found in tools.items()
        if one not in COMPILED_IN
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "name": name.replace("_", "-"),
                "version": version,
                "purl": f"pkg:pypi/{name.replace('_', '-')}@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": parts,
    }


def main() -> None:
    wheels = sorted(Path(sys.argv[1]).glob("*.whl"))
    if not wheels:
        sys.exit(f"{sys.argv[1]}: there is no wheel")
    for wheel in wheels:
        target = wheel.with_suffix(".cdx.json")
        target.write_text(json.dumps(bill(wheel), indent=1) + "\n")
        print(target)


if __name__ == "__main__":
    main()
