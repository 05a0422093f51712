# SPDX-License-Identifier: Apache-2.0
"""Fills a redis server through one connection with strings, lists and hashes, and deletes nine keys in ten."""

import socket
import sys

import marks

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
answers = connection.makefile("rb")
keys = []


def send(commands):
    text = b""
    for words in commands:
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        text += b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    connection.sendall(text)
    for _ in commands:
        if answers.readline().startswith(b"-"):
            sys.exit("the server refused a command")


def load(choose, cycle):
    for batch in range(marks.scaled(400)):
        commands = []
        for i in range(150):
            key = f"{cycle}:{batch}:{i}"
            keys.append(key)
            values = [b"v" * choose.randrange(8, 60 * cycle) for _ in range(choose.randrange(1, 20))]
            if i % 3 == 0:
                commands.append(["SET", key, b"s" * choose.randrange(20, 1500)])
            elif i % 3 == 1:
                commands.append(["RPUSH", key, *values])
            else:
                commands.append(
                    ["HSET", key, *(word for n, value in enumerate(values) for word in (n, value))]
                )
        send(commands)


def drop(choose, cycle):
    choose.shuffle(keys)
    gone = keys[len(keys) // 10 :]
    del keys[len(keys) // 10 :]
    for first in range(0, len(gone), 500):
        send([["DEL", *gone[first : first + 500]]])


marks.run(load, drop)
