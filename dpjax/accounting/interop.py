"""Export of guarantees and compositions to Google's dp-accounting, as its events.

This needs the extra ``accounting``. dp-accounting covers what this package does not reimplement,
such as privacy loss distributions of subsampled Gaussian noise; this package adds bounded range and
tight conversions of pure DP.
"""

from __future__ import annotations

from math import exp, inf, nextafter
from types import ModuleType
from typing import Any, Literal

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee, half_square

_MOST_EVENTS = 100_000  # the maximal number of randomized responses, each a separate object


def to_dp_event(spent: Guarantee | Composition, *, accountant: Literal["rdp", "pld"]) -> Any:
    """Return a ``dp_accounting.DpEvent`` with the cost of a guarantee or composition.

    For the RDP accountant, a mechanism of bounded range r becomes ``ZCDpEvent(r^2 / 8)``, and a
    pure DP mechanism becomes randomized response under swap neighbors and
    ``ZCDpEvent(epsilon tanh(epsilon/2))`` otherwise. A curve of Renyi divergences
    (:func:`poisson_subsample`) is replaced by the rho that the rest of the guarantee implies.

    For the PLD accountant, a pure DP mechanism becomes randomized response on two values, which
    dominates every epsilon-DP mechanism. dp-accounting has this event under replacement only. It is
    repeated instead of self-composed, since release 0.6.0 ignores the count of that event.

    Args:
        spent: the cost, under the relation that the accountant is made for
            (:func:`dp_accounting_relation`).
        accountant: ``"rdp"`` for ``rdp.RdpAccountant``, ``"pld"`` for ``pld.PLDAccountant``.

    Raises:
        ImportError: dp-accounting is not installed.
        ValueError: the accountant has no event for a guarantee, or more than 100,000 mechanisms for
            the PLD accountant.

    References:
        https://github.com/google/differential-privacy/tree/main/python/dp_accounting

    >>> import pytest
    >>> _ = pytest.importorskip("dp_accounting")
    >>> to_dp_event(10 * Guarantee(2.0, 2.0, "swap"), accountant="rdp")
    SelfComposedDpEvent(event=ZCDpEvent(rho=0.5, xi=0.0), count=10)
    """
    library = _dp_accounting()
    checks.one_of("accountant", accountant, ("rdp", "pld"))
    composition = 1 * spent
    if accountant == "pld" and composition.count > _MOST_EVENTS:
        raise ValueError(
            f"{composition.count} events are too many for the PLD accountant: use "
            "Composition.epsilon_at, or the RDP accountant."
        )
    events: list[Any] = []
    for guarantee, count in composition.parts:
        if accountant == "pld":
            events += [_for_pld(guarantee, library)] * count
        else:
            event = _for_rdp(guarantee, library)
            events.append(event if count == 1 else library.SelfComposedDpEvent(event, count))
    return events[0] if len(events) == 1 else library.ComposedDpEvent(events)


def dp_accounting_relation(spent: Guarantee | Composition) -> Any:
    """Return the ``dp_accounting.NeighboringRelation`` of a cost.

    Edge neighbors become ``ADD_OR_REMOVE_ONE``.

    >>> import pytest
    >>> _ = pytest.importorskip("dp_accounting")
    >>> dp_accounting_relation(Guarantee(1.0, 1.0, "swap")).name
    'REPLACE_ONE'
    """
    relation = _dp_accounting().NeighboringRelation
    return relation.REPLACE_ONE if spent.neighbors == "swap" else relation.ADD_OR_REMOVE_ONE


def _for_rdp(guarantee: Guarantee, library: ModuleType) -> Any:
    if guarantee.delta or guarantee.rho == inf:
        kind = (
            "guarantees with a delta" if guarantee.delta else "a curve of Renyi divergences alone"
        )
        raise ValueError(
            f"the RDP accountant has no event for {kind}: {guarantee}; use Composition.epsilon_at."
        )
    known = min(
        guarantee.zcdp,
        half_square(guarantee.gdp),
        guarantee.bounded_range * guarantee.bounded_range / 8,
    )
    # The Renyi curve of randomized response lies below that of its rho, but for a tiny epsilon the
    # accountant loses all digits.
    if guarantee.neighbors == "swap" and guarantee.epsilon > 1e-6 and guarantee.rho < known:
        return _randomized_response(guarantee.epsilon, library)
    return library.ZCDpEvent(guarantee.rho)


def _for_pld(guarantee: Guarantee, library: ModuleType) -> Any:
    if guarantee.neighbors != "swap":
        raise ValueError(
            "the PLD accountant has an event for pure DP under swap neighbors only (randomized "
            f"response under replacement); under {guarantee.neighbors} neighbors use the RDP "
            "accountant, or Composition.epsilon_at, with the same worst-case pair."
        )
    if guarantee.epsilon == inf or guarantee.delta:
        raise ValueError(f"the PLD accountant has an event for pure DP only, not for {guarantee}.")
    return _randomized_response(guarantee.epsilon, library)


def _randomized_response(epsilon: float, library: ModuleType) -> Any:
    noise = 2 * exp(-epsilon) / (1 + exp(-epsilon))
    # Rounded down, as more noise would understate the cost
    return library.RandomizedResponseDpEvent(nextafter(noise, 0.0), 2)


def _dp_accounting() -> ModuleType:
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError(
            'dp-accounting is not installed: pip install "dpjax[accounting]".'
        ) from error
    return dp_accounting
