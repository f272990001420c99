"""The saved state of a run: written so that a reader finds the old state or the new one, refused when it is of another run.

The file is one line with a magic word and the SHA-256 of the rest, which is a NumPy ``.npz`` archive. What a run is, its
*fingerprint*, names everything that its numbers depend on but the number of draws.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from dpjax.simulation.summaries import State
from dpjax.version import __version__

_MAGIC = b"dpjax-simulation-1"
Fingerprint = dict[str, str]
REDO = "Continue it with the same arguments, or give another path."


def save(path: Path, fingerprint: Fingerprint, state: State) -> None:
    """Write the state to a temporary file beside ``path`` and move it there."""
    archive = io.BytesIO()
    fields = {name: value for name, value in state._asdict().items() if value is not None}
    np.savez(archive, fingerprint=np.array(json.dumps(fingerprint)), **fields)
    content = archive.getvalue()
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(_MAGIC + b" " + hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: Path, fingerprint: Fingerprint, empty: State) -> tuple[State, Fingerprint] | None:
    """Read the state of this run and its fingerprint; None if there is no file.

    Raises:
        ValueError: the file is damaged or no checkpoint, or belongs to another run: the message says what differs.
    """
    if not path.exists():
        return None
    content = path.read_bytes()
    header, _, archive = content.partition(b"\n")
    if header != _MAGIC + b" " + hashlib.sha256(archive).hexdigest().encode():
        raise ValueError(f"checkpoint {str(path)!r} is damaged, or not a checkpoint of this version. Delete it to start again.")
    try:
        with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
            saved = json.loads(str(arrays["fingerprint"]))
            fields: dict[str, Any] = {name: arrays.get(name) for name in State._fields}
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"checkpoint {str(path)!r} cannot be read. Delete it to start again.") from error
    different = [
        f"{name} (saved {saved.get(name)}, now {value})" for name, value in fingerprint.items() if saved.get(name) != value
    ]
    if different:
        raise ValueError(f"checkpoint {str(path)!r} belongs to another run; what differs: {'; '.join(different)}. {REDO}")
    state = State(**{**fields, "chunks": int(fields["chunks"]), "draws": int(fields["draws"])})
    if state.mean.shape != empty.mean.shape:
        raise ValueError(f"checkpoint {str(path)!r} holds values of shape {state.mean.shape}, now {empty.mean.shape}. {REDO}")
    return state, saved


def versions() -> Fingerprint:
    """What computes: the numbers of another version or device may differ in the last place."""
    return {"dpjax version": __version__, "jax version": jax.__version__, "numpy version": np.__version__}


def digest(tree: Any) -> str:
    """A digest of arrays, their shapes and dtypes."""
    sha = hashlib.sha256(str(jax.tree.structure(tree)).encode())
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.ascontiguousarray(leaf)
        sha.update(f"{array.dtype} {array.shape} ".encode())
        sha.update(array.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()[:16]


def program_digest(program: ClosedJaxpr) -> str:
    """A digest of a program: its text, without addresses in memory, and all constants in it."""
    text = re.sub(r"0x[0-9a-f]+", "0x", str(program.jaxpr))
    return digest([np.frombuffer(text.encode(), np.uint8), *_constants(program)])


def _constants(program: Any) -> list[Any]:
    """The constants of a program and of all programs inside it (nested jits hold their own)."""
    closed = hasattr(program, "consts")
    found = list(program.consts) if closed else []
    for equation in (program.jaxpr if closed else program).eqns:
        for inner in jax.tree.leaves(list(equation.params.values())):
            if hasattr(inner, "eqns"):
                found += _constants(inner)
        found += [value.val for value in equation.invars if hasattr(value, "val") and isinstance(value.val, np.ndarray | jax.Array)]
    return found
