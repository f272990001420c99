"""Draws and error bars on whatever the default device is, against naive Gumbel-max, plain noise,
NumPy, Numba and other libraries.

python benchmarks/draws.py [--only one many raw errors growth billion] [--quick] [--out FILE]

    one       sorted records to one private median of each dataset
    many      the same to many draws of each
    raw       unsorted records to one private median of each dataset
    errors    mean absolute error and interval of each dataset, beside one read of its records
    growth    time for one of a million draws as points grow from 10^3 to 10^6
    billion   10^9 draws by ``dpjax.simulate`` in bounded memory

It needs JAX, NumPy and this checkout on PYTHONPATH, and no network; what is not installed is a row
that says so. NumPy, Numba and the other libraries run on the host, and only where that is the
device. Bars differ for a CPU and an accelerator, and are judged for the largest case. On an
accelerator a time is that of ten calls in a queue, waited for at its end; beside it is that of one
call alone. No case starts after --seconds, and a contestant that fails is a row and the exit status
1.
"""

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import contestants
import dpjax
import harness
import peers
from contestants import NUMPY_SINGLE
from harness import REFERENCE, Case, Contestant, by_cdf, row

try:
    import numba_rivals
except ImportError:  # Numba is not installed: its rows say so
    numba_rivals = None

NAIVE, LAPLACE = "naive jitted Gumbel-max", "jax.random.laplace"
NAMES = ("billion", "one", "raw", "many", "errors", "growth")
SMALL = 8192, 33  # the datasets whose draws are checked
Rows = list[dict[str, Any]]


def naive(bar: float | None = None, reach: float | None = None) -> Contestant:
    return Contestant(NAIVE, contestants.naive(), by_cdf, bar, reach)


def laplace(bar: float | None = None) -> Contestant:
    judge = contestants.by_laplace
    return Contestant(LAPLACE, contestants.plain_laplace, judge, bar, private=False)


def numba(build: str, *given: Any) -> Contestant:
    made = getattr(numba_rivals, build, None)
    missing = None if numba_rivals else "not installed"
    return Contestant("Numba", made(*given) if made and given else made, by_cdf, missing=missing)


def numpy_field(from_raw: bool, bar: float | None = None) -> list[Contestant]:
    """NumPy by cumulative sums, which has the bar, and a stronger rival than the bar asks for."""
    return [
        Contestant(
            f"NumPy, {name}",
            contestants.numpy_single(name, from_raw),
            by_cdf,
            bar if name == "cumulative sums" else None,
        )
        for name in NUMPY_SINGLE
    ]


def read(bar: float) -> Contestant:
    return Contestant("one read of the edges", contestants.read, None, bar, private=False)


def one_draw(relation: str) -> list[Contestant]:
    library = Contestant(REFERENCE, contestants.library, by_cdf)
    control = contestants.control(contestants.naive, by_cdf)
    if not harness.on_cpu():
        return [library, naive(10), laplace(), read(1 / 2), control]
    host = [*numpy_field(from_raw=False), numba("single", False)]
    bar = 20 if relation == "swap" else 15
    return [library, naive(bar), laplace(), read(1 / 25), *host, control]


def many_draws(relation: str) -> list[Contestant]:
    simulated, exact = contestants.simulated, contestants.mean_is_exact
    found = [
        Contestant(REFERENCE, contestants.library, by_cdf),
        Contestant("dpjax.simulate", simulated(), exact, check_draws=1),
        naive(*((300, 700) if harness.on_cpu() else (10,))),
        laplace(1 / 3 if harness.on_cpu() else None),
        contestants.control(contestants.naive, by_cdf),
        contestants.control(simulated, exact, 1),
    ]
    if not harness.on_cpu():
        return found
    interp = contestants.numpy_repeated
    host = [Contestant("NumPy inverse cdf", interp, by_cdf, 2, 3), numba("repeated")]
    return [*found, *host]


def from_raw(relation: str, args: argparse.Namespace) -> list[Contestant]:
    found = [
        Contestant(REFERENCE, contestants.library_from_raw, by_cdf),
        laplace(),
        contestants.control(contestants.naive, by_cdf),
    ]
    if relation == "swap":
        rival = "sort and naive Gumbel-max"
        found.append(Contestant(rival, contestants.naive_from_raw, by_cdf))
    if not harness.on_cpu():
        return [*found, Contestant("jnp.sort alone", contestants.jax_sort, None, private=False)]
    sort = Contestant("np.sort alone", contestants.numpy_sort, None, 1 / 1.6, private=False)
    others = peers.field(relation, args.peer_rows, args.peer_draws, args.tumult)
    host = [*numpy_field(from_raw=True, bar=2), numba("single", True)]
    return [*found, sort, *host, *others]


def error_bars(relation: str, build: Any, judge: harness.Judge) -> list[Contestant]:
    library = Contestant(REFERENCE, build(), judge, check_draws=1)
    return [library, read(1 / 20), naive(), contestants.control(build, judge, 1)]


def shares(rows: Rows, case: Case) -> Rows:
    """Rows for the temporary memory of one draw, and for its compilation."""
    found = {line["contestant"]: line for line in rows if line["status"] == "measured"}
    if not {REFERENCE, NAIVE} <= set(found):
        return []
    profile = contestants.sorted_profile(case)
    size = profile.upper.nbytes + profile.lower.nbytes
    memory = found[REFERENCE]["temporary_bytes"] / size
    seconds, theirs = (found[name]["compile_seconds"] for name in (REFERENCE, NAIVE))
    line = {"value": seconds, "unit": "s", "ratio": seconds / theirs, "reference": NAIVE}
    at = REFERENCE, case.relation, case.shape
    return [
        harness.at_most("temporary memory", REFERENCE, case, memory, "of the profile", 0.5),
        row("compilation of one draw", *at, **line, bar={"at_most": 2}),
    ]


def growth(case: Case, sizes: tuple[int, ...], repeats: int) -> Rows:
    """Time for one draw from one dataset of each size; the ratio is against the smallest."""
    cases = {points: Case(1, points, case.relation, draws=case.draws) for points in sizes}
    built = {f"dpjax, {points} points": contestants.library(cases[points]) for points in sizes}
    times, rows = harness.interleave(built, repeats), []
    first, last = next(iter(built)), [*built][-1]
    for (name, mine), one in zip(times.items(), cases.values(), strict=True):
        line = {"value": statistics.median(mine), "unit": "s a draw"}
        line |= {"compile_seconds": built[name].compile_seconds, "seconds": harness.spread(mine)}
        if name != first:
            line |= harness.versus(mine, times[first], first)
        if name == last:
            line |= {"bar": {"at_most": 4}, "reach": {"at_most": 2}}
        rows.append(row("growth of a draw with points", name, one.relation, one.shape, **line))
    return rows


def peak() -> float:
    """The most memory in GB that this process had so far, or that the device has given it."""
    if not harness.on_cpu():
        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def billion(case: Case, chunk: int) -> Rows:
    """Simulate in chunks, and see that the mean is that of the distribution."""
    data = jnp.asarray(case.data)
    simulate = partial(dpjax.simulate, chunk=chunk)
    small = simulate(jax.random.key(0), case.distribution, data, draws=min(case.draws, 2 * chunk))
    jax.block_until_ready(small.mean)
    start = time.perf_counter()
    found = simulate(jax.random.key(1), case.distribution, data, draws=case.draws)
    mean, standard_error = jax.block_until_ready((found.mean, found.standard_error))
    seconds = time.perf_counter() - start
    off = float(jnp.max(jnp.abs(mean - case.distribution(data).mean()) / standard_error))
    # The exact mean is a float32 closed form, so a few standard errors at 10^7 draws can be
    # rounding; 8 is a wrong distribution.
    if not off < 8 or not bool(jnp.all(jnp.asarray(found.count) == case.draws)):
        raise RuntimeError(f"the mean is {off} standard errors off, or draws are missing.")
    question, name = "10^9 draws", "dpjax.simulate"
    value = seconds / (case.rows * case.draws)
    line = {"value": value, "unit": "s a draw", "whole_seconds": seconds}
    return [
        harness.at_most(question, f"{name}, peak memory", case, peak(), "GB", 2.0),
        row(question, name, case.relation, case.shape, **line),
    ]


def plan(args: argparse.Namespace) -> list[tuple[str, str, Case, Callable[[], Any]]]:
    """Short name, question, case, and what measures it, the most important ones first; but first of
    all memory, since the peak is that of the process.
    """
    quick, cpu = args.quick, harness.on_cpu()
    repeats = args.repeats or (1 if quick else 9)
    sizes = ((4096, 1001),) if cpu else ((65_536, 1001), (4096, 1001), (1_000_000, 101))
    several = ((100, 10_000),) if cpu else ((100, 10_000), (1, 1_000_000), (1, 10_000))
    found: list[tuple[str, str, Case, Callable[[], Any]]] = []

    def contest(
        name: str,
        question: str,
        case: Case,
        field: Callable[[str], list[Contestant]],
        unit: str,
        judged: bool,
    ) -> None:
        small = Case(*SMALL, case.relation, seed=1)
        if name == "many":
            small = Case(512, 33, case.relation, seed=1, draws=1000)
        if quick:
            case = small

        def work() -> tuple[Rows, Rows]:
            here = replace(case)  # whose records are forgotten afterwards
            asked = field(case.relation)
            return harness.contest(question, asked, here, small, repeats, unit, judged)

        found.append((name, question, case, work))

    draws, points = (4 * 10**5, 101) if quick else (10**7, 1001)
    case = Case(4 if quick else 100, points, "add_remove", draws=draws)
    found.append(("billion", "10^9 draws", case, lambda case=case: (billion(case, 10_000), [])))
    for relation in args.relations:
        for place, size in enumerate(sizes[: 1 if quick or relation != "swap" else None]):
            case, first = Case(*size, relation), place == 0
            contest("one", "one draw", case, one_draw, "median", first)
            raw = partial(from_raw, args=args)
            contest("raw", "raw records to a draw", case, raw, "median", first)
            if size[1] != 101:
                for question, build, judge in (
                    (
                        "mean absolute error",
                        contestants.mean_abs_error,
                        contestants.error_by_pieces,
                    ),
                    ("interval", contestants.interval, contestants.holds_95),
                ):
                    bars = partial(error_bars, build=build, judge=judge)
                    contest("errors", question, case, bars, "row", first)
        for rows, number in several[: 1 if quick else None]:
            for epsilon in (1.0,) if quick or not cpu else (1.0, 0.02):
                case = Case(rows, 1001, relation, epsilon, draws=number)
                contest("many", "many draws", case, many_draws, "draw", rows > 1)
        case = Case(1, 1001, relation, draws=10_000 if quick else 10**6)
        grown = (101, 1001) if quick else (1001, 10_001, 100_001, 1_000_001)
        work = partial(growth, case, grown, repeats)
        found.append(("growth", "growth of a draw", case, lambda work=work: (work(), [])))
    order = [name for name in NAMES if name in args.only]
    return sorted(
        (task for task in found if task[0] in order), key=lambda task: order.index(task[0])
    )


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--relations", nargs="+", default=["swap", "add_remove"])
    parser.add_argument("--seconds", type=float, default=480.0, help="start no case after so many")
    parser.add_argument("--tumult-python", help="a Python that has tmlt.core, if this one has not")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    start, python = time.perf_counter(), peers.tumult_python(args.tumult_python)
    args.peer_rows, args.peer_draws = (4, 3000) if args.quick else (100, 10_000)
    args.tumult = peers.Tumult(python) if python else None
    rows: Rows = []
    checks: Rows = []
    for _, question, case, work in plan(args):
        at = question, REFERENCE, case.relation, case.shape
        spent = time.perf_counter() - start
        print(f"{spent:5.0f} s  {' | '.join(at)}", file=sys.stderr, flush=True)
        if spent > args.seconds:
            rows.append(row(*at, status="left out: time"))
            continue
        try:
            found, checked = work()
        except Exception as error:
            found, checked = [row(*at, status=harness.message(error))], []
        if question == "one draw" and harness.on_cpu():
            found += shares(found, replace(case))
        rows, checks = rows + found, checks + checked
    tumult = args.__dict__.pop("tumult")
    harness.finish("draws", args, rows, checks, tumult=tumult.versions if tumult else None)
    if tumult:
        tumult.worker.close()


if __name__ == "__main__":
    main()
