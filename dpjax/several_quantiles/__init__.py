"""Quantiles on the host: which levels are asked for, where their ranks are, and which records they need. Nothing imports JAX."""
