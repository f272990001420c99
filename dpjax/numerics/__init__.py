"""Arithmetic that the rest stands on: numbers of two words, numbers of two floats, batches, sums of fixed order, bisection."""
