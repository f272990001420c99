"""No traps: a public name is what it says, no module hides a function or has its name, and each
name is in one list.
"""

import builtins
import importlib
import inspect
import pickle
import pkgutil
import sys
import types

import pytest

import dpjax
from tests.contracts.calls import CALLS, calls_of
from tests.contracts.objects import ABSTRACT, OBJECTS
from tests.contracts.public import classes, function, functions

ROOMS = [name for name in dir(dpjax) if inspect.ismodule(getattr(dpjax, name))]
# The theorems about a mechanism are in a module
DOCUMENTED_AS_MODULES = {f"dpjax.bounds.{name}" for name in dpjax.bounds.__all__}


def packages():
    yield dpjax
    for found in pkgutil.walk_packages(dpjax.__path__, "dpjax."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            if found.ispkg:
                yield module


def functions_of(package):
    """The names that a package lists, of what is called and is no class. Some are compiled, and no
    plain functions.
    """
    listed = {name: getattr(package, name) for name in getattr(package, "__all__", ())}
    return {
        name for name, value in listed.items() if callable(value) and not inspect.isclass(value)
    }


def traps(package, functions):
    """Modules of a package with the name of a function, or hidden by something else that has their
    name.
    """
    found = []
    for module in pkgutil.iter_modules(package.__path__):
        whole = f"{package.__name__}.{module.name}"
        if module.name in functions and not module.ispkg and whole not in DOCUMENTED_AS_MODULES:
            found.append(whole)
        hidden = vars(package).get(module.name)
        if hidden is not None and not inspect.ismodule(hidden):
            found.append(f"{whole} is hidden")
    return found


def test_no_module_has_the_name_of_a_public_function_or_is_hidden_by_one():
    at_the_top = functions_of(dpjax)
    assert {"piecewise_laplace", "joint_quantiles", "mean", "simulate"} <= at_the_top
    seen = list(packages())
    assert {
        dpjax.mechanisms,
        dpjax.metric_privacy,
        dpjax.auditing,
        dpjax.release,
        dpjax.statistics,
    } <= set(seen)
    assert [
        trap for package in seen for trap in traps(package, at_the_top | functions_of(package))
    ] == []


def test_control_a_module_named_as_a_function_is_found(tmp_path):
    (tmp_path / "median.py").write_text("")
    package = types.ModuleType("dpjax.somewhere")
    package.__path__ = [str(tmp_path)]
    assert traps(package, functions_of(dpjax)) == ["dpjax.somewhere.median"]
    package.median = dpjax.median
    assert traps(package, set()) == ["dpjax.somewhere.median is hidden"]


def test_a_name_that_a_package_lists_is_a_module_only_where_that_is_said():
    for package in packages():
        for name in getattr(package, "__all__", ()):
            if inspect.ismodule(getattr(package, name)):
                assert (
                    package is dpjax and name in ROOMS
                ) or f"{package.__name__}.{name}" in DOCUMENTED_AS_MODULES, name
            elif name[0].islower():
                assert callable(getattr(package, name)), (package.__name__, name)


def test_a_mechanism_is_the_function_that_its_package_has_under_its_name():
    mechanism = dpjax.piecewise_laplace
    assert dpjax.mechanisms.piecewise_laplace is mechanism
    assert pickle.loads(pickle.dumps(mechanism)) is mechanism
    assert list(inspect.signature(mechanism).parameters) == ["profile", "epsilon", "rho", "support"]
    assert list(inspect.signature(mechanism.guarantee).parameters) == ["profile", "epsilon"]


def test_a_star_import_shadows_nothing_of_python():
    names = {}
    exec("from dpjax import *", names)
    assert names["median"] is dpjax.median
    python = {*dir(builtins), *sys.stdlib_module_names}
    assert {name for name in names if not name.startswith("__")} & python == set()
    # They are there for those who write dpjax.sum
    assert {"random", "statistics", "sum"} == set(dir(dpjax)) & python
    assert set(dpjax.__all__) == set(dir(dpjax)) - python


def test_the_one_list_agrees_with_what_each_package_has():
    assert {*dpjax._NAMES} == {*ROOMS}
    names = [name for each in dpjax._NAMES.values() for name in each]
    assert len(names) == len(set(names))
    for package, listed in dpjax._NAMES.items():
        room = getattr(dpjax, package)
        assert {*listed} <= {*room.__all__}, package
        assert all(getattr(dpjax, name) is getattr(room, name) for name in listed)
        assert list(listed) == sorted(listed)


def test_every_public_function_has_a_call():
    assert set(functions()) == {(package, name) for package in CALLS for name in calls_of(package)}


@pytest.mark.parametrize(
    "name", [name for name in dpjax.__all__ if inspect.isfunction(getattr(dpjax, name))]
)
def test_signatures_and_docstrings(name):
    """Key and data come first, everything else by keyword, and no boolean flips a meaning."""
    found = getattr(dpjax, name)
    parameters = list(inspect.signature(found).parameters.values())
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert len(positional) <= 3
    assert "key" not in positional[1:]
    for parameter in parameters:
        assert not isinstance(parameter.default, bool)
        if parameter.name == "key" or (
            parameter.name == "neighbors" and name not in ("count", "histogram")  # they have one
        ):
            assert parameter.default is parameter.empty
    for section in ("Args:", "Returns:", "Privacy:", "References:"):
        assert section in found.__doc__


def test_everything_public_has_an_example():
    public = {*functions(), *classes()}
    assert {name for name in public if ">>>" not in function(*name).__doc__} == set()


def test_every_public_class_has_an_object():
    listed = {(package, name) for package, each in OBJECTS.items() for name in each}
    assert listed | ABSTRACT == set(classes())
