"""The reference is what the code says: pages are current, and every key and path has a meaning."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def write() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stuckproof_reference", ROOT / "scripts" / "reference" / "write.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


@pytest.mark.parametrize("name", ["metrics.md", "config.md", "cli.md", "http.md"])
def test_the_page_is_what_the_code_says(write: ModuleType, name: str) -> None:
    committed = (ROOT / "docs" / "reference" / name).read_text()
    assert committed == write.PAGES[name](), "run: python scripts/reference/write.py"


@pytest.mark.parametrize("service", ["exporter", "remediator"])
def test_every_key_of_the_configuration_has_a_meaning_and_none_is_invented(write: ModuleType, service: str) -> None:
    keys = {key.path for key in getattr(write, f"{service}_keys")()}
    said = set(write.meanings()[f"{service}_config"])
    # Keys whose value may be a text or a mapping are not read by a typed reader.
    free = {"defaults", "exporter", "alertmanagers", "notify", "grafana", "docker.hosts", "fleet.max_unhealthy"}
    assert keys - said == set()
    assert said - keys - free == set()


@pytest.mark.parametrize("service", ["Exporter", "Remediator"])
def test_every_route_has_a_meaning_and_none_is_invented(write: ModuleType, service: str) -> None:
    routes = set(write.routes(getattr(write, f"{service}Web")))
    said = write.meanings()[f"{service.lower()}_http"]
    plain = set(map(write.without_pattern, said))
    assert plain == routes


def test_every_option_says_what_it_does(write: ModuleType) -> None:
    plain = ("--log.", "--password-file", "--key-file")
    empty = [line for line in write.cli().splitlines() if line.startswith("| `-") and line.rstrip().endswith("|  |")]
    assert [line for line in empty if not line.removeprefix("| `").startswith(plain)] == []
