"""Metrics on universes of points, dates, attributes and graphs, policies, and their queries.

See Kamalaruban et al. (2020), Sections 1, 2, 4.4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import combinations
from typing import Literal, get_args

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.metric import ROUNDING, Metric, finite, prices

Distance = Literal["euclidean", "manhattan", "chebyshev", "great_circle"]
_EARTH_RADIUS = 6371.0088  # mean radius in kilometers


def from_points(points: ArrayLike, *, epsilon: float, distance: Distance = "euclidean") -> Metric:
    """Return the metric d(i, j) = epsilon * distance(i, j) of points.

    Args:
        points: ``(N, D)``, the coordinates of the public universe. Multiply them by weights for a
            weighted distance. The number of coordinates that differ is a distance, too:
            ``weighted_hamming(points, budgets=epsilon)``.
        epsilon: positive, the budget per unit of distance.
        distance: ``"euclidean"``, ``"manhattan"``, ``"chebyshev"`` (the largest difference), or
            ``"great_circle"``: kilometers between pairs of latitude and longitude in degrees.

    Raises:
        ValueError: a distance is not finite, or a latitude beyond 90 degrees.

    References:
        Kamalaruban et al. (2020), Sections 4 and 5.

    >>> from_points([[0.0], [1.0], [3.0]], epsilon=0.5).budgets.tolist()
    [[0.0, 0.5, 1.5], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]]
    """
    from scipy.spatial.distance import cdist

    checks.one_of("distance", distance, get_args(Distance))
    places, rate = finite("points", points, ("N", "D")), checks.concrete_epsilon(epsilon)
    if distance == "great_circle":
        ball = _on_the_ball(places)
        half = np.minimum(cdist(ball, ball) / 2, 1.0)
        return Metric(rate * 2 * _EARTH_RADIUS * np.arcsin(half))
    given = np.asarray(points)
    if given.dtype.kind in "iuO":  # subtracted before they are rounded
        exact = given.astype(object)
        places = (exact - exact.min(axis=0)).astype(np.float64)
    apart = cdist(places, places, "cityblock" if distance == "manhattan" else distance)
    if not np.isfinite(apart).all():
        raise ValueError("points must have finite distances: rescale them.")
    return Metric(rate * apart)


def from_dates(dates: ArrayLike, *, epsilon: float) -> Metric:
    """Return the metric d(i, j) = epsilon * days between the dates of elements i and j.

    Args:
        dates: ``(N,)``, of the public universe: NumPy ``datetime64`` within 290,000 years of 1970,
            Python dates, or numbers of days.
        epsilon: positive, the budget per day (epsilon / T protects a period of T days by epsilon).

    Raises:
        ValueError: a date is missing, or further from 1970.

    References:
        Kamalaruban et al. (2020), Section 5.

    >>> import datetime
    >>> dates = [datetime.date(2024, 2, 28), datetime.date(2024, 3, 1)]
    >>> from_dates(dates, epsilon=0.5).budgets.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    moments, rate = np.asarray(dates), checks.concrete_epsilon(epsilon)
    if moments.dtype.kind not in "biuf":
        years = moments.astype("datetime64[Y]").astype(np.float64)
        # 64-bit microseconds would wrap around; NaT is the least integer
        if not np.all(np.abs(years) <= 290_000):
            raise ValueError("dates must be within 290,000 years of 1970, and not NaT.")
        moments = moments.astype("datetime64[us]").astype(np.int64)
        rate = rate / (86400 * 10**6)
    finite("dates", moments, ("N",))
    return from_points(moments[:, None], epsilon=rate)


def weighted_hamming(records: ArrayLike, *, budgets: ArrayLike) -> Metric:
    """Return the metric d(i, j) = sum of the budgets of the attributes in which i and j differ.

    Args:
        records: ``(N, A)``, the A attributes of every element of the public universe: numbers or
            labels of any kind.
        budgets: ``(A,)``, the budget of a change of each attribute: nonnegative, ``inf`` for an
            unprotected one.

    Raises:
        ValueError: a record is NaN.

    References:
        Kamalaruban et al. (2020), Section 5.

    >>> records = [["m", "yes"], ["m", "no"], ["f", "no"]]
    >>> weighted_hamming(records, budgets=[2.0, 0.5]).budgets.tolist()
    [[0.0, 0.5, 2.5], [0.5, 0.0, 2.0], [2.5, 2.0, 0.0]]
    """
    table = _table(records)
    if np.any(table != table):
        raise ValueError("records must not be NaN.")
    each = prices(budgets, table.shape[1], "attribute")
    return _over_attributes(table, np.tile(each[:, None] / 2, len(table)))


def value_budgets(records: ArrayLike, *, budgets: Sequence[ArrayLike]) -> Metric:
    """Return a metric from a budget e for every value of an attribute; smaller ones protect more.

    d(i, j) = sum of e(u) + e(v) over the attributes in which i has u, and j has v != u; with an
    infinite budget, every change to or from its value is unprotected.

    The smaller of e(u) and e(v) is a metric for attributes of two values only, where it is one
    budget for the attribute: ``weighted_hamming(records, budgets=[min(e) for e in budgets])``.
    (With three it is none: of budgets (1, 10, 10) the last two values are 10 apart, and 2 by way of
    the first. Instance-specific privacy has that minimum for any number of values. A mechanism that
    satisfies it also satisfies its shortest paths, which are a metric:
    ``from_budgets(numpy.minimum.outer(e, e) * (1 - numpy.eye(len(e)))).closure()``.) The larger of
    two budgets would be a metric for any number of values, but protect nothing: a value of a small
    budget could be distinguished from all those of larger ones.

    Args:
        records: int ``(N, A)``, the codes 0, 1, ... of the values of every element of the public
            universe.
        budgets: A arrays of shape ``(V_a,)``, a budget for every value of an attribute. Budgets
            belong to values, not to persons.

    References:
        Kamalaruban et al. (2020): Section 5 has the sum; Example 1 the minimum (equation 3), of
        binary attributes, and so has Definition 11 for any number of values.

    >>> value_budgets([[0], [1], [2]], budgets=[[1.0, 2.0, 4.0]]).budgets.tolist()
    [[0.0, 3.0, 5.0], [3.0, 0.0, 6.0], [5.0, 6.0, 0.0]]
    """
    codes = _table(records)
    if codes.dtype.kind not in "iu":
        raise TypeError(f"records must be integer codes of values, got dtype {codes.dtype}.")
    if len(budgets) != codes.shape[1]:
        raise ValueError(f"budgets must have one array for each of {codes.shape[1]} attributes.")
    of_elements = []
    for column, own in zip(codes.T, budgets, strict=True):
        count = np.size(own)
        if not np.all((column >= 0) & (column < count)):
            raise ValueError(f"records must be codes from 0 to {count - 1}, which have a budget.")
        of_elements.append(prices(own, count, "value")[column])
    return _over_attributes(codes, of_elements)


def product(*metrics: Metric) -> Metric:
    """Return the metric of records that have one element of each universe.

    It is d((i, a), (j, b)) = d_1(i, j) + d_2(a, b). Separate d_k-private releases of each attribute
    are together d-private (Kamalaruban et al. 2020, Appendix C). The last universe varies fastest,
    as in ``itertools.product``. The metrics must not have a null record: add it to the product.

    Raises:
        ValueError: a metric has the null record.

    >>> from dpjax.metric_privacy import uniform
    >>> both = product(from_points([[0.0], [3.0]], epsilon=0.5), uniform(2, epsilon=1.0))
    >>> both.budgets[0].tolist()
    [0.0, 1.0, 1.5, 2.5]
    """
    if not metrics:
        raise ValueError("product needs at least one metric.")
    each = [_without_absence("product", metric) for metric in metrics]
    return Metric(
        reduce(lambda a, b: np.kron(a, np.ones_like(b)) + np.kron(np.ones_like(a), b), each)
    )


def from_graph(edges: ArrayLike, *, size: int, budgets: ArrayLike) -> Metric:
    """Return the metric d(i, j) = the smallest sum of budgets along a path from i to j.

    It is ``inf`` if there is no path: such nodes are not protected. Edges are undirected; of
    several between two nodes the smallest budget counts.

    Args:
        edges: int ``(E, 2)``, pairs of nodes 0 to N-1 of the public graph.
        size: the number N of nodes.
        budgets: ``(E,)``, or one for all: nonnegative, ``inf`` for an absent edge.

    Raises:
        ValueError: an edge has a node that is not in the graph.

    References:
        Kamalaruban et al. (2020), Section 5 ("Privacy in Social Networks"), after He,
        Machanavajjhala and Ding (2014).

    >>> from_graph([[0, 1], [1, 2]], size=3, budgets=[1.0, 0.5]).budgets.tolist()
    [[0.0, 1.0, 1.5], [1.0, 0.0, 0.5], [1.5, 0.5, 0.0]]
    """
    size, pairs = checks.static_integer("size", size, 1), np.asarray(edges)
    whole = pairs.shape == (len(pairs), 2) and pairs.dtype.kind in "iu"
    if not whole or not np.all((pairs >= 0) & (pairs < size)):
        raise ValueError(f"edges must be integers (E, 2), pairs of nodes from 0 to {size - 1}.")
    lengths = np.where(np.eye(size), 0.0, np.inf)
    np.minimum.at(lengths, tuple(pairs.T), prices(budgets, len(pairs), "edge"))
    return Metric(np.minimum(lengths, lengths.T)).closure()


def spanning_tree(metric: Metric) -> Metric:
    """Return the metric of paths in a minimum spanning tree.

    d(i, j) is the sum of budgets along the path from i to j. The tree is public. No pair is
    protected more than under the closure of ``metric``.

    Args:
        metric: the lengths that the tree minimizes, for example the distances of points, without
            the null record. Of edges of equal length any may be in the tree; elements that no
            finite budget connects stay at ``inf``.

    Raises:
        ValueError: the metric has the null record.

    References:
        Kamalaruban et al. (2020), Section 5.

    >>> points = from_points([[0.0], [1.0], [3.0]], epsilon=1.0)
    >>> spanning_tree(points).budgets.tolist()
    [[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]
    """
    from scipy.sparse.csgraph import minimum_spanning_tree

    lengths = _without_absence("spanning_tree", metric)
    # A tree depends on the order of lengths only, and SciPy takes 0 for no edge
    order = 1 + np.unique(lengths, return_inverse=True)[1].reshape(lengths.shape)
    tree = minimum_spanning_tree(np.where(np.isinf(lengths), 0, order)).toarray()
    return from_graph(np.argwhere(tree), size=metric.size, budgets=lengths[tree > 0])


def blowfish(distances: Metric, *, epsilon: float, threshold: float) -> Metric:
    """Return the policy d(i, j) = epsilon up to a distance threshold, and ``inf`` beyond.

    It violates the triangle inequality, but needs no repair: a mechanism within these budgets is
    also within their :meth:`~dpjax.metric_privacy.Metric.closure` (epsilon times the number of
    steps of at most the threshold between two elements), and the noise of linear queries has the
    same scales for both. Elements that no such steps connect are not protected from being
    distinguished.

    Args:
        distances: a metric with a budget of 1 per unit of distance, such as ``from_points(points,
            epsilon=1)``, without the null record.
        epsilon: positive.
        threshold: positive, a distance. A distance above it by rounding counts as within it: 0.4 -
            0.3 is more than 0.1.

    Raises:
        ValueError: ``distances`` have the null record.

    References:
        He, Machanavajjhala and Ding (2014), for policies without constraints; Kamalaruban et al.
        (2020), Section 4.4.

    >>> line = from_points([[0.0], [1.0], [2.0]], epsilon=1)  # 1 per unit of distance
    >>> blowfish(line, epsilon=0.5, threshold=1).budgets.tolist()
    [[0.0, 0.5, inf], [0.5, 0.0, 0.5], [inf, 0.5, 0.0]]
    """
    limit = checks.concrete_positive("threshold", threshold)
    times = _without_absence("blowfish", distances) / limit
    return _policy(epsilon, np.where(times <= 1 + ROUNDING, 1.0, np.inf))


def smooth_threshold(distances: Metric, *, epsilon: float, threshold: float) -> Metric:
    """Return the metric d(i, j) = epsilon * max(1, distance / threshold) for i != j.

    It satisfies the triangle inequality if the distances do: max(1, s + t) <= max(1, s) + max(1,
    t). Arguments are those of :func:`blowfish`. Two elements at distance 0 also have the budget
    epsilon, not 0.

    References:
        Kamalaruban et al. (2020), Section 4.4.

    >>> line = from_points([[0.0], [1.0], [4.0]], epsilon=1)
    >>> smooth_threshold(line, epsilon=0.5, threshold=2).budgets.tolist()
    [[0.0, 0.5, 1.0], [0.5, 0.0, 0.75], [1.0, 0.75, 0.0]]
    """
    limit = checks.concrete_positive("threshold", threshold)
    times = _without_absence("smooth_threshold", distances) / limit
    return _policy(epsilon, np.maximum(1.0, times))


def range_queries(sizes: Sequence[int]) -> np.ndarray:
    """Return all range queries on a grid of attributes as 0 and 1, float32 ``(K, N)``.

    Each counts the records with lo_a <= value <= hi_a in every attribute a. The elements of the
    grid are in the order of ``itertools.product``: the last attribute changes first.

    ``sizes`` are the numbers of values of the attributes. K is the product of n (n + 1) / 2.

    References:
        Kamalaruban et al. (2020), Section 2.4.

    >>> range_queries([3]).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 1, 1], [0, 0, 1]]
    """

    def intervals(n: int) -> np.ndarray:
        low, high = np.triu_indices(n)
        return (low[:, None] <= np.arange(n)) & (np.arange(n) <= high[:, None])

    return reduce(np.kron, map(intervals, _sizes(sizes))).astype(np.float32)


def marginal_queries(sizes: Sequence[int], *, ways: int) -> np.ndarray:
    """Return the cells of all marginal tables of ``ways`` attributes, float32 ``(K, N)``.

    The values are 0 and 1 (Barak et al. 2007), and the elements those of :func:`range_queries`.

    Args:
        sizes: the number of values of each attribute.
        ways: the number of attributes of a table, from 0 (the number of records) to all. Tables are
            in the order of ``itertools.combinations``, and the cells of each in that of its
            attributes' values.

    >>> marginal_queries([2, 2], ways=1).astype(int).tolist()
    [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    each, cells = _sizes(sizes), []
    for table in combinations(range(len(each)), checks.static_integer("ways", ways, 0, len(each))):
        factors: list[np.ndarray] = [
            np.eye(n) if at in table else np.ones((1, n)) for at, n in enumerate(each)
        ]
        cells.append(reduce(np.kron, factors))
    return np.concatenate(cells).astype(np.float32)


def _on_the_ball(places: np.ndarray) -> np.ndarray:
    """Return places in degrees on the unit sphere, ``(N, 3)``."""
    if places.shape[1] != 2 or np.any(np.abs(places[:, 0]) > 90):
        raise ValueError(
            "points must be (latitude, longitude) in degrees for great_circle, with latitudes from "
            "-90 to 90."
        )
    latitude, longitude = np.radians(places).T
    narrow = np.cos(latitude)
    return np.column_stack(
        [narrow * np.cos(longitude), narrow * np.sin(longitude), np.sin(latitude)]
    )


def _table(records: ArrayLike) -> np.ndarray:
    table = np.asarray(records)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"records must be of shape (N, A) with N, A >= 1, got {table.shape}.")
    return table


def _over_attributes(table: np.ndarray, budgets: Iterable[np.ndarray]) -> Metric:
    """Return sums of the budgets of both elements over the attributes in which they differ."""
    total = np.zeros((len(table), len(table)))
    for column, own in zip(table.T, budgets, strict=True):
        total += np.where(column[:, None] != column, own[:, None] + own, 0.0)
    return Metric(total)


def _without_absence(caller: str, metric: Metric) -> np.ndarray:
    checks.instance(caller, metric, Metric, "from_points, from_budgets, ...")
    if metric.neighbors == "add_remove":
        raise ValueError(
            f"{caller} needs metrics without the null record: add it to the result, as in "
            f"{caller}(...).with_absence(...)."
        )
    return metric.budgets


def _policy(epsilon: float, times: np.ndarray) -> Metric:
    return Metric(np.where(np.eye(len(times)), 0.0, checks.concrete_epsilon(epsilon) * times))


def _sizes(sizes: Sequence[int]) -> list[int]:
    if not len(sizes):
        raise ValueError("sizes must have one or more elements, the numbers of values.")
    return [checks.static_integer("sizes", n, 1) for n in sizes]
