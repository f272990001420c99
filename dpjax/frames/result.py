"""Results: a frame with a row for each group, column, draw and level, and what it costs."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from dpjax.accounting.guarantee import Guarantee
from dpjax.display import TEXT_WIDTH, cell_of, new_axes, text_table

if TYPE_CHECKING:
    import polars

# All columns but those of the labels
ORDER = (
    *("noisy_size", "probability_kept", "column", "statistic", "quantile", "draw", "records"),
    *("missing", "value", "simulated", "mean_abs_error", "lower95", "upper95", "released"),
    "epsilon",
)
_RARE = 0.05  # groups that are kept less often are not in a picture
_INEXACT = ("mean_abs_error", "probability_kept")  # all others are values of a grid, or counts


@dataclass(frozen=True, repr=False)
class FrameResult:
    """The result of a release or a simulation of a table.

    Its repr is a table of at most twenty rows, the guarantee and the note. As JSON, it is
    ``found.rows.write_json()`` and ``found.guarantee.to_json()``.

    Attributes:
        frame: of the library of the input if that is pandas, PyArrow, DuckDB or Ibis, else of
            Polars.
        rows: the same, always as a frame of Polars.
        guarantee: the total cost.
        note: of a simulation, sentences on rows that do not count, and on records at bounds; of a
            release empty.

    >>> import pytest  # Polars may not be installed
    >>> polars = pytest.importorskip("polars")
    >>> from dpjax import frames, release
    >>> median = release.Median(lower=0, upper=9, resolution=1)
    >>> x = polars.DataFrame({"x": range(9)})
    >>> found = frames.simulate(0, x, {"x": median}, epsilon=1.0, neighbors="swap")
    >>> found.rows["value"].to_list(), found.guarantee.epsilon
    ([4.0], 1.0)
    """

    frame: Any
    rows: polars.DataFrame
    guarantee: Guarantee
    note: str = ""

    def table(self, rows: int | None = 20) -> str:
        """Return rows as text, with all digits that the resolution has; None for all rows."""
        from polars import selectors

        names = self.rows.columns
        shown = self.rows[:rows]
        inexact = selectors.by_name(*_INEXACT, require_all=False) & selectors.float()
        cells = shown.with_columns(inexact.round_sig_figs(5)).to_dict(as_series=False)
        keys = names.index("records" if "records" in names else "released")
        left = len(self.rows) - len(shown)
        more = f"\n... and {left} more rows" if left else ""
        return text_table(cells, keys) + more

    def plot(self, axes: Any = None) -> Any:
        """Plot the draws of each group with matplotlib, and return the axes.

        A simulation has error bars, the central intervals of 95 % of the draws, and shows only
        groups that are kept with a probability of 1/20 or more.

        Args:
            axes: matplotlib axes to draw on; by default new ones.

        Raises:
            ImportError: matplotlib is not installed.
        """
        axes, names, rows = new_axes(axes), self.rows.columns, self.rows
        if "probability_kept" in names:
            rows = rows.filter(rows["probability_kept"] >= _RARE)
        drawn = "released" if "released" in names else "simulated"
        labels = [name for name in names if name not in ORDER]
        what = [name for name in ("column", "statistic", "quantile") if name in names]
        for curve, some in rows.group_by(what, maintain_order=True):
            groups = [", ".join(map(cell_of, label)) for label in some.select(labels).rows()]
            groups = groups or [""] * len(some)
            upright = len(", ".join({*groups})) > 50  # which would overlap
            axes.tick_params("x", rotation=90 * upright)
            (points,) = axes.plot(groups, some[drawn], "o", label=" ".join(map(cell_of, curve)))
            if drawn == "simulated":
                ends = some["lower95"], some["upper95"]
                axes.vlines(groups, *ends, color=points.get_color())
        axes.set(xlabel=", ".join(labels), ylabel=drawn)
        if len(rows):
            axes.legend()
        return axes

    def __repr__(self) -> str:
        below = (textwrap.fill(line, TEXT_WIDTH) for line in (str(self.guarantee), self.note))
        return "\n".join([self.table(), *filter(None, below)])

    def _repr_html_(self) -> str:
        return f'<pre style="font-family: monospace">{escape(repr(self))}</pre>'
