from typing import Any

import memoir._core


def in_pass() -> bool:
    """True while the calling thread is inside a recorded or planned pass."""

class SlabSet:
    def __init__(self, max_slabs: int, max_bytes: int, poison: bool, patience: float = 0.0) -> None: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def slabs(self) -> int: ...

    def retire_all(self) -> None: ...

class Memory:
    """What is remembered of one callable."""

    def __init__(self, max_plans: int, patience: float, slabs: SlabSet, describe: object, say_nothing_repeats: object) -> None: ...

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """
        What function(*args, **kwargs) returns or raises, out of planned memory where there is a plan.
        """

    def give_plan(self, plan: memoir._core.RecordedPlan, words: str) -> None:
        """
        A plan of calls that describe() has these words for, and for those of other dimensions.
        """

    def forget(self) -> None: ...

    def stats(self) -> dict[str, int]: ...

class Recording:
    def __init__(self, path: str | None = None) -> None: ...

    def begin(self, large_apart: bool) -> None: ...

    def begin_everywhere(self) -> bool:
        """Records all threads; False while another recording does."""

    def end(self) -> None: ...

    def pass_begin(self) -> int:
        """Returns the pass's number."""

    def pass_end(self, pass_number: int) -> None: ...

    def meta(self, key: str, value: str) -> None: ...

    def bytes(self) -> bytes: ...

    @property
    def dropped(self) -> int: ...

    def close(self) -> None: ...

class ProgramsRecording:
    """Tells the recorder that is preloaded of tensors, operators and passes."""

    def __init__(self) -> None: ...

    def begin_everywhere(self) -> bool:
        """
        Tells it of all threads, to the end of the process; False while another recording does.
        """

    def pass_begin(self) -> int:
        """Returns the pass's number."""

    def pass_end(self, pass_number: int) -> None: ...

    def module_begin(self, path: str) -> None:
        """
        The thread calls a module: what it allocates until module_end() has that in its stacks.
        """

    def module_end(self) -> None: ...

    def meta(self, key: str, value: str) -> None: ...
