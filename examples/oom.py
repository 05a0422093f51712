# SPDX-License-Identifier: Apache-2.0
"""A program that writes down why its GPU ran out of memory. Afterwards: memoir oom failed.pickle

python examples/oom.py
"""

import sys

import torch

if not torch.cuda.is_available():
    sys.exit("this example needs a GPU; `make demo` makes such a file without one, and explains it")

torch.cuda.memory._record_memory_history(max_entries=1_000_000)
try:
    kept = []
    while True:
        kept.append(torch.empty(5 << 20, dtype=torch.uint8, device="cuda"))
        torch.empty(15 << 20, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    torch.cuda.memory._dump_snapshot("failed.pickle")
    print("next: memoir oom failed.pickle")
