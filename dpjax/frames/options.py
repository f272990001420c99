"""The options of a release of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.frames.persons import PerUnit
from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.result import ORDER


@dataclass
class Options:
    """The options of a run, which are checked as far as they can be without a table.

    Attributes:
        by: the columns of the groups, a list.
        groups: public labels, or private groups, or None.
        max_groups: at most the number of public groups, 1 without groups.
    """

    epsilon: Any
    neighbors: Neighbors
    by: Any = ()
    groups: Any = None
    unit: Any = None
    per_unit: PerUnit | None = None
    max_groups: int = 1
    draws: int = 1
    mechanism: str | None = None

    def __post_init__(self) -> None:
        by, groups, unit = self.by, self.groups, self.unit
        self.by = list(by) if isinstance(by, list | tuple) else [] if by is None else [by]
        names = list(map(str, self.by))
        if wrong := [name for name in names if name in ORDER or names.count(name) > 1]:
            raise ValueError(
                f"by must not be {wrong[0]!r}, which is a column of the result, or there twice: "
                "rename the column."
            )
        if self.by and self.neighbors == "swap":
            raise ValueError(
                "by needs neighbors='add_remove': a replaced record can move from one group to "
                "another."
            )
        if isinstance(groups, str | bytes):
            raise TypeError(f"groups must be a list of labels, such as [{groups!r}].")
        most = checks.static_integer("max_groups", self.max_groups, 1)
        if unit is None and (self.per_unit is not None or most != 1):
            raise ValueError("per_unit and max_groups need unit, the column of the person.")
        if isinstance(groups, PrivateGroups):
            self.groups = replace(groups, max_groups=most)
        elif groups is not None:
            self.groups = list(groups)
            most = max(min(most, len(self.groups)), 1)  # nobody is in more groups than there are
        self.max_groups = most if self.by else 1
        if self.per_unit is not None:
            checks.one_of("per_unit", self.per_unit, get_args(PerUnit))
        self.draws = checks.static_integer("draws", self.draws, 1, 2**24)


# Messages on unknown and missing options name what a user calls
Options.__init__.__qualname__ = "simulate"
