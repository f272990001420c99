"""What is public, found in the packages themselves."""

import importlib
import inspect

import dpjax


def modules():
    """Every public package by its name without ``dpjax.``; of ``bounds`` the modules of theorems,
    which are what it lists.
    """
    for name in dir(dpjax):
        package = getattr(dpjax, name)
        if inspect.ismodule(package):
            parts = [getattr(package, part) for part in package.__all__]
            if all(map(inspect.ismodule, parts)):
                yield from ((f"{name}.{part.__name__.split('.')[-1]}", part) for part in parts)
            else:
                yield name, package


def names(module):
    """What a module lists; without a list, what it defines."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]
    return getattr(module, "__all__", own)


def functions():
    """The package and the name of every public function."""
    return [
        (package, name)
        for package, module in modules()
        for name in names(module)
        if callable(value := getattr(module, name)) and not inspect.isclass(value)
    ]


def function(package, name):
    return getattr(importlib.import_module(f"dpjax.{package}"), name)


def classes():
    """Every public class by its package and name; one that two packages list is there once."""
    found = {}
    for package, module in modules():
        for name in names(module):
            if inspect.isclass(value := getattr(module, name)):
                found.setdefault(value, (package, name))
    return {key: value for value, key in found.items()}
