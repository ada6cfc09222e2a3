"""Print what a wheel requires here, without the packages named after it (which the CPU build does not need)."""

import sys
import zipfile
from email.parser import Parser

from pip._vendor.packaging.requirements import Requirement


def requirements(wheel: str, without: set[str]) -> list[str]:
    """Requirements of ``wheel`` for this interpreter, extras left out, in the wheel's order."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    found = [Requirement(line) for line in fields.get_all("Requires-Dist") or []]
    return [
        f"{r.name}{'[' + ','.join(sorted(r.extras)) + ']' if r.extras else ''}{r.specifier}"
        for r in found
        if r.name.lower() not in without and (r.marker is None or r.marker.evaluate({"extra": ""}))
    ]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1], set(sys.argv[2:]))))
