"""Event-loop lag and probe endpoints from inside the serving process."""

__version__ = "0.1.0"
