"""Monte Carlo in bounded memory: chunks of draws are summarized on devices and merged on the host.

Chunk number i draws with ``fold_in(key, i)``, so its draws do not depend on the number of later
chunks. The distributions are evaluated once; then each chunk runs on all devices while the host
merges the last one.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, pairwise
from math import inf, prod
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.random.keys import check_key
from dpjax.simulation.checkpoint import Checkpoint, fingerprint
from dpjax.simulation.sharding import Devices, DistributionFn, draw, evaluate, place
from dpjax.simulation.summaries import Estimate, summarize

_VALUES = 2**20  # values of a chunk over all rows, unless the data have more numbers
Statistic = Callable[[jax.Array, Any], jax.Array]


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
    progress: Reporter | Literal[True] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
) -> Estimate:
    """Estimate the mean and histogram of a statistic of draws from every row, in bounded memory.

    Closed forms of the distribution (``mean_abs_error``, ``quantile``) are exact and cheaper, where
    available.

    Draw j of chunk i is draw j of ``distribution.sample(jax.random.fold_in(key, i), (chunk,))``.
    On any number of devices it has the same random words, and results are equal up to rounding.

    Args:
        key: a scalar typed threefry key.
        distribution_fn: a function from rows of ``data`` to a distribution whose batch shape starts
            with them: ``(rows, ...)``. It must treat rows independently: the last one is repeated
            until every device has as many. It is compiled, as by ``jax.jit``: a new function object
            is compiled again. Any distribution of this library is accepted, and any other pytree
            with ``sample(key, shape)`` and ``batch_shape``; what that draws for a row may depend on
            the rows that are added.
        data: a pytree of arrays with a common leading axis of rows. On several processes, each
            simulates its own rows: give each its own key.
        draws: the number of draws from each row, at least 1.
        statistic: a function from draws, ``(chunk, rows, ...)``, and the same rows of ``data`` to
            values with the same two leading axes; by default the draws themselves. To compare two
            groups, give each row a distribution of batch shape ``(rows, 2)``: then ``draws`` are
            ``(chunk, rows, 2)``. Arrays that belong to rows must be part of ``data``.
        bins: ascending edges ``(k+1,)`` of a histogram; values are compared in their own dtype.
        chunk: the number of draws of each row that are in memory at a time; by default such that
            there are 2^20 values over all rows, or as many as there are numbers in ``data``.
        devices: a list of devices of this process, or a mesh (its axes are flattened); by default
            all. Rows are distributed over devices, so one row runs on one device.
        progress: True for a bar of tqdm, or a function that takes a
            :class:`dpjax.simulation.Progress` after each chunk.
        checkpoint: a file for the state. The same call continues a run that was interrupted, with
            the same random words, also on other devices. It may ask for more draws than before: the
            last partial chunk is never saved but drawn again as part of a full one, so the result
            is that of one run. If it asks for fewer, the result is that of all in the file.
        checkpoint_every: seconds between saves; 0 for every chunk.

    Returns:
        An :class:`dpjax.simulation.Estimate`; its ``standard_error`` is that of the Monte Carlo
        simulation, not of the data.

    Raises:
        ImportError: ``progress`` is True and there is no tqdm.
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
    every = checks.static_number("checkpoint_every", checkpoint_every, 0.0, inf)
    edges = None if bins is None else np.asarray(checks.host_floats("bins", bins), np.float64)
    if edges is not None and (edges.ndim != 1 or not np.all(np.diff(edges, prepend=-inf) > 0)):
        raise ValueError(f"bins must be an ascending list of edges, got {bins}.")
    if not (progress is None or progress is True or callable(progress)):
        raise ValueError(f"progress must be None, True or a function, got {progress!r}.")
    checks.takes("distribution_fn", distribution_fn, "data")
    if statistic is not None:
        checks.takes("statistic", statistic, "draws", "data")
    rows, count, mesh = place(data, devices)
    distribution = evaluate(distribution_fn, rows)
    if chunk is None:
        numbers = sum(leaf.size for leaf in jax.tree.leaves(rows))
        chunk = max(1, max(_VALUES, numbers) // max(1, prod(distribution.batch_shape)))
    chunk = checks.static_integer("chunk", chunk, 1)

    # Draws, values and summaries are programs of their own: in one, XLA's CPU compiler repeats the
    # draws in every sum, and may not terminate.
    def start(number: int) -> dict[str, jax.Array]:
        drawn = draw(jax.random.fold_in(key, np.uint32(number)), distribution, (chunk,), mesh)
        values = drawn if statistic is None else jax.jit(statistic)(drawn, rows)
        if np.shape(values)[:2] != drawn.shape[:2]:
            raise ValueError(
                "statistic must return an array that starts with the axes of draws and rows, "
                f"{drawn.shape[:2]} here, got shape {jax.tree.map(jnp.shape, values)}."
            )
        return summarize(values, np.int32(min(chunk, draws - number * chunk)), edges)

    def program(data: Any) -> dict[str, jax.Array]:
        drawn = distribution_fn(data).sample(key, (chunk,))
        return summarize(drawn if statistic is None else statistic(drawn, data), chunk, edges)

    state = Estimate(0, *np.array([0.0, 0.0, inf, -inf]))
    keep = None
    if checkpoint is not None:
        keep = Checkpoint(Path(checkpoint), fingerprint(program, rows, count))
        state = keep.load() or state
        keep.save(state)
    report = _bar(draws) if progress is True else progress
    begin = saved = time.monotonic()
    complete = state  # without a partial chunk
    chunks = range(state.count // chunk, -(-draws // chunk))
    try:
        # The next chunk is started before this one is waited for.
        for summary, _ in pairwise(chain(map(start, chunks), [{}])):
            fields = {name: np.asarray(array)[:count] for name, array in summary.items()}
            size = min(chunk, draws - state.count)
            state = state.merge(Estimate(size, bins=edges, **fields))
            if size == chunk:
                complete = state
            if report is not None:
                report(Progress(state.count, draws, time.monotonic() - begin))
            if keep is not None and time.monotonic() - saved >= every:
                keep.save(complete)
                saved = time.monotonic()
    finally:
        if keep is not None:
            keep.save(complete)
    return state


def _bar(draws: int) -> Reporter:
    tqdm: Any = importlib.import_module("tqdm.auto").tqdm  # an optional dependency
    bar = tqdm(total=draws, unit=" draws", unit_scale=True)
    return lambda progress: bar.update(progress.done - bar.n)
