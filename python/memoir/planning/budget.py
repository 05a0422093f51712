# SPDX-License-Identifier: Apache-2.0
"""What to recompute or to offload so that a problem fits: `memoir plan --capacity`, memoir.fit_budget().

    bytes                       option    buffer a is idle in [2, 6): its 4 bytes can be freed for a cost
     budget 6 |  ....            choose   options whose bytes, at every tick that is too full, add up to what is
              | |    | a                  too much there, at the least cost
              +-+----+--> tick

Which options: a covering problem. It is searched through by branch and bound: greedy first (the most bytes that are
needed for the cost, then those that turn out not to be needed taken back), with the larger of two floors: the lowest
fractional cost of one tick, and the sum of such over ticks that share no option. Where that does not end in time, the
best so far is taken, and the floor says how far it is from the lowest cost. Then the plan is made with gaps. Where it does
not fit (offsets do not reach the load) and that is proven, no part of the choice is enough: the next one must have an option
that it has not, which is a row of the covering problem too. So all choices are gone through in the order of their costs,
as far as the time allows. Where it is not proven, the choice is made for a smaller budget at times.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memoir import _core
from memoir._core import Error, Problem
from memoir.planning.constrained import plan_constrained
from memoir.planning.planners.planner import Effort
from memoir.planning.result import PlanResult
from memoir.planning.sections import Sections

_NODES = 20_000  # of branch and bound
_DEPTH = 400  # of its tree
_OVER = 0.3  # of the deadline, for the choice; the rest plans
_ROUNDS = 12  # smaller budgets that are tried
_REFUTED = 0.02  # of the deadline: what one choice may take to be proven too little, while others are left


@dataclass(frozen=True)
class Option:
    """A buffer that can do without its bytes in [lower, upper), and what it costs to have them back."""

    buffer: int
    lower: int
    upper: int
    how: str  # "recompute" or "offload"
    cost: float


@dataclass(frozen=True)
class Choice:
    options: tuple[Option, ...]
    cost: float
    lower_bound: float  # no choice that frees enough costs less


@dataclass(frozen=True)
class BudgetResult:
    """What is recomputed and offloaded, and the plan with these gaps. Sizes in bytes, costs as given."""

    budget: int
    fits: bool
    chosen: tuple[Option, ...]
    cost: float
    lower_bound_cost: float  # no choice of options fits at less
    optimal: bool  # it fits, at that cost
    proven_infeasible: bool  # not even all options together free enough
    result: PlanResult

    def summary(self, ids: Sequence[str] | None = None) -> dict[str, Any]:
        """All but the offsets, as `memoir plan --capacity --json` prints it."""
        rows = [
            {
                "buffer": option.buffer if ids is None else ids[option.buffer],
                "how": option.how,
                "lower": option.lower,
                "upper": option.upper,
                "cost": option.cost,
            }
            for option in self.chosen
        ]
        names = ("budget", "fits", "cost", "lower_bound_cost", "optimal", "proven_infeasible")
        return {
            **{name: getattr(self, name) for name in names},
            "recomputed_or_offloaded": rows,
            "load": self.result.load,
            "arena_size": self.result.arena_size,
        }


def options_of(
    problem: Problem,
    idle: Sequence[tuple[int, int, int]],
    recompute: Sequence[int | float | None] = (),
    bandwidth: float | None = None,
) -> list[Option]:
    """`idle` rows are (buffer, lower, upper); `recompute` is per buffer the cost of having it again, None: it cannot be
    recomputed; `bandwidth` is in bytes per tick, of the way out and back. To offload costs the ticks of both ways, and
    the bytes are free only between them."""
    if recompute and len(recompute) != len(problem):
        raise Error(
            f"recompute has {len(recompute)} elements for {len(problem)} buffers; it must have as many"
        )
    if bandwidth is not None and not bandwidth > 0:
        raise Error(f"the bandwidth must be more than 0 bytes per tick, not {bandwidth}")
    options = []
    lowers, uppers, sizes = problem.lower, problem.upper, problem.size
    for buffer, lower, upper in idle:
        if not 0 <= buffer < len(problem):
            raise Error(f"idle names buffer {buffer}, and there are {len(problem)}")
        if not lowers[buffer] <= lower < upper <= uppers[buffer]:
            raise Error(
                f"buffer {buffer} is idle in [{lower}, {upper}), which is empty or leaves its lifetime"
            )
        cost = recompute[buffer] if recompute else None
        if cost is not None:
            if not (cost >= 0 and math.isfinite(cost)):
                raise Error(f"buffer {buffer} costs {cost} to recompute: it must be 0 or more")
            options.append(Option(int(buffer), int(lower), int(upper), "recompute", float(cost)))
        if bandwidth is not None:
            way = math.ceil(int(sizes[buffer]) / bandwidth)
            if lower + way < upper - way:
                options.append(
                    Option(
                        int(buffer),
                        int(lower) + way,
                        int(upper) - way,
                        "offload",
                        2 * int(sizes[buffer]) / bandwidth,
                    )
                )
    return options


def fit_budget(
    problem: Any,
    budget: int,
    *,
    idle: Sequence[tuple[int, int, int]],
    recompute: Sequence[int | float | None] = (),
    bandwidth: float | None = None,
    deadline: float = 2.0,
) -> BudgetResult:
    """Chooses what to recompute or offload so that the buffers fit into `budget` bytes, at little cost.

    `problem` is lower, upper, size and perhaps alignment, as memoir.plan() takes them. `idle`: rows (buffer, lower,
    upper) of ticks in which a buffer is not touched. `recompute`: per buffer the cost of computing it again, None
    where that is not possible; `bandwidth`: bytes per tick to other memory and back, in ticks of cost. Each idle
    stretch is chosen as a whole or not at all. `deadline` in seconds. Raises Error for anything that is not a
    problem.
    """
    from memoir.planning.arrays import as_problem

    if budget < 0:
        raise Error(f"the budget must be 0 bytes or more, not {budget}")
    plain = as_problem(problem)
    return fit_options(plain, budget, options_of(plain, idle, recompute, bandwidth), deadline)


def fit_options(
    problem: Problem, budget: int, options: Sequence[Option], deadline: float = 2.0
) -> BudgetResult:
    """fit_budget() of options."""
    return _Fit(problem, budget, options, deadline).run()


class _Fit:
    """Choices and their plans in turn."""

    def __init__(self, problem: Problem, budget: int, options: Sequence[Option], deadline: float):
        self._problem, self._budget, self._options, self._deadline = problem, budget, options, deadline
        self._until = time.monotonic() + deadline
        self._refuted: list[tuple[Option, ...]] = []  # what was planned and does not fit
        self._is_proven = True  # of all of these
        self._floor = 0.0  # no choice that fits costs less
        self._best: tuple[Choice, PlanResult] | None = None

    def run(self) -> BudgetResult:
        choice = self._choose(self._budget, _OVER)
        if choice is None:
            return self._impossible()
        if not self._try(choice, 0.5):
            everything = _without_overlap(self._options)
            all_of_them = Choice(tuple(everything), sum(one.cost for one in everything), 0.0)
            if set(choice.options) != set(everything):
                self._try(all_of_them, 0.2)
            fits = self._best is not None and self._best[1].fits
            if not fits and self._is_proven and len(everything) == len(self._options):
                return self._impossible()
            if not self._go_on() and self._is_proven:
                return self._impossible()
        assert self._best is not None
        choice, result = self._best
        fits = result.fits is True
        return BudgetResult(
            self._budget,
            fits,
            choice.options,
            choice.cost,
            min(self._floor, choice.cost) if fits else self._floor,
            fits and choice.cost <= self._floor * (1 + 1e-12),
            False,
            result,
        )

    def _impossible(self) -> BudgetResult:
        result = self._best[1] if self._best else self._plan(_without_overlap(self._options), self._deadline)
        return BudgetResult(self._budget, False, (), 0.0, 0.0, False, True, result)

    def _left(self) -> float:
        return max(self._until - time.monotonic(), 0.0)

    def _choose(self, budget: int, share: float) -> Choice | None:
        """The next in the order of costs. What it proves of the cost holds as long as all before it are proven too little."""
        until = time.monotonic() + min(self._deadline * share, self._left() or math.inf)
        choice = choose(self._problem, budget, self._options, until, self._refuted)
        if budget == self._budget and self._is_proven and choice is not None:
            self._floor = max(self._floor, choice.lower_bound)
        return choice

    def _plan(self, options: Sequence[Option], seconds: float) -> PlanResult:
        return _plan(self._problem, options, self._budget, seconds)

    def _try(self, choice: Choice, share: float) -> bool:
        """Plans it. False: it does not fit, and no part of it is chosen again."""
        result = self._plan(choice.options, max(self._deadline * share, 0.01))
        if self._is_better(choice, result):
            self._best = choice, result
        if result.fits:
            return True
        self._refuted.append(choice.options)
        self._is_proven &= result.proven_infeasible
        return False

    def _is_better(self, choice: Choice, result: PlanResult) -> bool:
        if self._best is None:
            return True
        old, before = self._best
        if result.fits and before.fits:
            return choice.cost < old.cost
        return bool(result.fits) or (not before.fits and result.arena_size < before.arena_size)

    def _go_on(self) -> bool:
        """In the order of costs; for smaller budgets now and then, since what is far from the load needs more freed.
        False: there is no other choice, and none fits."""
        target, rounds = self._budget, 0
        found = self._best is not None and self._best[1].fits is True
        while self._left() > 0:
            next_one = self._choose(self._budget, _OVER)
            if next_one is None:
                return found
            if set(next_one.options) in map(set, self._refuted):  # nothing else was found in time
                return True
            if found and self._best is not None and next_one.cost >= self._best[0].cost:
                return True
            if self._try(next_one, _REFUTED if self._left() < self._deadline / 2 else 5 * _REFUTED):
                return True
            if found or rounds == _ROUNDS or self._is_proven or self._best is None:
                continue
            # The load fits and the offsets do not: free as much more as they are over.
            rounds += 1
            target -= max(self._best[1].arena_size - self._budget, 1)
            freed = self._choose(target, _OVER / _ROUNDS) if target >= 0 else None
            if freed is None:
                rounds = _ROUNDS
            elif self._try(freed, 0.1):
                found = True
        return True


def _plan(problem: Problem, options: Sequence[Option], capacity: int, seconds: float) -> PlanResult:
    constrained = _core.ConstrainedProblem(problem)
    buffers = np.array([one.buffer for one in options], np.uint64)
    lowers = np.array([one.lower for one in options], np.uint64)
    uppers = np.array([one.upper for one in options], np.uint64)
    nothing = np.zeros(len(options), np.uint64)
    constrained.set_gaps(buffers, lowers, uppers, nothing, nothing)
    return plan_constrained(constrained, "auto", Effort(deadline=seconds, capacity=capacity))


def _without_overlap(options: Sequence[Option]) -> list[Option]:
    """All that can be chosen at once: of options of one buffer that overlap, the longest."""
    kept: dict[int, list[Option]] = {}
    for option in sorted(options, key=lambda one: one.lower - one.upper):
        others = kept.setdefault(option.buffer, [])
        if all(option.upper <= other.lower or other.upper <= option.lower for other in others):
            others.append(option)
    return [option for others in kept.values() for option in others]


# --- the choice ---


def choose(
    problem: Problem,
    budget: int,
    options: Sequence[Option],
    until: float = math.inf,
    refuted: Sequence[Sequence[Option]] = (),
) -> Choice | None:
    """The cheapest options found after which at most `budget` bytes live at any tick. None when all do not free enough;
    where that is not known in time, all that can be chosen. Options of one buffer that overlap are not chosen together.
    `refuted`: choices that are not enough; nor is a part of one."""
    sections = Sections.of(problem, [tick for option in options for tick in (option.lower, option.upper)])
    over = sections.over(budget)
    if len(over) == 0 and not refuted:
        return Choice((), 0.0, 0.0)
    return _Cover(problem, sections, over, budget, options, refuted).run(until)


class _Cover:
    """Rows are the sections that are too full, and the choices that are not enough; columns the options."""

    def __init__(
        self,
        problem: Problem,
        sections: Sections,
        over: np.ndarray,
        budget: int,
        options: Sequence[Option],
        refuted: Sequence[Sequence[Option]],
    ):
        row_of = np.full(len(sections.loads) + 1, len(over), np.int64)
        row_of[: len(sections.loads)] = np.searchsorted(over, np.arange(len(sections.loads)))
        self._excess = sections.loads[over] - budget
        sizes = problem.size
        self._options: list[Option] = []
        spans: list[tuple[int, int]] = []
        for option in options:
            first, last = sections.within(option.lower, option.upper)
            begin, end = int(row_of[first]), int(row_of[last])
            if (begin < end or refuted) and sizes[option.buffer] > 0:
                self._options.append(option)
                spans.append((begin, end))
        self._begin = np.array([span[0] for span in spans], np.int64)
        self._end = np.array([span[1] for span in spans], np.int64)
        self._bytes = np.array([int(sizes[one.buffer]) for one in self._options], np.int64)
        self._cost = np.array([one.cost for one in self._options])
        # Of each choice that is not enough, who is not in it.
        self._others = [
            np.array([one not in said for one in self._options], bool) for said in map(set, refuted)
        ]
        # Options of one buffer that overlap exclude each other.
        self._rivals: list[list[int]] = [[] for _ in self._options]
        of_buffer: dict[int, list[int]] = {}
        for k, option in enumerate(self._options):
            for other in of_buffer.setdefault(option.buffer, []):
                that = self._options[other]
                if option.lower < that.upper and that.lower < option.upper:
                    self._rivals[k].append(other)
                    self._rivals[other].append(k)
            of_buffer[option.buffer].append(k)

    def run(self, until: float) -> Choice | None:
        usable = np.ones(len(self._options), bool)
        best = self._greedy(self._excess.copy(), usable.copy())
        if best is None and not self._possible(self._excess, usable):
            return None
        self._best = best
        self._best_cost = math.inf if best is None else float(self._cost[best].sum())
        self._nodes = 0
        self._until = until
        root = self._floor(self._excess, usable)
        ended = self._search(self._excess.copy(), usable, [], 0.0, 0)
        if self._best is None and ended:
            return None
        if self._best is None:  # perhaps none is enough
            most = _without_overlap(self._options)
            return Choice(tuple(most), sum(one.cost for one in most), root)
        floor = self._best_cost if ended else min(root, self._best_cost)
        chosen = tuple(self._options[k] for k in sorted(self._best))
        return Choice(chosen, self._best_cost, floor)

    def _possible(self, excess: np.ndarray, usable: np.ndarray) -> bool:
        """All usable options together free enough, rivals counted once or more: a floor of what is possible."""
        freed = np.zeros(len(excess) + 1, np.int64)
        np.add.at(freed, self._begin[usable], self._bytes[usable])
        np.add.at(freed, self._end[usable], -self._bytes[usable])
        return bool(np.all(np.cumsum(freed)[:-1] >= excess))

    def _gain(self, k: int, left: np.ndarray) -> float:
        """Bytes times sections that are still too much and that it frees."""
        part = left[self._begin[k] : self._end[k]]
        return float(np.minimum(part, self._bytes[k])[part > 0].sum())

    def _greedy(self, left: np.ndarray, usable: np.ndarray) -> list[int] | None:
        def entry(k: int) -> tuple[float, int] | None:
            gain = self._gain(k, left)
            return (self._cost[k] / gain, k) if gain > 0 else None

        heap = [one for k in np.flatnonzero(usable).tolist() if (one := entry(k)) is not None]
        heapq.heapify(heap)
        chosen: list[int] = []
        while heap and np.any(left > 0):
            old, k = heapq.heappop(heap)
            if not usable[k] or (now := entry(k)) is None:
                continue
            if now[0] > old and heap and now > heap[0]:  # gains only fall: it is looked at again
                heapq.heappush(heap, now)
                continue
            chosen.append(k)
            left[self._begin[k] : self._end[k]] -= self._bytes[k]
            usable[self._rivals[k]] = False
        if np.any(left > 0) or any(not others[chosen].any() for others in self._others):
            return None
        for k in sorted(chosen, key=lambda k: -self._cost[k]):  # the dearest that is not needed after all
            span = slice(self._begin[k], self._end[k])
            fewer = [other for other in chosen if other != k]
            needed = any(not others[fewer].any() for others in self._others)
            if not needed and np.all(left[span] + self._bytes[k] <= 0):
                left[span] += self._bytes[k]
                chosen.remove(k)
        return chosen

    def _knapsack(self, row: int, excess: int, usable: np.ndarray) -> float:
        """The least cost, in fractions of options, of freeing that much in one section."""
        over = np.flatnonzero(usable & (self._begin <= row) & (row < self._end))
        rate = self._cost[over] / self._bytes[over]
        cost = 0.0
        for k in over[np.argsort(rate, kind="stable")]:
            taken = min(excess, int(self._bytes[k]))
            cost += float(self._cost[k]) * taken / int(self._bytes[k])
            excess -= taken
            if excess <= 0:
                return cost
        return math.inf

    def _floor(self, left: np.ndarray, usable: np.ndarray) -> float:
        """No choice of usable options that frees `left` costs less."""
        rows = np.flatnonzero(left > 0)
        if len(rows) == 0:
            return 0.0
        if len(rows) > 64:  # the fullest ones: a floor from some of the sections is one
            rows = rows[np.argsort(-left[rows], kind="stable")[:64]]
        costs = sorted(
            ((self._knapsack(int(row), int(left[row]), usable), int(row)) for row in rows), reverse=True
        )
        total, spent = 0.0, np.zeros(len(self._options), bool)
        for cost, row in costs:
            over = usable & (self._begin <= row) & (row < self._end)
            if not np.any(spent & over):
                total += cost
                spent |= over
        return max(total, costs[0][0])

    def _search(
        self, left: np.ndarray, usable: np.ndarray, chosen: list[int], cost: float, depth: int
    ) -> bool:
        """Depth first, with each of the options of the fullest section taken and then excluded. False: it was cut short."""
        open_choices = [others for others in self._others if not others[chosen].any()]
        if not np.any(left > 0) and not open_choices:
            if cost < self._best_cost:
                self._best, self._best_cost = list(chosen), cost
            return True
        self._nodes += 1
        if self._nodes > _NODES or time.monotonic() > self._until or depth > _DEPTH:
            return False
        floor = self._floor(left, usable)
        for others in open_choices:
            floor = max(floor, float(np.min(self._cost[others & usable], initial=math.inf)))
        if cost + floor >= self._best_cost * (1 - 1e-12):
            return True
        if np.any(left > 0):
            row = int(np.argmax(left))
            over = np.flatnonzero(usable & (self._begin <= row) & (row < self._end))
            rates = [self._cost[k] / max(self._gain(int(k), left), 1e-300) for k in over]
        else:
            over = np.flatnonzero(usable & open_choices[0])
            rates = self._cost[over].tolist()
        if len(over) == 0:
            return True
        k = int(over[int(np.argmin(rates))])
        taken = left.copy()
        taken[self._begin[k] : self._end[k]] -= self._bytes[k]
        fewer = usable.copy()
        fewer[k] = False
        fewer[self._rivals[k]] = False
        if not self._search(taken, fewer, [*chosen, k], cost + float(self._cost[k]), depth + 1):
            return False
        fewer = usable.copy()
        fewer[k] = False
        return self._search(left, fewer, chosen, cost, depth + 1)
