"""The compilation cache: where it is, when there is none, that programs hold no data, and that a second call compiles nothing."""

import argparse
import os
import pathlib
import pickle
import subprocess
import sys
import zlib

import jax
import numpy as np
import pytest
from dpjax.frames.grouping import Grouping

from dpjax import median
from dpjax.command_line import estimate, main, programs
from dpjax.command_line.programs import run_kept
from dpjax.numerics import host_call


@pytest.fixture
def no_folder(monkeypatch):
    """As in a new process: JAX has no folder yet. What a test sets is undone."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update(names[0], None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"HOME": "/home/me"}, "/home/me/.cache/dpjax"),
        ("linux", {"HOME": "/home/me", "XDG_CACHE_HOME": "/fast"}, "/fast/dpjax"),
        ("darwin", {"HOME": "/Users/me"}, "/Users/me/Library/Caches/dpjax"),
        ("win32", {"LOCALAPPDATA": "/me/Local"}, "/me/Local/dpjax/Cache"),
    ],
)
def test_the_folder_is_that_of_the_platform(monkeypatch, platform, variables, folder):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert main.cache_folder() == pathlib.Path(folder)


def test_a_folder_of_the_user_is_used_and_made_private(monkeypatch, tmp_path, no_folder):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    main.keep_compiled_programs()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "dpjax")
    assert (tmp_path / "dpjax").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    main.keep_compiled_programs()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "dpjax")  # what is set already stays


@pytest.mark.parametrize("spoiled", ["a file is there", "anybody may write there"])
def test_without_a_folder_of_its_own_the_run_goes_on(monkeypatch, run, ten, tmp_path, no_folder, spoiled):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "cache").mkdir()
    if spoiled == "a file is there":
        (tmp_path / "cache" / "dpjax").touch()
    else:
        (tmp_path / "cache" / "dpjax").mkdir()
        (tmp_path / "cache" / "dpjax").chmod(0o777)
    outcome = run("median", ten(), "--lower", 1, "--upper", 0, "--neighbors", "swap")
    assert outcome.err == "dpjax: error: --lower must be below --upper: got 1 and 0 for x.\n"
    assert jax.config.jax_compilation_cache_dir is None


def test_the_flag_and_the_demo_keep_nothing(monkeypatch, run, ten):
    kept = []
    monkeypatch.setattr(main, "keep_compiled_programs", lambda: kept.append(True))
    wrong = ("--lower", 1, "--upper", 0)
    run("median", ten(), *wrong, "--neighbors", "swap", "--no-compilation-cache")
    run("demo", *wrong)  # measures what compilation takes
    assert not kept
    run("median", ten(), *wrong, "--neighbors", "swap")
    assert kept


def programs_of(monkeypatch, records, **changes):
    """The text of the program that would be compiled."""
    texts = []

    def lower(*arguments, **options):
        texts.append(program.lower(*arguments, **options).as_text())
        raise StopIteration

    program = estimate._program
    with monkeypatch.context() as patch:
        patch.setattr(estimate, "_program", lower)
        asked = {"quantile": [estimate.Fraction(1, 2)], "neighbors": "add_remove", "definition": "linear", "draws": 1}
        asked |= {"seed": 0, "epsilon": [1.0], "resolution": None, "programs": None} | changes
        batch = next(Grouping(np.zeros(records.size, np.int32), [()]).batches())
        with pytest.raises(StopIteration):
            estimate._answer("laplace", batch.padded(records), batch.sizes, 0, 0.0, 100.0, argparse.Namespace(**asked))
    return texts


def test_a_program_depends_on_nothing_but_the_number_of_records_rounded_up(monkeypatch):
    one, other = np.arange(10.0), np.random.default_rng(0).uniform(0, 100, 33)
    first = programs_of(monkeypatch, one)
    assert programs_of(monkeypatch, other, seed=7, epsilon=[0.5]) == first
    assert programs_of(monkeypatch, one, draws=2) != first


@jax.jit
def halves(x, more):
    return {"half": x / 2, "more": [median(x, lower=0, upper=9, neighbors="swap").upper, more["a"]]}


@pytest.fixture
def other_functions(monkeypatch):
    """What is traced now does not know what programs may call later."""
    yield monkeypatch
    monkeypatch.undo()
    jax.clear_caches()


def test_a_kept_program_is_loaded_and_not_traced_again(other_functions, tmp_path):
    monkeypatch = other_functions
    x, more = np.arange(5.0, dtype=np.float32), {"a": np.uint32(3), "b": None}
    expected = run_kept(None, halves, x, more)
    for _ in range(2):  # each as in a new process
        jax.clear_caches()
        monkeypatch.setattr(host_call, "_functions", {})
        found = run_kept(tmp_path, halves, x, more)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)
    (file,) = tmp_path.iterdir()
    kept = file.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(programs, "_compiled", lambda lowered: pytest.fail("compiled again"))
        np.testing.assert_array_equal(run_kept(tmp_path, halves, 2 * x, more)["half"], x)
    for spoiled in (b"", kept[:-9], zlib.compress(pickle.dumps(3))):
        file.write_bytes(spoiled)
        np.testing.assert_array_equal(run_kept(tmp_path, halves, 2 * x, more)["half"], x)
        assert len(file.read_bytes()) > 1000  # written anew
    run_kept(tmp_path, halves, x[:4], more)  # another shape is another program
    assert len(list(tmp_path.iterdir())) == 2
    np.testing.assert_array_equal(run_kept(tmp_path / "nowhere", halves, 2 * x, more)["half"], x)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["median", "release"])
def test_a_second_call_compiles_nothing(write, tmp_path, command):
    """Other records and, for a release, other entropy: the programs are the same, so neither is a part of them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    options = ("--seed", "1") if command == "median" else ("--resolution", "1")
    found = []
    for records in (range(17), range(20, 52)):
        file = write("x\n" + "".join(f"{x}\n" for x in records))
        arguments = (command, file, "--column", "x", "--lower", "0", "--upper", "100", "--neighbors", "add_remove", *options)
        done = subprocess.run(
            [sys.executable, "-m", "dpjax", *arguments], env=environment, capture_output=True, check=True, timeout=600
        )
        assert done.stderr == b""
        folder = tmp_path / "cache" / "dpjax"
        found.append(
            [(path.name, path.stat().st_mtime_ns) for path in sorted(folder.glob("*-cache" if command == "release" else "*"))]
        )
    assert found[0] == found[1] != []
