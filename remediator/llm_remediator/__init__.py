"""Restarts provably stuck inference containers, once, and says why not otherwise."""

__version__ = "0.1.0"
