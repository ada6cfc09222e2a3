#!/usr/bin/env bash
# usage: scripts/docker-engine.sh start|stop|status
# start: uses the Docker Engine that answers; else, as root on Debian, installs docker.io and starts dockerd by hand.
# stop:  ends only the dockerd that start began, by its recorded process id.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PID_FILE=$CACHE/dockerd.pid
LOG=$CACHE/dockerd.log

# A hung daemon does not answer either; macOS has no `timeout`.
answers() {
    local limit=()
    ! have timeout || limit=(timeout 10)
    have docker && ${limit[@]+"${limit[@]}"} docker version --format '{{.Server.Version}}' >/dev/null 2>&1
}

# A zombie has ended: in a container nobody may collect it.
alive() { kill -0 "$1" 2>/dev/null && ! grep -qs '^State:[[:space:]]*Z' "/proc/$1/status"; }

# The process id is ours only while it is still a dockerd begun at the recorded moment: ids are used again after a reboot.
started_at() { awk '{print $22}' "/proc/$1/stat" 2>/dev/null; }
ours() {
    local pid stamp
    [ -r "$PID_FILE" ] && read -r pid stamp <"$PID_FILE" && [ "$(started_at "$pid")" = "$stamp" ] && echo "$pid"
}

start() {
    if answers; then
        return 0
    fi
    if ! is_root || ! is_debian; then
        have docker && die "the Docker Engine does not answer: $(docker version 2>&1 | tail -1). Start Docker (or join the group 'docker'), then run this again."
        die "no Docker here, and it can only be installed by root on Debian. Install Docker (Docker Desktop, or your distribution's package), then run this again."
    fi
    confirm "This installs Debian's docker.io, iptables, ca-certificates and procps, and starts dockerd. Go on?"
    # `docker top` runs the host's ps, and the remediator asks it for processes that cannot be killed.
    apt_install docker.io iptables ca-certificates procps
    # A machine with systemd has it started by the package; everywhere else (containers, chroots) it is started here.
    if [ -d /run/systemd/system ]; then
        systemctl start docker >/dev/null 2>&1 || true
        answers && return 0
    fi
    say "starting dockerd (log: $LOG)"
    begin && return 0
    note "it ended at once; once more, now that what a hard end left behind is gone"
    begin && return 0
    tail -5 "$LOG" >&2
    die "dockerd ended at once; see $LOG. Inside an unprivileged container it cannot run: use a machine with Docker."
}

# Nothing answers, so these are left over from a machine or session that was ended hard. dockerd takes the containerd of such a
# file for running as long as its process id exists, and that of a zombie does.
sweep() {
    local run=/var/run/docker/containerd
    rm -f /var/run/docker.pid "$CACHE/dockerd.own.pid"
    if [ -r $run/containerd.pid ] && ! alive "$(cat $run/containerd.pid)"; then
        rm -f $run/containerd.pid $run/containerd.sock $run/containerd.sock.ttrpc
    fi
}

# False if dockerd ended before it answered.
begin() {
    local pid waited=0
    sweep
    setsid nohup dockerd --pidfile "$CACHE/dockerd.own.pid" >"$LOG" 2>&1 </dev/null &
    pid=$!
    echo "$pid $(started_at "$pid")" >"$PID_FILE"
    until answers; do
        alive "$pid" || return 1
        waited=$((waited + 1))
        [ $waited -lt 120 ] || die "dockerd did not answer within 60 s; see $LOG"
        sleep 0.5
    done
}

stop() {
    local pid
    if ! pid=$(ours); then
        return 0
    fi
    say "stopping the dockerd that we started (process $pid)"
    kill "$pid"
    local waited=0
    while alive "$pid" && [ $waited -lt 60 ]; do
        sleep 0.5
        waited=$((waited + 1))
    done
    ! alive "$pid" || die "dockerd (process $pid) does not end; see $LOG"
    rm -f "$PID_FILE"
}

case ${1:-} in
start) start ;;
stop) stop ;;
status)
    answers || die "the Docker Engine does not answer"
    if pid=$(ours); then echo "started by us: process $pid"; else echo "started by somebody else"; fi
    ;;
*) die "usage: scripts/docker-engine.sh start|stop|status" ;;
esac
