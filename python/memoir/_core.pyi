from collections.abc import Sequence
import enum
import os
from typing import Annotated, Any, overload

import numpy
from numpy.typing import NDArray


__version__: str

class Error(Exception):
    """
    A bad file or argument: what is wrong, where, and what to do. The command line exits with 2 on it.
    """

class EventKind(enum.IntEnum):
    """What a record of a trace says."""

    kNone = 0

    kAllocate = 1

    kFree = 2

    kPassBegin = 3

    kPassEnd = 4

    kSite = 5

    kMeta = 6

    kSegmentAllocate = 7

    kSegmentFree = 8

    kSegmentMap = 9

    kSegmentUnmap = 10

    kAddress = 11

    kFreeRequested = 12

    kOutOfMemory = 13

    kPool = 14

class Family(enum.IntEnum):
    """Which function served an allocation."""

    kTensor = 0

    kMalloc = 1

    kNew = 2

    kOther = 3

class FrameKind(enum.IntEnum):
    """What a frame of a stack is."""

    kNone = 0

    kOperator = 1

    kModulePath = 2

    kCut = 3

    kOther = 4

    kNative = 5

    kPython = 6

class Only(enum.Enum):
    """Which allocations of a trace are wanted."""

    kBoth = 0

    kTensors = 1

    kMallocs = 2

class Trace:
    """A recording read back: checked once, then an array of events."""

    @staticmethod
    def open(path: str | os.PathLike[str], only: Only = Only.kBoth) -> Trace:
        """
        Reads and checks a trace file. Raises Error, which names the place, when it is none.
        """

    @staticmethod
    def open_plannable(path: str | os.PathLike[str]) -> Trace:
        """
        The tensors alone, each at the site of its operators alone: what plans are matched by.
        """

    @staticmethod
    def open_chosen(path: str | os.PathLike[str], plannable: bool = False) -> tuple[Trace, bool]:
        """
        Its tensors where it has any, else everything; and which of the two: whether it has tensors. `plannable`: its tensors as open_plannable() has them.
        """

    @staticmethod
    def follow(path: str | os.PathLike[str], only: Only = Only.kBoth) -> Trace:
        """A trace that is still written: what it holds now. poll() gives more."""

    def poll(self) -> int:
        """
        Reads what a followed file has gained; how many events are new. `events` is another array then.
        """

    @staticmethod
    def from_bytes(bytes: bytes, name: str = '<memory>', only: Only = Only.kBoth) -> Trace:
        """The same over what TraceWriter.bytes() gave."""

    @property
    def events(self) -> NDArray[numpy.void]:
        """
        Every record but text, in order: a read-only numpy array with the fields of the format (times in nanoseconds, sizes in bytes). A view; it keeps the trace alive.
        """

    @property
    def event_count(self) -> int:
        """
        How many events there are; 0 when all were forgotten. Does without numpy.
        """

    @property
    def allocates(self) -> bool:
        """Whether any event is an allocation."""

    @property
    def version(self) -> int:
        """Of the file's format. Its events are those of today's."""

    @property
    def complete(self) -> bool:
        """The writer closed it, and nothing was cut off since."""

    @property
    def lost_bytes(self) -> int:
        """Bytes known to be lost: written but torn, or cut off a closed file."""

    @property
    def dropped(self) -> int:
        """Events that the writer could not write."""

    @property
    def losses(self) -> dict[str, int]:
        """What else is missing, as far as the file tells: counts by name."""

    @property
    def threads(self) -> list[dict[str, Any]]:
        """Threads of a recorded process; times in nanoseconds."""

    @property
    def modules(self) -> list[dict[str, Any]]:
        """The program and the libraries that it loaded."""

    @property
    def mappings(self) -> list[dict[str, Any]]:
        """Summaries of the process's mappings at some moments; sizes in bytes."""

    @property
    def counters(self) -> list[dict[str, Any]]:
        """Numbers that the recorder took at some moments."""

    @property
    def end(self) -> dict[str, Any] | None:
        """How the program ended; None when the file does not say."""

    @property
    def start(self) -> int:
        """Nanoseconds since 1970-01-01 UTC at time 0 of the events."""

    def site_name(self, site: int) -> str:
        """The name of the site's innermost frame, or ''."""

    def site_kind(self, site: int) -> FrameKind:
        """What the site's innermost frame is."""

    @property
    def has_symbols(self) -> bool:
        """Whether it has names for native frames."""

    def forest(self, sites: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], list[dict[str, Any]]]:
        """
        The chains of an array of sites as one forest with a row for each function: (of each site the row of its innermost function, of each row the row that called it, a smaller number, of each row its frame, the frames as site_frames() has them). 2^32 - 1: none.
        """

    def site_frames(self, site: int, cut: bool = False) -> list[dict[str, Any]]:
        """
        The site's chain, outermost first, with what is known of each frame: kind, function, file, line, module, offset, is_inlined. cut: of more than 512 frames, or 32 KiB of text, one stands for those between, for who reads many stacks.
        """

    def own_frames(self, site: int) -> list[dict[str, Any]]:
        """
        Of these the site's own, those that its parent has not: stacks are a tree.
        """

    def innermost(self, site: int, kind: FrameKind) -> int:
        """
        The innermost site of the chain whose frame is of that kind; 0 when none is.
        """

    def site_module(self, site: int) -> str:
        """
        The path of the library or program that the site's own, native frame lies in; or ''.
        """

    @property
    def native_addresses(self) -> list[tuple[int, int]]:
        """
        Of each return address the number of its module, 0 for code that lies in none, and its offset from the module's base.
        """

    def site_parent(self, site: int) -> int | None:
        """The site it was reached from, 0 at the bottom; None if unknown."""

    def site_chain(self, site: int) -> str:
        """
        'outer > inner', or ''. Of more than 512 frames, or 32 KiB, those between are left out.
        """

    def meta(self, key: str) -> str:
        """The value of a meta record, or ''."""

    def meta_keys(self) -> list[str]:
        """The keys of all meta records, sorted."""

class TraceWriter:
    """
    Writes a trace, into a new file or (without a path) into memory. Not thread-safe. Methods that write give False when the record was dropped.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None: ...

    @property
    def ok(self) -> bool: ...

    @property
    def error(self) -> int:
        """An errno, 0 when nothing failed."""

    @property
    def records(self) -> int: ...

    @property
    def dropped(self) -> int: ...

    def allocate(self, object: int, site: int, size: int, alignment: int = 64, thread: int = 0, device: int = 0, stream: int = 0) -> bool: ...

    def free(self, object: int, thread: int = 0, device: int = 0, stream: int = 0, site: int = 0) -> bool: ...

    def free_requested(self, object: int, thread: int = 0, device: int = 0, stream: int = 0, site: int = 0) -> bool: ...

    def address(self, object: int, address: int, device: int = 0, stream: int = 0, pool: int = 0) -> bool: ...

    def segment(self, kind: EventKind, address: int, size: int, device: int = 0, stream: int = 0, site: int = 0, pool: int = 0) -> bool: ...

    def out_of_memory(self, asked: int, free: int, device: int = 0, stream: int = 0, site: int = 0, pool: int = 0) -> bool: ...

    def define_pool(self, pool: int, first: int, second: int) -> bool: ...

    def set_start(self, nanoseconds: int) -> None:
        """Nanoseconds since 1970-01-01 UTC at time 0."""

    def set_time(self, time: int) -> bool:
        """
        From now on records bear this time, in nanoseconds, and no clock is read.
        """

    def pass_begin(self, number: int, thread: int = 0) -> bool: ...

    def pass_end(self, number: int, thread: int = 0) -> bool: ...

    def define_site(self, site: int, parent: int, name: str, kind: FrameKind = FrameKind.kOperator) -> bool: ...

    def meta(self, key: str, value: str) -> bool: ...

    def bytes(self) -> bytes:
        """The trace so far, as the bytes of a file."""

    def close(self) -> None: ...

    def __enter__(self) -> TraceWriter: ...

    def __exit__(self, *args: object) -> None: ...

def finish_trace(
    path: str | os.PathLike[str], status: int | None = None, compress: bool = True
) -> tuple[int, int]:
    """
    Seals and compresses the trace of a program that has ended; with its exit `status` when it ended by itself. Gives the file's bytes before and after.
    """

def add_symbols(path: object, symbols: Sequence[tuple[int, int, Sequence[tuple[str, str, int]]]]) -> None:
    """
    Adds names to a trace: rows of (module's number, offset, [(function, file, line), ...]), the innermost of inlined functions first.
    """

def add_process_facts(path: object, mappings: Sequence[tuple[int, int, int, Sequence[tuple[int, str, int, int, int, int, int]]]], threads: Sequence[tuple[int, int, str]]) -> None:
    """
    Adds to a trace what was seen of its process: mappings by time, rows of (nanoseconds, moment, resident bytes, [(region, name, count, mapped, resident, dirty, swapped), ...]) with the numbers of the format; threads, rows of (number, the kernel's number, name).
    """

def child_site(parent: int, name: str) -> int:
    """
    The id of the site reached from `parent` (0 at the bottom) through a frame of that name.
    """

class Lives:
    """
    Who lives when: the objects of a trace, in the order of their allocations.
    """

    def __init__(self, trace: Trace) -> None: ...

    def __len__(self) -> int: ...

    @property
    def born(self) -> NDArray[numpy.uint32]:
        """The event that allocates each."""

    @property
    def died(self) -> NDArray[numpy.uint32]:
        """The event that frees each; 2^32 - 1 when none does."""

    def load(self, begins: Sequence[int]) -> dict[str, Any]:
        """
        The most bytes live in each stretch of events, which begin at `begins`, from 0 on; the event that reaches the peak, and what lived then.
        """

class Usage:
    """
    Who allocated how much, who held it at one moment, what stayed and what was short.
    """

    def __init__(self, trace: Trace, at: int | None = None, points: int = 200) -> None:
        """
        `at`: the moment in nanoseconds, instead of the peak. `points`: stretches of time.
        """

    @property
    def moment(self) -> int | None:
        """
        The event behind which the moment is; None when nothing came before it.
        """

    @property
    def held(self) -> dict[str, int]:
        """What lived then: count and bytes."""

    @property
    def peak(self) -> int | None: ...

    @property
    def held_at_peak(self) -> dict[str, int]: ...

    @property
    def allocated(self) -> dict[str, int]: ...

    @property
    def kept(self) -> dict[str, int]:
        """What was never freed."""

    @property
    def temporary(self) -> dict[str, int]:
        """What was freed on its thread before that allocated again."""

    @property
    def sites(self) -> NDArray[Any]:
        """
        A row for each site: the most bytes held at the moment first, then the most allocated.
        """

    @property
    def threads(self) -> NDArray[Any]:
        """A row for each thread."""

    @property
    def rates(self) -> NDArray[Any]:
        """A row for each stretch of rate_step nanoseconds."""

    @property
    def rate_step(self) -> int: ...

    def freed_at_end(self, marked: NDArray[Any]) -> NDArray[Any]:
        """
        A row for each of sites: what lived after the last allocation of those that are marked, an array of bytes, and was freed later.
        """

    def curves(self, group_of: NDArray[Any], groups: int, points: int) -> NDArray[Any]:
        """
        The most bytes of each group that lived in each of `points` equal stretches of time, a row for each group. `group_of`: of each row of sites, as 32-bit numbers; those from `groups` on count nowhere.
        """

    def pages(self, time: int) -> dict[str, Any]:
        """
        The pages of 4 KiB under live objects whose addresses are known, at that time in nanoseconds, and which sites pin the free space on them.
        """

class Plan:
    """
    One offset per buffer, in the problem's order, and the arena they fit into.
    """

    def __init__(self, offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], arena_size: int) -> None: ...

    def __len__(self) -> int: ...

    def __reduce__(self) -> tuple[type[Plan], tuple[NDArray[numpy.uint64], int]]: ...

    @property
    def arena_size(self) -> int:
        """Bytes."""

    @property
    def offsets(self) -> NDArray[numpy.uint64]:
        """A new array, in bytes."""

class Problem:
    """
    Buffers to be planned: half-open lifetimes in ticks, sizes and alignments in bytes.
    """

    def __init__(self, lower: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], upper: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], alignment: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def __len__(self) -> int: ...

    @property
    def lower(self) -> NDArray[numpy.uint64]: ...

    @property
    def upper(self) -> NDArray[numpy.uint64]: ...

    @property
    def size(self) -> NDArray[numpy.uint64]: ...

    @property
    def alignment(self) -> NDArray[numpy.uint64]: ...

    @property
    def total_size(self) -> int:
        """Bytes of all buffers together."""

    def sized(self) -> Problem | None:
        """
        The buffers that have bytes, which are what a planner takes; None when all have.
        """

    def with_empty(self, plan: Plan) -> Plan:
        """
        The plan of this problem from that of sized(): buffers of 0 bytes get the offset 0.
        """

    def aligned_to(self, alignment: int) -> Problem:
        """The same buffers, every offset a multiple of `alignment` too."""

def busiest_tick(problem: Problem) -> int:
    """The first tick at which as many bytes are live as at any."""

def load(problem: Problem) -> int:
    """The most bytes live at one tick."""

def aligned_load(problem: Problem) -> int:
    """A floor of the arena, never below load(), that knows of alignment."""

def check(problem: Problem, plan: Plan) -> tuple[int, int, str] | None:
    """Why this is not a plan: (buffer, buffer, reason); None when it is one."""

def planners() -> list[tuple[str, str]]:
    """(name, what it does) of every planner in C++, cheapest first."""

def run_planner(name: str, problem: Problem, deadline: float | None = None) -> Plan:
    """
    The deadline in seconds binds those that would search on. Releases the GIL.
    """

def plan_quickly(problem: Problem) -> tuple[Plan, str]:
    """(plan, planner) of the best cheap planner. Releases the GIL."""

def place_in_order(problem: Problem, order: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Plan:
    """The plan with each buffer at the lowest place free. Releases the GIL."""

class CsvProblem:
    """A problem read from CSV; keeps the text, to write it with offsets."""

    @property
    def problem(self) -> Problem: ...

    @property
    def ids(self) -> list[str]: ...

    @property
    def has_gaps(self) -> bool: ...

    @property
    def has_constraints(self) -> bool: ...

    @property
    def timed(self) -> bool: ...

    @property
    def arenas(self) -> list[str]:
        """The arena column, or empty."""

    @property
    def offsets(self) -> NDArray[numpy.uint64] | None:
        """The offset column; None when there is none, or not for every buffer."""

    @property
    def arena_choices(self) -> list[tuple[str, int | None, int]]:
        """(name, bytes or None, cost) of each arena that it names."""

    @property
    def locality(self) -> bool: ...

    @property
    def bandwidth(self) -> int | None:
        """Bytes per tick to other memory and back, or None."""

    @property
    def has_conflicts(self) -> bool: ...

    @property
    def inclusive(self) -> bool:
        """Its ends are inclusive, and so are those of gaps."""

    @property
    def idle(self) -> list[tuple[int, int, int]]:
        """The idle column, as rows (buffer, lower, upper)."""

    @property
    def recompute(self) -> list[int | None]:
        """
        The recompute column, None where it is empty; or an empty list without the column.
        """

    @overload
    def write(self, plan: Plan) -> bytes:
        """The text as it was read, with these offsets."""

    @overload
    def write(self, plan: Plan, arenas: NDArray[numpy.uint64], names: list[str]) -> bytes:
        """The same, and with several arenas their names."""

def read_csv(path: str) -> CsvProblem: ...

def parse_csv(text: bytes, name: str) -> CsvProblem:
    """The same of text; `name` is for errors."""

def write_column(text: bytes, name: str, values: list[str]) -> bytes:
    """CSV with that column added or replaced: one value per row."""

class RecordedPass:
    """One pass of a trace: what is planned of it, and what is not."""

    @property
    def number(self) -> int | None:
        """None: the trace has no passes."""

    @property
    def problem(self) -> Problem: ...

    @property
    def objects(self) -> NDArray[numpy.uint64]:
        """The object ids of the problem's buffers."""

    @property
    def allocations(self) -> int: ...

    @property
    def escaping(self) -> tuple[int, int]:
        """(count, bytes)"""

    @property
    def foreign(self) -> tuple[int, int]:
        """(count, bytes)"""

    @property
    def elsewhere(self) -> tuple[int, int]:
        """(count, bytes)"""

    @property
    def empty(self) -> tuple[int, int]:
        """(count, bytes)"""

    @property
    def complete(self) -> bool: ...

    @property
    def dropped(self) -> int: ...

    def record(self, plan: Plan, planner: str) -> ProgramPlan:
        """The plan written back to the pass: what a plan file holds."""

    def write_csv(self, plan: Plan) -> bytes:
        """The problem as CSV, the object ids as ids, with these offsets."""

def read_pass(trace: Trace, pass_number: int | None = None, device: int | None = None) -> RecordedPass:
    """
    That pass of a trace; without a number the last complete one, without a device those of all.
    """

class RecordedPlan:
    """
    What one heap follows: the allocations that it was asked for in a recording, laid out in one arena.
    """

    @property
    def arena_size(self) -> int:
        """Bytes."""

    @property
    def load(self) -> int:
        """Bytes: the most planned ones live at once."""

    @property
    def planner(self) -> str: ...

    def __len__(self) -> int: ...

    @property
    def sites(self) -> NDArray[numpy.uint64]: ...

    @property
    def sizes(self) -> NDArray[numpy.uint64]: ...

    @property
    def alignments(self) -> NDArray[numpy.uint64]: ...

    @property
    def lower(self) -> NDArray[numpy.uint64]: ...

    @property
    def upper(self) -> NDArray[numpy.uint64]: ...

    @property
    def offsets(self) -> NDArray[numpy.uint64]:
        """2^64 - 1: not planned."""

    @property
    def streams(self) -> NDArray[numpy.uint64]: ...

    @property
    def devices(self) -> NDArray[numpy.uint64]: ...

    @property
    def pools(self) -> NDArray[numpy.uint64]:
        """0: the device's default pool."""

    @property
    def meta(self) -> list[tuple[str, str]]: ...

class PlannedMemory:
    """One of the memories of a plan; all in bytes."""

    @property
    def name(self) -> str: ...

    @property
    def capacity(self) -> int | None:
        """None: not known."""

    @property
    def alignment(self) -> int: ...

    @property
    def size(self) -> int:
        """What the plan needs of it."""

    @property
    def load(self) -> int:
        """The most planned bytes live in it at once."""

class ProgramPlan:
    """
    What a plan file holds: the allocations of a program, laid out in one or more memories.
    """

    @property
    def planner(self) -> str: ...

    def __len__(self) -> int: ...

    @property
    def sites(self) -> NDArray[numpy.uint64]: ...

    @property
    def sizes(self) -> NDArray[numpy.uint64]: ...

    @property
    def alignments(self) -> NDArray[numpy.uint64]: ...

    @property
    def lower(self) -> NDArray[numpy.uint64]: ...

    @property
    def upper(self) -> NDArray[numpy.uint64]: ...

    @property
    def offsets(self) -> NDArray[numpy.uint64]:
        """2^64 - 1: not planned."""

    @property
    def streams(self) -> NDArray[numpy.uint64]: ...

    @property
    def devices(self) -> NDArray[numpy.uint64]: ...

    @property
    def pools(self) -> NDArray[numpy.uint64]:
        """0: the device's default pool."""

    @property
    def meta(self) -> list[tuple[str, str]]: ...

    @property
    def memories(self) -> list[PlannedMemory]: ...

    @property
    def places(self) -> NDArray[numpy.uint64]:
        """
        Which of the memories each allocation is planned in; 0 for what is not planned.
        """

    @property
    def heaps(self) -> list[tuple[int, int]]:
        """(device, pool) of each heap that the plan is for."""

    @property
    def skeleton_pairs(self) -> int | None:
        """How many pairs its skeleton has; None without one."""

    def recorded_for(self, device: int = 0, pool: int = 0) -> RecordedPlan:
        """
        What the heap of that pool on that device is to follow. Error when that is not in a memory of its own.
        """

    def with_skeleton(self) -> ProgramPlan:
        """The same plan, with the skeleton that its offsets have."""

    def to_bytes(self) -> bytes:
        """The bytes of a .plan file."""

def open_plan(path: str) -> ProgramPlan: ...

def read_plan(bytes: bytes, name: str = '<memory>') -> ProgramPlan:
    """The plan in the bytes of a .plan file; `name` is for errors."""

def record_problem(problem: Problem, plan: Plan, planner: str) -> ProgramPlan: ...

def plan_run(trace: Trace, device: int = 0, alignment: int = 512) -> ProgramPlan:
    """
    A plan of all that a device was asked for in the whole trace, for the guided pool to follow.
    """

class Skeleton:
    """
    Who lies on whom in one or more plans of the same buffers: plans for any other sizes.
    """

    def __init__(self, problem: Problem, plans: list[Plan]) -> None: ...

    @staticmethod
    def of(plan: ProgramPlan) -> Skeleton:
        """
        Of what a plan file holds: its skeleton, or that of its offsets. One size per allocation.
        """

    def __len__(self) -> int: ...

    @property
    def plans(self) -> int:
        """How many it is made of."""

    def at(self, sizes: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Plan:
        """
        The plan for these sizes in bytes, 0 allowed, the best of those that the skeletons give. Valid for any sizes, in time linear in the buffers. Releases the GIL.
        """

class SearchResult:
    """What a planner that searches found. Sizes in bytes."""

    @property
    def plan(self) -> Plan: ...

    @property
    def arena_size(self) -> int: ...

    @property
    def lower_bound(self) -> int: ...

    @property
    def bound_reason(self) -> str: ...

    @property
    def optimal(self) -> bool: ...

    @property
    def proven_infeasible(self) -> bool: ...

    @property
    def seconds(self) -> float: ...

    @property
    def cpu_seconds(self) -> float:
        """Of all threads of this process while it searched."""

    @property
    def starved(self) -> bool:
        """
        The deadline ended it, and it had got less than 0.7 of one processor: more time would help.
        """

    @property
    def work(self) -> int:
        """Placements tried."""

    @property
    def interrupted(self) -> bool: ...

    @property
    def improvements(self) -> list[tuple[float, int]]:
        """(seconds, arena_size) of each better plan."""

def search(problem: Problem, exact: bool = False, deadline: float = 1.0, work_limit: int = 0, threads: int = 0, seed: int = 0, capacity: int | None = None, tolerance: tuple[int, float] = (0, 0.0)) -> SearchResult:
    """
    The portfolio `auto`, or only its complete search. With a work limit the deadline is not looked at. Tolerance: bytes and a share of the bound; without a capacity the first plan that is no more above the proven bound is good enough. Releases the GIL; Ctrl-C ends it with the best so far.
    """

def stream_csv(input: str, output: str) -> tuple[int, int, int, int]:
    """
    Plans a CSV that is sorted by birth in memory proportional to what is live: (buffers, load, arena_size, most live at a time). Releases the GIL.
    """

class ConstrainedProblem:
    """A problem and what it says beyond lifetimes, sizes and alignments."""

    @overload
    def __init__(self, problem: Problem, arenas: list[tuple[str, int | None, int]] = []) -> None: ...

    @overload
    def __init__(self, csv: CsvProblem, arenas: list[tuple[str, int | None, int]] = []) -> None: ...

    def __len__(self) -> int: ...

    @property
    def problem(self) -> Problem: ...

    def set_alignments(self, arg: Problem, /) -> None: ...

    def set_gaps(self, buffer: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lower: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], upper: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], begin: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def set_fixed(self, arg: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_hints(self, arg: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_loops(self, arg: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_low_sizes(self, arg: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_weights(self, arg: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_allowed(self, arg: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_alias(self, arg: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_after(self, arg: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_old(self, offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], arenas: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def set_in_place(self, arg0: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_apart(self, arg0: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_prices(self, arg0: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_conflicts(self, arg0: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def set_timed(self, arg: bool, /) -> None: ...

    def set_moves(self, arg: int, /) -> None: ...

    def set_locality(self) -> None: ...

    def set_banks(self, arg0: int, arg1: int, /) -> None: ...

    def forbid(self, arena: str | None, begin: int, end: int) -> None: ...

    @property
    def timed(self) -> bool: ...

    @property
    def known_before(self) -> int: ...

    @property
    def hints(self) -> int: ...

    @property
    def says(self) -> list[str]:
        """The names of what it says beyond a plain problem."""

    def plain(self) -> tuple[Problem, NDArray[numpy.uint64], NDArray[numpy.uint64]] | None:
        """
        Where a plain problem has the same plans: it, for each buffer the one of it that it became, and the bytes from that one's offset to its own. Or None.
        """

    def validate(self) -> None: ...

    def low_load(self) -> int:
        """The load when every buffer has its smallest size."""

class ConstrainedResult:
    """What was found. Sizes in bytes."""

    @property
    def found(self) -> bool: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def arenas(self) -> NDArray[numpy.uint64]: ...

    @property
    def arena_sizes(self) -> NDArray[numpy.uint64]: ...

    @property
    def moves(self) -> int: ...

    @property
    def cost(self) -> int: ...

    @property
    def least_moves(self) -> int: ...

    @property
    def least_cost(self) -> int: ...

    @property
    def least_total(self) -> int: ...

    @property
    def bound_reason(self) -> str: ...

    @property
    def cost_reason(self) -> str: ...

    @property
    def paid(self) -> int: ...

    @property
    def least_priced(self) -> int: ...

    @property
    def load(self) -> int: ...

    @property
    def optimal(self) -> bool: ...

    @property
    def fits(self) -> bool: ...

    @property
    def proven_infeasible(self) -> bool: ...

    @property
    def maker(self) -> str: ...

    @property
    def work(self) -> int: ...

    @property
    def interrupted(self) -> bool: ...

def plan_constrained(problem: ConstrainedProblem, planner: str, deadline: float = 1.0, work_limit: int = 0, seed: int = 0, capacity: int | None = None, tolerance: tuple[int, float] = (0, 0.0)) -> ConstrainedResult:
    """
    By auto, exact or first_fit. Releases the GIL; Ctrl-C ends it with the best so far.
    """

def check_constrained(
    problem: ConstrainedProblem, offsets: NDArray[numpy.uint64], arenas: NDArray[numpy.uint64]
) -> tuple[int, int, str] | None:
    """Why this is not a plan: (buffer, buffer, reason); None when it is one."""

def measure(
    problem: ConstrainedProblem, offsets: NDArray[numpy.uint64], arenas: NDArray[numpy.uint64]
) -> tuple[int, int, int, int, int, float]:
    """
    (moves, cost, hints followed, bytes used before, bytes used by none before, mean ticks since the former were freed)
    """

def plan_recording(trace: bytes) -> RecordedPlan:
    """
    The plan of the last complete pass in the bytes of a trace. Throws Error when there is none.
    """

class Workload:
    """
    What one device was asked for, made ready to be replayed. Immutable; sizes in bytes.
    """

    def __init__(self, trace: Trace, device: int = 0, failures: bool = True) -> None:
        """
        `failures`: requests that the recorded allocator could not serve are asked for, too.
        """

    @staticmethod
    def take(trace: Trace, device: int = 0, failures: bool = True) -> Workload:
        """
        The same, in half the memory: the trace has no events afterwards, and an array of them that was taken before reads as zeros.
        """

    @staticmethod
    def up_to_failure(trace: Trace, device: int, event: int) -> Workload:
        """
        The trace until that request failed, and the request; those that failed before are not asked for.
        """

    @staticmethod
    def with_request(trace: Trace, device: int, asked: int, device_free: int = 0, stream: int = 0) -> Workload:
        """
        The whole trace, and a request of `asked` bytes at its end, as if it had failed there; those that failed before are not asked for.
        """

    @property
    def failures(self) -> list[dict[str, Any]]:
        """
        A dict per request that the recorded allocator could not serve: event, asked, live, reserved, device_free, cap (reserved and free), site, stream, pool, asked_again. Bytes.
        """

    @property
    def objects(self) -> int: ...

    @property
    def operations(self) -> int: ...

    @property
    def peak_live(self) -> int: ...

    @property
    def peak_event(self) -> int: ...

    @property
    def largest(self) -> int: ...

    @property
    def streams(self) -> int: ...

    @property
    def private_pools(self) -> int:
        """Of CUDA graphs and MemPools."""

    @property
    def most_live(self) -> int:
        """Objects live at once."""

    @property
    def empty(self) -> int:
        """Objects of 0 bytes, left out."""

def devices_of(trace: Trace) -> list[int]:
    """The devices that a trace allocates on."""

def passes_of(trace: Trace) -> int:
    """How many passes the trace says that began."""

class DeviceCalls:
    """Calls to the device that a simulation made."""

    @property
    def takes(self) -> int: ...

    @property
    def give_backs(self) -> int: ...

    @property
    def commits(self) -> int: ...

    @property
    def decommits(self) -> int: ...

    @property
    def refusals(self) -> int: ...

    @property
    def creates(self) -> int:
        """cuMemCreate"""

    @property
    def releases(self) -> int:
        """cuMemRelease"""

    @property
    def maps(self) -> int:
        """cuMemMap"""

    @property
    def unmaps(self) -> int:
        """cuMemUnmap"""

    @property
    def accesses(self) -> int:
        """cuMemSetAccess"""

    @property
    def syncs(self) -> int:
        """Times the host waited for the device."""

    @property
    def waits(self) -> int:
        """Times one stream was made to wait for another; not in `all`."""

    @property
    def driver(self) -> int:
        """Calls to the driver, waits between streams aside."""

    @property
    def all(self) -> int:
        """Segments and ranges asked for and given back."""

class OperationTimes:
    """Nanoseconds of one operation, once warm."""

    @property
    def mean(self) -> float: ...

    @property
    def p50(self) -> float: ...

    @property
    def p99_9(self) -> float: ...

    @property
    def operations(self) -> int: ...

class OutOfMemory:
    """The first allocation that could not be placed. Bytes."""

    @property
    def event(self) -> int: ...

    @property
    def object(self) -> int: ...

    @property
    def site(self) -> int: ...

    @property
    def asked(self) -> int: ...

    @property
    def live(self) -> int: ...

    @property
    def reserved(self) -> int: ...

    @property
    def rounding(self) -> int: ...

    @property
    def reason(self) -> str: ...

    @property
    def fragmented(self) -> int: ...

    def any_layout_fits(self, cap: int) -> bool: ...

class Fidelity:
    """A run from the recorded state, next to the recording. Bytes."""

    @property
    def same_settings(self) -> bool:
        """The policy's settings are the recording's: all shall agree."""

    @property
    def start_segments(self) -> int: ...

    @property
    def start_objects(self) -> int: ...

    @property
    def start_reserved(self) -> int: ...

    @property
    def objects(self) -> int:
        """Allocations of the history with a recorded address."""

    @property
    def agreed(self) -> int:
        """Of these, placed at it."""

    @property
    def first_difference(self) -> int | None:
        """The event of the first that was not, or None."""

    @property
    def recorded_peak(self) -> int:
        """Reserved by the recorded allocator."""

    @property
    def recorded_calls(self) -> int:
        """Of the recorded allocator to its device."""

class Simulation:
    """What one policy took for one workload under one cap. Immutable."""

    @property
    def policy(self) -> str: ...

    @property
    def cap(self) -> int | None:
        """None: no limit."""

    @property
    def completed(self) -> bool: ...

    @property
    def operations(self) -> int: ...

    @property
    def failed(self) -> int: ...

    @property
    def peak_live(self) -> int: ...

    @property
    def peak_reserved(self) -> int: ...

    @property
    def peak_committed(self) -> int: ...

    @property
    def private_reserved(self) -> int:
        """By private pools, at the end."""

    @property
    def peak_reserved_event(self) -> int: ...

    @property
    def live_at_peak(self) -> int: ...

    @property
    def rounding_at_peak(self) -> int: ...

    @property
    def fragmentation_at_peak(self) -> float: ...

    @property
    def fragmentation_mean(self) -> float: ...

    @property
    def largest_gap(self) -> int: ...

    @property
    def largest_gap_event(self) -> int: ...

    @property
    def calls(self) -> DeviceCalls: ...

    @property
    def oom(self) -> OutOfMemory | None: ...

    @property
    def times(self) -> OperationTimes: ...

    @property
    def fidelity(self) -> Fidelity | None:
        """None: it started afresh."""

    @property
    def seconds(self) -> float: ...

    @property
    def phases(self) -> list[dict[str, Any]]:
        """A dict per phase: phase, calls, total_ns, worst_ns."""

    @property
    def timeline(self) -> dict[str, NDArray[numpy.uint64]]:
        """
        Columns event, time, live, reserved, gap: the extremes of each stretch of the trace.
        """

class CapSearch:
    """The smallest cap that completes, as far as was searched. Bytes."""

    @property
    def cap(self) -> int:
        """0: none was found."""

    @property
    def resolution(self) -> int: ...

    @property
    def trials(self) -> list[tuple[int, bool]]: ...

def policies(substrate: str = "simulation") -> list[tuple[str, str, list[tuple[str, str, str, str]]]]:
    """
    (name, what it is, [(setting, unit, default, help)]) of every policy that a 'simulation', 'host' or 'device' has.
    """

def peer_policies() -> list[str]:
    """
    The names of those that are only compared with, which no default list has.
    """

def default_policies(mallocs: bool) -> list[str]:
    """
    The names of the policies that a trace of a host's mallocs, or else of tensors, is tried with when nobody names one; ours first.
    """

def check_policy(policy: str, substrate: str = 'simulation') -> None:
    """Raises Error when there is no such policy or setting there."""

def torch_settings(policy: str) -> str:
    """
    The text for PYTORCH_CUDA_ALLOC_CONF of a policy of PyTorch; '' for its defaults and for others.
    """

def simulate(workload: Workload, policy: str, cap: int | None = None, stop_at_oom: bool = True, samples: int = 1000, timed: bool = True, phases: bool = False, recorded: str = '') -> Simulation:
    """
    `recorded`: the policy that made the recording; PyTorch's then start from the state that it had.
    """

def find_cap(workload: Workload, policy: str, resolution: int = 0, recorded: str = '') -> CapSearch: ...

def recorded_policy(workload: Workload) -> str:
    """
    What made the recording: 'pytorch', or 'expandable'. Raises Error when the trace does not tell.
    """

def check_recorded_start(workload: Workload, recorded: str) -> None:
    """
    Raises Error, naming the event, when no allocator can have been in the recorded state.
    """

class LifetimeProfile:
    """
    What a .lifetimes file holds, as arrays of records. memoir.Lifetimes gives them names and types.
    """

    @staticmethod
    def from_bytes(bytes: bytes, name: str = '<memory>') -> LifetimeProfile:
        """Checks the bytes of a file. Raises Error when they are none."""

    @staticmethod
    def from_image(path: str, offset: int, program: str, now: int = 0) -> LifetimeProfile:
        """
        From what a sampled program keeps in `path` from byte `offset` on. `now`: CLOCK_MONOTONIC in nanoseconds at the end of the run; 0: at the last sample.
        """

    @staticmethod
    def merge(profiles: list[LifetimeProfile], names: list[str]) -> LifetimeProfile:
        """
        All of them as one, whatever their order. `names` are for the message of the Error that a run which is in two of them raises.
        """

    def with_names(self, names: dict[int, str]) -> LifetimeProfile:
        """
        A copy in which frames have names: by number; inlined functions first, one a line.
        """

    def records(self, section: str) -> NDArray[numpy.uint8]:
        """
        The records of a section, as bytes. A view; it keeps the profile alive.
        """

    def word(self, begin: int, size: int) -> str:
        """A path, name or program, by what a record says of it."""

    def to_bytes(self) -> bytes:
        """The bytes of a file."""

    def export(self, format: str) -> bytes:
        """For 'pprof' (its protobuf, not compressed) or flame graphs ('folded')."""

def lifetime_buckets() -> NDArray[numpy.uint64]:
    """
    Where each bucket of a lifetime profile's histograms begins, in ms or bytes.
    """

def sample_weight(size: int, every: int) -> float:
    """
    How many objects a sample of `size` bytes stands for, one in `every` bytes sampled.
    """

def plain_name(name: str) -> str:
    """
    What a function is called without parameters, template arguments and what else differs between builds. `name`: mangled or readable.
    """

def is_allocation_name(plain: str) -> bool:
    """
    Whether programs ask for memory by the function of that plain name: stacks begin behind it.
    """

def stack_plain(names: list[str]) -> list[str]:
    """
    Plain names of a stack's functions, innermost first, without those that ask for memory and without frames that have no name.
    """

def name_parts(plain: str) -> list[str]:
    """The identifiers that a plain name consists of."""

def name_words(plain: str) -> list[str]:
    """The words that its identifiers consist of, in small letters."""

def size_name(size: int) -> str:
    """
    What models call objects of about that size, as if it were a function outside of the stack.
    """

def program_name(path: str) -> str:
    """What a program is called, of whatever version."""

def name_hash(text: str, key: int = 0) -> int:
    """Of a plain name, in models."""

def token_hash(text: str, key: int = 0) -> int:
    """Of a word or a part of a name, in models."""

def stack_features(stacks: list[list[str]], sizes: list[int], rows: int, key: int = 0) -> tuple[NDArray[numpy.uint32], NDArray[numpy.uint64]]:
    """
    For each stack (names, innermost first) the rows of a linear model that it has: all of them, and where those of each stack begin. `sizes`: of the objects, 0: not known.
    """

def fit_words(rows: NDArray[numpy.uint32], begins: NDArray[numpy.uint64], targets: NDArray[numpy.float32], weights: NDArray[numpy.float32], count: int, l2: float, most_steps: int) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]:
    """
    Weights (count, 9) and biases (9) of a linear model that fits the examples best. `rows`, `begins`: as stack_features() gives them; `targets`: (n, 9), parts of the eight classes, then of long; `weights`: (n, 2), of either; `l2`: what squares of weights cost.
    """

def network_tokens(stacks: list[list[str]], hashes: NDArray[numpy.uint32], split: int, most_tokens: int, key: int = 0) -> tuple[NDArray[numpy.int32], NDArray[numpy.uint64]]:
    """
    For each stack the tokens that a sequence model reads: all of them, and where those of each begin. `hashes`: of the known ones, ascending; `split`: 0 parts, 1 words.
    """

def write_model(sections: dict[str, bytes], key: int = 0) -> bytes:
    """
    The bytes of a .model file with these sections, by name. Raises Error for what no reader takes.
    """

class LifetimeModel:
    """
    How long objects of a context will live, learned from profiles: what a .model file holds.
    """

    @staticmethod
    def from_bytes(bytes: bytes, name: str = '<memory>') -> LifetimeModel:
        """Checks the bytes of a file. Raises Error when they are none."""

    def predict(self, names: list[str], size: int = 0, frames: list[tuple[str, int]] = [], height: int = 0, stages: int = 31, calibrated: bool = True, program: str = "") -> dict[str, Any] | None:
        """
        Of a stack, innermost first: names of functions ('' unknown), and for each frame (build id, offset) where that is known. `program`: the path of the executable; '' unknown. None: the model abstains.
        """

    def predict_many(self, stacks: list[list[str]], sizes: list[int], stages: int = 31, calibrated: bool = True, programs: list[str] = []) -> dict[str, NDArray[Any]]:
        """
        The same of many stacks of names, as arrays; stage -1: it abstains. seconds: of the processor, for the answers without what Python adds.
        """

    def network_tokens(self, names: list[str]) -> list[int]:
        """What its sequence model reads of a stack; [] without one."""

    def network_outputs(self, names: list[str]) -> list[float]:
        """
        What its sequence model answers, before softmax: eight classes, then long; [] without one.
        """

    def records(self, section: str) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """The bytes of a section. A view; it keeps the model alive."""

    def count(self, section: str) -> int:
        """How many records a section has."""

    @property
    def key(self) -> int:
        """Of the hashes; 0: not private."""

def placements(workload: Workload, policy: str, cap: int | None = None, recorded: str = "") -> dict[str, NDArray[numpy.uint64]]:
    """
    Where a policy puts every object, up to the first that finds no memory. Columns by object: object, born and died (events; 2^64 - 1: never), size, site, stream, space (offsets of two spaces have nothing in common), offset (2^64 - 1: not placed), held (bytes, rounding included). By step: event, reserved (bytes after it). By range that the device handed out: segment_space, segment_offset, segment_size, segment_born, segment_died (2^64 - 1: held at the end). segments_are_mapped: one element, 1 where ranges that touch are one memory.
    """

class ImportReport:
    """What an import did, inferred, and left out."""

    @property
    def devices(self) -> int: ...

    @property
    def entries(self) -> int: ...

    @property
    def allocations(self) -> int: ...

    @property
    def frees(self) -> int: ...

    @property
    def segments(self) -> int: ...

    @property
    def out_of_memory(self) -> int: ...

    @property
    def passes(self) -> int: ...

    @property
    def live_before(self) -> int: ...

    @property
    def known_by_free(self) -> int: ...

    @property
    def pending(self) -> int: ...

    @property
    def lost_frees(self) -> int: ...

    @property
    def after_history(self) -> int: ...

    @property
    def odd_segments(self) -> int: ...

    @property
    def without_time(self) -> int: ...

    @property
    def times_back(self) -> int: ...

    @property
    def private_pools(self) -> int: ...

    @property
    def user_metadata(self) -> int: ...

    @property
    def compile_contexts(self) -> int: ...

    @property
    def unreadable(self) -> int: ...

    @property
    def other_actions(self) -> dict[str, int]: ...

    @property
    def other_annotations(self) -> dict[str, int]: ...

def import_snapshot(snapshot: str, trace: str, passes: str = 'ProfilerStep#') -> ImportReport:
    """
    Reads a PyTorch memory snapshot and writes its story into the new file `trace`. After an Error that file is of no use.
    """

def import_snapshot_bytes(snapshot: bytes, name: str = '<memory>', passes: str = 'ProfilerStep#') -> bytes:
    """The same over bytes: the bytes of the trace."""

def is_rmm_log(begin: bytes) -> bool:
    """Whether a file that begins so is a log of RAPIDS Memory Manager."""

def import_rmm_log(log: bytes, name: str = "<memory>") -> tuple[bytes, dict[str, int]]:
    """
    (bytes of a trace, what was counted) of the bytes of a log of RAPIDS Memory Manager.
    """

def is_text_trace(begin: bytes) -> bool:
    """Whether a file that begins so is a text trace."""

def import_text_trace(text: bytes, name: str = "<memory>", device: int = 0) -> tuple[bytes, dict[str, int]]:
    """
    (bytes of a trace, what was counted) of the bytes of a text trace; all of it is on `device`.
    """

class ExportReport:
    """What an export wrote, and left out."""

    @property
    def events(self) -> int: ...

    @property
    def placed(self) -> int: ...

    @property
    def left_out(self) -> int: ...

def export_trace(trace: Trace, format: str, path: str) -> ExportReport:
    """
    Writes the new file `path`: snapshot (PyTorch's), chrome (Trace Event Format) or perfetto.
    """

def export_trace_bytes(trace: Trace, format: str) -> bytes:
    """The same, as bytes."""
