# A program for tests/record/test_python_stacks.py: it says of some allocations which Python frames they come from.
import asyncio
import ctypes
import functools
import json
import sys
import threading

FREE = ctypes.CDLL(None)  # lets the GIL go around each call
HELD = ctypes.PyDLL(None)  # keeps it
for library in (FREE, HELD):
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
told = {}
sizes = iter(range(700_001, 10_000_000, 16))
lock = threading.Lock()


def mark(library=FREE):
    frame, chain = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        chain.append((getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno))
        frame = frame.f_back
    with lock:
        size = next(sizes)
    told[size] = chain[::-1]
    library.malloc(size)


def again(depth):
    if depth == 0:
        return mark()
    again(depth - 1)


class Ünïcode:
    def __init__(self):
        mark(HELD)

    def __lt__(self, other):  # called by C, which Python called
        mark()
        return True

    @functools.lru_cache  # noqa: B019
    def cached(self, what):
        return [mark(HELD) for _ in range(2)]


def generated(count):
    for _ in range(count):
        mark()
        yield 1


def delegated():
    yield from generated(2)
    mark()


async def waits(turns):
    for _ in range(turns):
        mark()
        await asyncio.sleep(0)


async def gathers():
    await asyncio.gather(waits(2), waits(3))


def codes_that_die():
    for number in range(60):  # the next one often has the address of the one before
        space = {"mark": mark}
        exec(
            compile(
                "\n" * (number % 7) + f"def made_{number}():\n  mark()\nmade_{number}()",
                f"<{number % 3}>",
                "exec",
            ),
            space,
        )


def fails():
    try:
        mark()
        raise ValueError
    except ValueError:
        mark()
    finally:
        mark()


def in_thread(depth):
    again(depth)
    sum(delegated())


again(0)
again(3)
for _ in range(2):
    sorted([Ünïcode(), Ünïcode(), Ünïcode()])
Ünïcode().cached(1)
sum(delegated())
asyncio.run(gathers())
codes_that_die()
fails()
threads = [threading.Thread(target=in_thread, args=(depth,)) for depth in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
(
    lambda: (
        mark(),
        mark(),
    )
)()
again(190)
print(json.dumps(told))
