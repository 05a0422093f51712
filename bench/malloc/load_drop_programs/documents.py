# SPDX-License-Identifier: Apache-2.0
"""XML documents (lxml, that is libxml2): trees of many small nodes, most of which are let go."""

import marks
from lxml import etree

trees = []


def load(choose, cycle):
    while len(trees) < marks.scaled(300):
        entries = "".join(
            f'<entry id="{choose.randrange(10**6)}"><name>{"n" * choose.randrange(3, 40)}</name>'
            f"<body>{'b' * choose.randrange(20 * cycle, 300 * cycle)}</body></entry>"
            for _ in range(choose.randrange(100, 800))
        )
        trees.append(etree.fromstring(f"<all>{entries}</all>"))


def drop(choose, cycle):
    choose.shuffle(trees)
    del trees[len(trees) // 10 + 1 :]


marks.run(load, drop)
