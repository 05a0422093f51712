# SPDX-License-Identifier: Apache-2.0
"""Programs whose load comes and goes, to be recorded by test_simulated.py: turns.py documents|tables."""

import json
import random
import sqlite3
import sys
import time


def documents() -> None:
    """Documents are parsed, held for a while and dropped."""
    held = []
    for _wave in range(3):
        for _ in range(60):
            rows = [
                {"id": i, "name": f"n{random.randrange(10**6)}", "tags": [random.random() for _ in range(4)]}
                for i in range(40)
            ]
            held.append(json.loads(json.dumps(rows)))
            if len(held) > 40:
                held.pop(random.randrange(len(held)))
        held = held[:6]
        time.sleep(0.5)


def tables() -> None:
    """A database in memory, filled, thinned out and closed."""
    for _wave in range(3):
        database = sqlite3.connect(":memory:")
        database.execute("create table rows(number integer primary key, name text, bytes blob)")
        for i in range(2000):
            row = (i, "x" * random.randrange(400), random.randbytes(random.randrange(1, 900)))
            database.execute("insert into rows values(?,?,?)", row)
        database.execute("create index names on rows(name)")
        database.execute("delete from rows where number % 3 = 0")
        list(database.execute("select name from rows order by bytes limit 500"))
        database.close()
        time.sleep(0.5)


if __name__ == "__main__":
    random.seed(3)
    {"documents": documents, "tables": tables}[sys.argv[1]]()
