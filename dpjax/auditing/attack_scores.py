"""Auditing of a training by the scores of an attack.

It uses one run with many canaries or many runs with one. A score measures how likely a record was
in the training data: for example minus its loss, or the inner product of its gradient with the
update. Audits read only the scores and the coins that decided which records were included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing.one_run import OneRunAudit, epsilon_lower_bound
from dpjax.numerics.solve import Array, lower_limit, upper_limit

# The least number of guesses on either side, as fewer show little even if all are correct
_FEWEST = 4


def audit_scores(
    scores: ArrayLike,
    present: ArrayLike,
    *,
    guesses: Sequence[tuple[int, int]] | None = None,
    confidence: float = 0.95,
    delta: float = 0.0,
) -> OneRunAudit:
    """Return a lower bound on the epsilon of one training run from the scores of its canaries.

    The highest scores are guessed to be included and the lowest excluded, with the theorem of
    :func:`p_value`. As the best number of guesses is not known in advance, k numbers are tested,
    each with an error of (1 - confidence)/k, so that all k bounds hold together and the largest is
    reported.

    Args:
        scores: real numbers ``(m,)``, one for each canary, higher for canaries that seem to be
            included: a function of the output of the training (and of the canaries), computed
            without the coins. Among equal scores, wrong guesses are counted first.
        present: bool ``(m,)``, whether each canary was included: independent fair coins, tossed
            before the training.
        guesses: pairs of the number of highest scores guessed to be included and the number of
            lowest scores guessed to be excluded, chosen without the coins. By default (m/2, m/2),
            (m/4, m/4) and so on, down to four. A single good pair gives a sharper bound than many.
        confidence: in (0, 1).
        delta: in [0, 1). The bound is low unless 2 m delta is far below ``1 - confidence`` over the
            number of pairs.

    Returns:
        A :class:`OneRunAudit` with the numbers of the best pair; ``tried`` is the number of pairs.

    Privacy:
        If the training is (epsilon, delta)-DP for adding or removing each canary, the bound is
        above epsilon with probability at most ``1 - confidence``, over the coins and the training.
        A low bound is no evidence of privacy. The canaries are not protected.

    References:
        Steinke, Nasr and Jagielski (2023), "Privacy auditing with one (1) training run", Algorithm
        1 and Theorem 5.2. The correction for several numbers of guesses is not from this paper.

    >>> rng = np.random.default_rng(0)
    >>> present = rng.random(1000) < 0.5
    >>> # Sums of one-hot canaries, with noise of standard deviation 1:
    >>> update = np.where(present, 1.0, 0.0) + rng.normal(size=1000)
    >>> found = audit_scores(update, present, delta=1e-5)
    >>> found.guesses, found.canaries, found.tried, 1 < found.epsilon < 4.4  # 4.38 at delta = 1e-5
    (124, 1000, 7, True)
    """
    confidence, delta = (
        checks.concrete_probability("confidence", confidence),
        checks.concrete_fraction("delta", delta),
    )
    score, coin = _checked(scores, present)
    pairs = (
        _halvings(coin.size)
        if guesses is None
        else [(int(most), int(least)) for most, least in guesses]
    )
    if not pairs or any(min(pair) < 0 or not 0 < sum(pair) <= coin.size for pair in pairs):
        raise ValueError(
            f"guesses must be pairs whose sum is from 1 to the number of canaries, {coin.size}; "
            f"got {guesses}."
        )
    ascending = coin[np.lexsort((~coin, score))]  # ties: included first, so that guesses are wrong
    correct = np.array(
        [ascending[coin.size - most :].sum() + (~ascending[:least]).sum() for most, least in pairs]
    )
    made = np.array([sum(pair) for pair in pairs])
    each = 1 - (1 - confidence) / len(pairs)
    bounds = epsilon_lower_bound(correct, made, confidence=each, canaries=coin.size, delta=delta)
    best = int(bounds.argmax())
    return OneRunAudit(
        float(bounds[best]),
        int(correct[best]),
        int(made[best]),
        coin.size,
        confidence,
        delta,
        tried=len(pairs),
    )


def roc_lower_bound(
    scores: ArrayLike,
    present: ArrayLike,
    *,
    thresholds: ArrayLike,
    confidence: float = 0.95,
    delta: float = 0.0,
) -> Array:
    """Return a lower bound on the epsilon of a training from many runs.

    The thresholds of the score are fixed. It is
    ``max(log((TPR - delta) / FPR), log((1 - FPR - delta) / (1 - TPR)))`` at the Clopper-Pearson
    lower limit of the true positive rate and upper limit of the false positive rate. Thresholds may
    come from other runs, for example. Without any, use
    ``lower_bound(scores[present], scores[~present])``, which chooses a threshold on one half of the
    runs and tests it on the other.

    Args:
        scores: real numbers ``(n,)``, one for each run, of the same canary; higher where it seems
            to be included.
        present: bool ``(n,)``, whether the canary was included, by a coin or by design, in runs
            that are otherwise independent.
        thresholds: real numbers ``(k,)`` or ``()``, chosen without these scores. A score of at
            least the threshold is a guess that the canary was included.
        confidence: in (0, 1), of all thresholds together: each has an error of
            ``(1 - confidence) / k``.
        delta: in [0, 1).

    Returns:
        Float64 of the shape of ``thresholds``; 0 where nothing is shown. All bounds hold together,
        so the largest may be reported.

    Privacy:
        If the training is (epsilon, delta)-DP for adding or removing the canary, the probability
        that any of the bounds is above epsilon is at most ``1 - confidence``. A low bound is no
        evidence of privacy. The canary is not protected.

    References:
        Jagielski, Ullman and Oprea (2020); Nasr, Songi, Thakurta, Papernot and Carlini (2021);
        Clopper and Pearson (1934).

    >>> rng = np.random.default_rng(0)
    >>> present = np.arange(2000) < 1000
    >>> scores = present + rng.laplace(size=2000)  # epsilon 1
    >>> found = roc_lower_bound(scores, present, thresholds=[1.0, 2.0])
    >>> [round(float(bound), 2) for bound in found]
    [0.82, 0.64]
    """
    confidence, delta = (
        checks.concrete_probability("confidence", confidence),
        checks.concrete_fraction("delta", delta),
    )
    score, coin = _checked(scores, present)
    limits = np.asarray(thresholds, np.float64)
    if limits.ndim > 1 or limits.size == 0 or np.isnan(limits).any():
        raise ValueError(
            "thresholds must be a real number or a nonempty vector of them, without NaN; got "
            f"{thresholds}."
        )
    if coin.all() or not coin.any():
        raise ValueError("present must have both runs with the canary and runs without it.")
    with_record, without = (
        np.count_nonzero(part >= limits[..., None], axis=-1) for part in (score[coin], score[~coin])
    )
    error = (1 - confidence) / 2 / limits.size
    true = lower_limit(with_record, trials=coin.sum(), error=error)
    false = upper_limit(without, trials=(~coin).sum(), error=error)
    ratios = (true - delta) / false, (1 - false - delta) / (1 - true)
    return np.log(np.maximum(np.maximum(*ratios), 1.0))


def _checked(scores: ArrayLike, present: ArrayLike) -> tuple[Array, Array]:
    score, coin = checks.host_floats("scores", scores).astype(np.float64), np.asarray(present)
    if (
        score.ndim != 1
        or score.shape != coin.shape
        or coin.dtype != np.bool_
        or np.isnan(score).any()
    ):
        raise ValueError(
            f"scores must be real numbers (m,) and present booleans (m,), got shapes {score.shape} "
            f"and {coin.shape}, dtype {coin.dtype}, and {np.isnan(score).sum()} NaN scores."
        )
    return score, coin


def _halvings(canaries: int) -> list[tuple[int, int]]:
    """Return half of the canaries on either side, a quarter, and so on.

    For fewer than eight, all of them.
    """
    sizes = [canaries >> i for i in range(1, canaries.bit_length()) if canaries >> i >= _FEWEST]
    return [(size, size) for size in sizes] or [(canaries - canaries // 2, canaries // 2)]
