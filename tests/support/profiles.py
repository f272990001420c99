"""Profiles from two sides that extend outwards, in which deliberate mistakes are made."""

from dataclasses import replace

import numpy as np

from dpjax import SensitivityProfile

SIDES = ("upper", "lower", "upper_levels", "lower_levels")


def profile_of_sides(upper, lower, upper_levels=None, lower_levels=None, **fields):
    """By default with the levels 0, 1, 2, ... on both sides."""
    if upper_levels is None:
        upper_levels = np.arange(upper.shape[-1], dtype=upper.dtype)
    if lower_levels is None:
        lower_levels = np.arange(lower.shape[-1], dtype=lower.dtype)
    batch = np.broadcast_shapes(lower_levels.shape[:-1], upper_levels.shape[:-1])
    lower_levels = np.broadcast_to(lower_levels, (*batch, lower.shape[-1]))
    values = np.concatenate([lower[..., :0:-1], upper], axis=-1)
    levels = np.concatenate([lower_levels[..., :0:-1], upper_levels], axis=-1)
    return SensitivityProfile(values, levels, lower.shape[-1] - 1, **fields)


def sides_of(profile):
    """The values and the levels of both sides."""
    return {name: np.asarray(getattr(profile, name)) for name in SIDES}


def with_sides(profile, **changed):
    """The profile with other values or levels on a side."""
    made = profile_of_sides(**sides_of(profile) | changed)
    return replace(profile, values=made.values, levels=made.levels, center=made.center)
