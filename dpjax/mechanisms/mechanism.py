"""What a mechanism is: a function of data whose annotations say what its public arguments are.

:func:`mechanism` checks the arguments by their annotations, and derives the guarantee of a draw
from the same annotations. In

    @mechanism(ranges=2)
    def k_norm(value: ArrayLike, epsilon: Positive, *, sensitivity: Positive, p: float) -> Radial:

``value`` becomes a float array, ``epsilon`` and ``sensitivity`` become positive numbers of its
dtype, or raise, and ``k_norm.guarantee("swap", 1.0)`` is 1-DP and 2-bounded-range.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from math import inf
from typing import Annotated, Any, ParamSpec, TypeVar, get_args

import jax
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import Mechanism, with_guarantee
from dpjax.batch import Batch
from dpjax.checks.numbers import FINITE, POSITIVE, PROBABILITY, Interval
from dpjax.sensitivity import CandidateScores

_Arguments = ParamSpec("_Arguments")
_Outcome = TypeVar("_Outcome")
_Typed = TypeVar("_Typed")

HALF = Interval("positive and below 0.5", 0, 0.5)
Number = Annotated[ArrayLike, FINITE]
Positive = Annotated[ArrayLike, POSITIVE]
Probability = Annotated[ArrayLike, PROBABILITY]
Half = Annotated[ArrayLike, HALF]
Amount = Annotated[float, POSITIVE]  # of a guarantee


def mechanism(
    promise: Callable[..., Guarantee] | None = None, *, ranges: int = 1
) -> Callable[[Callable[_Arguments, _Outcome]], Mechanism[_Arguments, _Outcome, ..., Guarantee]]:
    """Return a decorator that checks the arguments of a mechanism and adds its guarantee.

    The first argument is the data: an object of one of the classes in its annotation, or a float
    array if that allows arrays; a text in the annotation says where such objects come from. Every
    argument that is annotated by an interval, and is not None, becomes an array of its dtype.

    Args:
        promise: a function of the first argument, or of the name of a relation, and of public
            numbers, which are checked by their annotations, too. Without it, the guarantee is what
            the arguments ``epsilon``, ``delta`` and ``zcdp`` say.
        ranges: the bounded range over epsilon, if there is no delta.
    """

    def decorate(function: Any) -> Any:
        signature = inspect.signature(function, eval_str=True)
        first = next(iter(signature.parameters.values()))
        parts = [*_parts(first.annotation)]
        kinds = tuple(part for part in parts if isinstance(part, type) and issubclass(part, Batch))
        hints = [part for part in parts if isinstance(part, str)]

        def data_of(value: Any) -> Any:
            if isinstance(value, kinds):
                return value
            if kinds and (jax.Array not in parts or isinstance(value, Batch)):
                checks.instance(function.__name__, value, kinds[0], *hints)
            if CandidateScores in kinds:
                return checks.score_array(value)
            return checks.float_array(first.name, value)

        cost = promise or _promise(function, signature, ranges)
        costly = with_guarantee(
            checked(cost, lambda data: data, lambda interval, *given: interval.single(*given[:2]))
        )
        return costly(
            checked(
                function,
                data_of,
                lambda interval, name, value, data: interval.array(name, value, data.dtype),
            )
        )

    return decorate


def overloaded(signatures: Callable[..., _Typed]) -> Callable[[Any], _Typed]:
    """Return a decorator that gives a mechanism the type of a protocol, for type checkers."""
    del signatures
    return lambda mechanism: mechanism


def relation_of(
    statistic: Any, neighbors: str | None = None, *, known: tuple[str, ...] = checks.RELATIONS
) -> str:
    """Return the relation of a profile, scores, records or a guarantee, or the one of a name.

    ``neighbors`` is the relation if ``statistic`` is an array; ``known`` are the relations under
    which the mechanism is private.

    >>> relation_of("swap"), relation_of(Guarantee(1.0, 1.0, "edge"))
    ('swap', 'edge')
    """
    found = getattr(statistic, "neighbors", statistic if neighbors is None else neighbors)
    if neighbors not in (None, found):
        raise ValueError(
            f"neighbors must be {found!r}, the relation of these scores, got {neighbors!r}."
        )
    if not isinstance(found, str):
        raise TypeError(
            "the first argument of guarantee must be that of the mechanism, if it has a neighbor "
            "relation, and otherwise the name of the relation, such as 'add_remove' or 'swap'; "
            f"got {type(statistic).__name__}."
        )
    return checks.one_of("the neighbor relation", found, known)


def one_budget(epsilon: Any, zcdp: Any) -> None:
    """Raise ``ValueError`` unless exactly one of two budgets is given."""
    if (epsilon is None) == (zcdp is None):
        raise ValueError("exactly one of epsilon and zcdp must be given.")


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and all that it is made of: classes, intervals and texts."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def checked(
    function: Callable[..., Any], data_of: Callable[[Any], Any], public_of: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the function of checked data and of public numbers within their intervals.

    The data are the first argument.
    """
    signature = inspect.signature(function, eval_str=True)
    first, *_ = signature.parameters
    intervals = {
        name: part
        for name, public in signature.parameters.items()
        for part in _parts(public.annotation)
        if isinstance(part, Interval)
    }

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        given[first] = data = data_of(given[first])
        for name, interval in intervals.items():
            if given.get(name) is not None:
                given[name] = public_of(interval, name, given[name], data)
        return function(given.pop(first), **given)

    return call


def _promise(function: Any, signature: inspect.Signature, ranges: int) -> Any:
    """Return the function of the first argument and of the budgets in a signature."""

    def guarantee(
        data: Any, *, epsilon: float = inf, delta: float = 0.0, zcdp: float = inf
    ) -> Guarantee:
        most = inf if delta else ranges * epsilon
        return Guarantee(epsilon, most, relation_of(data), delta, zcdp)

    first, *others = signature.parameters.values()
    budgets = [public for public in others if public.name in ("epsilon", "delta", "zcdp")]
    terms: Any = guarantee
    terms.__signature__ = inspect.Signature([first.replace(annotation=first.empty), *budgets])
    terms.__doc__ = f"Return the guarantee of one draw of :func:`{function.__name__}`."
    return terms
