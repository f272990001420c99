"""What users write, under one ``jax.jit``: records to a draw, many draws, error bars; time, memory,
page faults, compilation.

python benchmarks/one_jit.py [--rows 4096] [--points 1001] [--cases draw many raw errors compile]
[--quick] [--out FILE]

Ratios are taken turn by turn within one run. Processor time is that of all threads: it hardly moves
with other work.
"""

import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import contestants
import dpjax
import harness
from harness import Built, Case, row

try:
    import numba_rivals
except ImportError:  # Numba is not installed: its rows say so
    numba_rivals = None

CASES = ("draw", "many", "raw", "errors", "compile")
PAGE = resource.getpagesize()


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def ratios(built: dict[str, Built], repeats: int) -> dict[str, dict[str, Any]]:
    """Wall and processor seconds of every contestant in turns, and its page faults a call."""
    calls = {}
    for name, one in built.items():
        one.run(0), one.run(1)
        start = time.perf_counter()
        one.run(2)
        calls[name] = max(1, min(100, round(5e-3 / max(time.perf_counter() - start, 1e-7))))
    found: dict[str, dict[str, list[float]]] = {
        name: {"wall": [], "processor": [], "faults": []} for name in built
    }
    for turn in range(repeats):
        first = turn % len(built)
        for name in [*built][first:] + [*built][:first]:
            before, wall, processor = faults(), time.perf_counter(), time.process_time()
            for call in range(calls[name]):
                built[name].run(turn * calls[name] + call)
            taken = time.perf_counter() - wall, time.process_time() - processor, faults() - before
            for kind, value in zip(found[name], taken, strict=True):
                found[name][kind].append(value / calls[name])
    return found


def compared(
    question: str,
    case: str,
    relation: str,
    built: dict[str, Built],
    repeats: int,
    against: str,
    bars: dict,
) -> list[dict]:
    """One row for each contestant: its time over that of ``against``, turn by turn."""
    found = ratios(built, repeats)
    rows = []
    for name, times in found.items():
        shares = {
            kind: statistics.median(
                a / b for a, b in zip(times[kind], found[against][kind], strict=True)
            )
            for kind in ("wall", "processor")
        }
        rows.append(
            row(
                question,
                name,
                relation,
                case,
                value=statistics.median(times["wall"]),
                unit="s",
                seconds=harness.spread(times["wall"]),
                processor_seconds=statistics.median(times["processor"]),
                page_faults=statistics.median(times["faults"]),
                temporary_bytes=built[name].temporary_bytes,
                compile_seconds=built[name].compile_seconds,
                ratio=shares["wall"] if name != against else None,
                processor_ratio=shares["processor"] if name != against else None,
                reference=against if name != against else None,
                bar=bars.get(name),
            )
        )
    return rows


def jitted(function: Callable, *args: Any, units: int = 1, keyed: bool = True) -> Built:
    return harness.build_jax(function, *args, units=units, keyed=keyed)


def draw(case: Case, repeats: int) -> list[dict]:
    """Sorted records (as the naive rival has them: a profile) to one draw of each row; and with the
    sort.
    """
    profile = case.profile(jnp.asarray(case.sorted_data))
    mechanism = jax.jit(lambda profile: dpjax.piecewise_laplace(profile, case.epsilon))
    sample = jax.jit(lambda key, d: d.sample(key))
    one = jitted(
        lambda key, profile: dpjax.piecewise_laplace(profile, case.epsilon).sample(key), profile
    )
    built = {
        "naive jitted Gumbel-max": contestants.naive_draws()(case),
        "dpjax, one jit": one,
        "dpjax, two jits": Built(
            lambda turn: jax.block_until_ready(sample(jax.random.key(turn), mechanism(profile))), 1
        ),
        "dpjax, from a distribution": jitted(lambda key, d: d.sample(key), mechanism(profile)),
        "dpjax, sorted records sorted again": jitted(
            lambda key, x: case.distribution(x).sample(key), case.sorted_data
        ),
        "one read of the edges": contestants.read_with_jax(jnp.max)(case),
    }
    if numba_rivals:
        built["Numba"] = numba_rivals.single()(case)
    bars = {"dpjax, one jit": {"at_most": 1 / (20 if case.relation == "swap" else 15)}}
    rows = compared(
        "sorted records to a draw",
        case.shape,
        case.relation,
        built,
        repeats,
        "naive jitted Gumbel-max",
        bars,
    )
    own, two = (
        next(r for r in rows if r["contestant"] == name)
        for name in ("dpjax, one jit", "dpjax, two jits")
    )
    pages = profile_bytes(case) / PAGE
    for question, reference, value, most in (
        ("one jit over two jits", "dpjax, two jits", own["value"] / two["value"], 1.1),
        ("temporary memory", "the profile", one.temporary_bytes / profile_bytes(case), 0.5),
        ("page faults a call", "the profile's pages", own["page_faults"] / pages, 0.1),
    ):
        rows.append(share(question, "dpjax, one jit", case, value, reference, most))
    return rows


def share(
    question: str, contestant: str, case: Case, value: float, reference: str, most: float
) -> dict:
    """A row for a ratio that is itself what was measured."""
    at = (question, contestant, case.relation, case.shape)
    return row(*at, value=value, unit="", ratio=value, reference=reference, bar={"at_most": most})


def profile_bytes(case: Case) -> int:
    profile = case.profile(jnp.asarray(case.sorted_data))
    return profile.upper.nbytes + profile.lower.nbytes


def many(case: Case, draws: int, repeats: int) -> list[dict]:
    """Many draws of each row."""
    distribution = case.distribution(jnp.asarray(case.data))
    built = {
        "jax.random.laplace": contestants.plain_laplace((draws,))(case),
        "dpjax": jitted(lambda key, d: d.sample(key, (draws,)), distribution),
        "dpjax, from raw records": jitted(
            lambda key, x: case.distribution(x).sample(key, (draws,)), case.data
        ),
    }
    if numba_rivals:
        built["Numba"] = numba_rivals.repeated(draws)(case)
    shape = f"{case.shape}, {draws} draws each, epsilon {case.epsilon}"
    return compared(
        "many draws",
        shape,
        case.relation,
        built,
        repeats,
        "jax.random.laplace",
        {"dpjax": {"at_most": 3}},
    )


def raw(case: Case, repeats: int) -> list[dict]:
    """Raw records to one draw of each row."""
    built = {
        "np.sort alone": contestants.numpy_sort(case),
        "dpjax, one jit": contestants.library_from_raw(case),
        "dpjax, not under jit": Built(
            lambda turn: jax.block_until_ready(
                case.distribution(case.data).sample(jax.random.key(turn))
            ),
            1,
        ),
    }
    if numba_rivals:
        built["np.sort and Numba"] = numba_rivals.single(from_raw=True)(case)
    return compared(
        "raw records to a draw",
        case.shape,
        case.relation,
        built,
        repeats,
        "np.sort alone",
        {"dpjax, one jit": {"at_most": 1.6}},
    )


def errors(case: Case, repeats: int) -> list[dict]:
    """Error bars of each row."""
    distribution = case.distribution(jnp.asarray(case.data))
    at = jnp.median(jnp.asarray(case.data), axis=-1)
    forms = {
        "mean_abs_error": jitted(lambda d, at: d.mean_abs_error(at), distribution, at, keyed=False),
        "interval": jitted(lambda d: d.interval(0.95), distribution, keyed=False),
        "cdf": jitted(lambda d, at: d.cdf(at), distribution, at, keyed=False),
        "mean": jitted(lambda d: d.mean(), distribution, keyed=False),
        "stddev": jitted(lambda d: d.stddev(), distribution, keyed=False),
        "entropy": jitted(lambda d: d.entropy(), distribution, keyed=False),
    }
    built = {"one read of the edges": contestants.read_with_jax(jnp.max)(case), **forms}
    if numba_rivals:
        built["Numba, mean_abs_error"] = numba_rivals.mean_abs_error(case)
    bars = {name: {"at_most": 20} for name in ("mean_abs_error", "interval")}
    rows = compared(
        "closed forms", case.shape, case.relation, built, repeats, "one read of the edges", bars
    )
    size = profile_bytes(case)
    for name, one in forms.items():
        own = next(r for r in rows if r["contestant"] == name)
        rows.append(
            share("temporary memory", name, case, one.temporary_bytes / size, "the profile", 0.5)
        )
        rows.append(
            share(
                "page faults a call",
                name,
                case,
                own["page_faults"] / (size / PAGE),
                "the profile's pages",
                0.1,
            )
        )
    return rows


def compilation(case: Case, repeats: int) -> list[dict]:
    """Processor seconds from a Python function to an executable, each after clearing caches."""
    x = jnp.asarray(case.sorted_data)
    distribution = case.distribution(x)
    key = jax.random.key(0)
    edges, levels, center = contestants.pieces(case)
    work = {
        "naive jitted Gumbel-max": (
            lambda key, e, lv: contestants.naive_gumbel(key, e, lv, center, 1.0),
            key,
            edges,
            levels,
        ),
        "one draw": (lambda key, x: case.distribution(x).sample(key), key, x),
        "many draws": (lambda key, d: d.sample(key, (10_000,)), key, distribution),
        "mean_abs_error": (lambda d: d.mean_abs_error(0.0), distribution),
        "interval": (lambda d: d.interval(0.95), distribution),
    }
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, (function, *args) in work.items():
            jax.clear_caches()
            start = time.process_time()
            jax.jit(lambda *args, function=function: function(*args)).lower(*args).compile()
            taken[name].append(time.process_time() - start)
    naive = taken["naive jitted Gumbel-max"]
    rows = []
    for name, seconds in taken.items():
        share = statistics.median(a / b for a, b in zip(seconds, naive, strict=True))
        rows.append(
            row(
                "compilation",
                name,
                case.relation,
                case.shape,
                value=statistics.median(seconds),
                unit="s of processor",
                ratio=share,
                reference="naive jitted Gumbel-max",
                bar={"at_most": 2} if seconds is not naive else None,
            )
        )
    return rows


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--points", type=int, default=1001)
    parser.add_argument("--draws", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--relations", nargs="+", default=["swap", "add_remove"])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    if args.quick:
        args.rows, args.points, args.draws = 1024, 101, [1000]
    repeats = args.repeats or (1 if args.quick else 9)
    rows = []
    if numba_rivals is None:
        rows.append(row("Numba", "Numba", harness.NO_RELATION, "all", status="not installed"))
    for relation in args.relations:
        case = Case(args.rows, args.points, relation)
        if "raw" in args.cases:
            rows += raw(case, repeats)
        if args.quick and relation != args.relations[0]:
            continue  # a quick run has the other questions under one relation
        if "draw" in args.cases:
            rows += draw(case, repeats)
        if "errors" in args.cases:
            rows += errors(case, repeats)
        if "many" in args.cases:
            for draws in args.draws:
                turns = repeats if draws < 10**5 else min(repeats, 5)
                for epsilon in (1.0,) if args.quick or draws >= 10**5 else (1.0, 0.02):
                    rows += many(
                        Case(min(args.rows, 100), args.points, relation, epsilon=epsilon),
                        draws,
                        turns,
                    )
        if "compile" in args.cases:
            rows += compilation(case, 1 if args.quick else min(repeats, 3))
    harness.finish("one_jit", args, rows, [])


if __name__ == "__main__":
    main()
