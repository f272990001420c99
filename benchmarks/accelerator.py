"""All that an hour at an accelerator should tell, in one command of under eight minutes, on
whatever the default device is.

python benchmarks/accelerator.py [--seconds 420] [--quick] [--out FILE]

It needs JAX, NumPy and this checkout on PYTHONPATH, and no network. It measures the copy bandwidth
of the device; one draw of each of many datasets, from a profile and from raw records; up to 10^9
draws; error bars; and ``dpjax.simulate``. The rivals are naive Gumbel-max and
``jax.random.laplace`` of as many numbers on the same device. A share of the copy bandwidth is the
bytes that must be read and written once, over the time, over the bandwidth. What no longer fits
into the time or into the memory is a row that says so, as is a case that raises: then the exit
status is 1. Bars are judged only on a device that is no CPU.
"""

import argparse
import contextlib
import itertools
import math
import os
import re
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import contestants
import dpjax
import harness
import tables
from dpjax.distributions.sampler import FEW
from harness import NO_RELATION, REFERENCE, Built, Case, Contestant, row

NAIVE, LAPLACE, COPY = "naive jitted Gumbel-max", "jax.random.laplace", "device copy"
RAW, NAIVE_RAW, SORT = "dpjax, raw records", "sort and naive Gumbel-max", "jnp.sort alone"
MANY_DRAWS, SIMULATE = "dpjax, many draws", "dpjax.simulate"
MEAN_ABS_ERROR, INTERVAL = "mean_abs_error", "interval"
OWN_CHECK = (SORT, SIMULATE, MEAN_ABS_ERROR, INTERVAL)  # or none to make: nothing is drawn
LEFT_OUT, UNCHECKED = "left out: time", "not timed: no check of it has passed"
SHARE_BAR, NAIVE_BAR = 0.5, 10
MANY = 2 * FEW  # draws a row, more than what is made without a table
# Scores in one call of naive Gumbel-max for many draws, as many as an accelerator needs to be busy
NAIVE_SCORES = 2**22
BYTES_A_PIECE = 40  # data, profile and temporaries of the largest contestant, generously
CONTROL_FACTOR = 1.25
SMALL = 2048, 33  # the datasets whose draws are checked


@dataclass(frozen=True)
class Sizes:
    """The cases: datasets are rows x points, the first of ``single`` carries the bars."""

    single: tuple[tuple[int, int], ...]
    raw: tuple[tuple[int, int], ...]
    many: tuple[tuple[int, int], ...]  # rows, draws of each
    sums: tuple[int, ...]  # calls of one chunk
    chunk: int  # draws of each row in a chunk
    few_rows: int  # datasets from which many draws are made, in chunks, by simulate
    points: int
    bars: tuple[tuple[int, int], ...]
    epsilons: int
    simulated: int

    @staticmethod
    def of(quick: bool, on_cpu: bool) -> "Sizes":
        if quick:
            return Sizes(
                single=(SMALL,),
                raw=(SMALL,),
                many=((1, 2**18 + 1000),),
                sums=(1, 4),
                chunk=2000,
                few_rows=16,
                points=33,
                bars=(SMALL,),
                epsilons=3,
                simulated=2000,
            )
        return Sizes(
            single=((65_536, 1001), (4096, 1001), (1_000_000, 101)),
            raw=((4096, 1001), (65_536, 1001), (1_000_000, 101)),
            many=((100, 10_000), (1, 1_000_000), (1, 10_000)),
            sums=(1, 10, 100),
            chunk=100_000,
            few_rows=100,
            points=1001,
            bars=((4096, 1001), (65_536, 1001)),
            epsilons=8,
            simulated=10_000,
        )


@dataclass
class Timed:
    """A contestant that has run once."""

    built: Built
    units: int  # draws or rows of one call
    bytes: int  # of its arguments and its result, each once
    seconds: float  # of one call, waited for
    first: Any  # what the first key gave


@dataclass
class Task:
    """One case, which adds its rows to the session."""

    question: str
    relation: str
    shape: str
    run: Callable[[], None]
    bytes: float = 0  # of memory that it needs


@dataclass
class Session:
    """The clock, and what was found so far."""

    args: argparse.Namespace
    start: float = field(default_factory=time.perf_counter)
    rows: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    # Contestants and relations that were checked, and right.
    passed: set[tuple[str, str]] = field(default_factory=set)
    # Seconds for a unit of work, of questions and contestants.
    pace: dict[tuple[str, str], float] = field(default_factory=dict)
    # What was built to be checked.
    kept: dict[tuple[str, str, str], Timed] = field(default_factory=dict)
    bandwidth: float | None = None  # bytes in a second
    failed: bool = False

    def left(self) -> float:
        """The seconds that are left."""
        return self.args.seconds - (time.perf_counter() - self.start)

    def add(self, line: dict[str, Any]) -> None:
        """Keep a row, with its bar judged on accelerators only, and show it."""
        if on_cpu() or self.args.quick:
            line.pop("met", None)
        self.rows.append(line)
        cells = " | ".join(filter(None, tables.cells(line, judge=not on_cpu())))
        print(f"{self.args.seconds - self.left():6.1f} s  {cells}", file=sys.stderr, flush=True)

    def leave_out(
        self, question: str, contestant: str, relation: str, shape: str, status: str = LEFT_OUT
    ) -> None:
        self.add(row(question, contestant, relation, shape, status=status))

    @contextlib.contextmanager
    def guard(self, question: str, contestant: str, relation: str, shape: str) -> Iterator[None]:
        """Make an exception a row."""
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.failed = True
            self.leave_out(question, contestant, relation, shape, f"failed: {message(error)}")

    def fits(self, question: str, contestant: str, work: float) -> bool:
        """Whether a few calls fit into a third of the time that is left, by the pace of a smaller
        case.
        """
        return 5 * self.pace.get((question, contestant), 0.0) * work <= self.left() / 3

    def turns(self, seconds: float) -> int:
        """How many turns of so many seconds fit into a fifth of the time that is left."""
        most = self.args.repeats or (2 if self.args.quick else 3 if on_cpu() else 9)
        return max(2, min(most, int(self.left() / 5 / seconds) - 2))

    def judge_all(self, checks: list[dict[str, Any]]) -> bool:
        """Keep checks; return whether all but the controls have passed."""
        passed = [self.judge(check) or check["control"] for check in checks]
        return all(passed)

    def judge(self, check: dict[str, Any]) -> bool:
        """Keep a check; a control that it does not see ends the run."""
        if check["passed"] and check["control"]:
            raise Unseen(f"the check does not reject a wrong distribution: {check}")
        self.checks.append(check)
        return check["passed"]


class Unseen(BaseException):
    """A check that cannot see what is wrong: no row, since what it let pass is not trusted."""


def on_cpu() -> bool:
    return jax.devices()[0].platform == "cpu"


def message(error: Exception) -> str:
    """The type and the first line, without folders of this machine and what ends a cell."""
    line = next(iter(str(error).splitlines()), "")
    line = re.sub(r"(?<![\w./])/(?:[^/\s'\":]+/)+", "", line)
    return f"{type(error).__name__}: {line}".replace("|", "/")[:200]


def free_memory() -> float:
    """Bytes that the device can still give; infinite where nobody says."""
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if on_cpu() else math.inf
    except (AttributeError, ValueError, OSError):
        return math.inf


# --- contestants ---


def build(function: Callable, *args: Any, units: int, keyed: bool = True) -> Timed:
    """Compile and run once. On an accelerator, one run is a queue of calls of a few milliseconds,
    waited for at its end.

    There the host takes tens of microseconds for a call, which must not be counted as the device's.
    """
    args = jax.block_until_ready(args)
    keys = [jax.random.key(seed) for seed in range(64)]
    executable, costs = harness.compiled(function, *keys[:1] if keyed else (), *args)

    def call(number: int) -> Any:
        return executable(*((keys[number % 64],) if keyed else ()), *args)

    seconds, first = seconds_of(lambda: call(0))
    calls = 1
    if not on_cpu():
        seconds, _ = seconds_of(lambda: call(1))
        calls = max(1, min(64, math.ceil(harness.SHORTEST_SAMPLE / seconds)))

    def run(turn: int) -> Any:
        for number in range(calls):
            result = call(turn * calls + number)
        return jax.block_until_ready(result)  # calls on one device end in their order

    costs["bytes_touched"] = sum(leaf.nbytes for leaf in jax.tree.leaves((args, first)))
    return Timed(Built(run, units * calls, **costs), units, costs["bytes_touched"], seconds, first)


def seconds_of(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - start, result


class OnDevice(Case):
    """A case whose records are made on the device, anew each time: a plan of many cases keeps none
    of them in memory.
    """

    @property
    def data(self) -> jax.Array:
        normal = jax.jit(
            lambda key: jnp.clip(
                jax.random.normal(key, (self.rows, self.points)), self.lower, self.upper
            )
        )
        return normal(jax.random.key(self.seed))


def profile_of(case: Case, x: jax.Array | None = None) -> dpjax.SensitivityProfile:
    return jax.block_until_ready(jax.jit(case.profile)(case.data if x is None else x))


@jax.jit
def cdf(profile: dpjax.SensitivityProfile, epsilon: float, y: jax.Array) -> jax.Array:
    """The exact cdf at ``y``, one for each row."""
    return dpjax.piecewise_laplace(profile, epsilon).cdf(y)


@jax.jit
def moments(profile: dpjax.SensitivityProfile, epsilon: Any) -> tuple[jax.Array, ...]:
    """The mean distance from the center, the mean less the center, and the standard deviation, in
    closed form.
    """
    distribution, center = dpjax.piecewise_laplace(profile, epsilon), profile.upper[..., 0]
    return distribution.mean_abs_error(center), distribution.mean() - center, distribution.stddev()


def sampled(case: Case, profile: Any, draws: tuple[int, ...] = ()) -> Timed:
    """From the profile to draws."""

    def draw(key: jax.Array, profile: dpjax.SensitivityProfile) -> jax.Array:
        return dpjax.piecewise_laplace(profile, case.epsilon).sample(key, draws)

    return build(draw, profile, units=case.rows * math.prod(draws))


def sampled_raw(case: Case, x: jax.Array) -> Timed:
    return build(lambda key, x: case.distribution(x).sample(key), x, units=case.rows)


def pieces(profile: dpjax.SensitivityProfile) -> tuple[jax.Array, jax.Array, int]:
    """Edges, levels, and where the center is among the edges."""
    join = jax.jit(
        lambda lower, upper: jnp.concatenate([jnp.flip(lower, -1), upper[..., 1:]], axis=-1)
    )
    levels = np.concatenate([np.flip(profile.lower_levels[:-1]), profile.upper_levels[:-1]])
    return join(profile.lower, profile.upper), jnp.asarray(levels), profile.lower.shape[-1] - 1


def naive(
    case: Case,
    profile: Any,
    draws: int | None = None,
    factor: float = 1.0,
    epsilon: jax.Array | None = None,
) -> Timed:
    """One draw of each row, or several at once; a ``factor`` other than 1 makes it wrong on
    purpose.
    """
    edges, levels, center = pieces(profile)
    epsilon = jnp.float32(case.epsilon * factor) if epsilon is None else epsilon

    def one(key: jax.Array, *args: Any) -> jax.Array:
        return contestants.naive_gumbel(key, args[0], args[1], center, args[2])

    def several(key: jax.Array, *args: Any) -> jax.Array:
        return jax.vmap(lambda key: one(key, *args))(jax.random.split(key, draws))

    return build(
        one if draws is None else several, edges, levels, epsilon, units=case.rows * (draws or 1)
    )


def naive_raw(case: Case, x: jax.Array, profile: Any) -> Timed:
    """Sort and Gumbel-max under one jit, for the relation swap, whose edges are the bounds and the
    records.
    """
    _, levels, center = pieces(profile)

    def draw(key: jax.Array, x: jax.Array, levels: jax.Array) -> jax.Array:
        ends = [(0, 0)] * (x.ndim - 1)
        ordered = jnp.sort(jnp.clip(x, case.lower, case.upper), axis=-1)
        edges = jnp.pad(
            ordered, [*ends, (1, 1)], constant_values=((0, 0), (case.lower, case.upper))
        )
        return contestants.naive_gumbel(key, edges, levels, center, case.epsilon)

    return build(draw, x, levels, units=case.rows)


def laplace(case: Case, profile: Any, draws: tuple[int, ...] = ()) -> Timed:
    """Plain noise around the medians."""
    shape = (*draws, case.rows)

    def noisy(key: jax.Array, medians: jax.Array) -> jax.Array:
        return medians + jax.random.laplace(key, shape) / case.epsilon

    return build(noisy, profile.upper[..., 0], units=math.prod(shape))


# --- questions ---


def compare(
    session: Session,
    question: str,
    relation: str,
    shape: str,
    entries: dict[str, tuple[float, Callable[[], Timed]]],
    *,
    unit: str = "draw",
    reference: str = REFERENCE,
    bars: bool = False,
    shares: bool = True,
    checked: dict[str, Callable[[Timed], list[dict[str, Any]]]] | None = None,
) -> dict[str, list[float]]:
    """Time contestants in turns, each with its work (for the pace) and how it is built; return the
    seconds of one unit of each.

    Those in ``checked`` are timed only if their results pass; with ``shares``, this library's
    shares of the copy bandwidth are rows of their own.
    """
    ready: dict[str, Timed] = {}
    for name, (work, make) in entries.items():
        at = (question, name, NO_RELATION if name in (LAPLACE, SORT) else relation, shape)
        if name not in OWN_CHECK and (name, relation) not in session.passed:
            session.leave_out(*at, UNCHECKED)
        elif session.left() <= 0 or not session.fits(question, name, work):
            session.leave_out(*at)
        else:
            with session.guard(*at):
                made = make()
                if name in (checked or {}) and not session.judge_all(checked[name](made)):
                    session.leave_out(*at, "rejected: wrong result")
                else:
                    ready[name] = made
    if not ready:
        return {}
    turns = session.turns(sum(one.seconds for one in ready.values()))
    times = harness.interleave({name: one.built for name, one in ready.items()}, turns)
    for name, one in ready.items():
        mine, theirs = times[name], times.get(reference)
        a_call = statistics.median(mine) * one.units
        session.pace[question, name] = a_call / entries[name][0]
        ratios = (
            [a / b for a, b in zip(mine, theirs, strict=True)]
            if theirs and name != reference
            else None
        )
        share = one.bytes / a_call / session.bandwidth if session.bandwidth else None
        private = NO_RELATION if name in (LAPLACE, SORT) else relation
        session.add(
            row(
                question,
                name,
                private,
                shape,
                value=statistics.median(mine),
                unit=f"s a {unit}",
                seconds=harness.spread(mine),
                repeats=turns,
                units_in_a_run=one.built.units,
                call_seconds=a_call,
                latency_seconds=one.seconds,
                compile_seconds=one.built.compile_seconds,
                bytes_touched=one.bytes,
                temporary_bytes=one.built.temporary_bytes,
                share_of_copy=share,
                ratio=statistics.median(ratios) if ratios else None,
                ratio_spread=harness.spread(ratios) if ratios else None,
                reference=reference if ratios else None,
                bar={"at_least": NAIVE_BAR} if bars and name == NAIVE else None,
            )
        )
        if shares and share is not None and name not in (NAIVE, NAIVE_RAW, LAPLACE):
            bar = {"at_least": SHARE_BAR} if bars else None
            at = (question, f"{name}, share of the copy bandwidth", private, shape)
            session.add(row(*at, value=share, unit="", ratio=share, reference=COPY, bar=bar))
    return times


def copy(session: Session) -> None:
    """Negate arrays that fit into no cache, in turns, into memory that is there: what is new would
    first be paged in on a CPU.
    """
    size = 2**22 if session.args.quick else int(min(2**30, max(2**24, free_memory() / 128))) // 4
    inputs = [jax.random.uniform(jax.random.key(seed), (size,)) for seed in range(4)]
    out = jnp.zeros(size)
    start = time.perf_counter()
    executable = (
        jax.jit(lambda x, out: -x, donate_argnums=1, keep_unused=True)
        .lower(inputs[0], out)
        .compile()
    )
    compile_seconds = time.perf_counter() - start
    out = executable(inputs[0], out)
    if not bool(jnp.array_equal(out, -inputs[0])):
        raise RuntimeError("the copy is not what was to be copied.")
    calls = 1 if on_cpu() else 8

    def run(turn: int) -> None:
        nonlocal out
        for number in range(calls):
            out = executable(inputs[(turn * calls + number) % 4], out)
        jax.block_until_ready(out)

    built = Built(run, calls * 2 * inputs[0].nbytes, compile_seconds)
    times = harness.interleave(
        {COPY: built}, session.args.repeats or (5 if session.args.quick else 15)
    )[COPY]
    session.bandwidth = 1 / statistics.median(times)
    session.add(
        row(
            COPY,
            "-x into donated memory",
            NO_RELATION,
            f"4 arrays of {inputs[0].nbytes / 2**20:.0f} MiB",
            value=session.bandwidth / 1e9,
            unit="GB/s read and written",
            seconds_a_byte=harness.spread(times),
            compile_seconds=compile_seconds,
        )
    )
    one = build(lambda x: x + 1, jnp.zeros(()), units=1, keyed=False)
    times = harness.interleave({"call": one.built}, 5)["call"]
    compile_seconds = one.built.compile_seconds
    at = (COPY, "a call that adds two numbers", NO_RELATION, f"{one.built.units} in a queue")
    session.add(
        row(
            *at,
            value=statistics.median(times),
            unit="s",
            latency_seconds=one.seconds,
            compile_seconds=compile_seconds,
        )
    )


def check_contestants(session: Session, relation: str) -> None:
    """Test the draws of every contestant against the exact cdf on a small case; those that fail are
    not timed.
    """
    case = OnDevice(*SMALL, relation)
    x = case.data
    profile = profile_of(case, x)
    exact, plain = harness.distribution_uniforms, contestants.plain_laplace_uniforms
    entries: dict[str, Callable[[], Timed]] = {
        REFERENCE: lambda: sampled(case, profile),
        MANY_DRAWS: lambda: sampled(case, profile, (MANY,)),
        RAW: lambda: sampled_raw(case, x),
        NAIVE: lambda: naive(case, profile),
        LAPLACE: lambda: laplace(case, profile),
        "control with epsilon 1.25 times too large": lambda: naive(
            case, profile, factor=CONTROL_FACTOR
        ),
    }
    if relation == "swap":
        entries[NAIVE_RAW] = lambda: naive_raw(case, x, profile)
    for name, make in entries.items():
        with session.guard("check", name, relation, case.shape):
            made = make()
            uniforms = plain if name == LAPLACE else exact
            control = name.startswith("control")
            one = Contestant(
                name,
                relation,
                lambda case: None,
                uniforms,
                check_draws=50_000,
                must_be_rejected=control,
            )
            if session.judge(harness.check(one, case, made.built)):
                session.passed.add((name, relation))
                session.kept[name, case.shape, relation] = made


def kept(
    session: Session, name: str, case: Case, make: Callable[..., Timed], *args: Any
) -> Callable[[], Timed]:
    """Take what was built for the check, if that was the same case (as in quick runs), or else
    build it.
    """
    return lambda: session.kept.get((name, case.shape, case.relation)) or make(case, *args)


def one_draw(session: Session, case: Case, bars: bool) -> None:
    profile = profile_of(case)
    work = case.rows * case.points

    def checked(made: Timed) -> list[dict[str, Any]]:
        """The draws at this size, which are not those of the small case."""
        uniforms = cdf(profile, case.epsilon, made.first)
        return [
            check(
                "dpjax, at full size",
                case,
                made.units,
                *harness.uniform_distance(np.asarray(uniforms)),
            )
        ]

    entries = {
        name: (work, kept(session, name, case, make, profile)) for name, make in SINGLE.items()
    }
    tests = {REFERENCE: checked}
    compare(
        session,
        "one draw",
        case.relation,
        case.shape,
        entries,
        unit="median",
        bars=bars,
        checked=tests,
    )


SINGLE: dict[str, Callable[..., Timed]] = {REFERENCE: sampled, NAIVE: naive, LAPLACE: laplace}


def check(
    contestant: str, case: Case, draws: int, distance: float, critical: float, control: bool = False
) -> dict[str, Any]:
    return {
        "contestant": contestant,
        "relation": case.relation,
        "case": case.shape,
        "draws": draws,
        "distance": distance if math.isfinite(distance) else 1e30,  # no JSON has infinity
        "critical": critical,
        "passed": distance <= critical,
        "control": control,
    }


def raw(session: Session, case: Case) -> None:
    """Unsorted records to a draw, and what a sort of them costs alone."""
    x = case.data
    profile = profile_of(case, x)
    work = case.rows * case.points
    entries = {
        RAW: (work, kept(session, RAW, case, sampled_raw, x)),
        SORT: (
            work,
            lambda: build(lambda x: jnp.sort(x, axis=-1), x, units=case.rows, keyed=False),
        ),
        LAPLACE: (work, kept(session, LAPLACE, case, laplace, profile)),
    }
    if case.relation == "swap":
        entries[NAIVE_RAW] = (work, kept(session, NAIVE_RAW, case, naive_raw, x, profile))
    compare(
        session,
        "raw records to a draw",
        case.relation,
        case.shape,
        entries,
        unit="median",
        reference=RAW,
    )


def at_once(case: Case, most: int) -> int:
    """How many draws of each row naive Gumbel-max makes in one call."""
    return max(1, min(most, NAIVE_SCORES // (case.rows * case.points)))


def many(session: Session, case: Case, draws: int, shape: str) -> None:
    profile = profile_of(case)
    number, work = at_once(case, draws), draws * case.rows
    entries = {
        MANY_DRAWS: (work, lambda: sampled(case, profile, (draws,))),
        NAIVE: (number * case.rows * case.points, lambda: naive(case, profile, number)),
        LAPLACE: (work, lambda: laplace(case, profile, (draws,))),
    }
    compare(session, "many draws", case.relation, shape, entries, reference=MANY_DRAWS)


def largest_z(mean: np.ndarray, profile: Any, epsilon: Any, draws: int) -> float:
    """How many standard errors the mean of so many draws' distance from the center is off its
    closed form, at most over rows.
    """
    error, bias, deviation = (np.asarray(form, np.float64) for form in moments(profile, epsilon))
    standard_error = np.sqrt((deviation**2 + bias**2 - error**2) / draws)
    off = np.abs(np.asarray(mean, np.float64) - error) / standard_error
    return float(np.max(np.where(np.isnan(off), np.inf, off)))


def judge_means(
    session: Session,
    name: str,
    mean: np.ndarray,
    case: Case,
    profile: Any,
    epsilon: Any,
    draws: int,
) -> bool:
    """Check means of distances, and that they are not those of another epsilon."""
    critical = statistics.NormalDist().inv_cdf(1 - harness.FALSE_POSITIVE_RATE / (2 * mean.size))
    passed = []
    for factor in (1.0, CONTROL_FACTOR):
        control = factor != 1
        title = f"{name} against epsilon 1.25 times too large" if control else name
        distance = largest_z(mean, profile, epsilon * factor, draws)
        passed.append(
            session.judge(check(title, case, draws * mean.size, distance, critical, control))
        )
    return passed[0]


def sums(session: Session, case: Case, chunk: int, totals: tuple[int, ...]) -> None:
    """Draws of which only the sum of their distances from the center is kept: calls of one compiled
    chunk, one after the other.
    """
    question, profile = "sums of many draws", profile_of(case)
    number = at_once(case, chunk)
    edges, levels, middle = pieces(profile)

    def library(key: jax.Array, profile: Any) -> jax.Array:
        return dpjax.piecewise_laplace(profile, case.epsilon).sample(key, (chunk,))

    def plain(key: jax.Array, profile: Any) -> jax.Array:
        return profile.upper[..., 0] + jax.random.laplace(key, (chunk, case.rows)) / case.epsilon

    def naively(key: jax.Array, profile: Any) -> jax.Array:
        def one(key: jax.Array) -> jax.Array:
            return contestants.naive_gumbel(key, edges, levels, middle, case.epsilon)

        return jax.vmap(one)(jax.random.split(key, number))

    def summed(draw: Callable) -> Callable:
        return lambda key, profile, total: (
            total + jnp.sum(jnp.abs(draw(key, profile) - profile.upper[..., 0]), axis=0)
        )

    nothing = jnp.zeros(case.rows)
    keys = list(jax.random.split(jax.random.key(7), max(totals)))
    seconds: dict[tuple[str, int], float] = {}
    for name, draw, in_call in (
        (MANY_DRAWS, library, chunk),
        (NAIVE, naively, number),
        (LAPLACE, plain, chunk),
    ):
        executable, costs = None, {}
        for calls in totals if name != NAIVE else totals[:1]:
            draws = calls * in_call * case.rows
            shape = f"{case.shape}, {draws:.2g} draws"
            pace = session.pace.get((question, name), 0.0)
            if (name, case.relation) not in session.passed:
                session.leave_out(question, name, case.relation, shape, UNCHECKED)
                continue
            if session.left() <= 0 or pace * draws > session.left() / 3:
                session.leave_out(question, name, case.relation, shape)
                continue
            with session.guard(question, name, case.relation, shape):
                if executable is None:
                    executable, costs = harness.compiled(summed(draw), keys[0], profile, nothing)
                    _, total = seconds_of(partial(executable, keys[0], profile, nothing))
                    means = np.asarray(total) / in_call
                    if name == MANY_DRAWS and not judge_means(
                        session,
                        "dpjax, sums of many draws",
                        means,
                        case,
                        profile,
                        case.epsilon,
                        in_call,
                    ):
                        session.passed.discard((name, case.relation))
                        session.leave_out(
                            question, name, case.relation, shape, "rejected: wrong sums"
                        )
                        continue
                program = executable

                def run(calls: int = calls, program: Callable = program) -> jax.Array:
                    total = nothing
                    for key in keys[:calls]:
                        total = program(key, profile, total)
                    return total

                taken = statistics.median(seconds_of(run)[0] for _ in range(3 if calls == 1 else 1))
                seconds[name, calls] = session.pace[question, name] = taken / draws
                theirs = seconds.get((MANY_DRAWS, calls))
                ratio = taken / draws / theirs if theirs and name != MANY_DRAWS else None
                session.add(
                    row(
                        question,
                        name,
                        NO_RELATION if name == LAPLACE else case.relation,
                        shape,
                        value=taken / draws,
                        unit="s a draw",
                        whole_seconds=taken,
                        calls=calls,
                        compile_seconds=costs["compile_seconds"],
                        temporary_bytes=costs.get("temporary_bytes"),
                        ratio=ratio,
                        reference=MANY_DRAWS if ratio else None,
                    )
                )


def error_bars(session: Session, case: Case) -> None:
    """``mean_abs_error`` and ``interval`` of each row, against the naive draw for which they are
    the error bars.
    """
    profile = profile_of(case)
    work, center = case.rows * case.points, profile.upper[..., 0]

    def mean_abs_error(profile: Any, center: jax.Array) -> jax.Array:
        return dpjax.piecewise_laplace(profile, case.epsilon).mean_abs_error(center)

    def interval(profile: Any) -> tuple[jax.Array, jax.Array]:
        return dpjax.piecewise_laplace(profile, case.epsilon).interval(0.95)

    def errors_checked(made: Timed) -> list[dict[str, Any]]:
        found, some = (
            np.asarray(made.first[:64], np.float64),
            jax.tree.map(lambda a: a[:64] if a.ndim > 1 else a, profile),
        )
        off = [
            float(np.max(np.abs(found / error_by_pieces(some, case.epsilon * f) - 1)))
            for f in (1.0, CONTROL_FACTOR)
        ]
        names = MEAN_ABS_ERROR, f"{MEAN_ABS_ERROR} against epsilon 1.25 times too large"
        return [check(names[i], case, 0, off[i], 1e-4, control=bool(i)) for i in (0, 1)]

    def interval_checked(made: Timed) -> list[dict[str, Any]]:
        below, above = (np.asarray(cdf(profile, case.epsilon, end)) for end in made.first)
        off = [
            float(max(np.max(np.abs(below - (1 - p) / 2)), np.max(np.abs(above - (1 + p) / 2))))
            for p in (0.95, 0.94)
        ]
        names = INTERVAL, f"{INTERVAL} against another level"
        return [check(names[i], case, 0, off[i], 1e-4, control=bool(i)) for i in (0, 1)]

    entries = {
        NAIVE: (work, kept(session, NAIVE, case, naive, profile)),
        MEAN_ABS_ERROR: (
            work,
            lambda: build(mean_abs_error, profile, center, units=case.rows, keyed=False),
        ),
        INTERVAL: (work, lambda: build(interval, profile, units=case.rows, keyed=False)),
        LAPLACE: (work, kept(session, LAPLACE, case, laplace, profile)),
    }
    tests = {MEAN_ABS_ERROR: errors_checked, INTERVAL: interval_checked}
    compare(
        session,
        "error bars",
        case.relation,
        case.shape,
        entries,
        unit="row",
        reference=NAIVE,
        checked=tests,
    )


def error_by_pieces(profile: Any, epsilon: float) -> np.ndarray:
    """E|Y - center| by the weights and mean distances of the pieces, in float64."""
    s = epsilon / 2
    inside = 1 / s - 1 / math.expm1(s)  # the mean place in a piece, from its inner end
    mass = moment = np.float64(0)
    for values, levels in (
        (profile.lower, profile.lower_levels),
        (profile.upper, profile.upper_levels),
    ):
        ends = np.asarray(values, np.float64)
        width, near = np.abs(np.diff(ends, axis=-1)), np.abs(ends[..., :-1] - ends[..., :1])
        weight = width * np.exp(-s * np.asarray(levels, np.float64)[..., :-1])
        mass, moment = mass + weight.sum(-1), moment + (weight * (near + width * inside)).sum(-1)
    return moment / mass


def simulate(session: Session, case: Case, epsilons: int, draws: int) -> None:
    """``dpjax.simulate`` of the error of every dataset at every epsilon of a grid, under the
    relation swap.
    """
    grid = jnp.geomspace(0.1, 10.0, epsilons)
    x = jnp.repeat(case.data, epsilons, axis=0)
    profile = profile_of(case, x)
    data = {"records": x, "epsilon": jnp.tile(grid, case.rows), "center": profile.upper[..., 0]}
    pairs = Case(case.rows * epsilons, case.points, case.relation)
    units, device = pairs.rows * draws, jax.devices()[:1]

    def run(turn: int) -> Any:
        return dpjax.simulate(
            jax.random.key(turn), _mechanism, data, draws=draws, statistic=_distance, devices=device
        )

    def make() -> Timed:
        first_seconds, first = seconds_of(lambda: run(0))
        seconds, _ = seconds_of(lambda: run(1))
        passed = judge_means(
            session, "dpjax.simulate", first.mean, pairs, profile, data["epsilon"], draws
        )
        if not passed:
            raise RuntimeError("the means of dpjax.simulate are not those of the distribution.")
        touched = sum(leaf.nbytes for leaf in jax.tree.leaves(data))
        return Timed(
            Built(run, units, first_seconds - seconds, touched), units, touched, seconds, None
        )

    number = at_once(pairs, draws)
    entries = {
        SIMULATE: (units, make),
        NAIVE: (
            number * pairs.rows * case.points,
            lambda: naive(pairs, profile, number, epsilon=data["epsilon"][:, None]),
        ),
        LAPLACE: (units, lambda: laplace(pairs, profile, (draws,))),
    }
    shape = f"{case.shape}, {epsilons} epsilons, {draws} draws each"
    compare(session, "simulate", case.relation, shape, entries, reference=SIMULATE, shares=False)


# It has a name, since simulate traces equal functions once.
def _mechanism(data: dict[str, jax.Array]) -> dpjax.PiecewiseExponential:
    return dpjax.piecewise_laplace(Case(1, 1, "swap").profile(data["records"]), data["epsilon"])


def _distance(draws: jax.Array, data: dict[str, jax.Array]) -> jax.Array:
    return jnp.abs(draws - data["center"])


def plan(session: Session) -> list[Task]:
    """All cases: in each turn one of every question, the most important ones first."""
    sizes = Sizes.of(session.args.quick, on_cpu())

    def memory(rows: int, points: int, draws: int = 0) -> float:
        return BYTES_A_PIECE * rows * points + 20 * draws * rows

    def single(rows: int, points: int, relation: str) -> Task:
        case, bars = (
            OnDevice(rows, points, relation),
            relation == "swap" and (rows, points) == sizes.single[0],
        )
        return Task(
            "one draw",
            relation,
            case.shape,
            partial(one_draw, session, case, bars),
            memory(rows, points),
        )

    def from_raw(rows: int, points: int, relation: str) -> Task:
        case = OnDevice(rows, points, relation)
        return Task(
            "raw records to a draw",
            relation,
            case.shape,
            partial(raw, session, case),
            memory(rows, points),
        )

    def repeated(rows: int, draws: int, relation: str) -> Task:
        case = OnDevice(rows, sizes.points, relation)
        shape = f"{case.shape}, {draws} draws each"
        needs = memory(rows, sizes.points, draws) + NAIVE_SCORES * BYTES_A_PIECE
        return Task(
            "many draws", relation, shape, partial(many, session, case, draws, shape), needs
        )

    def bars(rows: int, points: int, relation: str) -> Task:
        case = OnDevice(rows, points, relation)
        return Task(
            "error bars",
            relation,
            case.shape,
            partial(error_bars, session, case),
            memory(rows, points),
        )

    few = OnDevice(sizes.few_rows, sizes.points, "swap")
    sums_shape = f"{few.shape}, {sizes.chunk * few.rows * max(sizes.sums):.2g} draws"
    sums_run = partial(sums, session, few, sizes.chunk, sizes.sums)
    simulate_shape = f"{few.shape}, {sizes.epsilons} epsilons, {sizes.simulated} draws each"
    simulate_run = partial(simulate, session, few, sizes.epsilons, sizes.simulated)
    pairs, small = sizes.few_rows * sizes.epsilons, f"{SMALL[0]} x {SMALL[1]}"
    also = [] if session.args.quick else ["add_remove"]
    cheap = min(sizes.single, key=math.prod)
    answers = [  # of every question, the most important case first
        [single(*size, "swap") for size in sizes.single],
        [repeated(*size, "swap") for size in sizes.many],
        [from_raw(*size, "swap") for size in sizes.raw],
        [bars(*size, "swap") for size in sizes.bars],
        [
            Task(
                "simulate",
                "swap",
                simulate_shape,
                simulate_run,
                memory(pairs, sizes.points, sizes.simulated),
            )
        ],
        [
            Task(
                "sums of many draws",
                "swap",
                sums_shape,
                sums_run,
                memory(few.rows, few.points, sizes.chunk),
            )
        ],
    ]
    in_turns = [
        task for turn in itertools.zip_longest(*answers) for task in turn if task is not None
    ]
    return [
        Task(COPY, NO_RELATION, "", partial(copy, session)),
        Task("check", "swap", small, partial(check_contestants, session, "swap")),
        *in_turns,
        *(
            Task("check", relation, small, partial(check_contestants, session, relation))
            for relation in also
        ),
        *(single(*cheap, relation) for relation in also),
        *(from_raw(*sizes.raw[0], relation) for relation in also),
        *(single(*sizes.single[0], relation) for relation in also if not on_cpu()),
    ]


def measure(session: Session, tasks: list[Task]) -> None:
    """Run the tasks in their order; what does not fit, or raises, is a row."""
    for task in tasks:
        at = (task.question, REFERENCE, task.relation, task.shape or "all")
        if session.left() <= 0:
            session.leave_out(*at)
        elif task.bytes > free_memory():
            session.leave_out(
                *at,
                f"left out: memory, about {task.bytes / 1e9:.2g} of {free_memory() / 1e9:.2g} GB",
            )
        else:
            with session.guard(*at):
                task.run()


def main(arguments: list[str] | None = None) -> int:
    parser = harness.parser(__doc__)
    parser.add_argument(
        "--seconds", type=float, help="start no case after so many (420; quick: 50)"
    )
    args = parser.parse_args(arguments)
    if args.seconds is None:
        args.seconds = 50.0 if args.quick else 420.0
    session = Session(args)
    memory = free_memory()
    measure(session, plan(session))
    limits = {
        "memory_bytes": memory if math.isfinite(memory) else None,
        "copy_bytes_per_second": session.bandwidth,
        "FEW": FEW,
        "seconds": time.perf_counter() - session.start,
    }
    wrong = [check for check in session.checks if not check["control"] and not check["passed"]]
    notes = [f"{limits['seconds']:.0f} s" + ("; on a CPU no bar is judged" if on_cpu() else "")]
    table = tables.of_rows(session.rows, judge=not (args.quick or on_cpu()))
    harness.finish("accelerator", args, session.rows, session.checks, notes, table, device=limits)
    return int(session.failed or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
