"""The fixed cases whose values are recorded: one list, for ``record.py``, which writes them, and for the test, which compares.

A family is a function that returns ``{case: {quantity: values}}``, computed in the precision that JAX has at that moment; if
``quick``, some of the cases only. The word behind the last dot of a quantity says what it is and thereby how exactly it has to be
met (see ``compare.py``). Nothing is drawn: what the library computes from fixed data is recorded.

Only public names are used, looked up when they are called, so that what is renamed is renamed here in one place.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.golden import distributions, promises
from tests.golden.distributions import Values


@dataclass(frozen=True)
class Family:
    """Cases of a kind.

    Attributes:
        compute: from ``quick`` to values.
        recorded_as: the family whose record it has to meet, its own if empty; one with another's record is not recorded.
        dtypes: in which precisions it is recorded. What is computed by Python and NumPy does not depend on JAX's: float64 only.
        quick: whether it has a part for the default run, in each of these precisions.
    """

    compute: Callable[[bool], Values]
    recorded_as: str = ""
    dtypes: tuple[str, ...] = ("float64", "float32")
    quick: tuple[str, ...] = ("float64", "float32")


FAMILIES = {
    "line": Family(distributions.line, quick=()),
    "line_one_by_one": Family(distributions.line_one_by_one, recorded_as="line", dtypes=("float64",), quick=()),
    "finite": Family(distributions.finite, quick=("float64",)),
    "sensitivities": Family(distributions.sensitivities, quick=()),
    "noise": Family(distributions.noise, quick=()),
    "guarantees": Family(promises.guarantees, dtypes=("float64",)),
    "accounting": Family(promises.accounting, dtypes=("float64",), quick=()),
    "conversions": Family(promises.conversions, quick=()),
    "budgets": Family(promises.budgets, quick=()),
    "auditing": Family(promises.auditing, quick=()),
    "worst_neighbor": Family(promises.worst_neighbor, dtypes=("float64",), quick=()),
    "metrics": Family(promises.metrics, quick=()),
    "metric_mechanisms": Family(promises.metric_mechanisms, quick=()),
    "metric_fits": Family(promises.metric_fits, quick=()),
    "bounds": Family(promises.bounds, quick=()),
}
