"""Auditing a real training by the scores of an attack on it: in one run with many canaries, or in many runs with one.

A score says how much a record looks like one that was trained on: minus its loss, say, or the inner product of its gradient with
the update. The library sees nothing of the training, only the scores and the coins that decided which records were in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing.one_run import OneRunAudit, epsilon_lower_bound
from dpjax.numerics.binomial import Array, lower_limit, upper_limit

_FEWEST = 4  # guesses on either side: fewer show little even if all are correct


def audit_scores(
    scores: ArrayLike,
    present: ArrayLike,
    *,
    guesses: Sequence[tuple[int, int]] | None = None,
    confidence: float = 0.95,
    delta: float = 0.0,
) -> OneRunAudit:
    """Return a lower bound on the epsilon of one training from the scores of its canaries, the best of several numbers of guesses.

    The highest scores are guessed to be in and the lowest out; see ``one_run.py`` for the theorem. How many guesses are best is
    seen only afterwards: each of k numbers is tested with an error of (1 - confidence)/k, so that all k bounds hold together and
    the largest may be reported.

    Args:
        scores: real numbers ``(m,)``, one for each canary, higher for those that seem to be in: a function of what the training
            gave out (and of the canaries), computed without the coins. Of equal scores, wrong guesses are counted first.
        present: bool ``(m,)``, the coins: whether each canary was in. Independent and fair, tossed before the training.
        guesses: pairs (how many of the highest scores are guessed to be in, how many of the lowest to be out), chosen without the
            coins. By default m/2 of each, m/4, and so on, down to four. One pair that is known to be good is sharper than many.
        confidence: strictly between 0 and 1.
        delta: in [0, 1). Unless 2 m delta is far below ``1 - confidence`` over the number of pairs, little or nothing is shown.

    Returns:
        :class:`OneRunAudit` with the numbers of the best pair; ``tried`` is the number of pairs.

    Privacy:
        If the training is (epsilon, delta)-DP for each canary in or out, the bound is above epsilon with probability at most
        ``1 - confidence``, over the coins and the training. A low bound is no evidence of privacy. The canaries are not protected.

    References:
        Steinke, Nasr and Jagielski (2023), "Privacy auditing with one (1) training run", Algorithm 1 and Theorem 5.2. The
        correction for the choice is not from there.

    >>> rng = np.random.default_rng(0)
    >>> present = rng.random(1000) < 0.5
    >>> update = np.where(present, 1.0, 0.0) + rng.normal(size=1000)  # sums of one-hot canaries, with noise of standard deviation 1
    >>> found = audit_scores(update, present, delta=1e-5)
    >>> found.guesses, found.canaries, found.tried, 1 < found.epsilon < 4.4  # 4.38 at delta = 1e-5
    (124, 1000, 7, True)
    """
    confidence, delta = checks.concrete_probability("confidence", confidence), checks.concrete_fraction("delta", delta)
    score, coin = _checked(scores, present)
    pairs = _halvings(coin.size) if guesses is None else [(int(most), int(least)) for most, least in guesses]
    if not pairs or any(min(pair) < 0 or not 0 < sum(pair) <= coin.size for pair in pairs):
        raise ValueError(f"guesses must be pairs of numbers that add up to 1 to the {coin.size} canaries, got {guesses}.")
    ascending = coin[np.lexsort((~coin, score))]  # of a tie, those that are in come first: wrong guesses on either side
    correct = np.array([ascending[coin.size - most :].sum() + (~ascending[:least]).sum() for most, least in pairs])
    made = np.array([sum(pair) for pair in pairs])
    each = 1 - (1 - confidence) / len(pairs)
    bounds = epsilon_lower_bound(correct, made, confidence=each, canaries=coin.size, delta=delta)
    best = int(bounds.argmax())
    return OneRunAudit(float(bounds[best]), int(correct[best]), int(made[best]), coin.size, confidence, delta, tried=len(pairs))


def roc_lower_bound(
    scores: ArrayLike, present: ArrayLike, *, thresholds: ArrayLike, confidence: float = 0.95, delta: float = 0.0
) -> Array:
    """Return a lower bound on the epsilon of a training from many runs of it, at thresholds of the score that are known before.

    ``max(log((TPR - delta) / FPR), log((1 - FPR - delta) / (1 - TPR)))`` at the Clopper-Pearson lower limit of the true and upper
    limit of the false positive rate. Thresholds of other runs, say: without any, ``lower_bound(scores[present], scores[~present])``
    chooses on one half of the runs and tests on the other.

    Args:
        scores: real numbers ``(n,)``, one for each run: of the same canary, higher where it seems to be in.
        present: bool ``(n,)``, whether it was in. By a coin or by design, for runs that are otherwise independent.
        thresholds: real numbers ``(k,)`` or ``()``, chosen without these scores; a score of at least that is a guess "in".
        confidence: strictly between 0 and 1, of all thresholds together: each has an error of ``(1 - confidence) / k``.
        delta: in [0, 1).

    Returns:
        float64 of the shape of ``thresholds``; 0 where nothing is shown. All hold together, so the largest may be reported.

    Privacy:
        If the training is (epsilon, delta)-DP for the canary in or out, some bound is above epsilon with probability at most
        ``1 - confidence``. A low bound is no evidence of privacy. The canary is not protected.

    References:
        Jagielski, Ullman and Oprea (2020); Nasr, Songi, Thakurta, Papernot and Carlini (2021); Clopper and Pearson (1934).

    >>> rng = np.random.default_rng(0)
    >>> present = np.arange(2000) < 1000
    >>> found = roc_lower_bound(present + rng.laplace(size=2000), present, thresholds=[1.0, 2.0])  # epsilon 1
    >>> [round(float(bound), 2) for bound in found]
    [0.82, 0.64]
    """
    confidence, delta = checks.concrete_probability("confidence", confidence), checks.concrete_fraction("delta", delta)
    score, coin = _checked(scores, present)
    limits = np.asarray(thresholds, np.float64)
    if limits.ndim > 1 or limits.size == 0 or np.isnan(limits).any():
        raise ValueError(f"thresholds must be one real number or some, got {thresholds}.")
    if coin.all() or not coin.any():
        raise ValueError("present must have runs with the record and runs without it.")
    with_record, without = (np.count_nonzero(part >= limits[..., None], axis=-1) for part in (score[coin], score[~coin]))
    error = (1 - confidence) / 2 / limits.size
    true = lower_limit(with_record, trials=coin.sum(), error=error)
    false = upper_limit(without, trials=(~coin).sum(), error=error)
    ratios = (true - delta) / false, (1 - false - delta) / (1 - true)
    return np.log(np.maximum(np.maximum(*ratios), 1.0))


def _checked(scores: ArrayLike, present: ArrayLike) -> tuple[Array, Array]:
    score, coin = np.asarray(scores).astype(np.float64), np.asarray(present)
    if score.ndim != 1 or score.shape != coin.shape or coin.dtype != np.bool_ or np.isnan(score).any():
        raise ValueError(
            f"scores must be real numbers (m,) and present as many booleans, got shapes {score.shape} and {coin.shape} of "
            f"{coin.dtype}, {np.isnan(score).sum()} scores NaN."
        )
    return score, coin


def _halvings(canaries: int) -> list[tuple[int, int]]:
    """Half of the canaries on either side, a quarter, and so on; for fewer than eight, all of them."""
    sizes = [canaries >> i for i in range(1, canaries.bit_length()) if canaries >> i >= _FEWEST]
    return [(size, size) for size in sizes] or [(canaries - canaries // 2, canaries // 2)]
