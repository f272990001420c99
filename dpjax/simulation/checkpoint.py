"""Checkpoints: the estimate of a run in an ``.npz`` file, with a fingerprint of the run.

The fingerprint names everything that draws depend on but their number and the devices. The file is
replaced as a whole, so that a run that is killed leaves the last one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpjax.simulation.summaries import Estimate


@dataclass(frozen=True)
class Checkpoint:
    """A file with the estimate of the run that has this fingerprint."""

    path: Path
    fingerprint: str

    def load(self) -> Estimate | None:
        """Return the saved estimate, or None without a file.

        Raises:
            ValueError: the file cannot be read, or belongs to another run.
        """
        if not self.path.exists():
            return None
        try:
            with open(self.path, "rb") as file, np.load(file) as arrays:
                fields = dict(arrays)
            same = str(fields.pop("fingerprint")) == self.fingerprint
            estimate = Estimate(int(fields.pop("count")), **fields)
        except Exception as error:  # NumPy and zipfile have no common exception
            raise ValueError(
                f"checkpoint {str(self.path)!r} cannot be read: delete it to start again."
            ) from error
        if not same:
            raise ValueError(
                f"checkpoint {str(self.path)!r} belongs to another run: use another path, or the "
                "same key, data, functions, chunk, bins and versions of JAX and dpjax."
            )
        return estimate

    def save(self, estimate: Estimate) -> None:
        """Write the estimate to a temporary file in the same folder and rename it."""
        fields = {name: value for name, value in vars(estimate).items() if value is not None}
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        with open(temporary, "wb") as file:
            np.savez(file, fingerprint=np.array(self.fingerprint), **fields)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)


def fingerprint(chunk: Callable[[Any], Any], rows: Any, count: int) -> str:
    """Return the fingerprint of a run where ``chunk(data)`` summarizes a chunk of ``count`` rows.

    Its program contains the key, the options and all that the functions are.
    """
    data = jax.tree.map(lambda leaf: np.asarray(leaf)[:count], rows)
    sha = hashlib.sha256(jax.jit(chunk).lower(data).as_text().encode())
    for leaf in jax.tree.leaves(data):
        sha.update(leaf.tobytes())
    return sha.hexdigest()
