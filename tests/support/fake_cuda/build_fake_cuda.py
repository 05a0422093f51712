# SPDX-License-Identifier: Apache-2.0
"""Builds the fake driver (fake_cuda.h), alone or with the CUDA runtime over it (runtime/runtime.h) for PyTorch itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"
NVML = "libnvidia-ml.so.1"


def build_driver(folder: Path) -> Path:
    """libfake_cuda.so, for MEMOIR_CUDA_DRIVER."""
    library = folder / "libfake_cuda.so"
    _compile(sorted(HERE.glob("*.cc")), library)
    return library


def build_runtime(folder: Path) -> Path:
    """libcuda.so.1, for with_fake_gpu: PyTorch finds the driver, the runtime and cuBLAS in it, and NVML next to it.
    Raises FileNotFoundError where there are no headers of CUDA 13."""
    includes = _cuda_headers()
    library, blas, nvml = folder / "libcuda.so.1", folder / "blas.o", folder / NVML
    c_compiler = [os.environ.get("CC", "cc"), "-O1", "-fPIC"]
    subprocess.run([*c_compiler, "-c", HERE / "runtime" / "blas.c", "-o", blas], check=True)
    options = ["-shared", f"-Wl,-soname,{NVML}"]
    subprocess.run([*c_compiler, *options, HERE / "runtime" / "nvml.c", "-o", nvml], check=True)
    sources = [*sorted(HERE.glob("*.cc")), *sorted((HERE / "runtime").glob("*.cc")), blas]
    _compile(sources, library, *(f"-I{one}" for one in includes), "-Wl,-soname,libcuda.so.1")
    return library


def with_fake_gpu(library: Path, mebibytes: int = 4096, devices: int = 1) -> dict[str, str]:
    """The environment of a process whose PyTorch sees such devices."""
    return {
        **os.environ,
        "LD_PRELOAD": f"{library}:{library.parent / NVML}",
        "FAKE_CUDA_MIB": str(mebibytes),
        "FAKE_CUDA_DEVICES": str(devices),
        "OMP_NUM_THREADS": "1",
    }


def _compile(sources: list[Path], library: Path, *options: str) -> None:
    compiler = os.environ.get("CXX", "c++")
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", f"-I{SOURCE}", f"-I{HERE.parents[1]}", "-ldl"]
    subprocess.run([compiler, *flags, *options, *sources, "-o", library], check=True)


def _cuda_headers() -> list[Path]:
    """The folders of the headers that PyTorch's own dependencies bring: NVIDIA's runtime, and Triton for the rest."""
    import torch

    packages = Path(torch.__file__).parents[1]
    folders = [
        packages / "nvidia" / "cu13" / "include",
        packages / "triton" / "backends" / "nvidia" / "include",
    ]
    found = [folder for folder in folders if folder.is_dir()]
    for needed in ("cuda_runtime_api.h", "crt/host_defines.h"):
        if not any((folder / needed).is_file() for folder in found):
            raise FileNotFoundError(f"there is no {needed} of CUDA 13 next to this PyTorch")
    return found
