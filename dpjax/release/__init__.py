"""Releases that floats do not undo: exact draws from piecewise Laplace distributions on a public grid, by integers only.

**Why.** A float draw from a continuous distribution gives its data away: the set of floats that the sampler can return depends on
the data, so that a good part of the outputs are impossible for a neighbour, whatever the precision. Everything outside this package
is for simulation; what is published comes from here: :func:`median`, :func:`quantile`, :func:`order_statistic`, :func:`mode` and,
for integer scores of a user's own, :func:`release_choice`; under swap :func:`sum` and :func:`mean`; and, for statistics that one
person can raise without bound, :func:`maximum`, :func:`nonnegative_sum`, :func:`user_sum` and :func:`distinct_count`.

**The distribution.** Records are rounded down to a public grid, one by one, so neighbours stay neighbours. With integer values V(l)
that the statistic can reach after l changes, interleaving between neighbours as in Corollary 3.1 of Durfee (2025), the output is

    "cell"        the cell floor(Y) of the continuous piecewise Laplace draw Y: post-processing, so the same epsilon-DP and
                  epsilon-bounded-range. Piece l, of integer width w, has probability proportional to w e^(-lam l), lam = epsilon/2,
                  and its j-th cell from the inner end a share proportional to e^(-lam j / w).
    "owned_cell"  the same where a value v stands for the cell [v, v + 1): values above end one cell further out, and the cell of
                  the value itself is a flat piece at the cost of level 1. Its weight is lam / (1 - e^-lam) relative to the others.

Privacy of the owned cell, by Corollary 3.1 again. Its cost is the continuous function that is 1 on the own cell [f, f + 1) and
grows by 1 from level to level: to l + 1 at the upper end U(l) + 1 and at the lower end L(l), linear in between. Between neighbours
x and x', U(l) <= U'(l + 1) and L(l) >= L'(l + 1); so the shifted ends interleave likewise, U(l) + 1 <= U'(l + 1) + 1, and with them
all points in between. A y above one's own cell at cost 1 + s, y = U(s) + 1, lies at or below U'(s + 1) + 1: its cost for x' is at
most 2 + s if it is above the cell of x', 1 within it, and at most 2 below it, since y > f >= L'(1). Likewise below. So the cost
changes by at most 1 everywhere, whence epsilon-DP and epsilon-bounded-range at density e^(-lam cost); the release is its floor.
(At cost 0 for the own cell, the loss would be 1.17 epsilon and the range 1.9 epsilon.) The values of shifted inverse sensitivity
interleave too (see ``dpjax.shifted_inverse``), which is all that either distribution needs.

**The draw** is explained at the head of ``sampler.py``, with the bound on every truncation: 32-bit integers decide the piece and
the cell within it, or say that they do not, with a probability of about 2^-27 for a thousand pieces: 2^-32 for each of 24 digits,
and at most 4 P^2 / 2^min(51, 61 - log2 P) for the choice among P pieces, which grows for very many. Then ``exact.py`` reads on in
the same uniforms, with exact arithmetic, so that the result is that of infinitely many bits.

**Candidates.** A mode and a choice by integer scores are the exponential mechanism: a piece of width 1 for each candidate, chosen
in the same way. Scores are clamped one by one to a public range, so that the tables cover every cost; to clamp the costs would be
another distribution.

**What is not covered**: see :func:`median`.
"""

from dpjax.release import deprecated as _deprecated
from dpjax.release.api import (
    Release,
    distinct_count,
    exact_distribution,
    maximum,
    mean,
    median,
    nonnegative_sum,
    order_statistic,
    quantile,
    sum,
    user_sum,
)
from dpjax.release.candidates import mode, release_choice
from dpjax.release.distribution import GridDistribution
from dpjax.release.grid import Grid, to_grid

__all__ = [
    "Grid",
    "GridDistribution",
    "Release",
    "distinct_count",
    "exact_distribution",
    "maximum",
    "mean",
    "median",
    "mode",
    "nonnegative_sum",
    "order_statistic",
    "quantile",
    "release_choice",
    "sum",
    "to_grid",
    "user_sum",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    return _deprecated.renamed(name)
