# SPDX-License-Identifier: Apache-2.0
"""The types of the extension modules, as python/memoir/*.pyi holds them for type checkers. To rewrite these files:

.venv/bin/python tests/stubs/extension_stubs.py
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from nanobind.stubgen import StubGen, load_pattern_file

PACKAGE = Path(__file__).parents[2] / "python" / "memoir"
PATTERNS = PACKAGE / "bindings" / "stubs.patterns"
MODULES = ("_core", "_torch")


def path_of(module: str) -> Path:
    return PACKAGE / f"{module}.pyi"


def stub_of(module: str) -> tuple[str, set[str]]:
    """The text of the file, and the rules of stubs.patterns that it was made with."""
    if module == "_torch":
        import memoir.torch  # noqa: F401  (loads the part that was built for this torch)
    imported = importlib.import_module(f"memoir.{module}")
    rules = load_pattern_file(str(PATTERNS))
    generator = StubGen(imported, patterns=rules, quiet=True)
    generator.put(imported)
    text = generator.get()
    # What a property without a docstring has for one is its signature, which stands above it already.
    text = re.sub(r':\n +"""\(self\) -> .*"""\n', ": ...\n", text)
    return text, {rule.query.pattern for rule in rules if rule.matches}


if __name__ == "__main__":
    for name in MODULES:
        path_of(name).write_text(stub_of(name)[0])
        print(f"rewrote {path_of(name).name}; look at the difference before you commit it")
