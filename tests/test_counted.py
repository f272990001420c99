"""The table of bytes in ``benchmarks/README.md``: what is counted, and where it is written."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from tests.support.pipelines import FURTHER, PIPELINES

FOLDER = pathlib.Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import counted

    return counted


def test_bytes_are_those_of_every_step(counted):
    x = jax.ShapeDtypeStruct((64, 256), np.float32)
    data = 4 * 64 * 256
    # Read and written
    assert counted.counts(lambda x: x + 1, x)["bytes"] == pytest.approx(2 * data, rel=0.01)
    sums = counted.counts(lambda x: jnp.sum(x, axis=1), x)["bytes"]
    assert sums == pytest.approx(data, rel=0.1)
    again = counted.counts(lambda x: jnp.sum(jnp.sort(x * x, axis=1) * x, axis=1), x)
    assert again["bytes"] > 3 * sums  # a sort is a step of its own
    assert again["temporaries"] >= data


def test_a_pipeline_is_counted_as_other_devices_get_it(counted):
    """One way of a draw reads all pieces for Gumbel-max; the CPU's way would call NumPy, and XLA
    would not know what that reads.
    """
    found = counted.count(PIPELINES["plm of the median"], 8, 33)
    assert set(found) == set(counted.COLUMNS)
    assert all(value > 0 for value in found.values())
    noise = counted.count(PIPELINES["laplace"], 8, 33)
    assert noise["draw: bytes"] < found["draw: bytes"] / 10


def test_the_table_is_written_between_its_marks(counted, monkeypatch, tmp_path):
    monkeypatch.setattr(counted, "HERE", tmp_path)
    monkeypatch.setattr(counted, "QUICK", ("laplace",))
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{counted.BEGIN}\nold\n{counted.END}\n\nafter\n")
    monkeypatch.setattr(
        "sys.argv", ["counted.py", "--quick", "--rows", "4", "--points", "9", "--write"]
    )
    counted.main()
    text = readme.read_text()
    assert text.startswith(f"before\n\n{counted.BEGIN}\n\n**Counted, not measured**")
    assert text.endswith(f"\n\n{counted.END}\n\nafter\n")
    assert "| laplace | 4 x 9 | " in text
    assert "old" not in text


def test_the_committed_table_has_every_pipeline(counted):
    text = (FOLDER / "README.md").read_text().split(counted.BEGIN)[1].split(counted.END)[0]
    for name in [*PIPELINES, *FURTHER]:
        assert f"| {name} | " in text, name
    assert set(counted.QUICK) <= {*PIPELINES, *FURTHER}


def test_every_public_mechanism_is_among_the_pipelines():
    source = (pathlib.Path(__file__).parent / "support" / "pipelines.py").read_text()
    mechanisms = [
        name
        for name in dpjax.mechanisms.__all__
        if hasattr(getattr(dpjax.mechanisms, name), "guarantee")
    ]
    missing = [
        name
        for name in mechanisms
        if f"{name}(" not in source and f"{name}_distribution(" not in source
    ]
    assert missing == []
