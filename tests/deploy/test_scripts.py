"""The scripts behind make, where they must refuse: with a sentence that says what to do, having changed nothing."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def environment(cache: Path) -> dict[str, str]:
    """No Docker answers, and whatever is kept is kept in `cache`."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {"STUCKPROOF_CACHE": str(cache), "HOME": str(cache), "DOCKER_HOST": "unix:///nonexistent/docker.sock"}


@pytest.fixture
def folder_of_nobody() -> Iterator[Path]:
    """Where another user may read and write; pytest's own folders are ours alone."""
    with TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root can")
def test_without_root_and_docker_a_sentence_says_what_to_do(folder_of_nobody: Path) -> None:
    script = folder_of_nobody / "scripts"
    subprocess.run(["cp", "-r", str(ROOT / "scripts"), str(script)], check=True)
    done = subprocess.run(
        [str(script / "docker-engine.sh"), "start"],
        env=environment(folder_of_nobody / "cache") | {"YES": "1"},
        user=NOBODY,
        group=NOBODY,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "then run this again" in done.stderr


def test_an_unanswered_question_changes_nothing(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"n\n")
        done = subprocess.run(
            [str(ROOT / "scripts" / "run.sh")],
            env={k: v for k, v in environment(tmp_path).items() if k not in ("YES", "CI")},
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 1
    assert "make run will" in done.stderr
    assert "127.0.0.1 only" in done.stderr
    assert "nothing was changed" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", ["docker-engine.sh", "images.sh", "test.sh"])
def test_wrong_arguments_are_told_the_right_ones(script: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / script), "nonsense"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 1
    assert f"usage: scripts/{script}" in done.stderr
