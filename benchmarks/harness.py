"""Measuring: pairs of operations in turn, one figure a round, and what a figure must reach.

The absolute times of a machine move by a quarter from one minute to the next. So an operation is never timed alone:
it and the plain operation take turns (A B A B ...), and a round's figure is the typical A over the typical B: the mean of
the middle half of each, because a machine that others use stops either of them now and then. What is reported is the
median of the rounds, with the lowest and the highest.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.databases import Databases, Kind

Clock = Callable[[], float]
Figure = Callable[[float, float], float]
"""Seconds of A and of B, for one pair, to a round's figure."""

KINDS: tuple[Kind, ...] = ("postgresql", "sqlite")


def typical(times: Sequence[float]) -> float:
    """The mean of the middle half."""
    edge = len(times) // 4
    return statistics.fmean(sorted(times)[edge : len(times) - edge])


def ratio(a: float, b: float) -> float:
    """How many times B's time A takes."""
    return a / b


def milliseconds_added(a: float, b: float) -> float:
    """What A takes more than B."""
    return (a - b) * 1000


@dataclass(frozen=True, slots=True)
class Key:
    """One figure of the report. `bound` is what it must reach; None where it is only reported."""

    name: str
    what: str
    bound: float | None = None
    better: Literal["lower", "higher"] = "lower"
    unit: str = "×"

    @property
    def wanted(self) -> str:
        """What must be reached, as the table says it."""
        if self.bound is None:
            return "reported"
        return f"{'≤' if self.better == 'lower' else '≥'} {self.bound:g}{self.unit}"


@dataclass(frozen=True)
class Outcome:
    """The figures of the rounds. `extra` stands beside them in the results; `sound` is false where the measured
    operation did something that it must not do at all, whatever its figure."""

    figures: Sequence[float]
    extra: Mapping[str, Any] = field(default_factory=dict)
    sound: bool = True

    @property
    def median(self) -> float:
        return statistics.median(self.figures)

    def reaches(self, key: Key) -> bool:
        """Whether the median is what `key` wants."""
        if key.bound is None:
            return self.sound
        good = self.median <= key.bound if key.better == "lower" else self.median >= key.bound
        return good and self.sound

    def as_json(self) -> dict[str, Any]:
        """The outcome as `results.json` holds it."""
        found = {"median": self.median, "min": min(self.figures), "max": max(self.figures)}
        return {**{name: round(value, 4) for name, value in found.items()}, **self.extra}


Outcomes = dict[str, Outcome]


@dataclass(frozen=True)
class Benchmark:
    """Something that is measured, and the keys of its figures."""

    keys: tuple[Key, ...]
    run: Callable[[Bench], Outcomes]


@dataclass
class Bench:
    """What a benchmark is given: databases, how much to do, which keys are wanted, and where to say how far it is."""

    databases: Databases
    wanted: Collection[str]
    quick: bool = False
    rounds_given: int | None = None
    progress: Callable[[str], None] = lambda text: None

    def size(self, full: int, quick: int) -> int:
        """`full`, or `quick` where the run only shows that everything works."""
        return quick if self.quick else full

    def rounds(self, usual: int) -> int:
        """The number of rounds: what the caller gave, or `usual`."""
        return self.rounds_given or (1 if self.quick else usual)

    def compare(
        self,
        a: Callable[[], Any],
        b: Callable[[], Any],
        *,
        pairs: int,
        rounds: int = 9,
        between: Callable[[], Any] | None = None,
    ) -> Outcome:
        """The ratio of two operations. `between` runs before each round and is not timed."""
        figures = []
        for number in range(self.rounds(rounds) + 1):
            self._before_round(number, rounds, between)
            times_a, times_b = [], []
            for _ in range(pairs):
                began = time.perf_counter()
                a()
                middle = time.perf_counter()
                b()
                times_b.append(time.perf_counter() - middle)
                times_a.append(middle - began)
            figures.append(ratio(typical(times_a), typical(times_b)))
        return Outcome(figures[1:])  # the first round filled caches and made plans

    async def acompare(
        self,
        a: Callable[[], Awaitable[Any]],
        b: Callable[[], Awaitable[Any]],
        *,
        pairs: int,
        rounds: int = 9,
        clock: Clock = time.perf_counter,
        figure: Figure = ratio,
    ) -> Outcome:
        """`compare` for operations that are awaited; by another clock or figure where that is what counts."""
        figures = []
        for number in range(self.rounds(rounds) + 1):
            self._before_round(number, rounds, None)
            times_a, times_b = [], []
            for _ in range(pairs):
                began = clock()
                await a()
                middle = clock()
                await b()
                times_b.append(clock() - middle)
                times_a.append(middle - began)
            figures.append(figure(typical(times_a), typical(times_b)))
        return Outcome(figures[1:])

    def on_both(self, name: str, run: Callable[[Kind], Outcome]) -> Outcomes:
        """The outcome on each database as `name_kind`, and the worse of the two as `name`."""
        found: Outcomes = {}
        for kind in KINDS:
            if {name, f"{name}_{kind}"} & set(self.wanted):
                self.progress(kind)
                found[f"{name}_{kind}"] = run(kind)
        if name in self.wanted:
            found[name] = worse(found.values())
        return found

    def _before_round(self, number: int, rounds: int, between: Callable[[], Any] | None) -> None:
        self.progress(f"round {number} of {self.rounds(rounds)}" if number else "warming up")
        if between is not None:
            between()
        gc.collect()  # what earlier rounds left behind is nobody's cost in this one


def worse(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome with the highest median."""
    return max(outcomes, key=lambda outcome: outcome.median)
