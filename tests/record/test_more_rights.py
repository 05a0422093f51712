# SPDX-License-Identifier: Apache-2.0
"""Programs with more rights than who starts them (AT_SECURE) follow no variable and no file of ours: who starts them
chooses those, and the files would be made with the program's rights."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from memoir.record import native

CORE = Path(__file__).parents[2] / "src" / "memoir"
USER = 54_399  # nobody's
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
int main(void) {
  for (int i = 0; i < 1000; ++i) free(malloc(100 + i));
  printf("%lu\\n", getauxval(AT_SECURE));
  return 0;
}
"""


LIBRARIES = ["record", "malloc", "malloc_secure", "onnxruntime"]


@pytest.fixture(scope="module", params=LIBRARIES)
def program(request, tmp_path_factory):
    """It is linked with one of our libraries: where a preload is ignored, this is not."""
    library = native.library().with_name(f"libmemoir_{request.param}.so")
    if not library.exists():
        pytest.skip(f"there is no {library.name} here")
    folder = tmp_path_factory.mktemp("rights")
    for one in (folder, *folder.parents[:2]):
        one.chmod(one.stat().st_mode | 0o711)
    (folder / "x.c").write_text(PROGRAM)
    path = folder / request.param
    command = [
        "cc",
        folder / "x.c",
        "-o",
        path,
        "-Wl,--no-as-needed",
        library,
        f"-Wl,-rpath,{library.parent}",
    ]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    return path


ASKED = {
    "trace": {native.TRACE: "{}/x.trace"},
    "checks": {native.TRACE: "{}/x.trace", native.CHECKS: "{}/checks"},
    "samples": {"MEMOIR_CONTROL": "{}", "MEMOIR_SAMPLE_EVERY": "64"},
    "settings": {"MEMOIR_MALLOC": "stats,model={}/x.model"},
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("mode", [0o755, 0o4755, 0o2755])
def test_variables_are_for_programs_of_one_s_own(program, asked, mode, tmp_path):
    if mode != 0o755:
        if os.geteuid() != 0:
            pytest.skip("to give a program to another user takes root")
        os.chown(program, USER, USER)
    program.chmod(mode)
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777 if mode != 0o755 else 0o700)
    variables = {name: value.format(out) for name, value in ASKED[asked].items()}
    done = subprocess.run([program], env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if mode != 0o755 and done.stdout != "1\n":
        pytest.skip("programs with more rights have none here (nosuid)")
    written = {path.name for path in out.iterdir()}
    if mode == 0o755:
        sees = {"record": asked != "settings", "onnxruntime": False}.get(program.name, asked == "settings")
        assert bool(written or done.stderr) == sees, "the test would see nothing"
    else:
        assert not written and not done.stderr
        assert not os.path.lexists(f"/dev/shm/memoir-{USER}") and not list(
            Path("/dev/shm").glob(f"memoir-{USER}-*")
        )


def test_every_variable_is_read_where_this_is_looked_at():
    """getenv() of the core is secure_getenv(), and who walks through `environ` looks at has_more_rights() or AT_SECURE."""
    for path in sorted([*CORE.rglob("*.cc"), *CORE.rglob("*.h")]):
        text = re.sub(r"//.*", "", path.read_text())
        assert not re.search(r"(?<!secure_)\bgetenv\(", text), path
        if re.search(r"for \(char\*\* \w+ =", text):
            assert "has_more_rights()" in text or "AT_SECURE" in text, path
