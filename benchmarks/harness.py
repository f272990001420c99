"""Timing tools that every benchmark here shares: checks before times, compile apart from run,
interleaved repeats, a table, JSON.

A contestant is built twice from a ``Case``: on a small one, where its draws are tested against the
exact cdf, and on the large one, which is timed only if that test passed. All contestants of one
question run in turns, so that a busy machine slows each of them alike, and a ratio is the median
over turns of the ratio within a turn.
"""

import argparse
import gc
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

import dpjax
import tables

FALSE_POSITIVE_RATE = 1e-6
SHORTEST_SAMPLE = 5e-3  # seconds: faster calls are repeated until one sample takes this long
REFERENCE = "dpjax"
NO_RELATION = "no privacy"  # memory reads, sorts: nothing private in them


@dataclass(frozen=True)
class Case:
    """Datasets, one a row, and the question to them: a private median with piecewise Laplace."""

    rows: int
    points: int
    relation: str
    epsilon: float = 1.0
    lower: float = -10.0
    upper: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.points % 2 == 0:
            raise ValueError(
                "the NumPy contestants here know the median of an odd number of points only, got "
                f"{self.points}."
            )

    @cached_property
    def data(self) -> np.ndarray:
        draws = np.random.default_rng(self.seed).standard_normal(
            (self.rows, self.points), dtype=np.float32
        )
        return np.clip(draws, self.lower, self.upper)

    @cached_property
    def sorted_data(self) -> np.ndarray:
        return np.sort(self.data, axis=1)

    def profile(self, data: Any) -> dpjax.SensitivityProfile:
        return dpjax.median(data, lower=self.lower, upper=self.upper, neighbors=self.relation)

    def distribution(self, data: Any) -> dpjax.PiecewiseExponential:
        return dpjax.piecewise_laplace(self.profile(data), self.epsilon)

    @cached_property
    def exact(self) -> dpjax.PiecewiseExponential:
        """The distribution of every row."""
        return self.distribution(jax.numpy.asarray(self.data))

    @property
    def shape(self) -> str:
        return f"{self.rows} x {self.points}"


@dataclass
class Built:
    """A contestant ready to run: ``run(turn)`` returns when its result is there."""

    run: Callable[[int], Any]
    units: int  # draws, medians or calls that one run makes
    compile_seconds: float | None = None
    bytes_touched: int | None = None  # arguments read at least once, results written
    temporary_bytes: int | None = None  # what the compiler asks for beside them
    # Seconds of the last run by another process's clock
    own_clock: Callable[[], float] | None = None


@dataclass
class Contestant:
    """A way to answer the question.

    Attributes:
        name: as in the table.
        relation: the neighbor relation under which its draws are private.
        build: from a case to something that runs.
        uniforms: from a case and its draws (..., rows) to values that are uniform if the draws are
            right; None: nothing drawn.
        bar: how many times faster than this contestant the reference has to be (below 1: how much
            slower it may be).
        reach: the same, to reach for.
        note: what a reader of the table should know.
        missing: why it cannot run here.
        timed_rows: how many datasets a slow peer is timed on, if not all.
        check_draws: how many draws are compared with the distribution.
        group: contestants that are one rival in several versions; only the fastest keeps the bar.
        must_be_rejected: a control, wrong on purpose: the run ends with an error if the check does
    not see it.
    """

    name: str
    relation: str
    build: Callable[[Case], Built]
    uniforms: Callable[[Case, np.ndarray], np.ndarray] | None
    bar: float | None = None
    reach: float | None = None
    note: str = ""
    missing: str | None = None
    timed_rows: int | None = None
    check_draws: int = 100_000
    group: str | None = None
    must_be_rejected: bool = False


def distribution_uniforms(case: Case, draws: np.ndarray) -> np.ndarray:
    """The exact cdf of piecewise Laplace at each draw."""
    return np.asarray(cdf(case.exact, jax.numpy.asarray(draws)))


@jax.jit  # once for all contestants
def cdf(distribution: dpjax.PiecewiseExponential, draws: jax.Array) -> jax.Array:
    return distribution.cdf(draws)


def uniform_distance(uniforms: np.ndarray) -> tuple[float, float]:
    """How far values are from uniform, and the critical distance (Dvoretzky-Kiefer-Wolfowitz, at
    twice half the rate).

    Folded at 1/2 as well: a wrong scale moves the folded distribution twice as far.
    """
    values = np.asarray(uniforms, np.float64).ravel()
    n, distance = values.size, 0.0
    if not np.all(np.isfinite(values)):
        return math.inf, 0.0
    for sample in (values, np.abs(2 * values - 1)):
        ordered = np.sort(sample)
        distance = max(
            distance, np.max(np.arange(1, n + 1) / n - ordered), np.max(ordered - np.arange(n) / n)
        )
    return float(distance), math.sqrt(math.log(4 / FALSE_POSITIVE_RATE) / (2 * n))


def check(contestant: Contestant, case: Case, built: Built) -> dict[str, Any]:
    """Draw from the contestant, built on a small case, and compare with its exact distribution, row
    by row.
    """
    draws, turn = [], 0
    while sum(d.size for d in draws) < contestant.check_draws:
        draws.append(np.asarray(built.run(turn)).reshape(-1, case.rows))
        turn += 1
    joined = np.concatenate(draws)
    distance, critical = uniform_distance(contestant.uniforms(case, joined))
    return {
        "contestant": contestant.name,
        "relation": contestant.relation,
        "case": case.shape,
        "draws": int(joined.size),
        "distance": distance,
        "critical": critical,
        "passed": distance <= critical,
        "control": contestant.must_be_rejected,
    }


def compiled(function: Callable, *args: Any) -> tuple[Callable, dict[str, Any]]:
    """Compile for these arguments; return the executable, and what compiling took and what it will
    touch.
    """
    start = time.perf_counter()
    executable = jax.jit(function).lower(*args).compile()
    seconds = time.perf_counter() - start
    memory = executable.memory_analysis()
    costs: dict[str, Any] = {"compile_seconds": seconds}
    if memory is not None:
        costs["bytes_touched"] = int(memory.argument_size_in_bytes + memory.output_size_in_bytes)
        costs["temporary_bytes"] = int(memory.temp_size_in_bytes)
    return executable, costs


def build_jax(function: Callable, *args: Any, units: int, keyed: bool = True) -> Built:
    """A jitted function, compiled for these arguments; a fresh key comes first in each turn."""
    args = jax.block_until_ready(jax.tree.map(jax.numpy.asarray, args))
    keys = [jax.random.key(seed) for seed in range(64)] if keyed else []
    executable, costs = compiled(function, *keys[:1], *args)

    def run(turn: int) -> Any:
        return jax.block_until_ready(
            executable(*(keys[turn % 64 : turn % 64 + 1] if keyed else ()), *args)
        )

    return Built(run, units, **costs)


def _sample(built: Built, turn: int, calls: int) -> float:
    """Seconds of one run, over ``calls`` of them."""
    if built.own_clock:
        built.run(turn)
        return built.own_clock()
    start = time.perf_counter()
    for call in range(calls):
        built.run(turn * calls + call)
    return (time.perf_counter() - start) / calls


def interleave(built: dict[str, Built], repeats: int) -> dict[str, list[float]]:
    """Seconds for each unit of every contestant, in turns, after a warm-up that also fixes how many
    calls make a sample.
    """
    calls = {}
    for name, one in built.items():
        one.run(0)
        calls[name] = max(1, min(100, math.ceil(SHORTEST_SAMPLE / max(_sample(one, 1, 1), 1e-9))))
    times: dict[str, list[float]] = {name: [] for name in built}
    for turn in range(2, repeats + 2):
        gc.collect()
        gc.disable()
        first = turn % max(1, len(built))  # nobody always runs after the same neighbor
        for name in [*built][first:] + [*built][:first]:
            times[name].append(_sample(built[name], turn, calls[name]) / built[name].units)
        gc.enable()
    return times


def _speed(built: Built, times: list[float]) -> float | None:
    """Bytes touched in a second: what a memory-bound program would compare with the speed of a
    read.
    """
    return (
        built.bytes_touched / (statistics.median(times) * built.units)
        if built.bytes_touched
        else None
    )


def spread(values: list[float]) -> dict[str, float]:
    """Median, minimum and quartiles."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {
        "median": float(middle),
        "min": min(values),
        "first_quartile": float(low),
        "third_quartile": float(high),
    }


def row(question: str, contestant: str, relation: str, shape: str, **rest: Any) -> dict[str, Any]:
    """One line of the table; ``bar`` is the smallest (``at_least``) or largest (``at_most``) ratio
    that meets it.
    """
    line = {
        "question": question,
        "contestant": contestant,
        "relation": relation,
        "shape": shape,
        "status": "measured",
        **rest,
    }
    bar, ratio = line.get("bar"), line.get("ratio")
    if bar is not None and ratio is not None:
        line["met"] = ratio >= bar["at_least"] if "at_least" in bar else ratio <= bar["at_most"]
    return line


def _wall(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(
    question: str,
    works: dict[str, Any],
    compared: dict[str, tuple[str, float | None]],
    shape: str,
    repeats: int,
    clock: Callable[[Any], float] = _wall,
    unit: str = "s",
) -> list[dict[str, Any]]:
    """A row for each work; they run in turns, of which a first one warms.

    ``compared`` has, of some of them, the work that is the reference, or a text for one second, and
    the largest ratio that meets the bar, if there is one.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            spent = clock(work)
            if turn:
                times[name].append(spent)
    rows = []
    for name, taken in times.items():
        line: dict[str, Any] = {"value": statistics.median(taken), "unit": unit}
        reference, most = compared.get(name, ("", None))
        if reference:
            each = times.get(reference, [1.0] * repeats)
            ratios = [a / b for a, b in zip(taken, each, strict=True)]
            line |= {"ratio": statistics.median(ratios), "ratio_spread": spread(ratios)}
            line |= {"reference": reference, "bar": {"at_most": most} if most else None}
        relation = "add_remove" if most else NO_RELATION
        rows.append(row(question, name, relation, shape, **line, seconds=spread(taken)))
    return rows


def contest(
    question: str, contestants: list[Contestant], case: Case, small: Case, repeats: int, unit: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Check every contestant on ``small``, time those that pass on ``case``, compare with the
    reference; rows and checks.

    Where the two cases are the same, as in quick runs, what was checked is what is timed.
    """
    rows, checks, built = [], [], {}
    for one in contestants:
        if one.missing:
            rows.append(
                row(question, one.name, one.relation, case.shape, status=one.missing, note=one.note)
            )
            continue
        timed = replace(case, rows=min(case.rows, one.timed_rows)) if one.timed_rows else case
        checked, ready = None, None
        if one.uniforms is not None:
            checked = replace(small, rows=min(small.rows, 20)) if one.timed_rows else small
            ready = one.build(checked)
            checks.append(check(one, checked, ready))
            if checks[-1]["passed"] and one.must_be_rejected:
                raise RuntimeError(f"the check does not reject a wrong distribution: {checks[-1]}")
            if not checks[-1]["passed"]:
                rows.append(
                    row(
                        question,
                        one.name,
                        one.relation,
                        case.shape,
                        status="rejected: wrong distribution",
                        note=one.note,
                    )
                )
                continue
        built[one.name] = ready if ready and checked == timed else one.build(timed)
    times = interleave(built, repeats)
    fastest = {}  # of each group
    for one in sorted(
        (one for one in contestants if one.name in times),
        key=lambda one: statistics.median(times[one.name]),
    ):
        fastest.setdefault(one.group or one.name, one.name)
    for one in contestants:
        if one.name not in times:
            continue
        judged = fastest[one.group or one.name] == one.name
        mine, theirs = times[one.name], times.get(REFERENCE)
        timed = (
            f"{min(case.rows, one.timed_rows)} x {case.points}" if one.timed_rows else case.shape
        )
        ratios = (
            [a / b for a, b in zip(mine, theirs, strict=True)]
            if theirs and one.name != REFERENCE
            else None
        )
        rows.append(
            row(
                question,
                one.name,
                one.relation,
                timed,
                value=statistics.median(mine),
                unit=f"s a {unit}",
                seconds=spread(mine),
                repeats=repeats,
                units_in_a_run=built[one.name].units,
                compile_seconds=built[one.name].compile_seconds,
                bytes_touched=built[one.name].bytes_touched,
                bytes_per_second=_speed(built[one.name], mine),
                temporary_bytes=built[one.name].temporary_bytes,
                ratio=statistics.median(ratios) if ratios else None,
                ratio_spread=spread(ratios) if ratios else None,
                reference=REFERENCE if ratios else None,
                bar={"at_least": one.bar} if judged and one.bar else None,
                reach={"at_least": one.reach} if judged and one.reach else None,
                note=one.note,
            )
        )
    order = {one.name: i for i, one in enumerate(contestants)}
    return sorted(rows, key=lambda r: order[r["contestant"]]), checks


class Worker:
    """Another process that answers one JSON line for each JSON line: another Python, or other XLA
    flags.
    """

    def __init__(self, command: list[str], environment: dict[str, str] | None = None):
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def ask(self, **question: Any) -> Any:
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the other process ended with status {self.process.wait()}; its message is above."
            )
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*args: str) -> str | None:
    folder = pathlib.Path(__file__).parent
    try:
        return subprocess.run(
            ["git", *args], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str | None:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None
    )


def environment() -> dict[str, Any]:
    """What the numbers were measured on and with; no names of hosts, users or folders."""
    device, status = jax.devices()[0], _git("status", "--porcelain")
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "devices": jax.device_count(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "python": platform.python_version(),
        "versions": {
            p: version(p)
            for p in ("dpjax", "jax", "jaxlib", "numpy", "opendp", "diffprivlib", "scikit-learn")
        },
        "x64": bool(jax.config.jax_enable_x64),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": None if status is None else bool(status),
    }


def parser(doc: str) -> argparse.ArgumentParser:
    """The flags that all benchmarks have."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: shows that everything runs, not how fast"
    )
    parser.add_argument(
        "--out", help="write a JSON document with everything that was measured to this file"
    )
    parser.add_argument("--repeats", type=int, help="how many turns every contestant takes")
    return parser


def finish(
    benchmark: str,
    args: argparse.Namespace,
    rows: list[dict[str, Any]],
    checks: list[dict[str, Any]],
    notes: Sequence[str] = (),
    table: str | None = None,
    **rest: Any,
) -> None:
    """Print where it was measured, what was checked, the notes and the table; write the JSON
    document of a run to ``--out``.

    A check that has failed, other than that of a control, ends the program with an error, behind
    the table.
    """
    # paths, and how this process was started
    hidden = ("out", "tumult_python", "plot", "worker", "child")
    settings = {name: value for name, value in vars(args).items() if name not in hidden}
    where = environment()
    if args.out:
        document = {
            "benchmark": benchmark,
            "settings": settings,
            "environment": where,
            "checks": checks,
            "rows": rows,
            **rest,
        }
        pathlib.Path(args.out).write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    versions = ", ".join(
        f"{package} {found or 'not installed'}" for package, found in where["versions"].items()
    )
    print(
        f"{where['device']} ({where['processor']}), {where['cores']} cores, Python "
        f"{where['python']}; {versions}"
    )
    controls = [check for check in checks if check.get("control")]
    wrong = [
        f"{check['contestant']} ({check['relation']})"
        for check in checks
        if check not in controls and not check["passed"]
    ]
    judged = [line["met"] for line in rows if "met" in line]
    if checks:
        print(f"Checks: {len(checks) - len(controls)}, failed: {', '.join(wrong) or 'none'}.")
    if controls:
        print(
            f"Controls with a wrong distribution: {len(controls)}, rejected: "
            f"{sum(not check['passed'] for check in controls)}."
        )
    if judged:
        print(
            f"Bars: {len(judged)}, "
            + ("which a quick run does not judge." if args.quick else f"met: {sum(judged)}.")
        )
    for note in notes:
        print(note)
    print("\n" + (table or tables.of_rows(rows, judge=not args.quick)), flush=True)
    if wrong:
        raise SystemExit(f"These checks failed: {', '.join(wrong)}.")
