"""The version of the package, from which the package metadata is built."""

__version__ = "0.4.0"
