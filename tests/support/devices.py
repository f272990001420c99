"""Programs as other devices than the CPU get them, on any machine."""

import jax
import pytest

from dpjax.numerics import batching


class as_on_other_devices:
    """Programs that are traced within it go the way that other devices than the CPU take, whatever they are compiled for.

    They are kept apart from the programs of the same functions that are traced outside of it by a setting on which they do not
    depend (every product of matrices in the library states its precision), so nothing need be compiled twice.
    """

    def __enter__(self):
        self._patch, self._apart = pytest.MonkeyPatch(), jax.default_matmul_precision("highest")
        self._patch.setattr(jax.lax, "platform_dependent", lambda *arrays, cpu, default: default(*arrays))
        self._patch.setattr(batching, "runs_on_cpu", lambda: False)
        self._apart.__enter__()
        return self

    def __exit__(self, *raised):
        self._apart.__exit__(*raised)
        self._patch.undo()
