"""Mechanisms: functions with an attribute ``guarantee`` that returns the cost of a draw."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

_Arguments = ParamSpec("_Arguments")
_Outcome = TypeVar("_Outcome", covariant=True)
_Public = ParamSpec("_Public")
_Promise = TypeVar("_Promise", covariant=True)


class Mechanism(Protocol[_Arguments, _Outcome, _Public, _Promise]):
    """The type of a function with an attribute ``guarantee``."""

    @property
    def guarantee(self) -> Callable[_Public, _Promise]:
        """A function of public arguments that returns the cost of one draw."""

    def __call__(self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Outcome:
        """Return the output distribution."""


def with_guarantee(
    guarantee: Callable[_Public, _Promise],
) -> Callable[[Callable[_Arguments, _Outcome]], Mechanism[_Arguments, _Outcome, _Public, _Promise]]:
    """Return a decorator that adds ``guarantee`` as an attribute to a mechanism.

    Mechanisms have different public arguments, so a TypeError of a wrong call shows them.

    Args:
        guarantee: a function that returns the cost of one draw. The attribute has its own module
            and qualified name, so that it can be pickled.

    Returns:
        A decorator that returns the function it is applied to.

    >>> def cost(epsilon):
    ...     return f"{epsilon}-DP"
    >>> @with_guarantee(cost)
    ... def coin(epsilon):
    ...     return 0.5
    >>> coin.guarantee(1.0), coin.guarantee.__qualname__
    ('1.0-DP', 'coin.guarantee')
    >>> coin.guarantee()
    Traceback (most recent call last):
        ...
    TypeError: missing a required argument: 'epsilon': call coin.guarantee(epsilon)
    """
    signature = inspect.signature(guarantee)

    @functools.wraps(guarantee)
    def cost(*args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
            raise TypeError(f"{error}: call {cost.__qualname__}{inspect.Signature(bare)}") from None
        return guarantee(*args, **kwargs)

    def attach(mechanism: Any) -> Any:
        cost.__module__ = mechanism.__module__
        cost.__qualname__ = f"{mechanism.__qualname__}.guarantee"
        mechanism.guarantee = cost
        return mechanism

    return attach
