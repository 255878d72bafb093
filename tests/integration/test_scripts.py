"""What the scripts promise: a bench prints one JSON object and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_bench_prints_one_json_object(monkeypatch):
    code = (
        "import sys, runpy, benches.core as core\n"
        "core.REPORTS, core.ROUNDS, core.SUMMED, core.MASKED = 4, 1, 1000, 1000\n"
        "sys.argv = ['benches', 'core', '--json']\n"
        "runpy.run_module('benches', run_name='__main__')\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    wanted = {"bare_seal_per_s", "report_seal_per_s", "bare_open_per_s", "report_open_per_s"}
    assert wanted | {"seal_ratio", "open_ratio", "field_sum_ratio", "mask_million_s"} <= figures.keys()
    assert "sealing" in done.stderr


def test_every_bench_can_be_loaded_and_the_one_of_storing_runs_on_both_databases():
    """It asked for a document of an earlier format, and nobody had noticed."""
    code = (
        "import importlib, json, pkgutil, benches\n"
        "names = [each.name for each in pkgutil.iter_modules(benches.__path__) if each.name != '__main__']\n"
        "loaded = {name: importlib.import_module(f'benches.{name}') for name in names}\n"
        "store = loaded['store']\n"
        "store.REPORTS, store.UPLOADS, store.ROUNDS = 4, 1, 1\n"
        "print(json.dumps(store.measure(lambda _: None)))\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert {"sqlite_ratio", "postgresql_ratio"} <= json.loads(done.stdout).keys()


def test_an_unknown_bench_is_named_with_the_known_ones():
    done = python("-m", "benches", "nothing")
    assert done.returncode == 2
    assert "core" in done.stderr
