# SPDX-License-Identifier: Apache-2.0
"""CPython as a web server has it: a parsed JSON document per session, most sessions end; a few results stay cached."""

import json

import marks

sessions, cache = {}, {}


def document(choose, cycle):
    items = [
        {
            "id": choose.randrange(10**9),
            "name": "n" * choose.randrange(5, 60 * cycle),
            "tags": [str(i) for i in range(5)],
        }
        for _ in range(choose.randrange(5, 60))
    ]
    return json.dumps({"user": choose.randrange(10**9), "items": items, "note": "x" * choose.randrange(4000)})


def load(choose, cycle):
    for request in range(marks.scaled(6000)):
        text = document(choose, cycle)
        key = choose.randrange(10**9)
        sessions[key] = (text, json.loads(text))
        if request % 50 == 0:
            cache[key] = text[:200]


def drop(choose, cycle):
    for key in choose.sample(sorted(sessions), len(sessions) * 9 // 10):
        del sessions[key]


marks.run(load, drop)
