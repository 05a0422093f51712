import memoir._core


def in_pass() -> bool:
    """True while the calling thread is inside a recorded or planned pass."""

class Layout:
    def __init__(self, plan: memoir._core.RecordedPlan) -> None: ...

    @property
    def arena_size(self) -> int: ...

class SlabPool:
    def __init__(self, max_slabs: int, max_bytes: int, poison: bool) -> None: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def slabs(self) -> int: ...

    def retire_all(self) -> None: ...

class PlannedPass:
    def end(self) -> tuple[int, int, int, int, bool, bool]:
        """
        Ends the pass of this thread: (planned, escaping, unmatched, occupied, in_step, at_end).
        """

def begin_planned(pool: SlabPool, layout: Layout, scoped: bool) -> PlannedPass | None:
    """
    Leases a slab and follows the layout on this thread, or None: no slab is to be had.
    """

class Recording:
    def __init__(self, path: str | None = None) -> None: ...

    def begin(self, large_apart: bool) -> None: ...

    def end(self) -> None: ...

    def pass_begin(self) -> None: ...

    def pass_end(self) -> None: ...

    def meta(self, key: str, value: str) -> None: ...

    def bytes(self) -> bytes: ...

    @property
    def dropped(self) -> int: ...

    def close(self) -> None: ...
