"""Monte-Carlo evaluation in bounded memory: chunks of draws, summarised where they are drawn and merged on the host.

Chunk number i draws with ``fold_in(key, i)``, so its draws do not depend on how many chunks come after. The laws are evaluated
once; then each chunk is one jitted call on all devices, and the next one is under way while the host merges the last.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from functools import partial
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from dpjax.distributions import PiecewiseExponential, sampling
from dpjax.random.keys import check_key
from dpjax.simulation import checkpoint as saved
from dpjax.simulation.progress import Reporter, reporting
from dpjax.simulation.rows import AXIS, Devices, DistributionFn, Laws, Rows, evaluate, place, traced
from dpjax.simulation.summaries import ChunkSummary, Estimate, State, summarize, to_host

_VALUES = 2**20  # in a chunk, over all rows, unless the laws have more edges than that
Chunks = Callable[[int, int], ChunkSummary]


def simulate(
    key: jax.Array,
    distribution_fn: DistributionFn,
    data: Any,
    *,
    draws: int,
    statistic: Callable[[jax.Array, Any], jax.Array] | None = None,
    bins: ArrayLike | None = None,
    chunk: int | None = None,
    devices: Devices | None = None,
    first_row: int | None = None,
    progress: Reporter | Literal["auto"] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
) -> Estimate:
    """Estimate the mean and the histogram of a statistic of the draws from every row, in bounded memory, on every device.

    Where the law has what you want in closed form (``law.mean_abs_error``, ``law.quantile``), that is exact and cheaper.

    The numbers depend on the key, on ``chunk`` and on the kind of device, and not on how many devices there are, bitwise. (With a
    ``statistic`` that takes logarithms, exponentials or sums, whose last bits XLA rounds by the shape of the array, they may
    differ in the last place.) Draw j of chunk i is draw j of ``law.sample(jax.random.fold_in(key, i), (chunk,))``.

    Args:
        key: a scalar typed threefry key.
        distribution_fn: from rows of ``data`` to a ``PiecewiseExponential`` whose batch shape starts with them: ``(rows, ...)``.
            It is traced and compiled once a call, for the rows of one device, so it must treat rows independently.
        data: a pytree of arrays with a common leading axis of rows. On several processes (``jax.distributed``), each passes its own
            rows and gets their estimates; nothing but the numbers of rows is exchanged.
        draws: how many from each row; any number.
        statistic: from draws, ``(chunk, rows, ...)``, and the same rows of ``data`` to values with the same two leading axes; the
            draws themselves by default. Arrays that belong to rows must come through ``data``.
        bins: ascending edges ``(k+1,)`` of a histogram.
        chunk: how many draws of each row exist at a time; by default about 2^20 over all rows, more if the laws have more edges.
        devices: a list of devices of this process, or a mesh (its axes are flattened); all of them by default. Rows are spread over
            devices, so one row runs on one.
        first_row: the number of this process's first row in the whole batch. By default processes come in order, which takes
            one exchange of their numbers of rows; given, there is none (and the default ``chunk`` counts these rows only).
        progress: a function that takes a :class:`dpjax.simulation.Progress` after each chunk; ``"auto"`` for tqdm if it is
            installed and otherwise a line on stderr every five seconds.
        checkpoint: a file that keeps the state. The same call continues a run that was killed, to the same numbers, bitwise. It
            may ask for more draws than before: the last partial chunk is never saved but drawn again as a part of a whole one, so
            the result is that of one run. Each process needs a file of its own.
        checkpoint_every: seconds between saves; 0 for every chunk.

    Returns:
        An :class:`dpjax.simulation.Estimate`; its ``standard_error`` is that of the Monte Carlo, not of the data.

    Raises:
        TypeError: ``key`` is not a typed key, or ``distribution_fn`` or ``statistic`` returns something else.
        ValueError: a bad option, no rows, a law whose batch does not start with the rows, a checkpoint of another run or damaged.

    Privacy:
        Estimates are functions of the data, with any number of draws: they evaluate a mechanism and are not its output.

    References:
        Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance.

    >>> import jax, jax.numpy as jnp, dpjax
    >>> means = jnp.array([1.0, 5.0])
    >>> estimate = simulate(
    ...     jax.random.key(0), lambda x: dpjax.laplace(x, 1.0, sensitivity=1.0), means, draws=100_000,
    ...     statistic=lambda draws, x: jnp.abs(draws - x[None]),
    ... )
    >>> estimate.mean.round(1).tolist(), estimate.standard_error.round(3).tolist()  # exactly 1, and 1/sqrt(100 000)
    ([1.0, 1.0], [0.003, 0.003])
    """
    key = check_key(key)
    draws = _whole("draws", draws, None)
    if not checkpoint_every >= 0:
        raise ValueError(f"checkpoint_every must be a number of seconds from 0 on, got {checkpoint_every}.")
    if not (progress is None or progress == "auto" or callable(progress)):
        raise ValueError(f"progress must be None, 'auto' or a function, got {progress!r}.")
    path = None if checkpoint is None else _writable(checkpoint)
    rows, data = place(data, devices, first_row)
    laws = evaluate(rows, distribution_fn, data)
    chunk = _default_chunk(rows, laws) if chunk is None else _whole("chunk", chunk, 2**31 - 1)
    if draws > 2**32 * chunk:
        raise ValueError(f"draws must be at most 2^32 chunks: with chunk={chunk}, {2**32 * chunk}; got {draws}.")
    edges = None if bins is None else _edges(bins, laws.law.dtype)
    program, shape = _statistic(statistic, rows, laws, data, chunk)
    run = _chunks(key, rows, laws, data, program, chunk, edges)
    state = State.empty((rows.here, *shape), None if edges is None else len(edges))
    if path is None:
        return _run(run, state, draws, chunk, rows.here, progress, None).estimate(edges)
    fingerprint = _fingerprint(key, rows, laws, data, program, chunk, edges)
    found = saved.load(path, fingerprint, state)
    if found is not None:
        state, before = found
        if state.draws > draws:
            raise ValueError(f"checkpoint {str(path)!r} already has {state.draws} draws of each row; draws={draws} asks for fewer.")
        fingerprint["first chunk"] = before.get("first chunk", "")
        # The same program may round differently on another machine; one chunk again tells.
        if state.chunks and fingerprint["first chunk"] != saved.digest(to_host(run(0, chunk), rows.here)):
            raise ValueError(f"checkpoint {str(path)!r}: the first chunk comes out differently on this machine. {saved.REDO}")
    keep = _Checkpoint(path, fingerprint, checkpoint_every)
    keep.save(state)
    return _run(run, state, draws, chunk, rows.here, progress, keep).estimate(edges)


class _Checkpoint:
    """Where and when to save; the digest of the first chunk is added once it is known."""

    def __init__(self, path: Path, fingerprint: saved.Fingerprint, every: float) -> None:
        self.path, self.fingerprint, self.every = path, fingerprint, every
        self.chunks, self.time = -1, 0.0

    def save(self, state: State) -> None:
        if state.chunks != self.chunks:
            saved.save(self.path, self.fingerprint, state)
            self.chunks, self.time = state.chunks, time.monotonic()

    def save_if_due(self, state: State) -> None:
        if time.monotonic() - self.time >= self.every:
            self.save(state)


def _run(
    run: Chunks,
    state: State,
    draws: int,
    chunk: int,
    rows: int,
    progress: Reporter | Literal["auto"] | None,
    keep: _Checkpoint | None,
) -> State:
    """Go on from a state of whole chunks to ``draws`` draws."""
    sizes = partial(_size, draws, chunk)
    with reporting(progress, draws, state.draws) as report:
        try:
            ahead = run(state.chunks, sizes(state.chunks)) if state.draws < draws else None
            while ahead is not None and sizes(state.chunks) == chunk:
                number, current = state.chunks, ahead
                ahead = run(number + 1, sizes(number + 1)) if sizes(number + 1) else None
                summary = to_host(current, rows)
                if keep is not None and number == 0:
                    keep.fingerprint["first chunk"] = saved.digest(summary)
                state = state.merge(summary, chunk)
                report(state.draws)
                if keep is not None:
                    keep.save_if_due(state)
        finally:
            if keep is not None:
                keep.save(state)
        if ahead is not None:
            state = state.merge(to_host(ahead, rows), sizes(state.chunks))
            report(state.draws)
    return state


def _size(draws: int, chunk: int, number: int) -> int:
    """How many draws of a chunk count."""
    return max(0, min(chunk, draws - number * chunk))


def _chunks(
    key: jax.Array, rows: Rows, laws: Laws, data: Any, program: ClosedJaxpr | None, chunk: int, edges: np.ndarray | None
) -> Chunks:
    # Two programs: in one, XLA's CPU compiler repeats the draws in every sum that takes them, and may not come to an end.
    def draws_of(key: jax.Array, number: jax.Array, law: PiecewiseExponential) -> jax.Array:
        return sampling.sample(jax.random.fold_in(key, number), law, (chunk,), "auto", rows.first_here())

    def summary_of(values: jax.Array, keep: jax.Array, data: Any) -> ChunkSummary:
        if program is not None:
            (found,) = jaxpr_as_fun(program)(values, *jax.tree.leaves(data))
            values = found.astype(values.dtype)
        return summarize(values, keep, None if edges is None else jnp.asarray(edges))

    shared, by_row, drawn = PartitionSpec(), PartitionSpec(AXIS), PartitionSpec(None, AXIS)
    sample = rows.map(draws_of, (shared, shared, laws.specs), drawn)
    summary = rows.map(summary_of, (drawn, shared, by_row), by_row)
    return lambda number, keep: summary(sample(key, np.uint32(number), laws.law), np.int32(keep), data)


def _statistic(
    statistic: Callable[[jax.Array, Any], jax.Array] | None, rows: Rows, laws: Laws, data: Any, chunk: int
) -> tuple[ClosedJaxpr | None, tuple[int, ...]]:
    """Trace the statistic for the rows of one device; also return the axes of its values after the rows."""
    if statistic is None:
        return None, laws.batch[1:]
    draws = jax.ShapeDtypeStruct((chunk, *laws.batch), laws.law.dtype)
    program, values = traced(statistic, draws, rows.structs(data, rows.each))
    numeric = hasattr(values, "dtype") and (jnp.issubdtype(values.dtype, jnp.floating) or values.dtype.kind in "bui")
    if not numeric:
        raise TypeError(f"statistic must return one array of real numbers, got {values}.")
    if values.shape[:2] != (chunk, rows.each):
        raise ValueError(
            f"statistic must keep the axes of draws and rows, {(chunk, rows.each)} here, and returned shape {values.shape}."
        )
    return program, values.shape[2:]


def _default_chunk(rows: Rows, laws: Laws) -> int:
    width = prod(laws.batch[1:])
    edges = rows.everywhere * prod(laws.law.edges.shape[-len(laws.batch) :])
    return max(1, max(_VALUES, edges) // max(1, rows.everywhere * width))


def _edges(bins: ArrayLike, dtype: Any) -> np.ndarray:
    edges = np.asarray(bins)
    if edges.ndim != 1 or not len(edges) or edges.dtype.kind not in "buif":
        raise ValueError(f"bins must be a row of one or more edges, got shape {edges.shape} and dtype {edges.dtype}.")
    edges = edges.astype(dtype)
    if not np.all(edges[1:] > edges[:-1]) or np.isnan(edges).any():
        raise ValueError(f"bins must be ascending (in {np.dtype(dtype).name}), got {bins}.")
    return edges


def _whole(name: str, value: Any, most: int | None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}.") from None
    if number < 1 or (most is not None and number > most):
        raise ValueError(f"{name} must be at least 1{'' if most is None else f' and at most {most}'}, got {number}.")
    return number


def _writable(path: str | PathLike[str]) -> Path:
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"checkpoint {str(path)!r} must lie in a folder that exists.")
    return path


def _fingerprint(
    key: jax.Array, rows: Rows, laws: Laws, data: Any, program: ClosedJaxpr | None, chunk: int, edges: np.ndarray | None
) -> saved.Fingerprint:
    unpadded = jax.tree.map(lambda leaf: leaf[: rows.here], data)
    law = jax.tree.map(lambda leaf, spec: leaf[: rows.here] if spec == PartitionSpec(AXIS) else leaf, laws.law, laws.specs)
    return {
        "key": saved.digest(key),
        "chunk": str(chunk),
        "rows": f"{rows.first} to {rows.first + rows.here - 1}",
        "dtype": str(laws.law.dtype),
        "data": saved.digest(unpadded),
        "law": saved.digest(law),
        "statistic": "none" if program is None else saved.program_digest(program),
        "bins": "none" if edges is None else saved.digest(edges),
        "platform": str(rows.mesh.devices.flat[0].platform),
        **saved.versions(),
    }
