"""Judges LLM inference servers from evidence they publish anyway."""

__version__ = "0.1.0"
