"""``python -m llm_exporter``."""

import sys

from llm_exporter.cli import main

sys.exit(main())
