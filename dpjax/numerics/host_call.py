"""Calls of NumPy code from compiled programs on the CPU, through XLA's foreign function interface.

``jax.pure_callback`` makes JAX arrays of what it passes. Their copies wait for a thread of the pool that the callback itself may be
blocking: with one core, or with as many callbacks at a time as there are cores, a program would wait for ever (jax-ml/jax#24255).
Here the function gets views of XLA's own buffers, and writes into others: nothing is copied, and nothing waits.
"""

import ctypes
import hashlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

import jax
import numpy as np

Function = Callable[..., None]


class _Version(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int))


class _Api(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("version", _Version))


class _Metadata(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("version", _Version), ("traits", c_uint32))


class _Extension(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("kind", c_int), ("next", c_void_p), ("metadata", POINTER(_Metadata)))


class _Buffer(ctypes.Structure):
    _fields_ = (
        *(("size", c_size_t), ("extension", c_void_p), ("dtype", c_int)),
        *(("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64))),
    )


class _Buffers(ctypes.Structure):
    _fields_ = (
        *(("size", c_size_t), ("extension", c_void_p), ("count", c_int64)),
        *(("types", c_void_p), ("buffers", POINTER(POINTER(_Buffer)))),
    )


class _Call(ctypes.Structure):
    """``XLA_FFI_CallFrame`` of XLA's c_api.h, which is stable: fields are only ever added behind these."""

    _fields_ = (
        *(("size", c_size_t), ("extension", POINTER(_Extension)), ("api", POINTER(_Api)), ("context", c_void_p)),
        *(("stage", c_int), ("arguments", _Buffers), ("results", _Buffers)),
    )


_METADATA = 1
_DTYPES = {1: np.bool_, 4: np.int32, 5: np.int64, 8: np.uint32, 11: np.float32, 12: np.float64}  # XLA_FFI_DataType
_lock = threading.Lock()
_functions: dict[tuple[int, ...], Function] = {}  # by a digest of what they are, which is the same in every process


def _view(buffer: _Buffer) -> np.ndarray:
    dtype, shape = np.dtype(_DTYPES[buffer.dtype]), tuple(buffer.dims[: buffer.rank])
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = memoryview((ctypes.c_char * size).from_address(buffer.data) if size else b"")
    return np.frombuffer(raw, dtype).reshape(shape)


@ctypes.CFUNCTYPE(c_void_p, POINTER(_Call))
def _handle(call: Any) -> None:
    frame = call.contents
    if frame.extension and frame.extension.contents.kind == _METADATA:  # XLA asks once which version this was written for
        version = frame.extension.contents.metadata.contents.version
        version.major, version.minor = (frame.api.contents.version.major, frame.api.contents.version.minor) if frame.api else (0, 1)
        return
    results = [_view(frame.results.buffers[i].contents) for i in range(frame.results.count)]
    if all(result.size == 0 for result in results):
        return
    try:
        which, *arguments = (_view(frame.arguments.buffers[i].contents) for i in range(frame.arguments.count))
        function = _functions.get(tuple(which.reshape(-1)[:2].tolist()))  # under vmap it is repeated
        if function is None:  # a program from elsewhere, that was not traced here
            raise RuntimeError("a compiled program of another process calls a function that this one does not have.")
        function(results, *arguments)
    except BaseException:  # none may pass through XLA
        for result in results:
            result.fill(np.nan)
        sys.excepthook(*sys.exc_info())


_ready = False


def register(function: Function) -> np.ndarray:
    """Let programs call a function, also those that another process compiled; return the digest by which they do."""
    global _ready
    which = np.frombuffer(hashlib.sha256(repr(function).encode()).digest()[:8], np.uint32)
    with _lock:
        if not _ready:
            jax.ffi.register_ffi_target("dpjax_host_call", jax.ffi.pycapsule(_handle), platform="cpu")
            _ready = True
        _functions.setdefault(tuple(which.tolist()), function)
    return which


def registered() -> list[Function]:
    """Return all functions that programs may call."""
    with _lock:
        return list(_functions.values())


_allowed = True


def allowed() -> bool:
    """Return whether programs that are traced now may call NumPy."""
    return _allowed


@contextmanager
def without_host_calls() -> Iterator[None]:
    """Return Within it, programs are traced without calls of NumPy, so that ``jax.export`` can write them to be read by JAX alone.

    Nothing is taken for granted about the device: a program that is written for CUDA has the way that is best there, also where it
    is written on a machine without a GPU. On the CPU sorting is XLA's, by the bits of the floats: the draws are the same, but rows
    are sorted several times slower. Programs that were compiled before are forgotten at both ends, and compiled again. Not for
    several threads at a time.

    >>> import jax, jax.numpy as jnp, dpjax
    >>> def draw(key, x):
    ...     return dpjax.piecewise_laplace(dpjax.median(x, lower=0, upper=9, neighbors="swap"), 1.0).sample(key)
    >>> from jax import export
    >>> with without_host_calls():
    ...     exported = export.export(jax.jit(draw), platforms=["cpu", "cuda", "tpu"])(jax.random.key(0), jnp.zeros(5))
    >>> exported.platforms  # exported.serialize() is bytes, which export.deserialize reads anywhere
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


def host_call(function: Function, results: Sequence[jax.ShapeDtypeStruct], *arguments: jax.Array) -> Sequence[jax.Array]:
    """Return what ``function(results, *arguments)``, given NumPy arrays, writes into the results; for programs on the CPU only.

    Args:
        function: its ``repr`` says all that it does, so that programs are the same in every process. It must not call JAX, and it
            leaves its arguments as they are. If it raises, the exception is printed and the results are NaN.
        results: shapes and dtypes, of floats.
        *arguments: arrays of bool, int32 or floats.
    """
    return jax.ffi.ffi_call("dpjax_host_call", list(results), vmap_method="broadcast_all")(register(function), *arguments)
