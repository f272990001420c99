"""Monte Carlo in bounded memory: chunks of draws are summarized on devices and merged on the host.

Chunk number i draws with ``fold_in(key, i)``, so its draws do not depend on the number of later
chunks. The distributions are evaluated once; then each chunk is one jitted call on all devices, and
the next chunk is computed while the host merges the last one.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.random.keys import check_key
from dpjax.simulation.checkpoint import Checkpoint, digest, fingerprint
from dpjax.simulation.sharded_rows import AXIS, Devices, DistributionFn, Rows, evaluate, place
from dpjax.simulation.summaries import ChunkSummary, Estimate, State, summarize, to_host

_VALUES = 2**20  # values of a chunk over all rows, unless the data have more numbers
_SECONDS = 5.0  # between lines of progress
Statistic = Callable[[jax.Array, Any], jax.Array]
Chunks = Callable[[int, int], ChunkSummary]


@dataclass(frozen=True)
class Progress:
    """The progress of a run, as passed to the ``progress`` function of :func:`dpjax.simulate`.

    Attributes:
        done: the number of draws of each row so far, including those of a resumed run.
        total: the total number of draws of each row.
        seconds: the time since this call started its first chunk.

    >>> Progress(done=500, total=1000, seconds=2.0).done
    500
    """

    done: int
    total: int
    seconds: float


Reporter = Callable[[Progress], object]


def simulate(
    key: jax.Array,
    distribution_fn: DistributionFn,
    data: Any,
    *,
    draws: int,
    statistic: Statistic | None = None,
    bins: ArrayLike | None = None,
    chunk: int | None = None,
    devices: Devices | None = None,
    first_row: int | None = None,
    progress: Reporter | Literal["auto"] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
) -> Estimate:
    """Estimate the mean and histogram of a statistic of draws from every row, in bounded memory.

    Closed forms of the distribution (``mean_abs_error``, ``quantile``) are exact and cheaper, where
    available.

    Results depend on the key, on ``chunk`` and on the kind of device, but not on the number of
    devices, bitwise. (With a ``statistic`` that computes logarithms, exponentials or sums, they may
    differ in the last place, which XLA rounds according to the shape of the array.) Draw j of chunk
    i is draw j of ``distribution.sample(jax.random.fold_in(key, i), (chunk,))``.

    Args:
        key: a scalar typed threefry key.
        distribution_fn: a function from rows of ``data`` to a distribution whose batch shape starts
            with them: ``(rows, ...)``. It must treat rows independently, because each device gets
            some of them. It is compiled, as by ``jax.jit``: a new function object is compiled
            again. Any distribution of this library is accepted, and any other pytree with
            ``sample(key, shape)`` and ``batch_shape``; that is evaluated and sampled row by row
            under ``jax.vmap``, row r with ``fold_in(key, r)``, up to its own rounding.
        data: a pytree of arrays with a common leading axis of rows. On several processes
            (``jax.distributed``), each passes its own rows and gets their estimates; only the
            numbers of rows are exchanged.
        draws: the number of draws from each row, at least 1.
        statistic: a function from draws, ``(chunk, rows, ...)``, and the same rows of ``data`` to
            values with the same two leading axes; by default the draws themselves. To compare two
            groups, give each row a distribution of batch shape ``(rows, 2)``: then ``draws`` are
            ``(chunk, rows, 2)``. Arrays that belong to rows must be part of ``data``.
        bins: ascending edges ``(k+1,)`` of a histogram.
        chunk: the number of draws of each row that are in memory at a time; by default such that
            there are 2^20 values over all rows, or as many as there are numbers in ``data``.
        devices: a list of devices of this process, or a mesh (its axes are flattened); by default
            all. Rows are distributed over devices, so one row runs on one device.
        first_row: the index of this process's first row in the whole batch. By default processes
            are in order, which takes one exchange of their numbers of rows; with it, there is none
            (and the default ``chunk`` counts these rows only).
        progress: a function that takes a :class:`dpjax.simulation.Progress` after each chunk (a
            tqdm bar ``bar`` is advanced by ``bar.update(progress.done - bar.n)``); ``"auto"`` for a
            tqdm bar if stderr is a terminal, and nothing otherwise; without tqdm for a line on
            stderr every five seconds.
        checkpoint: a file for the state. The same call continues a run that was interrupted, with
            bitwise the same results. It may ask for more draws than before: the last partial chunk
            is never saved but drawn again as part of a full one, so the result is that of one run.
            Each process needs its own file.
        checkpoint_every: seconds between saves; 0 for every chunk.

    Returns:
        An :class:`dpjax.simulation.Estimate`; its ``standard_error`` is that of the Monte Carlo
        simulation, not of the data.

    Raises:
        TypeError: ``distribution_fn`` or ``statistic`` returns an object of the wrong type.
        ValueError: the batch does not start with the rows, or the checkpoint is of another run or
            damaged.

    Privacy:
        Estimates are functions of the data, with any number of draws: they evaluate a mechanism and
        are not its private output.

    References:
        Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance.

    >>> import jax, jax.numpy as jnp, dpjax
    >>> means = jnp.array([1.0, 5.0])
    >>> mechanism = lambda x: dpjax.laplace(x, 1.0, sensitivity=1.0)
    >>> error = lambda draws, x: jnp.abs(draws - x)
    >>> key = jax.random.key(0)
    >>> estimate = simulate(key, mechanism, means, draws=100_000, statistic=error)
    >>> mean, deviation = estimate.mean, estimate.standard_error  # exactly 1, and 1/sqrt(100 000)
    >>> mean.round(1).tolist(), deviation.round(3).tolist()
    ([1.0, 1.0], [0.003, 0.003])
    """
    key = check_key(key)
    draws = checks.static_integer("draws", draws, 1)
    if not (progress is None or progress == "auto" or callable(progress)):
        raise ValueError(f"progress must be None, 'auto' or a function, got {progress!r}.")
    checks.takes("distribution_fn", distribution_fn, "data")
    if statistic is not None:
        checks.takes("statistic", statistic, "draws", "data")
    keep = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every)
    rows, data = place(data, devices, first_row)
    distribution, width = evaluate(rows, distribution_fn, data)
    if chunk is None:
        numbers = (
            sum(leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(data)) * rows.everywhere
        )
        chunk = max(1, max(_VALUES, numbers) // max(1, rows.everywhere * width))
    chunk = checks.static_integer("chunk", chunk, 1, 2**31 - 1)
    if draws > 2**32 * chunk:
        raise ValueError(
            f"draws must be at most 2^32 chunks: with chunk={chunk}, {2**32 * chunk}; got {draws}."
        )
    run, sampled, found, edges = _chunks(key, rows, distribution, data, statistic, bins, chunk)
    state = State.empty((rows.here, *found.shape[1:]), None if edges is None else len(edges))
    if keep is not None:
        state = keep.load(
            fingerprint(key, rows, distribution_fn, data, statistic, sampled, edges), state
        )
        if state.draws > draws:
            raise ValueError(
                f"draws must be at least {state.draws}, the number that {keep} already has, got "
                f"{draws}."
            )
        # The same program may round differently on another machine, which one repeated chunk shows.
        if state.chunks and keep.first_chunk != digest(to_host(run(0, chunk), rows.here)):
            raise ValueError(
                f"{keep} was written on a machine on which the first chunk differs. {keep.REDO}"
            )
    report = _report_to_stderr() if progress == "auto" else progress
    return _run(run, state, draws, chunk, rows.here, report, keep).estimate(edges)


def _chunks(
    key: jax.Array,
    rows: Rows,
    distribution: Any,
    data: Any,
    statistic: Statistic | None,
    bins: ArrayLike | None,
    chunk: int,
) -> tuple[Chunks, jax.ShapeDtypeStruct, jax.ShapeDtypeStruct, np.ndarray | None]:
    """Return a function that draws and summarizes chunks, its shapes, and the edges."""
    # Two programs: in one, XLA's CPU compiler repeats the draws in every sum, and may not
    # terminate.
    sample = rows.sampler((chunk,))
    draws = sample.eval_shape(key, distribution)
    edges = None if bins is None else _edges(bins, draws.dtype)
    drawn, by_row = PartitionSpec(None, AXIS), PartitionSpec(AXIS)
    static = statistic, None if edges is None else tuple(edges.tolist())
    summary = rows.map(_summary, (drawn, PartitionSpec(), by_row), by_row, *static)
    # Like the draws.
    placed = jax.ShapeDtypeStruct(
        draws.shape, draws.dtype, sharding=NamedSharding(rows.mesh, drawn)
    )
    found = summary.eval_shape(placed, np.int32(0), data).minimum

    def run(number: int, keep: int) -> ChunkSummary:
        return summary(
            sample(jax.random.fold_in(key, np.uint32(number)), distribution), np.int32(keep), data
        )

    return run, draws, found, edges


def _summary(
    statistic: Statistic | None,
    edges: tuple[float, ...] | None,
    draws: jax.Array,
    keep: jax.Array,
    data: Any,
) -> ChunkSummary:
    """Summarize the draws of one device's rows."""
    values = draws if statistic is None else _values(statistic(draws, data), draws)
    return summarize(values, keep, None if edges is None else jnp.asarray(edges, draws.dtype))


def _values(found: Any, draws: jax.Array) -> jax.Array:
    """Check what a statistic returned for the rows of one device."""
    if not isinstance(found, jax.Array) or not (
        jnp.issubdtype(found.dtype, jnp.floating) or found.dtype.kind in "bui"
    ):
        raise TypeError(f"statistic must return one array of real numbers, got {found}.")
    if found.shape[:2] != draws.shape[:2]:
        raise ValueError(
            f"statistic must preserve the axes of draws and rows, {draws.shape[:2]} here, got "
            f"shape {found.shape}."
        )
    return found.astype(draws.dtype)


def _edges(bins: ArrayLike, dtype: Any) -> np.ndarray:
    edges = np.asarray(bins)
    if edges.ndim != 1 or not len(edges) or edges.dtype.kind not in "buif":
        raise ValueError(
            f"bins must be a one-dimensional array of at least one edge, got shape {edges.shape} "
            f"and dtype {edges.dtype}."
        )
    edges = edges.astype(dtype)
    if not np.all(edges[1:] > edges[:-1]) or np.isnan(edges).any():
        raise ValueError(f"bins must be ascending (in {np.dtype(dtype).name}), got {bins}.")
    return edges


def _run(
    run: Chunks,
    state: State,
    draws: int,
    chunk: int,
    rows: int,
    report: Reporter | None,
    keep: Checkpoint | None,
) -> State:
    """Run the chunks that follow a state of full chunks, up to ``draws`` draws."""
    start = time.monotonic()

    def start_chunk(number: int) -> tuple[int, ChunkSummary | None]:
        size = max(0, min(chunk, draws - number * chunk))  # number of its draws that count
        return size, run(number, size) if size else None

    if keep is not None:
        keep.save(state)
    complete = state
    size, ahead = start_chunk(state.chunks)
    try:
        while ahead is not None:
            number, count, current = state.chunks, size, ahead
            size, ahead = start_chunk(number + 1)
            summary = to_host(current, rows)
            state = state.merge(summary, count)
            if count == chunk:
                complete = state
                if keep is not None and number == 0:
                    keep.first_chunk = digest(summary)
            if report is not None:
                report(Progress(state.draws, draws, time.monotonic() - start))
            if keep is not None:
                keep.save_if_due(complete)
    finally:
        if keep is not None:
            keep.save(complete)
    return state


def _report_to_stderr() -> Reporter:
    """Return a reporter: a tqdm bar on a terminal and nothing in a pipe, or lines without tqdm."""
    return _bar() if importlib.util.find_spec("tqdm") else _lines()


def _bar() -> Reporter:
    bar: Any = None

    def report(progress: Progress) -> None:
        nonlocal bar
        if bar is None:
            make = importlib.import_module(
                "tqdm.auto" if "ipykernel" in sys.modules else "tqdm"
            ).tqdm
            bar = make(
                total=progress.total, unit=" draws", unit_scale=True, disable=None, file=sys.stderr
            )  # None: but on a terminal
        bar.update(progress.done - bar.n)
        if progress.done == progress.total:
            bar.close()

    return report


def _lines() -> Reporter:
    """Return a function that writes a line every few seconds, and a last one if there were any."""
    written = 0.0

    def report(progress: Progress) -> None:
        nonlocal written
        due = progress.seconds - written >= _SECONDS
        if due or (written > 0 and progress.done == progress.total):
            written = progress.seconds
            share = 100 * progress.done / progress.total
            print(
                f"{progress.done:,} of {progress.total:,} draws ({share:.1f} %), "
                f"{progress.seconds:.0f} s",
                file=sys.stderr,
            )

    return report
