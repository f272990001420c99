"""Numerical building blocks.

64-bit integers, double-float arithmetic, batches, ordered sums and bisection.
"""
