"""Numerical building blocks: roots, searches, multiples, batches, sums, and calls of NumPy."""
