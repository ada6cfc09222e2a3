"""Builds the remediator from its configuration and runs it until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from aiohttp.web import Application

from llm_common.config import ConfigError
from llm_common.kube import Kube, KubeAccess
from llm_common.web import serve
from llm_common.web_config import WebConfig
from llm_remediator.alertmanager_client import HttpAlertmanager
from llm_remediator.clock import SystemClock
from llm_remediator.config import Config, check_listen
from llm_remediator.containers import ContainerRuntime
from llm_remediator.docker_api import DockerApi
from llm_remediator.examine import Outside
from llm_remediator.exporter_client import HttpExporter
from llm_remediator.journal_thread import JournalThread
from llm_remediator.labelled import Labelled
from llm_remediator.lease import Lease, LeaseConfig
from llm_remediator.notify import GrafanaNotifier, WebhookNotifier
from llm_remediator.origin import BrowserGuard
from llm_remediator.remediator import Remediator
from llm_remediator.rules import Backend
from llm_remediator.runtime_command import CommandRuntime
from llm_remediator.runtime_docker import DockerRuntime
from llm_remediator.runtime_kubernetes import KubernetesRuntime
from llm_remediator.runtime_swarm import SwarmRuntime
from llm_remediator.settings import KubernetesAccess, TargetBook
from llm_remediator.web import RemediatorWeb

log = logging.getLogger("llm.remediator")


@dataclass(frozen=True, slots=True)
class Serving:
    """Where and how the web server listens."""

    listen: Sequence[str] = ("127.0.0.1:10141",)
    web_config_file: str | None = None
    external_url: str | None = None
    shown_config: str = ""
    version: str = ""


def runtimes(config: Config, commands: CommandRuntime) -> dict[tuple[Backend, str], ContainerRuntime]:
    """One runtime for each back end and host that a target uses; on one Docker host they share its thread."""
    apis = {host.name: DockerApi(host) for host in config.docker_hosts}
    clock = SystemClock()
    found: dict[tuple[Backend, str], ContainerRuntime] = {}
    used = [(target.backend, target.host) for target in config.targets]
    used += [(Backend.DOCKER, labelled.host) for labelled in config.labelled]
    for backend, host in dict.fromkeys(used):
        if backend is Backend.DOCKER:
            found[backend, host] = DockerRuntime(apis[host])
        elif backend is Backend.SWARM:
            found[backend, host] = SwarmRuntime(apis[host], clock.sleep)
        elif backend is Backend.KUBERNETES:
            pods = [selector for target in config.targets for selector in target.selectors if selector.pods]
            settings = config.kubernetes or KubernetesAccess()
            found[backend, host] = KubernetesRuntime(Kube(access(settings)), pods, evict=settings.evict)
        else:
            found[backend, host] = commands
    return found


def access(settings: KubernetesAccess) -> KubeAccess:
    """How the API server is reached; `ConfigError` outside a cluster without `kubernetes.api`."""
    if settings.api is not None:
        return KubeAccess(settings.api, settings.token_file, settings.ca_file, settings.namespace or "default")
    found = KubeAccess.in_cluster()
    if found is None:
        raise ConfigError("kubernetes.api: is required outside a cluster; there is no service account here")
    return replace(found, namespace=settings.namespace or found.namespace)


def lease_of(config: Config) -> Lease | None:
    """The contender for ``kubernetes.lease``, if it is configured."""
    settings, clock = config.kubernetes, SystemClock()
    if settings is None or settings.lease is None:
        return None
    name = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
    lease = LeaseConfig(settings.lease, settings.namespace, settings.lease_duration)
    return Lease(Kube(access(settings)), lease, name, clock.monotonic, clock.wall, clock.sleep)


async def run(config: Config, serving: Serving) -> None:
    """Serve until SIGINT or SIGTERM.

    `ConfigError` for an address or web config that cannot be used, `JournalLockedError` if another
    remediator owns the journal.
    """
    check_listen(config, list(serving.listen), serving.web_config_file)
    journal = JournalThread(config.journal)
    journal.start()
    if journal.fault:
        log.error("%s", journal.fault)
    async with AsyncExitStack() as stack:
        stack.callback(journal.close)
        exporter = HttpExporter(config.exporter)
        alertmanagers = tuple(HttpAlertmanager(endpoint) for endpoint in config.alertmanagers)
        lease = lease_of(config)
        commands = CommandRuntime(config.commands)
        outside = Outside(runtimes(config, commands), exporter, alertmanagers, SystemClock(), lease, commands)
        notifiers = _notifiers(config)
        for client in (exporter, *alertmanagers, *notifiers, *outside.runtimes.values()):
            stack.push_async_callback(client.close)
        remediator = Remediator(config, outside, journal, notifiers, serving.version)
        if isinstance(config.targets, TargetBook):
            hosts = {host: runtime for (backend, host), runtime in outside.runtimes.items() if backend is Backend.DOCKER}
            labelled = Labelled(config.targets, config.labelled, hosts, config.rules, outside.clock)
            await labelled.refresh()
            remediator.guard.spawn("labelled", labelled.run)
        if lease is not None:
            stack.push_async_callback(lease.close)
            remediator.guard.spawn("lease", lease.run)
        stack.push_async_callback(remediator.stop)
        remediator.start()
        runner = await serve(_web(remediator, serving), serving.listen, serving.web_config_file)
        stack.push_async_callback(runner.cleanup)
        log.info("mode %s, %d targets", config.mode.value, len(config.targets), extra={"listen": ",".join(serving.listen)})
        await _until_signal()


def _notifiers(config: Config) -> list[WebhookNotifier | GrafanaNotifier]:
    found: list[WebhookNotifier | GrafanaNotifier] = [WebhookNotifier(endpoint) for endpoint in config.notify]
    if config.grafana is not None:
        found.append(GrafanaNotifier(config.grafana))
    return found


def _web(remediator: Remediator, serving: Serving) -> Application:
    hosts = [urlsplit(serving.external_url).hostname or ""] if serving.external_url else []
    credentials = serving.web_config_file is not None and WebConfig.load(serving.web_config_file).has_credentials
    guard = BrowserGuard([h for h in hosts if h], credentials=credentials)
    return RemediatorWeb(remediator, guard, serving.shown_config).app()


async def _until_signal() -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    # By default it would end us without a word, perhaps in the midst of an attempt; people send it to daemons to reload.
    loop.add_signal_handler(
        signal.SIGHUP, log.warning, "SIGHUP is ignored: restart llm-remediator to apply its configuration"
    )
    await ended.wait()
