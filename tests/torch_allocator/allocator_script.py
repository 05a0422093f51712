# SPDX-License-Identifier: Apache-2.0
"""Random scripts for allocators: one step a line, a verb and numbers.

allocate ID SIZE STREAM     free ID            dead ID: freed by the next FreeMemory callback
use ID STREAM: record_stream                   events: every event recorded so far is done
trim: empty_cache                              trim_pool POOL
begin POOL CAPTURE STREAM: allocations of that stream (99: of all) go to the private pool; CAPTURE 1: of a graph
end POOL CAPTURE            add_use POOL       release POOL
lend POOL 0|1: use_on_oom   whole POOL: no_split

Left out is what PyTorch answers with an assertion (emptying the cache under a capture, pools without a use) and what
depends on the order of its hash tables (two pools that are lent out).
"""

import random

MIB = 1 << 20
ALL_STREAMS = 99
SIZES = [1, 4, 512, 513, 1000, 4096, 100_000, 600_000, MIB, MIB + 1, 2 * MIB, 3 * MIB + 77, 5_000_000]
SIZES += [10 * MIB - 1, 10 * MIB, 12 * MIB, 21 * MIB, 33 * MIB + 5, 64 * MIB]


class _Pool:
    def __init__(self):
        self.uses, self.capture, self.stream, self.lent, self.over = 0, None, 0, False, False


class _Script:
    def __init__(self, seed, features, torch_minor):
        self.torch_minor = torch_minor
        self.random = random.Random(seed)
        self.features = features
        self.lines, self.live, self.objects = [], [], 0
        self.streams = self.random.choice([1, 2, 4])
        self.scale = self.random.choice([1, 1, 0.1])
        self.sizes = self.random.choices(SIZES, k=8)
        self.pools = {number: _Pool() for number in (1, 2, 3)}

    def is_captured(self):
        pools = [pool for pool in self.pools.values() if pool.capture is not None]
        if self.torch_minor < 13:  # every use of a private pool counts
            return bool(pools)
        return any(pool.capture == 1 and pool.stream in (0, ALL_STREAMS) for pool in pools)

    def allocate(self):
        size = (
            self.random.choice(self.sizes) if self.random.random() < 0.7 else 2 ** self.random.uniform(0, 26)
        )
        stream = self.random.choice([0, 0, 0, *range(self.streams)])
        self.lines.append(f"allocate {self.objects} {max(1, int(size * self.scale))} {stream}")
        self.live.append(self.objects)
        self.objects += 1

    def free(self):
        at = self.random.randrange(len(self.live)) if self.random.random() < 0.7 else -1
        self.lines.append(f"free {self.live.pop(at)}")

    def step_pool(self):
        number = self.random.choice(list(self.pools))
        pool, dice = self.pools[number], self.random.random()
        graphs = "graphs" in self.features
        if pool.capture is not None:
            self.lines.append(f"end {number} {pool.capture}")
            pool.capture = None
        elif pool.over:
            if dice < 0.3 and not self.is_captured():
                self.lines.append(f"trim_pool {number}")
        elif dice < 0.45 or (graphs and ("ends" not in self.features or pool.uses == 0 or dice < 0.5)):
            self.lend(number, False)
            pool.capture = int(self.random.random() < 0.3)
            pool.stream = self.random.choice([ALL_STREAMS, *range(self.streams)])
            self.lines.append(f"begin {number} {pool.capture} {pool.stream}")
            pool.uses += 1
        elif dice < 0.55:
            self.lines.append(f"add_use {number}")
            pool.uses += 1
        elif pool.uses > 0 and (dice < 0.75 or graphs):
            if pool.uses == 1:
                self.lend(number, False)
                pool.over = True
            self.lines.append(f"release {number}")
            pool.uses -= 1
        elif pool.uses > 0 and dice < 0.85:
            for other in self.pools:
                self.lend(other, other == number)
        elif pool.uses > 0 and dice < 0.9:
            self.lines.append(f"whole {number}")

    def lend(self, number, lent):
        if self.pools[number].lent != lent:
            self.lines.append(f"lend {number} {int(lent)}")
            self.pools[number].lent = lent

    def step(self):
        dice = self.random.random()
        growing = len(self.lines) // 200 % 2 == 0
        if dice < 0.02:
            if not self.is_captured():
                self.lines.append("trim")
        elif dice < 0.09 and "streams" in self.features and self.live:
            if dice < 0.04:
                self.lines.append("events")
            elif dice < 0.08:
                self.lines.append(
                    f"use {self.random.choice(self.live)} {self.random.randrange(self.streams)}"
                )
            else:
                self.lines.append(f"dead {self.live.pop(self.random.randrange(len(self.live)))}")
        elif dice < 0.13 and ("pools" in self.features or "graphs" in self.features):
            self.step_pool()
        elif dice < (0.68 if growing else 0.4) or not self.live:
            self.allocate()
        else:
            self.free()


def random_script(seed, features, steps, torch_minor):
    """A script of so many steps for torch 2.x; features: "streams" (record_stream and callbacks), "pools" (private ones),
    "graphs" (private ones that are neither lent out nor kept whole; used for ever, unless there is "ends")."""
    script = _Script(seed, features, torch_minor)
    while len(script.lines) < steps:
        script.step()
    return "\n".join(script.lines) + "\n"
