"""remediator.yml: strict, all problems at once, with key paths and remedies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_common.config import ConfigError
from llm_remediator.config import check_listen, load, parse
from llm_remediator.rules import Backend, Budget, Mode

SMALL: dict[str, Any] = {
    "exporter": "http://exporter:10140",
    "alertmanagers": ["http://am:9093"],
    "journal": "/var/lib/stuckproof/journal.sqlite",
    "targets": [{"name": "qwen", "docker": {"compose_project": "llm", "compose_service": "vllm"}}],
}


def problems(**changes: Any) -> list[str]:
    document = SMALL | changes
    with pytest.raises(ConfigError) as error:
        parse({k: v for k, v in document.items() if v is not ...})
    return [p.removeprefix("remediator.yml: ") for p in error.value.problems]


def target(**changes: Any) -> dict[str, Any]:
    return {"targets": [{"name": "qwen", "docker": {"container": "vllm"}} | changes]}


def test_keys_without_a_target_reach_what_reads_them() -> None:
    config = parse(
        SMALL
        | {"alert_ttl": "7m", "kubernetes": {"lease": "one", "lease_duration": "45s"}, "diagnostics": {"log_lines": 17}}
    )
    assert config.alert_ttl == 420.0
    assert (config.kubernetes.lease, config.kubernetes.lease_duration) == ("one", 45.0)
    assert config.diagnostics.log_lines == 17


def test_the_least_has_the_defaults_of_the_design() -> None:
    config = parse(SMALL)
    assert config.mode is Mode.OBSERVE
    (only,) = config.targets
    rules = only.rules
    assert only.backend is Backend.DOCKER
    assert str(only.selectors[0]) == "compose service llm/vllm"
    assert rules.restart_on == {"stuck"}
    assert (rules.cooldown, rules.cooldown_max, rules.budget) == (600.0, 7200.0, Budget(3, 21600.0))
    assert (rules.startup_grace, rules.stop_timeout, rules.verify_within, rules.min_healthy) == (600.0, 60.0, 1200.0, 3600.0)
    assert (config.fleet.max_concurrent, config.fleet.max_unhealthy) == (1, 0.2)
    assert config.docker_hosts[0].url == "unix:///var/run/docker.sock"


def test_a_target_overrides_what_it_names_and_keeps_the_rest() -> None:
    config = parse(
        SMALL
        | {"defaults": {"cooldown": "5m", "budget": {"restarts": 5}, "stop_timeout": "90s"}}
        | target(budget={"per": "1h"}, restart_on=["stuck", "failed"])
    )
    rules = config.targets[0].rules
    assert rules.budget == Budget(5, 3600.0)
    assert (rules.cooldown, rules.stop_timeout) == (300.0, 90.0)
    assert rules.restart_on == {"stuck", "failed"}


def test_every_problem_is_reported_at_once() -> None:
    found = problems(
        mode="kill",
        exporter="exporter:10140",
        journal=...,
        fleet={"max_unhealthy": "0.2"},
        targets=[
            {"name": "a", "docker": {"container": "x"}, "cooldwn": "5m"},
            {"name": "a", "docker": {"container": "x"}, "restart_on": ["busy"]},
            {"name": "b"},
        ],
    )
    text = "\n".join(found)
    assert "mode: 'kill' is not one of observe, act" in text
    assert "exporter: 'exporter:10140' is not a URL" in text
    assert "journal: is required" in text
    assert "fleet.max_unhealthy: '0.2' is not a share such as 20%" in text
    assert "targets[0].cooldwn: unknown key; did you mean cooldown?" in text
    assert "targets[1].name: a is used by targets[0] already" in text
    assert "targets[1]: container x belongs to targets[0] already: one container, one owner" in text
    assert "targets[1].restart_on: busy is no reason for a restart; choose from" in text
    assert "targets[2]: needs exactly one of docker, swarm, kubernetes, command" in text


PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"mode": "act", "alertmanagers": []}, "alertmanagers: is required in mode act"),
    ({"mode": "act", "alertmanagers": ...}, "alertmanagers: is required in mode act"),
    ({"trigger": "exporter"}, "alertmanagers: is not used with trigger: exporter"),
    ({"alertmanagers": ["http://a:1", "http://a:1/"]}, "http://a:1 is there twice"),
    ({"exporter": {"url": "http://u:p@x:1"}}, "exporter.url: has credentials in it"),
    (
        {"exporter": {"url": "http://x:1", "bearer_token_file": "/does/not/exist"}},
        "exporter.bearer_token_file: /does/not/exist",
    ),
    ({"exporter": {"url": "http://x:1", "username": "u"}}, "username and password_file belong together"),
    ({"targets": []}, "targets: is empty"),
    (target(docker={}), "targets[0].docker: needs exactly one of"),
    (target(docker=[]), "targets[0].docker: is an empty list"),
    (target(docker={"label": ""}), "targets[0].docker.label: is empty"),
    (target(docker={"label": "=x"}), "targets[0].docker.label: '=x' must be a label: KEY or KEY=VALUE"),
    (target(docker={"compose_project": "p"}), "targets[0].docker.compose_service: is required"),
    (target(docker={"container": "ab" * 32}), "is an id, which changes with every deployment"),
    (target(docker={"container": "../images/prune"}), "must be the name of a container"),
    (target(docker={"container": "x", "label": "a=b"}), "needs exactly one of"),
    (target(docker=[{"container": "x"}, {"container": "x"}]), "the same container is there twice"),
    (target(docker={"container": "x", "host": "gpu9"}), "targets[0].docker.host: 'gpu9' is not one of local"),
    (target(swarm={"service": "x"}), "needs exactly one of docker, swarm, kubernetes, command (docker and swarm given)"),
    (target(docker=None, kubernetes={"selector": "app=vllm"}), "kubernetes: is required, since a target is a pod"),
    (target(docker=None, kubernetes={"selector": "app in (a)"}), "targets[0].kubernetes.selector: 'app in (a)'"),
    (target(docker=None, kubernetes={}), "targets[0].kubernetes.selector: is required"),
    ({"kubernetes": {"lease": "Not A Name"}}, "kubernetes.lease: 'Not A Name'"),
    (target(restart_on=[]), "restart_on: is empty"),
    (target(restart_on=["unknown"]), "unknown is no reason for a restart"),
    (target(budget={"restarts": 0}), "targets[0].budget.restarts: 0 is out of range"),
    (target(cooldown="ten minutes"), "targets[0].cooldown: 'ten minutes' is not a duration"),
    (target(cooldown="5m", cooldown_max="1m"), "targets[0].cooldown_max: is below cooldown (5m)"),
    (target(stop_timeout="2h"), "is over an hour"),
    ({"docker": {"hosts": {"gpu1": "ssh://gpu1"}}}, "docker.hosts.gpu1.url: 'ssh://gpu1' is not unix:///path"),
    ({"docker": {"hosts": {"a": "tcp://a:2375", "b": "tcp://b:2375"}}}, "host: is required with several docker.hosts"),
    ({"commands": {"r": {"argv": ["systemctl"]}}}, "must be an absolute path"),
    ({"retries": 3}, "retries: unknown key"),
]


@pytest.mark.parametrize(("changes", "words"), PROBLEMS, ids=[p[1][:60] for p in PROBLEMS])
def test_a_problem_names_its_key_and_the_remedy(changes: dict[str, Any], words: str) -> None:
    assert any(words in p for p in problems(**changes)), problems(**changes)


def test_back_ends_and_hosts() -> None:
    config = parse(
        SMALL
        | {
            "docker": {"hosts": {"gpu1": "tcp://gpu1:2375", "gpu2": {"url": "unix:///run/docker.sock"}}},
            "commands": {"unit": {"argv": ["/usr/bin/systemctl", "restart", "vllm"], "timeout": "3m"}},
            "targets": [
                {"name": "group", "docker": [{"container": "head", "host": "gpu2"}, {"container": "tail", "host": "gpu2"}]},
                {"name": "service", "swarm": {"service": "vllm", "host": "gpu1"}},
                {"name": "unit", "command": "unit"},
            ],
        }
    )
    assert [(t.backend, t.host, len(t.selectors)) for t in config.targets] == [
        (Backend.DOCKER, "gpu2", 2),
        (Backend.SWARM, "gpu1", 1),
        (Backend.COMMAND, "command", 1),
    ]
    assert config.commands[0].argv == ("/usr/bin/systemctl", "restart", "vllm")


def test_one_machine_without_an_alertmanager() -> None:
    config = parse({k: v for k, v in SMALL.items() if k != "alertmanagers"} | {"mode": "act", "trigger": "exporter"})
    assert config.trigger == "exporter"


def test_the_file_is_read_and_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "r.yml"
    path.write_text(yaml.safe_dump(SMALL))
    assert load(path).targets[0].name == "qwen"
    path.write_text("mode: act\nmode: observe\n")
    with pytest.raises(ConfigError, match=r"r\.yml: mode: is on line 2 and on line 1 already") as caught:
        load(path)
    assert any("exporter: is required" in problem for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("mode", "listen", "token", "fine"),
    [
        ("act", "127.0.0.1:10141", False, True),
        ("act", "[::1]:10141", False, True),
        ("act", ":10141", False, False),
        ("act", "10.0.0.1:10141", False, False),
        ("act", ":10141", True, True),
        ("observe", ":10141", False, True),
    ],
)
def test_act_on_an_open_address_needs_credentials(tmp_path: Path, mode: str, listen: str, token: bool, fine: bool) -> None:
    (tmp_path / "token").write_text("secret\n")
    web = tmp_path / "web.yml"
    web.write_text(f"bearer_token_file: {tmp_path / 'token'}\n" if token else "{}\n")
    config = parse(SMALL | {"mode": mode})
    if fine:
        check_listen(config, [listen], str(web))
    else:
        with pytest.raises(ConfigError, match="without credentials"):
            check_listen(config, [listen], str(web))
        with pytest.raises(ConfigError, match="without credentials"):
            check_listen(config, [listen], None)


def test_time_windows_are_read_and_their_mistakes_named() -> None:
    config = parse(SMALL | {"defaults": {"windows": [{"days": ["sat", "sun"], "from": "22:00", "to": "6:30"}]}})
    assert [str(w) for w in config.targets[0].rules.windows] == ["sat,sun 22:00-06:30 UTC"]
    wrong = [{"days": ["someday"], "from": "8", "to": "25:00", "timezone": "Mars/Olympus"}]
    said = "\n".join(problems(defaults={"windows": wrong}))
    for key in ("days: 'someday'", "from: '8'", "to: '25:00'", "timezone: 'Mars/Olympus'"):
        assert f"defaults.windows[0].{key}" in said


COMMANDS = {"recreate": {"argv": ["/usr/bin/docker", "compose", "up", "-d", "--force-recreate", "vllm"]}}


def test_a_ladder_and_an_approval_are_inherited_and_overridden() -> None:
    document = SMALL | {
        "commands": COMMANDS,
        "defaults": {"approve": True, "approval_expires": "30m", "remedies": ["restart", "recreate"]},
        "targets": [
            {"name": "a", "docker": {"container": "a"}},
            {"name": "b", "docker": {"container": "b"}, "approve": False, "remedies": ["restart"]},
        ],
    }
    first, second = parse(document).targets
    assert (first.rules.approve, first.rules.approval_expires, first.rules.remedies) == (
        True,
        1800.0,
        ("restart", "recreate"),
    )
    assert (second.rules.approve, second.rules.remedies) == (False, ("restart",))
    assert parse(SMALL).targets[0].rules.approve is False


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"approve": "yes"}, "approve: must be true or false"),
        ({"approve": True, "approval_expires": "5s"}, "approval_expires: "),
        ({"remedies": []}, "remedies: is empty"),
        ({"remedies": "recreate"}, "remedies: must be a list"),
        (
            {"remedies": ["restart", "recrate"]},
            "recrate is neither restart nor one of commands; choose from restart, recreate",
        ),
        ({"remedies": ["restart"] * 4}, "remedies: 4 remedies, but budget.restarts is 3: the last would never be tried"),
        (
            {"remedies": ["restart", "recreate"], "budget": {"restarts": 1}},
            "2 remedies, but budget.restarts is 1: the last would never be tried",
        ),
    ],
)
def test_what_is_wrong_with_an_approval_or_a_ladder(changes: dict[str, Any], words: str) -> None:
    assert any(p.startswith("targets[0]") and words in p for p in problems(commands=COMMANDS, **target(**changes)))


def test_a_command_cannot_have_the_name_of_the_restart() -> None:
    (problem,) = problems(commands={"restart": COMMANDS["recreate"]})
    assert problem.startswith("commands.restart: has the name of")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (target(budget={"per": "7d"}), "targets[0] looks back 7d (budget.per)"),
        (target(cooldown_max="2d"), "targets[0] looks back 2d (cooldown_max)"),
        (target(min_healthy="3d"), "targets[0] looks back 3d (min_healthy)"),
        ({"fleet": {"budget": {"per": "4d"}}}, "fleet looks back 4d (budget.per)"),
        ({"defaults": {"budget": {"per": "7d"}}}, "targets[0] looks back 7d (budget.per)"),
    ],
)
def test_the_journal_keeps_what_the_limits_look_back_to(changes: dict[str, Any], words: str) -> None:
    (problem,) = problems(keep="1d", **changes)
    assert problem.startswith("keep: ")
    assert words in problem


def test_what_would_never_run_or_never_open() -> None:
    found = problems(commands={"a": {"argv": []}}, **target(windows=[{"from": "08:00", "to": "18:00", "days": []}]))
    assert any(p.startswith("commands.a.argv: is empty") for p in found)
    assert any(p.startswith("targets[0].windows[0].days: is empty") for p in found)
