"""A mechanism is a function that knows what it costs: its guarantee is an attribute of it."""

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

_Arguments = ParamSpec("_Arguments")
_Outcome = TypeVar("_Outcome", covariant=True)
_Public = ParamSpec("_Public")
_Promise = TypeVar("_Promise", covariant=True)
_Typed = TypeVar("_Typed")


class Mechanism(Protocol[_Arguments, _Outcome, _Public, _Promise]):
    """The type of a function with a guarantee."""

    @property
    def guarantee(self) -> Callable[_Public, _Promise]:
        """What one draw costs."""

    def __call__(self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Outcome:
        """Return what the mechanism returns."""


@overload
def with_guarantee(
    guarantee: Callable[_Public, _Promise],
) -> Callable[[Callable[_Arguments, _Outcome]], Mechanism[_Arguments, _Outcome, _Public, _Promise]]: ...


@overload
def with_guarantee(
    guarantee: Callable[..., Any], *, signatures: Callable[..., _Typed]
) -> Callable[[Callable[..., Any]], _Typed]: ...


def with_guarantee(guarantee: Callable[..., Any], *, signatures: Any = None) -> Callable[[Any], Any]:
    """Return a decorator that makes ``guarantee`` an attribute of a mechanism, and changes nothing else of it.

    Args:
        guarantee: a function that returns what one draw costs. Its qualified name becomes that of the attribute, so that it can be
            pickled.
        signatures: for a type checker alone, a protocol with the overloads of a mechanism that has several.

    Returns:
        A decorator, which returns the same function.

    >>> def cost(epsilon):
    ...     return f"{epsilon}-DP"
    >>> @with_guarantee(cost)
    ... def coin(epsilon):
    ...     return 0.5
    >>> coin.guarantee(1.0), coin.guarantee.__qualname__
    ('1.0-DP', 'coin.guarantee')
    """
    del signatures

    def attach(mechanism: Any) -> Any:
        if "." not in guarantee.__qualname__:  # of two mechanisms that share a guarantee, the first names it
            guarantee.__qualname__ = f"{mechanism.__qualname__}.guarantee"
        mechanism.guarantee = guarantee
        return mechanism

    return attach
