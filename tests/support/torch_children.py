# SPDX-License-Identifier: Apache-2.0
"""Runs pieces of Python, each in a process of its own that has PyTorch already: a child of one process that imported it,
which takes longer than most of the pieces. That process has no other threads, and nothing of memoir's."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping


class TorchChildren:
    """For one thread at a time. close() ends the process that has PyTorch."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # NumPy's import starts threads otherwise
        )

    def run(self, code: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Like `python -c code` with text captured, except that torch's import has happened in another environment."""
        stdin, stdout = self._parent.stdin, self._parent.stdout
        assert stdin and stdout
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            asked = {"code": code, "environment": dict(environment), "out": out.name, "err": err.name}
            print(json.dumps(asked), file=stdin, flush=True)
            status = stdout.readline()
            if not status:
                raise RuntimeError(f"the process that has PyTorch ended with {self._parent.wait()}")
            texts = [file.read().decode(errors="replace") for file in (out, err)]
        return subprocess.CompletedProcess(["python", "-c", code], int(status), *texts)

    def close(self) -> None:
        self._parent.communicate()


def serve() -> None:
    import torch  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            for stream, path in ((1, asked["out"]), (2, asked["err"])):
                file = os.open(path, os.O_WRONLY)
                os.dup2(file, stream)
                os.close(file)
            answers.close()
            os.environ.clear()
            os.environ.update(asked["environment"])
            exec(asked["code"], {"__name__": "__main__"})
            sys.exit(0)  # as a program ends, so that what PyTorch and memoir do then is done
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    serve()
