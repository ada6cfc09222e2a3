"""Judges LLM inference servers from evidence they publish anyway.

The way of one look: `monitor` has it made by `looks` (over `scrape`) and hands it to `pipeline.step`, which reads it with an
adapter of `engines` and has it judged by `judge`; `observed` makes the target's new `snapshot` of it, and from that `lines`,
`api`, `pages` and `checks` say what is known. `replay` takes the same step with looks out of a `recording`.
"""

__version__ = "0.1.0"
