# SPDX-License-Identifier: Apache-2.0
"""Problems of numpy arrays, for the core: behind memoir.plan(); docs/reference/constraints.md has examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memoir import _core
from memoir._core import Error, Problem
from memoir.planning.constraints import Rules, common

NONE = 2**64 - 1  # in the core's arrays: no offset, no buffer

# Arrays of one element per buffer that a problem may have in addition to lower, upper, size and alignment.
PER_BUFFER = ("size_low", "fixed", "hint", "alias", "after", "weight", "arenas", "loop")
# Arrays of rows: pairs of buffers, and gaps as (buffer, lower, upper) or (buffer, lower, upper, begin, end).
ROWS = ("gaps", "in_place", "apart", "price")
_FIELDS = ("lower", "upper", "size", "alignment")
_MORE = (*PER_BUFFER, *ROWS)


def as_problem(problem: Problem | np.ndarray | Mapping[str, Any] | Sequence[Any]) -> Problem:
    """From lower, upper, size and perhaps alignment: a structured array, a mapping, or these in order."""
    problem, more, timed = split_problem(problem)
    if more or not timed:
        raise Error("a plain problem has the fields lower, upper, size and perhaps alignment")
    return problem


def split_problem(
    problem: Problem | np.ndarray | Mapping[str, Any] | Sequence[Any],
) -> tuple[Problem, dict[str, Any], bool]:
    """The plain problem, the fields that constrain it, and whether it has times."""
    if isinstance(problem, Problem):
        return problem, {}, True
    if isinstance(problem, np.ndarray) and problem.dtype.names is not None:
        problem = {name: problem[name] for name in problem.dtype.names}
    if isinstance(problem, Mapping):
        timed = "lower" in problem or "upper" in problem
        unknown = set(problem) - {*_FIELDS, *_MORE}
        missing = ({"lower", "upper", "size"} if timed else {"size"}) - set(problem)
        if unknown or missing:
            what = f"unknown {sorted(unknown)}" if unknown else f"missing {sorted(missing)}"
            raise Error(
                f"a problem has the fields lower, upper, size and perhaps alignment, {', '.join(_MORE)}: {what}"
            )
        columns = {name: np.asarray(problem[name]) for name in problem if name in _FIELDS}
        more = {name: problem[name] for name in problem if name in _MORE}
    elif (
        isinstance(problem, (Sequence, np.ndarray))
        and not isinstance(problem, str)
        and 3 <= len(problem) <= 4
    ):
        columns, more, timed = dict(zip(_FIELDS, map(np.asarray, problem), strict=False)), {}, True
    else:
        raise Error(
            "a problem is lower, upper, size and perhaps alignment: arrays in that order, a mapping or a structured "
            f"array, not {'nothing' if problem is None else _described(problem)}"
        )
    if not timed:  # everything lives in [0, 1): what conflicts is said otherwise
        count = len(columns["size"])
        columns |= {"lower": np.zeros(count, np.uint64), "upper": np.ones(count, np.uint64)}
    columns.setdefault("alignment", np.ones(len(columns["lower"]), np.uint64))
    return Problem(**{name: unsigned(name, columns[name]) for name in _FIELDS}), more, timed


def _described(problem: Any) -> str:
    kind = type(problem).__name__
    return f"{kind} of {len(problem)}" if hasattr(problem, "__len__") else kind


def unsigned(name: str, values: Any, none: bool = False) -> np.ndarray:
    """As the core takes it. With `none`, negative values mean that there is none."""
    values = np.asarray(values)
    if values.ndim != 1:
        raise Error(f"{name} must be a one-dimensional array, not {values.ndim}-dimensional")
    if len(values) and values.dtype.kind not in "iu":
        raise Error(f"{name} must be an array of integers, not {values.dtype}")
    if values.dtype.kind == "i" and len(values) and values.min() < 0:
        if not none:
            raise Error(
                f"buffer {int(values.argmin())} has the {name} {values.min()}: it must not be negative"
            )
        return np.where(values < 0, np.uint64(NONE), values.astype(np.uint64))
    return np.ascontiguousarray(values, np.uint64)


def rows(name: str, values: Any, widths: Sequence[int]) -> list[np.ndarray]:
    """The columns of an array of rows."""
    values = np.asarray(values)
    if values.size == 0:
        return [np.zeros(0, np.uint64)] * widths[-1]
    if values.ndim != 2 or values.shape[1] not in widths:
        wanted = " or ".join(str(width) for width in widths)
        raise Error(f"{name} must be rows of {wanted} integers, not of the shape {values.shape}")
    columns = [unsigned(name, column) for column in values.T]
    return columns + [np.zeros(len(values), np.uint64)] * (widths[-1] - len(columns))


def constrain(
    problem: Problem, said: Mapping[str, Any], rules: Rules, *, timed: bool
) -> _core.ConstrainedProblem:
    """The problem with `said`, the arrays of PER_BUFFER and ROWS, and what is not per buffer."""
    arenas = rules.arenas
    out = _core.ConstrainedProblem(problem, [arena.as_tuple() for arena in arenas])
    if "gaps" in said:
        out.set_gaps(*rows("gaps", said["gaps"], (3, 5)))
    if "price" in said:
        out.set_prices(*rows("price", said["price"], (3,)))
    for name in ("in_place", "apart"):
        if name in said:
            getattr(out, f"set_{name}")(*rows(name, said[name], (2,)))
    for name, setter in (
        ("fixed", out.set_fixed),
        ("hint", out.set_hints),
        ("alias", out.set_alias),
        ("after", out.set_after),
        ("loop", out.set_loops),
    ):
        if name in said:
            setter(unsigned(name, said[name], none=True))
    for name, setter in (("size_low", out.set_low_sizes), ("weight", out.set_weights)):
        if name in said:
            setter(unsigned(name, said[name]))
    if "arenas" in said:
        allowed = np.asarray(said["arenas"])
        if allowed.dtype != bool or allowed.shape != (len(problem), len(arenas)):
            raise Error(
                f"arenas must be booleans of the shape ({len(problem)}, {len(arenas)}): buffer, arena"
            )
        out.set_allowed(allowed @ (np.uint64(1) << np.arange(len(arenas), dtype=np.uint64)))
    if not timed and rules.conflicts is None:
        raise Error("without lower and upper, say which buffers conflict: conflicts=[(0, 1), ...]")
    out.set_timed(timed)
    if rules.conflicts is not None:
        out.set_conflicts(*rows("conflicts", rules.conflicts, (2,)))
    if rules.replan is not None:
        set_old(out, rules.replan)
    common(out, forbid=rules.forbid, banks=rules.banks, moves=rules.moves, locality=rules.locality)
    return out


def set_old(out: _core.ConstrainedProblem, replan: Any) -> None:
    """An earlier plan: offsets, or (offsets, indices of arenas); negative: the buffer is new."""
    if hasattr(replan, "offsets"):  # a PlanResult, or a plan of the core
        replan = (replan.offsets, getattr(replan, "arenas", None))
    offsets, arenas = replan if isinstance(replan, tuple) else (replan, None)
    offsets = unsigned("the earlier plan's offsets", offsets, none=True)
    if len(offsets) != len(out):
        raise Error(f"the earlier plan has {len(offsets)} offsets for {len(out)} buffers; -1 means new")
    arenas = np.zeros(len(offsets), np.uint64) if arenas is None else unsigned("its arenas", arenas)
    out.set_old(offsets, arenas)
