"""What every benchmark here shares: checks before times, interleaved turns, rows and their bars,
and where it was measured.

A contestant is built twice from a ``Case``: on a small one, where its results are tested, and on
the large one, which is timed only if that test passed. All contestants of one question run in
turns, so that a busy machine slows each of them alike, and a ratio is the median over turns of the
ratio within a turn.
"""

import argparse
import gc
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

import dpjax
import figures
import tables

FALSE_POSITIVE_RATE = 1e-6
SHORTEST_SAMPLE = 5e-3  # seconds: faster calls are repeated until one sample takes this long
LONGEST = 15.0  # seconds for the turns of one question, if it has three
QUEUE = 10  # calls that an accelerator gets before the host waits
REFERENCE = "dpjax"
NO_RELATION = "no privacy"  # memory reads, sorts: nothing private in them
SKIPPED = 77  # the exit status of a script that cannot run here and says why, as in Automake
PACKAGES = "jax", "jaxlib", "numpy", "opendp", "diffprivlib", "scikit-learn", "numba"


def on_cpu() -> bool:
    return jax.devices()[0].platform == "cpu"


@dataclass(frozen=True)
class Case:
    """Datasets, one a row, and the question to them: private medians with piecewise Laplace."""

    rows: int
    points: int
    relation: str
    epsilon: float = 1.0
    lower: float = -10.0
    upper: float = 10.0
    seed: int = 0
    draws: int = 1

    def __post_init__(self) -> None:
        if self.points % 2 == 0:
            raise ValueError(
                "the NumPy contestants here know the median of an odd number of points only, got "
                f"{self.points}."
            )

    @cached_property
    def data(self) -> np.ndarray:
        generator = np.random.default_rng(self.seed)
        draws = generator.standard_normal((self.rows, self.points), dtype=np.float32)
        return np.clip(draws, self.lower, self.upper)

    @cached_property
    def sorted_data(self) -> np.ndarray:
        return np.sort(self.data, axis=1)

    @cached_property
    def medians(self) -> np.ndarray:
        return self.sorted_data[:, self.points // 2]

    def profile(self, data: Any) -> dpjax.SensitivityProfile:
        return dpjax.median(data, lower=self.lower, upper=self.upper, neighbors=self.relation)

    def distribution(self, data: Any) -> dpjax.PiecewiseExponential:
        return dpjax.piecewise_laplace(self.profile(data), self.epsilon)

    @cached_property
    def exact(self) -> dpjax.PiecewiseExponential:
        """The distribution of every row."""
        return self.distribution(jax.numpy.asarray(self.data))

    @property
    def drawn(self) -> tuple[int, ...]:
        """The shape of the draws of one row."""
        return (self.draws,) if self.draws > 1 else ()

    @property
    def shape(self) -> str:
        more = f", {self.draws} draws each" if self.draws > 1 else ""
        return f"{self.rows} x {self.points}{more}" + (
            f", epsilon {self.epsilon:g}" if self.epsilon != 1 else ""
        )


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
    alone: Callable[[int], Any] | None = None  # one call, where ``run`` is a queue of them


Judge = Callable[[Case, np.ndarray], tuple[float, float]]


@dataclass
class Contestant:
    """A way to answer the question.

    Attributes:
        name: as in the table.
        build: from a case to something that runs.
        judge: from a case and results (..., rows) to how wrong they are, and how wrong they may
            be; None: nothing to check.
        bar: how many times faster than this contestant the reference has to be (below 1: how much
            slower it may be).
        reach: the same, to reach for.
        private: whether its results have the privacy of the case.
        missing: why it cannot run here.
        timed_rows: how many datasets a slow peer is timed on, if not all.
        check_draws: how many results are judged.
        must_be_rejected: a control, wrong on purpose: the run ends with an error if the check does
            not see it.
    """

    name: str
    build: Callable[[Case], Built]
    judge: Judge | None
    bar: float | None = None
    reach: float | None = None
    private: bool = True
    missing: str | None = None
    timed_rows: int | None = None
    check_draws: int = 100_000
    must_be_rejected: bool = False

    def timed(self, case: Case) -> Case:
        if self.timed_rows is None:
            return case
        return replace(case, rows=min(case.rows, self.timed_rows))


def uniform(uniforms: Callable[[Case, np.ndarray], np.ndarray]) -> Judge:
    """A judge by values that are uniform if the draws are right: their distance from uniform, and
    the critical one (Dvoretzky-Kiefer-Wolfowitz, at twice half the rate).

    Folded at 1/2 as well: a wrong scale moves the folded distribution twice as far.
    """

    def judge(case: Case, draws: np.ndarray) -> tuple[float, float]:
        values = np.asarray(uniforms(case, draws), np.float64).ravel()
        n, distance = values.size, 0.0
        for sample in (values, np.abs(2 * values - 1)):
            ordered = np.sort(sample)
            above, below = np.arange(1, n + 1) / n - ordered, ordered - np.arange(n) / n
            distance = max(distance, float(np.max(above)), float(np.max(below)))
        critical = math.sqrt(math.log(4 / FALSE_POSITIVE_RATE) / (2 * n))
        # No JSON has infinity
        return (distance if np.all(np.isfinite(values)) else 1e30), critical

    return judge


@jax.jit  # once for all contestants
def cdf(distribution: dpjax.PiecewiseExponential, draws: jax.Array) -> jax.Array:
    return distribution.cdf(draws)


# The exact cdf of piecewise Laplace at each draw
by_cdf = uniform(lambda case, draws: cdf(case.exact, jax.numpy.asarray(draws)))


def check(contestant: Contestant, case: Case, built: Built, least: int) -> dict[str, Any]:
    """Draw at least so often from the contestant, and judge it row by row."""
    found: list[np.ndarray] = []
    while sum(one.size for one in found) < least:
        found.append(np.asarray(built.run(len(found))).reshape(-1, case.rows))
    joined = np.concatenate(found)
    distance, critical = contestant.judge(case, joined)
    return {
        "contestant": contestant.name,
        "relation": case.relation,
        "case": case.shape,
        "draws": int(joined.size),
        "distance": distance,
        "critical": critical,
        "passed": bool(distance <= critical),
        "control": contestant.must_be_rejected,
    }


def compiled(function: Callable, *args: Any) -> tuple[Callable, dict[str, Any]]:
    """Compile for these arguments; return the executable, and what compiling took and what it will
    touch.
    """
    start = time.perf_counter()
    executable = jax.jit(function).lower(*args).compile()
    costs: dict[str, Any] = {"compile_seconds": time.perf_counter() - start}
    memory = executable.memory_analysis()
    if memory is not None:
        costs["bytes_touched"] = int(memory.argument_size_in_bytes + memory.output_size_in_bytes)
        costs["temporary_bytes"] = int(memory.temp_size_in_bytes)
    return executable, costs


def build_jax(function: Callable, *args: Any, units: int, keyed: bool = True) -> Built:
    """A jitted function, compiled for these arguments; a fresh key comes first in each turn.

    On an accelerator a run is a queue of calls, waited for at its end: the host's time for a call
    is not the device's.
    """
    args = jax.block_until_ready(jax.tree.map(jax.numpy.asarray, args))
    keys = [jax.random.key(seed) for seed in range(64)] if keyed else []
    executable, costs = compiled(function, *keys[:1], *args)

    def call(turn: int) -> Any:
        return executable(*keys[turn % 64 :][:1], *args)

    def alone(turn: int) -> Any:
        return jax.block_until_ready(call(turn))

    def queue(turn: int) -> Any:
        for number in range(QUEUE):
            result = call(QUEUE * turn + number)
        return jax.block_until_ready(result)  # calls on one device end in their order

    if on_cpu():
        return Built(alone, units, **costs)
    return Built(queue, QUEUE * units, alone=alone, **costs)


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
    calls make a sample, and how many turns there is time for.
    """
    calls, turn_seconds = {}, 0.0
    for name, one in built.items():
        one.run(0)
        seconds = max(_sample(one, 1, 1), 1e-9)
        calls[name] = max(1, min(100, math.ceil(SHORTEST_SAMPLE / seconds)))
        turn_seconds += calls[name] * seconds
    repeats = min(repeats, max(3, int(LONGEST / max(turn_seconds, 1e-9))))
    times: dict[str, list[float]] = {name: [] for name in built}
    for turn in range(2, repeats + 2):
        gc.collect()
        gc.disable()
        first = turn % max(1, len(built))  # nobody always runs after the same neighbor
        for name in [*built][first:] + [*built][:first]:
            times[name].append(_sample(built[name], turn, calls[name]) / built[name].units)
        gc.enable()
    return times


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
    where = {"question": question, "contestant": contestant, "relation": relation, "shape": shape}
    line = {**where, "status": "measured", **rest}
    bar, ratio = line.get("bar"), line.get("ratio")
    if bar is not None and ratio is not None:
        line["met"] = ratio >= bar["at_least"] if "at_least" in bar else ratio <= bar["at_most"]
    return line


def versus(mine: list[float], theirs: list[float] | None, reference: str) -> dict[str, Any]:
    """The fields of a row for a ratio, turn by turn."""
    if theirs is None:
        return {}
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "ratio_spread": spread(ratios),
        "reference": reference,
    }


def at_most(question: str, name: str, case: Case, value: float, unit: str, most: float, **rest):
    """A row for a value that has a largest one of its own, ``most``, in its unit."""
    line = {"ratio": value / most, "reference": f"{most:g} {unit}".strip(), "bar": {"at_most": 1.0}}
    return row(question, name, case.relation, case.shape, value=value, unit=unit, **line, **rest)


def wall(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(
    question: str,
    works: dict[str, Any],
    compared: dict[str, tuple[str, float | None]],
    shape: str,
    repeats: int,
    clock: Callable[[Any], float] = wall,
    unit: str = "s",
    relation: str = "add_remove",
) -> list[dict[str, Any]]:
    """A row for each work; they run in turns, of which a first one warms.

    ``compared`` has, of some of them, the work that is the reference, or a text for one second, and
    the largest ratio that meets the bar, if there is one; those are private under ``relation``.
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
            line |= versus(taken, times.get(reference, [1.0] * repeats), reference)
            line["bar"] = {"at_most": most} if most else None
        private = relation if most else NO_RELATION
        rows.append(row(question, name, private, shape, **line, seconds=spread(taken)))
    return rows


class Unseen(BaseException):
    """A check that cannot see what is wrong: no row, since what it let pass is not trusted."""


def message(error: Exception) -> str:
    """The status of a row that failed, without folders of this machine and what ends a cell."""
    traceback.print_exc()
    line = f"failed: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return re.sub(r"(?<![\w./])/(?:[^/\s'\":]+/)+", "", line).replace("|", "/")[:200]


def ready(one: Contestant, case: Case, small: Case, checks: list[dict[str, Any]]) -> Built | str:
    """A contestant for ``case`` whose results on ``small`` are right, or why there is none.

    The reference is judged on ``case``, too. Where the two cases are the same, as in quick runs,
    what was checked is what is timed.
    """
    if one.missing:
        return one.missing
    timed, built = one.timed(case), None
    if one.judge is not None:
        checked = replace(small, rows=min(small.rows, 20)) if one.timed_rows else small
        built = one.build(checked)
        checks.append(check(one, checked, built, one.check_draws))
        if not checks[-1]["passed"]:
            return "rejected: wrong distribution"
        if one.must_be_rejected:
            raise Unseen(f"the check does not reject a wrong distribution: {checks[-1]}")
        if checked == timed:
            return built
    built = one.build(timed)
    if one.name == REFERENCE:
        checks.append(check(one, timed, built, 1))
        if not checks[-1]["passed"]:
            return "rejected: wrong distribution at this size"
    return built


def contest(
    question: str,
    contestants: list[Contestant],
    case: Case,
    small: Case,
    repeats: int,
    unit: str,
    judged: bool = True,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Check every contestant on ``small``, time those that pass on ``case``, compare with the
    reference; rows and checks. What cannot run, or fails, is a row that says so.
    """
    built: dict[str, Built] = {}
    status: dict[str, str] = {}
    checks: list[dict[str, Any]] = []
    for one in contestants:
        try:
            found = ready(one, case, small, checks)
        except Exception as error:
            found = message(error)
        if isinstance(found, str):
            status[one.name] = found
        else:
            built[one.name] = found
    times = interleave(built, repeats)
    rows = []
    for one in contestants:
        at = question, one.name, case.relation if one.private else NO_RELATION
        if one.must_be_rejected:
            continue
        if one.name in status:
            rows.append(row(*at, case.shape, status=status[one.name]))
            continue
        mine, ready_one = times[one.name], built[one.name]
        line = {
            "value": statistics.median(mine),
            "unit": f"s a {unit}",
            "seconds": spread(mine),
            "repeats": len(mine),
            "units_in_a_run": ready_one.units,
            "compile_seconds": ready_one.compile_seconds,
            "bytes_touched": ready_one.bytes_touched,
            "temporary_bytes": ready_one.temporary_bytes,
        }
        if ready_one.alone:
            line["queued"] = line["value"] * ready_one.units / QUEUE
            line["alone"] = statistics.median(
                wall(lambda turn=turn, one=ready_one: one.alone(turn)) for turn in range(9)
            )
        if one.name != REFERENCE:
            line |= versus(mine, times.get(REFERENCE), REFERENCE)
        if judged:
            line["bar"] = {"at_least": one.bar} if one.bar else None
            line["reach"] = {"at_least": one.reach} if one.reach else None
        rows.append(row(*at, one.timed(case).shape, **line))
    return rows, checks


class Worker:
    """Another process, of another Python, that answers one JSON line for each JSON line."""

    def __init__(self, command: list[str]):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

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
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.strip()


def _processor() -> str | None:
    path = pathlib.Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.*)", path.read_text()) if path.exists() else []
    return next(iter(names), platform.processor() or None)


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
        "versions": {"dpjax": dpjax.__version__} | {name: version(name) for name in PACKAGES},
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


def summary(
    rows: list[dict[str, Any]], checks: list[dict[str, Any]], quick: bool, wrong: list[str]
) -> Iterator[str]:
    """What was checked, and how many bars are met."""
    controls = [check for check in checks if check.get("control")]
    judged = [line["met"] for line in rows if "met" in line]
    if checks:
        yield f"Checks: {len(checks) - len(controls)}, failed: {', '.join(wrong) or 'none'}."
    if controls:
        rejected = sum(not check["passed"] for check in controls)
        yield f"Controls with a wrong distribution: {len(controls)}, rejected: {rejected}."
    if judged:
        met = "which a quick run does not judge." if quick else f"met: {sum(judged)}."
        yield f"Bars: {len(judged)}, {met}"


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
    the table; so does a row that failed.
    """
    hidden = ("out", "tumult_python")  # paths
    settings = {name: value for name, value in vars(args).items() if name not in hidden}
    where = environment()
    document = {"benchmark": benchmark, "settings": settings, "environment": where}
    document |= {"checks": checks, "rows": rows, **rest}
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    wrong = [
        f"{check['contestant']} ({check['relation']})"
        for check in checks
        if not check.get("control") and not check["passed"]
    ]
    print("\n".join([figures.machine(where), *summary(rows, checks, args.quick, wrong), *notes]))
    print("\n" + (table or tables.of_rows(rows, judge=not args.quick)), flush=True)
    wrong += [line["contestant"] for line in rows if line["status"].startswith("failed")]
    if wrong:
        raise SystemExit(f"These failed: {', '.join(wrong)}.")
