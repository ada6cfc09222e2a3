"""Second looks at a target: its GPUs, its container, the heartbeat inside its process. Each is optional.

A witness may only make the judge more careful or its sentence better. What cannot be had is left out; it never fails a look.
"""

from .config import ContainerWitness, DcgmWitness, NvmlWitness, WitnessConfig, read_witnesses
from .gather import Testimony, Witnesses

__all__ = [
    "ContainerWitness",
    "DcgmWitness",
    "NvmlWitness",
    "Testimony",
    "WitnessConfig",
    "Witnesses",
    "read_witnesses",
]
