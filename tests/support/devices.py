"""Programs as other devices than the CPU get them, on any machine; and programs on one device."""

from contextlib import contextmanager, nullcontext
from unittest import mock

import jax
import numpy as np


@contextmanager
def as_on_other_devices():
    """Programs that are traced within it go the way that other devices than the CPU take, whatever
    they are compiled for.

    They are kept apart from programs of the same functions that are traced elsewhere by a setting
    on which they do not depend: every product of matrices in the library states its precision. So
    nothing need be forgotten and compiled again.
    """
    apart = jax.default_matmul_precision("highest")
    anywhere = mock.patch.object(jax, "default_backend", return_value="other")
    with anywhere, mock.patch.object(jax.lax, "platform_dependent", _default), apart:
        yield


def _default(*arrays, cpu, default):
    del cpu
    return default(*arrays)


class On:
    """Runs functions on one device, and brings their results back.

    Args:
        device: on which everything runs.
        way: a context in which programs are traced.
    """

    def __init__(self, device, way=nullcontext):
        self.device, self.way = device, way

    def __call__(self, function, *given, **static):
        with self.way(), jax.default_device(self.device):
            found = function(*jax.device_put(given, self.device), **static)
        return jax.tree.map(np.asarray, found)
