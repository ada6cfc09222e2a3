"""What LLMEngineStuck says, word for word, as promtool renders it; and the commands of the how-to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.scenes import ALERTS, RULES, alert_rules, samples, series, states
from rules.servers import program

EXPORTER = {"job": "llm-exporter", "instance": "exporter:10140"}
EVIDENCE = {
    series("llm_engine_requests", target="a", lane="0", state="running", **EXPORTER): "3*10m",
    series("llm_engine_requests", target="a", lane="1", state="running", **EXPORTER): "1*10m",
    series("llm_engine_requests", target="a", lane="0", state="waiting", **EXPORTER): "9*10m",
    series("llm_engine_stalled_seconds", target="a", lane="0", **EXPORTER): "310*10m",
    series("llm_engine_stuck_bound_seconds", target="a", lane="0", **EXPORTER): "300*10m",
    series("llm_exporter_build_info", version="1", external_url="https://llm.example", **EXPORTER): "1*10m",
    series("llm_up", target="a", **EXPORTER): "1*10m",
}
SHARD = {"job": "llm-exporter", "instance": "another-shard:10140"}
NO_URL = {
    series("llm_exporter_build_info", version="1", external_url="/behind/a/proxy", **EXPORTER): "1*10m",
    series("llm_up", target="a", **EXPORTER): "1*10m",
    series("llm_exporter_build_info", version="1", external_url="https://not.there", **SHARD): "1*10m",
    series("llm_up", target="b", **SHARD): "1*10m",
}


def remediator(mode: str, gate: str, cooldown: str | None = None) -> dict[str, str]:
    other = "act" if mode == "observe" else "observe"
    found = {
        series("llm_remediation_mode_info", mode=mode, job="r"): "1*10m",
        series("llm_remediation_mode_info", mode=other, job="r"): "0*10m",
        series("llm_remediation_next_gate_info", target="a", gate=gate, job="r"): "1*10m",
        series("llm_remediation_mode_info", mode="another cluster's", cluster="c2", job="r"): "1*10m",
    }
    if cooldown:
        found[series("llm_remediation_cooldown_until_timestamp_seconds", target="a", job="r")] = f"{cooldown}*10m"
    return found


HEAD = "a is stuck: 4 running, 9 waiting, no progress for 5m 10s (bound 5m 0s). "
TAIL = " Do nothing if the mode is act and the next gate is none; else read the evidence, then restart it by hand. "
SAID = [
    (
        EVIDENCE | remediator("act", "none"),
        HEAD + "Remediator: mode act, next gate none, cooldown over.",
        "https://llm.example",
    ),
    (
        EVIDENCE | remediator("act", "cooldown", "900"),
        HEAD + "Remediator: mode act, next gate cooldown, cooldown until 1970-01-01 00:15:00 +0000 UTC.",
        "https://llm.example",
    ),
    (
        EVIDENCE | remediator("observe", "startup_grace"),
        HEAD + "Remediator: mode observe, next gate startup_grace, cooldown over.",
        "https://llm.example",
    ),
    (EVIDENCE, HEAD + "Remediator: none answers, so nobody restarts it.", "https://llm.example"),
    (
        NO_URL,
        "a is stuck: requests held are not known, no progress for an unknown time (bound unknown). "
        "Remediator: none answers, so nobody restarts it.",
        "http://exporter:10140",
    ),
]


@pytest.mark.parametrize("world, text, url", SAID)
def test_the_stuck_alert_says_state_evidence_remediator_and_where_to_look(
    tmp_path: Path, world: dict[str, str], text: str, url: str
) -> None:
    rule = alert_rules()["LLMEngineStuck"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]}))
    world = states("busy*2m stuck*8m", target="a", **EXPORTER) | world
    expected: dict[str, Any] = {
        "exp_labels": {"target": "a", "severity": "warning", "remediate": "restart", "team": "none"},
        "exp_annotations": {
            "summary": rule["annotations"]["summary"],
            "description": f"{text}{TAIL}{url}/targets/a",
            "runbook_url": rule["annotations"]["runbook_url"],
        },
    }
    test = {
        "interval": "15s",
        "input_series": [{"series": k, "values": " ".join(samples(v, 15))} for k, v in world.items()],
        "alert_rule_test": [{"alertname": "LLMEngineStuck", "eval_time": "5m", "exp_alerts": [expected]}],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": [test]}))
    done = subprocess.run([program("promtool"), "test", "rules", str(file)], capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_how_to_shows_what_the_commands_print() -> None:
    text = (RULES.parent / "docs" / "how-to" / "alerting.md").read_text()
    block = re.search(r"```console\n(.*?)```", text, re.S).group(1)  # type: ignore[union-attr]
    for command, said in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
        done = subprocess.run(command.split(), cwd=ALERTS.parents[1], capture_output=True, text=True, timeout=30)
        assert done.stdout.strip() == said.strip()
