# SPDX-License-Identifier: Apache-2.0
"""LevelDB (plyvel): stores are opened, written to through their memory tables and caches, and closed."""

import tempfile
from pathlib import Path

import marks
import plyvel

folder = tempfile.TemporaryDirectory()
stores = []


def load(choose, cycle):
    while len(stores) < marks.scaled(20):
        path = Path(folder.name) / f"{cycle}-{len(stores)}"
        store = plyvel.DB(
            str(path), create_if_missing=True, write_buffer_size=8 << 20, lru_cache_size=8 << 20
        )
        with store.write_batch() as batch:
            for _ in range(marks.scaled(8000)):
                batch.put(choose.randbytes(16), choose.randbytes(choose.randrange(20, 200 * cycle)))
        for _, value in store:  # through the cache of blocks
            len(value)
        stores.append(store)


def drop(choose, cycle):
    choose.shuffle(stores)
    for store in stores[len(stores) // 10 + 1 :]:
        store.close()
    del stores[len(stores) // 10 + 1 :]


marks.run(load, drop)
