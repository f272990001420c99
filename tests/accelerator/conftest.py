"""The device under test: the first that is no CPU, or with ``DPJAX_TEST_DEVICE=cpu`` the CPU, made
to go the way of the others.
"""

import os
import pathlib

import jax
import pytest

from tests.support.devices import On, as_on_other_devices


def _device():
    if os.environ.get("DPJAX_TEST_DEVICE") == "cpu":
        return jax.devices("cpu")[0]
    return next((device for device in jax.devices() if device.platform != "cpu"), None)


def pytest_collection_modifyitems(items):
    ours = [item for item in items if pathlib.Path(__file__).parent in item.path.parents]
    device = _device() if ours else None
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        if device is None:
            item.add_marker(
                pytest.mark.skip(
                    reason="there is no accelerator; DPJAX_TEST_DEVICE=cpu runs this on the CPU"
                )
            )
        elif device.platform != "cpu":  # programs as users get them
            item.add_marker(pytest.mark.optimized)


@pytest.fixture(scope="session")
def under_test():
    device = _device()
    return On(device, as_on_other_devices) if device.platform == "cpu" else On(device)


@pytest.fixture(scope="session")
def on_cpu():
    """The CPU's way."""
    return On(jax.devices("cpu")[0])
