# SPDX-License-Identifier: Apache-2.0
"""Holds many connections to nginx open, each with a request half sent, and closes nine in ten."""

import resource
import socket
import sys

import marks

address = ("127.0.0.1", int(sys.argv[1]))
connections = []
allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(allowed, 10000), allowed))


def load(choose, cycle):
    while len(connections) < marks.scaled(3500):
        connection = socket.create_connection(address)
        connection.sendall(
            b"POST /kept HTTP/1.1\r\nHost: here\r\nContent-Length: 60000\r\n"
            + b"".join(
                b"X-%d: %s\r\n" % (i, b"v" * choose.randrange(20, 800))
                for i in range(choose.randrange(4, 30))
            )
            + b"\r\n"
            + b"b" * choose.randrange(1000, 15000)
        )
        connections.append(connection)


def drop(choose, cycle):
    choose.shuffle(connections)
    for connection in connections[len(connections) // 10 :]:
        connection.close()
    del connections[len(connections) // 10 :]


marks.run(load, drop)
