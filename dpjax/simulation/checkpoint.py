"""Checkpoints of simulations, written atomically and rejected if they belong to another run.

The file is one line with a magic word and the SHA-256 of the rest, which is a NumPy ``.npz``
archive. The *fingerprint* of a run names everything that its results depend on except the number of
draws.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import time
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpjax.simulation.sharded_rows import Rows
from dpjax.simulation.summaries import State
from dpjax.version import __version__

_MAGIC = b"dpjax-simulation-2"
Fingerprint = dict[str, str]


class Checkpoint:
    """A file with the state of one run, which is written at regular intervals.

    Attributes:
        first_chunk: a digest of the first chunk's summary; empty until it is known.
    """

    REDO = "Continue it with the same arguments, or use another path."

    def __init__(self, path: str | PathLike[str], every: float) -> None:
        """Check the folder and the number of seconds between saves."""
        self._path, self._every, self.first_chunk = Path(path), every, ""
        self._fingerprint: Fingerprint = {}
        self._chunks, self._time = -1, 0.0
        if not every >= 0:
            raise ValueError(
                f"checkpoint_every must be a nonnegative number of seconds, got {every}."
            )
        if not self._path.parent.is_dir():
            raise ValueError(f"{self} must be in an existing folder.")
        if self._path.is_dir():
            raise ValueError(f"{self} must be a file, but is a folder.")

    def __str__(self) -> str:
        return f"checkpoint {str(self._path)!r}"

    def load(self, fingerprint: Fingerprint, empty: State) -> State:
        """Return the saved state of the run with this fingerprint, or ``empty`` without a file.

        Raises:
            ValueError: the file is damaged or not a checkpoint, or belongs to another run: the
                message names the differences.
        """
        self._fingerprint = fingerprint
        if not self._path.exists():
            return empty
        header, _, archive = self._path.read_bytes().partition(b"\n")
        if header != _header(archive):
            raise ValueError(
                f"{self} is damaged or not a checkpoint of this version: delete it to start again."
            )
        try:
            with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
                saved = dict(json.loads(str(arrays["fingerprint"])))
                fields: dict[str, Any] = {name: arrays.get(name) for name in State._fields}
        except Exception as error:  # NumPy, zipfile and json have no common exception
            raise ValueError(f"{self} cannot be read: delete it to start again.") from error
        different = [
            f"{name} (saved {saved.get(name)}, now {value})"
            for name, value in fingerprint.items()
            if saved.get(name) != value
        ]
        if different:
            raise ValueError(
                f"{self} belongs to another run; differences: {'; '.join(different)}. {self.REDO}"
            )
        if not _possible(fields, empty, int(fingerprint["chunk"])):
            raise ValueError(
                f"{self} has values that no run can have written: delete it to start again."
            )
        self.first_chunk = saved.get("first chunk", "")
        return State(**{**fields, "chunks": int(fields["chunks"]), "draws": int(fields["draws"])})

    def save(self, state: State) -> None:
        """Write the state, if it is new, to a temporary file in the same folder and rename it."""
        if state.chunks == self._chunks:
            return
        archive = io.BytesIO()
        fields = {name: value for name, value in state._asdict().items() if value is not None}
        np.savez(
            archive,
            fingerprint=np.array(json.dumps(self._fingerprint | {"first chunk": self.first_chunk})),
            **fields,
        )
        content = archive.getvalue()
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        with open(temporary, "wb") as file:
            file.write(_header(content) + b"\n" + content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
        self._chunks, self._time = state.chunks, time.monotonic()

    def save_if_due(self, state: State) -> None:
        """Save if the interval since the last save has passed."""
        if time.monotonic() - self._time >= self._every:
            self.save(state)


def _possible(fields: dict[str, Any], empty: State, chunk: int) -> bool:
    """Test whether a run that starts with the state ``empty`` can have these values."""

    def alike(value: Any, of: Any) -> bool:
        kind = None if of is None else (np.shape(of), np.asarray(of).dtype)
        return kind == (None if value is None else (value.shape, value.dtype))

    if not all(alike(value, of) for value, of in zip(fields.values(), empty, strict=True)):
        return False
    state = State(**fields)
    if state.chunks == 0:
        return all(
            of is None or np.all(value == of) for value, of in zip(state, empty, strict=True)
        )
    with np.errstate(all="ignore"):
        width, draws = state.maximum - state.minimum, float(state.draws)
        rounding = 1e-5 * width + 1e-14 * np.maximum(abs(state.minimum), abs(state.maximum))
        inside = (state.minimum - rounding <= state.mean) & (state.mean <= state.maximum + rounding)
        spread = (state.squares >= 0) & (state.squares <= draws * (width + rounding) ** 2)
        # A row without a distribution is NaN, and results near the end of the range may be.
        sound = (inside & spread) | ~(width < 1e37)
        known = (
            np.zeros(1)
            if state.counts is None
            else np.where(np.isnan(width), 0, np.sum(state.counts, axis=-1) - state.draws)
        )
    positive = state.counts is None or bool(np.all(state.counts >= 0))
    complete = 0 < state.chunks <= 2**32 and state.draws == state.chunks * chunk
    return bool(complete and positive and np.all(sound) and np.all(known == 0))


def _header(archive: bytes) -> bytes:
    return _MAGIC + b" " + hashlib.sha256(archive).hexdigest().encode()


def fingerprint(
    key: jax.Array,
    rows: Rows,
    distribution_fn: Any,
    data: Any,
    statistic: Any,
    draws: jax.ShapeDtypeStruct,
    edges: np.ndarray | None,
) -> Fingerprint:
    """Return the fingerprint of a run; ``draws`` has the shape of a chunk.

    Functions are represented by their programs.
    """
    data = jax.tree.map(lambda leaf: leaf[: rows.here], data)
    draws = jax.ShapeDtypeStruct((draws.shape[0], rows.here, *draws.shape[2:]), draws.dtype)
    return {
        "key": digest(jax.random.key_data(key)),
        "chunk": str(draws.shape[0]),
        "rows": f"{rows.first} to {rows.first + rows.here - 1}",
        "shape": str(draws.shape[2:]),
        "dtype": str(draws.dtype),
        "data": digest(data),
        "distribution": _program_digest(distribution_fn, data),
        "statistic": "none" if statistic is None else _program_digest(statistic, draws, data),
        "bins": "none" if edges is None else digest(edges),
        "platform": str(rows.mesh.devices.flat[0].platform),
        # Results of other versions may differ in the last place.
        "dpjax version": __version__,
        "jax version": jax.__version__,
        "numpy version": np.__version__,
    }


def digest(tree: Any) -> str:
    """Return a digest of arrays, their shapes and dtypes."""
    sha = hashlib.sha256(str(jax.tree.structure(tree)).encode())
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        sha.update(f"{array.dtype} {array.shape} ".encode())
        sha.update(array.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()[:16]


def _program_digest(function: Any, *arguments: Any) -> str:
    """Return a digest of a function's program, its constants, and its result's static fields.

    Addresses in memory are removed.
    """
    program, result = jax.make_jaxpr(function, return_shape=True)(*arguments)
    text = re.sub(r"0x[0-9a-f]+", "0x", f"{program.jaxpr} {result}")
    return digest([np.frombuffer(text.encode(), np.uint8), *_constants(program)])


def _constants(program: Any) -> list[Any]:
    """Return the constants of a program and of all nested programs (nested jits have their own)."""
    closed = hasattr(program, "consts")
    found = list(program.consts) if closed else []
    for equation in (program.jaxpr if closed else program).eqns:
        for inner in jax.tree.leaves(list(equation.params.values())):
            if hasattr(inner, "eqns"):
                found += _constants(inner)
        found += [
            value.val
            for value in equation.invars
            if hasattr(value, "val") and isinstance(value.val, np.ndarray | jax.Array)
        ]
    return found
