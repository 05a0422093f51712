# SPDX-License-Identifier: Apache-2.0
"""Prints the folder of the torch that this Python has; nothing when it has none. torch is not imported.

pip builds in an environment of its own, which hides what is installed. Its Python is the same one, though, so that the
folders of the environment that is installed into are still known.
"""

import importlib.util
import sysconfig
from pathlib import Path

spec = importlib.util.find_spec("torch")
folders = [Path(spec.origin).parent] if spec is not None and spec.origin else []
folders += [Path(sysconfig.get_path(scheme), "torch") for scheme in ("purelib", "platlib")]
print(next((folder for folder in folders if (folder / "include" / "ATen").is_dir()), ""))
