# SPDX-License-Identifier: Apache-2.0
"""SQLite, a database in memory per customer: tables with an index fill, nine customers of ten leave."""

import sqlite3

import marks

customers = []


def load(choose, cycle):
    while len(customers) < marks.scaled(100):
        database = sqlite3.connect(":memory:")
        database.execute("create table events(id integer primary key, name text, body blob)")
        database.execute("create index by_name on events(name)")
        customers.append(database)
    for _ in range(marks.scaled(100) * 20):
        rows = [
            (f"event {choose.randrange(10**6)}", choose.randbytes(choose.randrange(20, 200) * cycle))
            for _ in range(50)
        ]
        choose.choice(customers).executemany("insert into events(name, body) values(?, ?)", rows)


def drop(choose, cycle):
    choose.shuffle(customers)
    for database in customers[len(customers) // 10 + 1 :]:
        database.close()
    del customers[len(customers) // 10 + 1 :]


marks.run(load, drop)
