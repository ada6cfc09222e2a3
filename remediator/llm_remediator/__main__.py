"""`python -m llm_remediator` is `llm-remediator`."""

from llm_remediator.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
