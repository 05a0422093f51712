from collections.abc import Callable
from typing import Any

import memoir._core


def in_pass() -> bool:
    """True while the calling thread is inside a recorded or planned pass."""

class SlabSet:
    def __init__(self, max_slabs: int, max_bytes: int, poison: bool, patience: float = 0.0) -> None: ...

    @staticmethod
    def of_process() -> SlabSet:
        """The one that callables share which have no limits of their own."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def slabs(self) -> int: ...

    def retire_all(self) -> None: ...

class Ledger:
    """What learning may cost, of one callable or of several together."""

    def __init__(self) -> None: ...

    @property
    def share(self) -> float:
        """What was spent on learning and looking, of the time of passes."""

class Memory:
    """What is remembered of one callable."""

    def __init__(self, max_plans: int, patience: float, slabs: SlabSet, ledger: Ledger | None, describe: object, say_nothing_repeats: object) -> None: ...

    @property
    def call(self) -> Callable[..., Any]:
        """
        call(function, *args, **kwargs) is what function(*args, **kwargs) returns or raises, out of planned memory where there is a plan.
        """

    def give_plan(self, plan: memoir._core.RecordedPlan, words: str) -> None:
        """
        A plan of calls that describe() has these words for, and for those of other dimensions.
        """

    def forget(self) -> None: ...

    def stats(self) -> dict[str, Any]: ...

def modules_are_called_by(type: type, call: object) -> None:
    """
    type.__call__ is `call` now, which passes on to what call_modules() returned: classes that have it from there are called without it, as long as that is so.
    """

def called_once() -> int:
    """Modules that call_modules() was called with once."""

def call_modules(plain: Callable[..., Any], memories: dict[int, Any], know: Callable[[Any], Any], from_second: bool) -> Callable[..., Any]:
    """
    What torch.nn.Module.__call__ does from now on: outermost calls are remembered, plain(module, *args, **kwargs) is what they do. `memories`, by the module's id, has what know(module) returns: a weak reference, a memory of its class, and that one's core; None for a module that is not remembered, True for one that the program remembers. `from_second`: know() is asked at the second call of a module, not at its first.
    """

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
