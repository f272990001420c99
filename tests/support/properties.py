"""Hypothesis as these tests use it: the same cases in every run, and as long as they take."""

from hypothesis import given, settings
from hypothesis import strategies as st

settings.register_profile("dpjax", derandomize=True, deadline=None, database=None)
settings.load_profile("dpjax")

__all__ = ["given", "st"]
