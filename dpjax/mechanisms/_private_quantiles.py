"""Several private quantiles, by a mechanism chosen from the number of levels."""

from __future__ import annotations

from typing import Literal, get_args

from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.mechanisms._independent_quantiles import IndependentQuantiles, independent_quantiles
from dpjax.mechanisms._joint_quantiles import joint_quantiles
from dpjax.mechanisms._nested_quantiles import NestedQuantiles, nested_quantiles
from dpjax.mechanisms._recursive_quantiles import RecursiveQuantiles, recursive_quantiles
from dpjax.sensitivity.sorted_records import SortedRecords
from dpjax.several_quantiles.joint import JointQuantiles

Method = Literal["auto", "joint", "nested", "recursive", "independent"]
_JOINT = 32  # levels up to which a joint draw is the default


def guarantee(asked: SortedRecords, epsilon: float, *, method: Method = "auto") -> Guarantee:
    """Return the guarantee of one draw of :func:`private_quantiles`.

    >>> import jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(jnp.arange(9.0), [0.25, 0.75], lower=0, upper=9, neighbors="swap")
    >>> print(private_quantiles.guarantee(asked, 0.5))
    0.5-DP and 0.5-bounded-range under swap neighbors
    """
    checks.instance(
        "guarantee",
        asked,
        SortedRecords,
        "from dpjax.quantiles: the guarantee depends on the number of levels",
    )
    chosen = _chosen(asked, method)
    if chosen == "joint":
        return joint_quantiles.guarantee(asked, epsilon)
    if chosen == "nested":
        return nested_quantiles.guarantee(asked, epsilon)
    return (recursive_quantiles if chosen == "recursive" else independent_quantiles).guarantee(
        asked, epsilon
    )


@with_guarantee(guarantee)
def private_quantiles(
    asked: SortedRecords, epsilon: ArrayLike, *, method: Method = "auto"
) -> JointQuantiles | NestedQuantiles | RecursiveQuantiles | IndependentQuantiles:
    """Return the joint distribution of all requested quantiles, by a mechanism for their number.

    ``"auto"`` depends on the number m of levels only, which is public: one level uses piecewise
    Laplace, 2 to 32 a joint draw, and more nested draws. Mean absolute errors for m evenly spaced
    levels of 1000 incomes between 0 and 10^6:

        m     joint, epsilon .5    recursive    joint, epsilon 2    recursive
        3     370                  420          98                  120
        19    1500                 12000        300                 740
        31    7000                 13000        520                 710
        63    70000                24000        960                 2600

    The cost of a joint draw is proportional to m^2, that of the recursion to m. A public number of
    records halves the error of extreme quantiles and makes a joint draw cheap: see
    :func:`dpjax.joint_quantiles`.

    Args:
        asked: the result of :func:`dpjax.quantiles`, batch shape ``(...)``.
        epsilon: positive, for all quantiles together.
        method: ``"auto"``, ``"joint"``, ``"nested"``, ``"recursive"`` or ``"independent"``. For
            many levels, nested draws have half the error of recursive ones, which are faster for
            long rows with ``truncate`` in :func:`dpjax.recursive_quantiles`.

    Returns:
        The distribution that the mechanism returns; ``.sample(key, shape)`` has quantiles on its
        last axis.

    Privacy:
        epsilon-DP under the relation of ``asked``; see the mechanism.

    References:
        Gillenwater, Joseph and Kulesza (2021); Kaplan, Schnapp and Stemmer (2022); Durfee (2025).

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(jnp.arange(100.0), [0.5], lower=0, upper=100, neighbors="add_remove")
    >>> private_quantiles(asked, 1.0).sample(jax.random.key(0), (5,)).shape
    (5, 1)
    """
    checks.instance("private_quantiles", asked, SortedRecords, "from dpjax.quantiles")
    chosen = _chosen(asked, method)
    if chosen == "joint":
        return joint_quantiles(asked, epsilon)
    if chosen == "nested":
        return nested_quantiles(asked, epsilon)
    if chosen == "recursive":
        return recursive_quantiles(asked, epsilon)
    return independent_quantiles(asked, epsilon)


def _chosen(asked: SortedRecords, method: Method) -> str:
    checks.one_of("method", method, get_args(Method))
    if method != "auto":
        return method
    m = len(asked.levels)
    return "independent" if m == 1 else "joint" if m <= _JOINT else "nested"
