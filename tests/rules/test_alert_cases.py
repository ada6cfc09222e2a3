"""`promtool test rules` on the cases: alone, with two exporters over the same targets, and across a change of version."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.cases import CASES
from rules.scenes import ALERTS, Scene, alert_rules, pieces, samples, seconds, series, with_label
from rules.servers import program

RULES = alert_rules()
EXPORTER = {"job": "llm-exporter", "instance": "exporter:10140"}
OTHER = {"job": "llm-exporter", "instance": "second:10140"}
ABOUT_TARGETS = sorted({s.alert for s in CASES if "target" in s.labels and s.fires})


def length(scene: Scene) -> int:
    return max(sum(s for _, s in pieces(line)) for line in scene.world.values())


def scraped(scene: Scene, *exporters: dict[str, str]) -> dict[str, str]:
    """The world as Prometheus stores it: each exporter's series once per exporter."""
    return {
        with_label(name, **exporter): line
        for name, line in scene.world.items()
        for exporter in (({},) if "job=" in name else exporters)
    }


def promtool_test(scene: Scene, world: dict[str, str], **labels: str) -> dict[str, Any]:
    """One promtool test: the moments, and for a near miss the whole time."""
    step = seconds(scene.step)
    firing = series("ALERTS", alertname=scene.alert, alertstate="firing")
    fixed = {k: "none" if "{{" in v else v for k, v in RULES[scene.alert]["labels"].items()}
    full = {"alertname": scene.alert, "alertstate": "firing", **fixed, **scene.labels, **labels}
    fires = [
        {"expr": firing, "eval_time": at, "exp_samples": [{"labels": series("ALERTS", **full), "value": 1}]}
        for at in scene.fires
    ]
    silent = [{"expr": firing, "eval_time": at, "exp_samples": []} for at in scene.silent]
    whole = f"{length(scene)}s"
    never = [{"expr": f"count_over_time({firing}[{whole}])", "eval_time": whole, "exp_samples": []}]
    return {
        "name": f"{scene.alert}: {scene.why or ('fires' if scene.fires else 'near miss')}",
        "interval": scene.step,
        "input_series": [{"series": k, "values": " ".join(samples(v, step))} for k, v in world.items()],
        "promql_expr_test": fires + silent if scene.fires else never,
    }


def run(tmp_path: Path, alert: str, tests: list[dict[str, Any]], step: str = "15s") -> None:
    """Run the tests against this alert's rule alone: the others would be evaluated at every step for nothing."""
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [RULES[alert]]}]}))
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": step, "tests": tests}))
    done = subprocess.run([program("promtool"), "test", "rules", str(file)], capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr


def scenes(alert: str) -> list[Scene]:
    return [s for s in CASES if s.alert == alert]


@pytest.mark.parametrize("alert", RULES)
def test_fires_and_keeps_silent_as_the_cases_say(tmp_path: Path, alert: str) -> None:
    for step in {s.step for s in scenes(alert)}:
        run(tmp_path, alert, [promtool_test(s, scraped(s, EXPORTER)) for s in scenes(alert) if s.step == step], step)


@pytest.mark.parametrize("alert", ABOUT_TARGETS)
def test_two_exporters_and_a_change_of_version_make_one_alert(tmp_path: Path, alert: str) -> None:
    """Both exporters show the world; midway one knows of a new version and the other still of the old one."""
    for step in {s.step for s in scenes(alert)}:
        tests = []
        for scene in [s for s in scenes(alert) if s.step == step]:
            half, whole = length(scene) // 2, length(scene)
            info = {"target": "a", "team": "core", "model": "m"}
            old = {series("llm_target_info", **info, version="0.10", **EXPORTER): f"1*{half}s"}
            new = {series("llm_target_info", **info, version="0.11", **OTHER): f"_*{half // 2}s 1*{whole - half // 2}s"}
            world = {
                k: v for k, v in scraped(scene, EXPORTER, OTHER).items() if "target_info" not in k or 'target="a"' not in k
            }
            tests.append(promtool_test(scene, world | old | new, team="core"))
        run(tmp_path, alert, tests, step)


def test_the_namespace_and_cluster_of_a_target_stay_on_its_alert(tmp_path: Path) -> None:
    scene = next(s for s in scenes("LLMEngineStuck") if s.fires)
    where = {"cluster": "c1", "namespace": "ml"}
    info = {
        series("llm_target_info", target="a", team="core", **where, **EXPORTER): "1*15m",
        series("llm_target_info", target="a", team="others", cluster="c2", namespace="ml", **EXPORTER): "1*15m",
    }
    world = {with_label(k, **where, **EXPORTER): v for k, v in scene.world.items()}
    run(tmp_path, scene.alert, [promtool_test(scene, world | info, **where, team="core")])


def test_every_alert_has_a_case_that_fires_and_a_near_miss() -> None:
    assert {s.alert for s in CASES if s.fires} == {s.alert for s in CASES if not s.fires} == set(RULES)


def test_a_wrong_case_is_noticed(tmp_path: Path) -> None:
    """The runner itself can fail: an alert expected where none is, and none where one is."""
    busy = {series("llm_health_state", target="a", llm_health_state="busy"): "1*5m"}
    stuck = {series("llm_health_state", target="a", llm_health_state="stuck"): "1*5m"}
    for scene in (Scene("LLMEngineStuck", busy, fires=("4m",)), Scene("LLMEngineStuck", stuck)):
        with pytest.raises(AssertionError, match="LLMEngineStuck"):
            run(tmp_path, scene.alert, [promtool_test(scene, scraped(scene, EXPORTER))])


def test_the_whole_file_passes_promtool() -> None:
    done = subprocess.run(
        [program("promtool"), "check", "rules", str(ALERTS), str(ALERTS.with_name("recording.yml"))],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
