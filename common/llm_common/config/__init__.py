"""Configuration files: strict YAML, and a reader that reports every problem at once, each with its key path."""

from llm_common.durations import format_duration, parse_duration
from llm_common.errors import ConfigError

from .reader import REQUIRED, Reader
from .strict_yaml import load_yaml, parse_yaml

__all__ = [
    "REQUIRED",
    "ConfigError",
    "Reader",
    "format_duration",
    "load_yaml",
    "parse_duration",
    "parse_yaml",
]
