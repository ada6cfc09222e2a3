"""exporter.yml: strict, all problems at once with their paths, defaults inherited, engine paces."""

from pathlib import Path

import pytest

from llm_common.config import ConfigError, parse_yaml
from llm_exporter.config import Config, from_urls, load, read
from llm_exporter.engines import by_kind
from llm_exporter.urls import base_url, default_name

ENGINES = ("vllm", "llamacpp", "proxy")


def parsed(text: str) -> Config:
    problems: list[str] = []
    config = read(parse_yaml(text, "x"), problems, ENGINES)
    assert problems == []
    return config


def problems_of(text: str) -> list[str]:
    problems: list[str] = []
    read(parse_yaml(text, "x"), problems, ENGINES)
    return problems


def test_every_default_is_the_designs() -> None:
    options = parsed("targets: [{url: 'http://a:1'}]").targets[0].options
    assert options.pace(by_kind("vllm")) == (5.0, 4.0)
    assert options.pace(by_kind("llamacpp")) == (15.0, 14.0)
    settings = options.settings(by_kind("vllm"))
    assert (settings.stalled_after, settings.stuck_after, settings.stuck_after_blind) == (30, None, 900)
    assert (settings.starved_after, settings.start_grace, settings.blocked_after) == (600, 600, 300)
    assert (settings.confirm, settings.idle_canary, settings.canary_every, settings.canary_timeout) == (True, True, 900, 30)


def test_a_target_inherits_defaults_key_by_key() -> None:
    config = parsed("""
defaults: {interval: 2s, stuck_after: 1m, canary: {idle: off, timeout: 5s}}
targets:
  - {name: a, url: 'http://a:1'}
  - {name: b, url: 'http://b:1', stuck_after: 2m, canary: {timeout: 7s}, labels: {team: x, tier: 1}}
""")
    a, b = (target.options for target in config.targets)
    assert a.pace(by_kind("llamacpp")) == (2.0, 1.8)
    assert (a.stuck_after, a.canary.idle, a.canary.timeout) == (60, "off", 5)
    assert (b.stuck_after, b.canary.idle, b.canary.timeout) == (120, "off", 7)
    assert config.targets[1].labels == {"team": "x", "tier": "1"}


def test_more_patience_with_a_sighted_source_is_no_less_with_a_blind_one() -> None:
    config = parsed("targets: [{name: a, url: 'http://a:1', stuck_after: 20m}]")
    settings = config.targets[0].options.settings(None)
    assert (settings.stuck_after, settings.stuck_after_blind) == (1200, 1200)


def test_all_problems_come_at_once_with_paths() -> None:
    assert problems_of("""
defaults: {interval: 1s, timeout: 2s, stuck_afer: 5m}
targets:
  - {url: 'ftp://a'}
  - {name: 'a b', url: 'http://a:1', engine: vlm}
  - {name: x, url: 'http://u:p@a:1', labels: {lane: q, 'a-b': c, __x: y}}
  - {name: y}
  - {name: z, url: 'http://a:1', canary: {idle: sometimes, api_key_file: /none}}
  - {name: z, url: 'http://a:2', stuck_after: 20m, stuck_after_blind: 10m, ready_limits: {kv: 95}}
discovery: {file_sd: [{file: x}]}
engines:
  - {name: own, progress: [a], running: b, waiting: [c]}
  - {name: own, progress: [a], running: b, waiting: [c]}
remediator: {}
""") == [
        "defaults.timeout: timeout (2s) must not be longer than interval (1s)",
        "defaults.stuck_afer: unknown key; did you mean stuck_after?",
        "engines[1].name: 'own' is the name of another engine of this file already",
        "targets[0].url: 'ftp://a': only http and https are read, not ftp",
        "targets[1].name: 'a b' may have letters, digits and . _ : @ - only, and starts with a letter or digit",
        "targets[1].engine: 'vlm' is not one of auto, vllm, llamacpp, proxy, own; did you mean vllm?",
        "targets[2].url: credentials do not belong into a URL; put the token into a file and name it in bearer_token_file",
        "targets[2].labels: 'a-b' is not a label name",
        "targets[2].labels: '__x' begins with two underscores, which Prometheus keeps for itself",
        "targets[2].labels: 'lane' is set by the exporter or by Prometheus",
        "targets[3].url: is required",
        "targets[4].canary.idle: 'sometimes' is not one of auto, off",
        "targets[4].canary.api_key_file: /none cannot be read: No such file or directory",
        "targets[5].ready_limits.kv: 95 is out of range; from 0.01 to 1",
        "targets[5].stuck_after_blind: must not be shorter than stuck_after: a blind source needs more patience",
        "targets[5].name: 'z' is the name of targets[4] already; names must differ",
        "discovery.file_sd[0].files: is required",
        "discovery.file_sd[0].file: unknown key; did you mean files?",
        "remediator: unknown key; known here: defaults, discovery, engines, max_requests_per_host, targets",
    ]


def test_a_file_without_targets_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "exporter.yml"
    path.write_text("defaults: {interval: 5s}\n")
    with pytest.raises(ConfigError, match="targets: there are none"):
        load(str(path), ENGINES)
    path.write_text("- a\n")
    with pytest.raises(ConfigError, match="must be a mapping"):
        load(str(path), ENGINES)


@pytest.mark.parametrize(
    "text, base, name",
    [
        ("http://h:8000", "http://h:8000", "h:8000"),
        ("http://h:8000/", "http://h:8000", "h:8000"),
        ("h:8000", "http://h:8000", "h:8000"),
        ("http://h:8000/v1", "http://h:8000", "h:8000"),
        ("http://h:8000/metrics", "http://h:8000", "h:8000"),
        ("https://h/a/v1/chat/completions", "https://h/a", "h_a"),
        ("http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_what_people_paste_becomes_a_base_url(text: str, base: str, name: str) -> None:
    assert (base_url(text), default_name(base_url(text))) == (base, name)


@pytest.mark.parametrize(
    "text", ["", "http://", "http://::1:8000", "::1:8000", "http://h:99999", "http://h:x", "http://a b"]
)
def test_what_is_no_url_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(ValueError, match=r"write http|brackets"):
        base_url(text)


def test_urls_of_a_command_line_are_targets_and_all_wrong_ones_are_said() -> None:
    assert [target.name for target in from_urls(["h:1", "h:2", "h:1"]).targets] == ["h:1", "h:2"]
    with pytest.raises(ConfigError) as caught:
        from_urls(["ftp://x", "http://y?z=1", "h:1"])
    assert len(caught.value.problems) == 2


def test_the_shown_configuration_has_no_secret() -> None:
    config = parsed("""
targets: [{name: a, url: 'http://a:1', labels: {api_token: hunter2}}]
discovery: {http_sd: [{url: 'http://bob:hunter2@sd/list?team=x&access_token=hunter2&sig=hunter2'}]}
""")
    shown = str(config.effective())
    assert "hunter2" not in shown
    assert "//<secret>@sd/list?team=x&access_token=<secret>&sig=<secret>" in shown
    assert (
        config.hash
        == parsed("""
discovery: {http_sd: [{url: 'http://bob:hunter2@sd/list?team=x&access_token=hunter2&sig=hunter2'}]}
targets: [{name: a, url: 'http://a:1', labels: {api_token: hunter2}}]
""").hash
    )
    assert config.hash != parsed("targets: [{name: a, url: 'http://a:1'}]").hash
