"""Calls of NumPy code from compiled programs on the CPU.

They use XLA's foreign function interface (FFI). ``jax.pure_callback`` converts its arguments to JAX
arrays. These copies wait for a thread of a pool that the callbacks themselves may occupy: with one
core, or with as many callbacks at a time as cores, a program deadlocks (jax-ml/jax#24255). Here a
function gets views of XLA's buffers and writes to XLA's result buffers, without copies.

Programs may still run when the interpreter ends. It would wait for their threads, and these for it.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_int, c_int64, c_size_t, c_void_p
from typing import Any, ClassVar

import jax
import numpy as np

Function = Callable[..., None]


class _Header(ctypes.Structure):
    """The first fields of most structures of XLA's c_api.h; new fields are added at their ends."""

    _fields_: ClassVar[Sequence[Any]] = (("size", c_size_t), ("extension", c_void_p))


class _Version(_Header):
    _fields_ = (("major", c_int), ("minor", c_int))


class _Api(_Header):
    _fields_ = (("version", _Version),)


class _Metadata(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("version", _Version))


class _Extension(ctypes.Structure):
    _fields_ = (
        *(("size", c_size_t), ("kind", c_int), ("next", c_void_p)),
        ("metadata", POINTER(_Metadata)),
    )


class _Buffer(_Header):
    _fields_ = (
        *(("dtype", c_int), ("data", c_void_p)),
        *(("rank", c_int64), ("dims", POINTER(c_int64))),
    )


class _Buffers(_Header):
    _fields_ = (
        *(("count", c_int64), ("types", c_void_p)),
        ("buffers", POINTER(POINTER(_Buffer))),
    )

    def views(self) -> list[np.ndarray]:
        """Return NumPy arrays that share the memory of the buffers."""
        return [_view(self.buffers[i].contents) for i in range(self.count)]


class _Call(_Header):
    _fields_ = (
        *(("api", POINTER(_Api)), ("context", c_void_p), ("stage", c_int)),
        *(("arguments", _Buffers), ("results", _Buffers)),
    )


_METADATA = 1
# XLA_FFI_DataType
_DTYPES = {1: np.bool_, 4: np.int32, 5: np.int64, 8: np.uint32, 11: np.float32, 12: np.float64}
# Functions that compiled programs, also of other processes, may call. Keyed by a digest of the
# function's repr, which is equal in every process.
_functions: dict[tuple[int, ...], Function] = {}


def _view(buffer: _Buffer) -> np.ndarray:
    dtype, shape = np.dtype(_DTYPES[buffer.dtype]), tuple(buffer.dims[: buffer.rank])
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = memoryview((ctypes.c_char * size).from_address(buffer.data) if size else b"")
    return np.frombuffer(raw, dtype).reshape(shape)


@ctypes.CFUNCTYPE(c_void_p, POINTER(_Call))
def _handle(call: Any) -> None:
    frame = call.contents
    extension = ctypes.cast(frame.extension, POINTER(_Extension))
    # XLA asks once for the API version
    if extension and extension.contents.kind == _METADATA:
        version = extension.contents.metadata.contents.version
        version.minor = 1
        if frame.api:
            version.major, version.minor = (
                frame.api.contents.version.major,
                frame.api.contents.version.minor,
            )
        return
    results = frame.results.views()
    if all(result.size == 0 for result in results):
        return
    try:
        which, *arguments = frame.arguments.views()
        # Under vmap the digest is repeated
        function = _functions.get(tuple(which.reshape(-1)[:2].tolist()))
        if function is None:
            raise RuntimeError(
                "a compiled program of another process calls a function that is not registered in "
                "this one."
            )
        function(results, *arguments)
    except BaseException:  # no exception may propagate into XLA
        for result in results:
            result.fill(np.nan)
        sys.excepthook(*sys.exc_info())


jax.ffi.register_ffi_target("dpjax_host_call", jax.ffi.pycapsule(_handle), platform="cpu")


@atexit.register
def _keep_client() -> None:
    """Keep the interpreter from destroying XLA's client, which waits for the client's threads."""
    if _functions:
        client = jax.local_devices(backend="cpu")[0].client
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


_allowed = True


def allowed() -> bool:
    """Return whether programs that are traced now may call NumPy."""
    return _allowed


@contextmanager
def without_host_calls() -> Iterator[None]:
    """Make a context in which programs are traced without calls of NumPy, for ``jax.export``.

    Exported programs then need JAX alone, and no device is assumed: a program that is lowered for
    CUDA uses the code for CUDA, also if it is exported on a machine without a GPU. On the CPU, rows
    are sorted by XLA: draws are the same, but sorting is up to 40 times slower. Compiled programs
    are discarded on entry and exit. This is not thread-safe.

    >>> import jax, jax.numpy as jnp, dpjax
    >>> def draw(key, x):
    ...     return dpjax.piecewise_laplace(
    ...         dpjax.median(x, lower=0, upper=9, neighbors="swap"), 1.0
    ...     ).sample(key)
    >>> from jax import export
    >>> with without_host_calls():
    ...     exported = export.export(jax.jit(draw), platforms=["cpu", "cuda", "tpu"])(
    ...         jax.random.key(0), jnp.zeros(5)
    ...     )
    >>> exported.platforms  # exported.serialize() returns bytes for export.deserialize
    ('cpu', 'cuda', 'tpu')
    """
    global _allowed
    before, _allowed = _allowed, False
    jax.clear_caches()
    try:
        yield
    finally:
        _allowed = before
        jax.clear_caches()


def host_call(
    function: Function,
    results: Sequence[jax.ShapeDtypeStruct],
    *arguments: jax.Array,
    in_place: bool = False,
) -> Sequence[jax.Array]:
    """Return the arrays that ``function(results, *arguments)`` fills, in programs for the CPU only.

    Args:
        function: a function of NumPy arrays, which must not call JAX and must not change its
            arguments. Its ``repr`` must determine its behavior, so that programs are equal in every
            process. If it raises, the exception is printed and the results are NaN.
        results: shapes and float dtypes of the results.
        *arguments: arrays of bool, int32 or floats.
        in_place: whether the first result has the memory of the first argument, which the function
            then finds in it.
    """
    digest = np.frombuffer(hashlib.sha256(repr(function).encode()).digest()[:8], np.uint32)
    _functions.setdefault(tuple(digest.tolist()), function)
    return jax.ffi.ffi_call(
        "dpjax_host_call",
        list(results),
        vmap_method="broadcast_all",
        input_output_aliases={1: 0} if in_place else None,
    )(digest, *arguments)
