"""Releases that floats do not undo: exact draws from piecewise Laplace laws on a public grid, by integers only.

**Why.** A float draw from a continuous law gives its data away: the set of floats that the sampler can return depends on the data,
so that a good part of the outputs are impossible for a neighbour, whatever the precision. Everything outside this package is for
simulation; what leaves the house comes from :func:`release`.

**The law.** Records are rounded down to a public grid, one by one, so neighbours stay neighbours. With integer values V(l) that the
statistic can reach after l changes, interleaving between neighbours as in Corollary 3.1 of Durfee (2025), the output is

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
(At cost 0 for the own cell, the loss would be 1.17 epsilon and the range 1.9 epsilon.)

**The draw** is explained at the head of ``draw.py``, with the bound on every truncation: 32-bit integers decide the piece and the
cell within it, or say that they do not. That has a probability of about 2^-27 for a thousand pieces: 2^-32 for each of 24 digits,
and at most 4 P^2 / 2^min(51, 61 - log2 P) for the choice among P pieces, which grows for very many. Then ``exact.py`` reads on in
the same uniforms, with exact arithmetic, so that the result is that of infinitely many bits.

**Monotone statistics.** The maximum, a number of distinct ids, and a sum without a bound on one record (or on all records of one
person) go by shifted inverse sensitivity: the integer values around what is left when tau people leave (see
``dpjax.shifted_inverse``) interleave too, which is all that either law needs.

**Candidates.** A mode, and a choice by integer scores of your own (:func:`release_choice`), are the exponential mechanism: a piece
of width 1 for each candidate, chosen in the same way (``choice.py``). Scores are clamped one by one to a public range, so that the
tables cover every cost; to clamp the costs would be another law.

**What is not covered**: see :func:`release`.
"""

from dpjax.release.candidates import release_choice
from dpjax.release.choice import certified_choice, exact_choice
from dpjax.release.draw import Draw, certified_draw
from dpjax.release.exact import host_exact
from dpjax.release.grid import Grid, to_grid
from dpjax.release.host import exact_law, release
from dpjax.release.knots import Knots, distinct_knots, maximum_knots, order_knots, sum_knots, total_knots
from dpjax.release.law import GridLaw, log_pmf
from dpjax.release.result import Release
from dpjax.release.statistics import Distinct, Maximum, Mode, OrderStatistic, Quantile, Total
from dpjax.release.tables import Tables, public_tables

__all__ = [
    "Distinct",
    "Draw",
    "Grid",
    "GridLaw",
    "Knots",
    "Maximum",
    "Mode",
    "OrderStatistic",
    "Quantile",
    "Release",
    "Tables",
    "Total",
    "certified_choice",
    "certified_draw",
    "distinct_knots",
    "exact_choice",
    "exact_law",
    "host_exact",
    "log_pmf",
    "maximum_knots",
    "order_knots",
    "public_tables",
    "release",
    "release_choice",
    "sum_knots",
    "to_grid",
    "total_knots",
]
