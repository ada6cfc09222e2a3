"""The benchmarks are run from the repository's root; so are their tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
