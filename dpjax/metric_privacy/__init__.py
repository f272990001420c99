"""Metric privacy (d_X-privacy): a budget for every pair of elements of the data universe, and noise fitted to it."""
