"""The benchmarks run: every key is measured once, at a tiny size, as `make bench` measures it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

KEYS = {
    "pg_capture_1",
    "pg_capture_cpu",
    "pg_capture_multirow",
    "pg_capture_bulk",
    "pg_capture_workspaces",
    "orm_capture",
    "orm_capture_postgresql",
    "orm_capture_sqlite",
    "sqlite_capture",
    "threads",
    "threads_postgresql",
    "threads_sqlite",
    "read_batch_postgresql",
    "read_batch_sqlite",
    "read_idle_postgresql",
    "read_idle_sqlite",
    "log_size",
    "log_size_postgresql",
    "log_size_sqlite",
    "checkpoint_bytes",
    "checkpoint_bytes_postgresql",
    "checkpoint_bytes_sqlite",
    "checkpoint_bytes_sketch",
    "fanout_naive",
    "request_share",
    "request_share_postgresql",
    "request_share_sqlite",
    "prefix_kept",
    "pg_write",
    "pg_write_hot",
    "sqlite_write_64",
    "fenced_saver",
    "fenced_saver_postgresql",
    "fenced_saver_sqlite",
    "run_overhead",
    "run_overhead_postgresql",
    "run_overhead_sqlite",
    "first_token",
    "stream_fanout",
}


def _benchmarks(*arguments: str, server: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ABREAST_TEST_POSTGRES": server}
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)


def test_every_key_is_measured(postgres_url, tmp_path):
    output = tmp_path / "results.json"
    done = _benchmarks("--quick", "--output", str(output), server=postgres_url)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(output.read_text())
    assert set(report) == {"ratios", "machine", "versions", "quick"}
    assert report["versions"].keys() >= {"abreast", "python", "postgresql", "sqlite", "langchain"}
    assert set(report["ratios"]) >= KEYS
    for name, figures in report["ratios"].items():
        assert figures["min"] <= figures["median"] <= figures["max"], name
        assert figures["median"] > 0, name
        assert name in done.stdout
    # What does not depend on the size or the machine is what it must be in a quick run too.
    assert report["ratios"]["pg_capture_multirow"]["deadlocks"] == 0
    assert report["ratios"]["pg_capture_multirow"]["transactions"] > 0
    assert report["ratios"]["prefix_kept"]["min"] >= 0.99
    assert report["ratios"]["checkpoint_bytes"]["median"] < 1.1 < report["ratios"]["checkpoint_bytes_sketch"]["median"]


def test_only_some_keys_and_rounds(tmp_path):
    output = tmp_path / "deeper" / "results.json"
    done = _benchmarks("--quick", "--only", "sqlite_capture,threads_sqlite", "--rounds", "3", "--output", str(output))
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(output.read_text())
    assert set(report["ratios"]) == {"sqlite_capture", "threads_sqlite"}
    assert "postgresql" not in report["versions"]  # no server was needed


def test_an_unknown_key_is_refused(tmp_path):
    done = _benchmarks("--only", "speed", "--output", str(tmp_path / "results.json"))
    assert done.returncode == 2
    assert "no such key: speed" in done.stderr
    assert not (tmp_path / "results.json").exists()
