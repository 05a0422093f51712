# SPDX-License-Identifier: Apache-2.0
"""The cycles of a program whose load comes and goes: what `memoir bench --memory` reads as phases.

LOAD_DROP_SCALE is how much of the usual load there is, LOAD_DROP_SETTLE how many seconds of peace follow a drop,
LOAD_DROP_CYCLES how often. What cycle C does depends on C and LOAD_DROP_SEED alone."""

import os
import random
import time

SCALE = float(os.environ.get("LOAD_DROP_SCALE", "1"))
SETTLE = float(os.environ.get("LOAD_DROP_SETTLE", "6"))
CYCLES = int(os.environ.get("LOAD_DROP_CYCLES", "3"))
SEED = int(os.environ.get("LOAD_DROP_SEED", "0"))


def scaled(count):
    return max(1, int(count * SCALE))


def mark(name):
    print(f"phase {name}", flush=True)
    time.sleep(0.5)  # the sampler looks when it sees the line, which takes a while on a busy machine


def run(load, drop):
    """load(random, cycle) fills, drop(random, cycle) leaves about a tenth."""
    for cycle in range(1, CYCLES + 1):
        choose = random.Random(1000 * SEED + cycle)
        load(choose, cycle)
        mark(f"full{cycle}")
        drop(choose, cycle)
        time.sleep(SETTLE)
        mark(f"settled{cycle}")
