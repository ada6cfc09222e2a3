"""``witness:`` of a target: which second looks there are and how they are reached."""

from __future__ import annotations

from dataclasses import dataclass

from llm_common.config import Reader
from llm_common.config.forms import DOCKER_HOST, URL, Form

DOCKER_SOCKET = "unix:///var/run/docker.sock"

FATAL_XIDS = (48, 62, 64, 74, 79, 95, 119, 120, 140)
"""GPU errors after which a restart of the process does not help (NVIDIA's Xid catalogue): double-bit ECC, a halted
controller, failed row remapping, NVLink, a GPU off the bus, uncontained ECC, GSP time-outs, unrecovered ECC."""


@dataclass(frozen=True, slots=True)
class DcgmWitness:
    """``witness.dcgm:`` a DCGM exporter's page.

    Attributes:
        url: Its metrics page.
        gpus: Values of its ``gpu`` or ``UUID`` label that belong to the target; empty: all of the page.
        power_high: Watts per GPU from which on it computes; None: learnt from what it drew while tokens moved.
    """

    url: str
    gpus: tuple[str, ...] = ()
    power_high: float | None = None
    fatal_xids: tuple[int, ...] = FATAL_XIDS


@dataclass(frozen=True, slots=True)
class NvmlWitness:
    """``witness.nvml:`` this machine's GPUs through NVIDIA's library (extra ``stuckproof[gpu]``)."""

    gpus: tuple[str, ...] = ()
    power_high: float | None = None


@dataclass(frozen=True, slots=True)
class ContainerWitness:
    """``witness.docker:`` the target's container; exactly one of the three ways to name it."""

    host: str = DOCKER_SOCKET
    container: str | None = None
    label: str | None = None
    compose_project: str | None = None
    compose_service: str | None = None

    @property
    def filters(self) -> dict[str, list[str]]:
        """The filter of Docker's list call; never empty, since an empty one matches every container."""
        if self.compose_service is not None:
            labels = [f"com.docker.compose.service={self.compose_service}"]
            if self.compose_project is not None:
                labels.append(f"com.docker.compose.project={self.compose_project}")
            return {"label": labels}
        if self.label is not None:
            return {"label": [self.label]}
        return {"name": [f"^/?{self.container}$"]}


@dataclass(frozen=True, slots=True)
class WitnessConfig:
    """``witness:`` all of a target's second looks; `heartbeat` is the base URL of ``LLM_HEARTBEAT_LISTEN``."""

    dcgm: DcgmWitness | None = None
    nvml: NvmlWitness | None = None
    docker: ContainerWitness | None = None
    heartbeat: str | None = None

    def __bool__(self) -> bool:
        return any((self.dcgm, self.nvml, self.docker, self.heartbeat))


def read_witnesses(reader: Reader, base: WitnessConfig) -> WitnessConfig:
    """Read ``witness:``; what it does not give comes from `base`."""
    read = WitnessConfig(
        dcgm=_dcgm(reader.mapping("dcgm")) if reader.has("dcgm") else base.dcgm,
        nvml=_nvml(reader.mapping("nvml")) if reader.has("nvml") else base.nvml,
        docker=_docker(reader.mapping("docker")) if reader.has("docker") else base.docker,
        heartbeat=reader.text("heartbeat", base.heartbeat, form=URL),
    )
    reader.done()
    return read


def _dcgm(reader: Reader) -> DcgmWitness:
    xids = reader.strings("fatal_xids", ())
    for text in xids:
        if not text.isdecimal():
            reader.problem("fatal_xids", f"{text!r} is not the number of an Xid, such as '79'")
    read = DcgmWitness(
        url=reader.text("url", form=URL),
        gpus=tuple(reader.strings("gpus", ())),
        power_high=reader.number("power_high", None, low=1),
        fatal_xids=tuple(int(text) for text in xids if text.isdecimal()) or FATAL_XIDS,
    )
    reader.done()
    return read


def _nvml(reader: Reader) -> NvmlWitness:
    read = NvmlWitness(tuple(reader.strings("gpus", ())), reader.number("power_high", None, low=1))
    reader.done()
    return read


def _docker(reader: Reader) -> ContainerWitness:
    read = ContainerWitness(
        host=reader.text("host", DOCKER_SOCKET, form=DOCKER_HOST),
        container=reader.text("container", None),
        label=reader.text("label", None, form=Form(r"[^=\s]+=.+", "KEY=VALUE")),
        compose_project=reader.text("compose_project", None),
        compose_service=reader.text("compose_service", None),
    )
    given = [read.container, read.label, read.compose_service]
    if sum(value is not None for value in given) != 1:
        reader.problem(
            "", "name the container in one way: container, label (KEY=VALUE), or compose_service with compose_project"
        )
    reader.done()
    return read
