"""The Kubernetes manifests: valid, made from what they claim, and granting exactly what the code asks for."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_validate
import pytest
import yaml

from llm_exporter.config import Config
from llm_exporter.config import read as read_exporter
from llm_exporter.discovered import Found, SourceError, Template
from llm_exporter.discovery_config import KubernetesSd
from llm_exporter.discovery_kubernetes import PIECE, read_kubernetes
from llm_remediator.config import parse as read_remediator
from remediator.kube_api import ALLOWED, Cluster, served

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
VERSIONS = ["1.31", "1.33", "1.36"]
CUSTOM = {"Kustomization", "ServiceMonitor", "PrometheusRule"}
"""Kinds that Kubernetes' own schemas do not know."""

MANIFESTS = sorted(path for path in KUBERNETES.rglob("*.yaml"))
OVERLAYS = sorted(path.parent for path in (KUBERNETES / "overlays").glob("*/kustomization.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kubernetes_script", ROOT / "scripts" / "kubernetes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resources_of(folder: Path) -> list[Path]:
    """What a kustomization brings in, followed as kustomize does."""
    found: list[Path] = []
    for name in documents(folder / "kustomization.yaml")[0]["resources"]:
        path = (folder / name).resolve()
        assert path.exists(), f"{folder}: {name} is not there"
        found += resources_of(path) if path.is_dir() else [path]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: str(p.relative_to(KUBERNETES)))
def test_manifests_fit_the_schemas_of_three_versions(path: Path, version: str) -> None:
    for document in documents(path):
        if document["kind"] not in CUSTOM:
            kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda p: p.name)
def test_every_overlay_is_whole(overlay: Path) -> None:
    paths = resources_of(overlay)
    assert len(paths) == len(set(paths))
    names = [(d["kind"], d["metadata"]["name"]) for path in paths for d in documents(path)]
    assert len(names) == len(set(names)), "one name, one object"


def test_every_manifest_is_in_an_overlay() -> None:
    used = {path for overlay in OVERLAYS for path in resources_of(overlay)}
    assert used == {path for path in MANIFESTS if path.name != "kustomization.yaml"}


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda p: p.name)
def test_kustomize_builds_it_where_there_is_one(overlay: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        assert resources_of(overlay), "without kubectl the structure is checked above"
        return
    built = subprocess.run([kubectl, "kustomize", str(overlay)], capture_output=True, text=True, timeout=60, check=True)
    objects = [d for d in yaml.safe_load_all(built.stdout) if d]
    assert len(objects) == sum(len(documents(path)) for path in resources_of(overlay))
    assert {d["metadata"].get("namespace") for d in objects} == {"llm"}


def test_rules_and_dashboards_are_current() -> None:
    for path, text in script().rendered().items():
        assert path.read_text() == text, f"{path.name} is old; run python scripts/kubernetes.py"


def granted(path: Path) -> set[tuple[str, str]]:
    verbs = {"list": "GET", "get": "GET", "watch": "GET", "create": "POST", "update": "PUT", "delete": "DELETE"}
    found = set()
    for role in (d for d in documents(path) if d["kind"] == "Role"):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                kind, _, sub = resource.partition("/")
                api = "/api/v1" if rule["apiGroups"] == [""] else f"/apis/{rule['apiGroups'][0]}/v1"
                for verb in rule["verbs"]:
                    one = "" if verb in ("list", "watch") or (verb == "create" and not sub) else r"/[^/]+"
                    tail = f"{one}/{sub}" if sub else one
                    found.add((verbs[verb], rf"{api}/namespaces/[^/]+/{kind}{tail}"))
    return found


def test_the_remediator_may_do_exactly_what_its_client_asks_for() -> None:
    """The API server of the client's tests refuses everything else, so this holds code and RBAC together."""
    asked = {entry for entry in ALLOWED if entry[0] != "DELETE" and entry[1] != "/version"}
    assert granted(KUBERNETES / "remediator" / "rbac.yaml") == asked


def test_the_exporter_may_only_list_pods() -> None:
    assert granted(KUBERNETES / "base" / "rbac.yaml") == {("GET", r"/api/v1/namespaces/[^/]+/pods")}


def allowed(part: str, way: str) -> dict[str, set[tuple[str, int]]]:
    """Ports that a NetworkPolicy opens, by whom it opens them to (``anybody`` without a peer)."""
    (policy,) = documents(KUBERNETES / part / "networkpolicy.yaml")
    found: dict[str, set[tuple[str, int]]] = {}
    for rule in policy["spec"][way]:
        ports = {(port["protocol"], port["port"]) for port in rule.get("ports", [])}
        for peer in rule.get("to", rule.get("from", ["anybody"])):
            found.setdefault(peer if isinstance(peer, str) else yaml.safe_dump(peer, default_flow_style=True).strip(), ports)
    return found


BASICS = {("UDP", 53), ("TCP", 53), ("TCP", 443), ("TCP", 6443)}
"""Names, and the API server by its service or its own port."""
NAMESPACE = "{podSelector: {}}"
SCRAPERS = "{namespaceSelector: {matchLabels: {stuckproof.scrape: allowed}}}"


def test_network_policies_open_what_is_needed_and_no_more() -> None:
    assert allowed("base", "ingress") == {NAMESPACE: {("TCP", 10140)}, SCRAPERS: {("TCP", 10140)}}
    # Engines listen where they like, in this namespace.
    assert allowed("base", "egress") == {NAMESPACE: set(), "anybody": BASICS}
    assert allowed("remediator", "ingress") == {NAMESPACE: {("TCP", 10141)}, SCRAPERS: {("TCP", 10141)}}
    assert allowed("remediator", "egress") == {
        "{podSelector: {matchLabels: {app.kubernetes.io/name: llm-exporter}}}": {("TCP", 10140)},
        "anybody": BASICS | {("TCP", 9093)},
    }


@pytest.mark.parametrize("part", ["base", "remediator", "sidecar"])
def test_containers_of_ours_are_hardened(part: str) -> None:
    (deployment,) = (d for d in documents(KUBERNETES / part / "deployment.yaml") if d["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod.get("initContainers") or pod["containers"]
    assert "memory" in container["resources"]["limits"]
    assert "livenessProbe" in container
    # An exporter that is not ready must not hold up the engine beside it.
    assert ("readinessProbe" in container) is (part != "sidecar")
    context = {**pod.get("securityContext", {}), **container["securityContext"]}
    assert context.pop("fsGroup", 65532) == 65532
    assert context == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def exporter_config(part: str) -> Config:
    problems: list[str] = []
    text = documents(KUBERNETES / part / "configmap.yaml")[0]["data"]["exporter.yml"]
    config = read_exporter(yaml.safe_load(text), problems, ["vllm"])
    assert not problems
    return config


def test_the_configurations_in_the_manifests_are_valid() -> None:
    assert exporter_config("base").discovery.kubernetes[0].selector == "stuckproof.target"
    assert [target.name for target in exporter_config("sidecar").targets] == ["engine"], "as probe.py asks for it"
    text = documents(KUBERNETES / "remediator" / "configmap.yaml")[0]["data"]["remediator.yml"]
    remediator = read_remediator(yaml.safe_load(text))
    assert remediator.mode.value == "observe"
    assert remediator.kubernetes is not None
    assert remediator.kubernetes.lease == "llm-remediator"


async def discovered(cluster: Cluster, tmp_path: Path) -> Found:
    token = tmp_path / "token"
    token.write_text("account-token")
    async with served(cluster) as url:
        source = KubernetesSd(selector="app=vllm", namespace="llm", api=url, token_file=str(token))
        return await read_kubernetes(source, Template())


async def test_pods_are_found_by_label_and_described_by_annotations(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod("plain")
    named = cluster.pod("vllm-7c9", **{"stuckproof.target": "chat"})
    named["metadata"]["annotations"] = {"stuckproof.port": "9000", "stuckproof.engine": "vllm", "stuckproof.team": "ml"}
    found = {target.name: target for target in (await discovered(cluster, tmp_path)).targets}
    assert set(found) == {"plain", "chat"}
    assert re.fullmatch(r"http://10\.1\.0\.\d+:8000", found["plain"].url)
    chat = found["chat"]
    assert (chat.engine, chat.url.rpartition(":")[2]) == ("vllm", "9000")
    assert dict(chat.labels) == {"namespace": "llm", "pod": "vllm-7c9", "team": "ml"}


async def test_pods_that_end_and_bad_annotations_are_left_out(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod("good")
    cluster.pod("going")["metadata"]["deletionTimestamp"] = "2026-11-30T04:00:00Z"
    cluster.pod("pending")["status"].pop("podIP")
    cluster.pod("wrong")["metadata"]["annotations"] = {"stuckproof.engine": "warp-drive"}
    cluster.pod("far")["metadata"]["annotations"] = {"stuckproof.port": "99999"}
    found = await discovered(cluster, tmp_path)
    assert [target.name for target in found.targets] == ["good"]
    assert [problem.partition(": ")[0] for problem in found.problems] == ["pod llm/wrong", "pod llm/far"]
    assert found.whole


async def test_thousands_of_pods_are_read_in_pieces_and_a_piece_that_is_gone_is_a_source_error(tmp_path: Path) -> None:
    cluster = Cluster()
    for number in range(2 * PIECE + 1):
        cluster.pod(f"pod-{number}")
    found = await discovered(cluster, tmp_path)
    assert [target.name for target in found.targets] == [f"pod-{number}" for number in range(2 * PIECE + 1)]
    assert len(cluster.calls) == 3
    cluster.continues = False
    with pytest.raises(SourceError, match="410"):
        await discovered(cluster, tmp_path)


async def test_a_refusing_api_is_a_source_error(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("wrong")
    async with served(Cluster()) as url:
        with pytest.raises(SourceError, match="401"):
            await read_kubernetes(KubernetesSd(namespace="llm", api=url, token_file=str(token)), Template())
    with pytest.raises(SourceError, match="no service account"):
        await read_kubernetes(KubernetesSd(), Template())
