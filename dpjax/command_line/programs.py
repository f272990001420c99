"""Compiled programs on disk: JAX's own cache saves compiling a program again, this one also tracing it, most of what is left."""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from jax.experimental.serialize_executable import deserialize_and_load, serialize

import dpjax
from dpjax.numerics import host_call


def run_kept(folder: Path | None, program: Any, *arguments: Any, **static: Any) -> Any:
    """Run a jitted function, which the folder keeps for the next process.

    A file holds the machine code, what the results look like, and the NumPy functions that the code calls. Its name says what the
    code depends on: the sources, the versions, the machine, the shapes of the arguments and the ``repr`` of the static ones; not
    the values. What is loaded is run, so only the user may write to the folder. A program that cannot be loaded is compiled.
    """
    if folder is None:
        return program(*arguments, **static)
    file = folder / f"{_name(program, arguments, static)}.program"
    try:
        *stored, functions = pickle.loads(zlib.decompress(file.read_bytes()))
        for function in functions:
            host_call.register(function)
        return jax.block_until_ready(deserialize_and_load(*stored)(*arguments))
    except Exception:  # of any kind: there is no file, it was cut off, or this XLA does not want it
        compiled = _compiled(program.lower(*arguments, **static))
    part = file.with_suffix(f".{os.getpid()}")
    try:
        part.write_bytes(zlib.compress(pickle.dumps((*serialize(compiled), host_call.registered())), 1))
        part.replace(file)
    except Exception:  # the device cannot hand its programs out, or there is no space left: the next call compiles again
        part.unlink(missing_ok=True)
    return compiled(*arguments)


def _compiled(lowered: Any) -> Any:
    """Without JAX's own cache: XLA cannot write programs that it has read."""
    used = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]

    def use(cache: bool) -> None:
        jax.config.update("jax_enable_compilation_cache", cache)
        reset_cache()  # JAX remembers the setting from the first compilation

    use(False)
    try:
        return lowered.compile()
    finally:
        use(used)


def _name(program: Any, arguments: Any, static: dict[str, Any]) -> str:
    leaves, tree = jax.tree.flatten(arguments)
    described = (
        *(program.__module__, program.__name__, sorted(static.items()), str(tree)),
        [(np.shape(leaf), str(jax.dtypes.result_type(leaf))) for leaf in leaves],
        *(jax.__version__, np.__version__, jax.config.values, os.environ.get("XLA_FLAGS")),
        *(jax.default_backend(), jax.devices()[0].device_kind, platform.python_version(), platform.node(), _processor()),
        sorted((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in Path(dpjax.__path__[0]).rglob("*.py")),
    )
    return hashlib.sha256(repr(described).encode()).hexdigest()[:32]


def _processor() -> str:
    """The machine's kind, and on Linux what instructions it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    known = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {known}"
