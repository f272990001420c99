"""Distinct items of persons who have several: a lower bound of the count after l persons leave.

Let D(R) be the number of items that someone outside R has, and h(l) = min{D(R): at most l persons
in R}. Choosing the persons to remove is a minimum k-union, an NP-hard problem. For a price lambda
of a person, min over R of D(R) + lambda |R| is a minimum cut: from the source to a person with
capacity lambda, from a person to each item without limit, from an item to the sink with capacity 1.
All prices together give the convex envelope g of h, which is sufficient: g(0) is the number of
items, g = h at its corners, and g <= h.

**Privacy.** Let x' be x without one person. A set removed from x, minus that person, may be removed
from x' too, and a set removed from x' together with that person from x: h_x(l+1) <= h_x'(l) <=
h_x(l). Envelopes preserve both inequalities, because the envelope of l -> h(l+1) is nowhere below
that of h at l+1, and the envelope is monotone in h. Rounding up to integers preserves them too, and
the result is still at most h; if all persons have one item, it is h.
"""

from __future__ import annotations

import numpy as np


def least_left(items: np.ndarray, persons: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return the envelope, rounded up, at l = 0, 1, ..., the number of rows: int64.

    Args:
        items: integers ``(m,)``, the item of each row.
        persons: integers ``(m,)``, its holder.
        present: bool ``(m,)``, the rows that are present.
    """
    pairs = np.unique(np.stack([persons, items])[:, present], axis=1)
    persons, items = (np.unique(row, return_inverse=True)[1] for row in pairs)
    people, distinct = (int(row.max(initial=-1)) + 1 for row in (persons, items))
    found = np.zeros(present.size + 1, np.int64)
    sides = [((0, distinct), (people, 0))]
    while sides:
        (first, most), (last, least) = side = sides.pop()
        middle = _corner(persons, items, side) if last - first > 1 else None
        if middle is not None:
            sides += [(side[0], middle), (middle, side[1])]
            continue
        step = np.arange(last - first + 1)
        found[first : last + 1] = most - (most - least) * step // max(last - first, 1)
    return found


def _corner(
    persons: np.ndarray, items: np.ndarray, side: tuple[tuple[int, int], tuple[int, int]]
) -> tuple[int, int] | None:
    """Return a corner (l, D) of the envelope below the line through two of its points, or None."""
    # A dependency of JAX, imported here because it is slow to import.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    (first, most), (last, least) = side
    # The prices of a person and of an item, times the number of persons.
    price, unit = most - least, last - first
    people, distinct = persons.max() + 1, items.max() + 1
    source, sink = people + distinct, people + distinct + 1
    tails = np.concatenate([np.full(people, source), persons, people + np.arange(distinct)])
    heads = np.concatenate([np.arange(people), people + items, np.full(distinct, sink)])
    limits = np.repeat([price, price + 1, unit], [people, len(items), distinct]).astype(np.int32)
    network = csr_array((limits, (tails, heads)), shape=(sink + 1, sink + 1))
    rest = network - maximum_flow(network, source, sink).flow
    reached = breadth_first_order(rest, source, return_predecessors=False)
    kept = np.isin(persons, reached)
    gone, left = people - np.unique(persons[kept]).size, np.unique(items[kept]).size
    below = unit * left + price * gone < unit * most + price * first
    return (gone, left) if below else None
