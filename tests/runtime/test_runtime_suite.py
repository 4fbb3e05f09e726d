"""The runtime's own test suite, from its sdist, over our SQLite store.

What passes with the runtime's in-memory default must pass with ours in its place. The suite is
run as it is found: modules that miss files which the sdist does not ship fail both times.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

# Tests that need more of the default store than its contract, each with the reason.
EXEMPT: dict[str, str] = {}

FEWEST_PASSED = 300  # 0.21.0: 335 pass, 41 fail and 4 modules are not collected, for want of files
ABOUT_STORES = "tests.test_conversation_memory"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist of the runtime that is installed here."""
    place = tmp_path_factory.mktemp("sdist")
    wanted = f"toolnexus=={importlib.metadata.version('toolnexus')}"
    # Its own sdist only: what builds it, for its metadata, may come as wheels.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "toolnexus"]
    done = subprocess.run(
        [*command, "--dest", str(place), wanted],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, f"pip could not download the sdist:\n{done.stdout}{done.stderr}"
    [archive] = place.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        sdist.extractall(place, filter="data")
    [tests] = place.glob("*/tests")
    return tests.parent


@pytest.mark.runtime_suite
@pytest.mark.timeout(900)
def test_what_passes_over_the_runtimes_store_passes_over_ours(suite: Path, tmp_path: Path) -> None:
    databases = tmp_path / "databases"
    plugins = tmp_path / "plugins"
    databases.mkdir()
    plugins.mkdir()
    # Alone in its directory: on the path of the suite, our own tests would be mistaken for its.
    shutil.copy(Path(__file__).with_name("swap_store.py"), plugins)
    path = os.pathsep.join(filter(None, [str(plugins), os.environ.get("PYTHONPATH")]))
    swap = {"SWAP_STORE_DIR": str(databases), "PYTHONPATH": path}

    with ThreadPoolExecutor(2) as both:
        as_is = both.submit(passing, suite, tmp_path / "as_is.xml", [], {})
        swapped = both.submit(passing, suite, tmp_path / "ours.xml", ["-p", "swap_store"], swap)
    before, after = as_is.result(), swapped.result()

    assert len(before) >= FEWEST_PASSED
    assert any(test.startswith(ABOUT_STORES) for test in before)
    assert len(list(databases.glob("*.db"))) > 0, "no store of ours was used"
    assert before - after == set(EXEMPT)


def passing(suite: Path, report: Path, options: list[str], environment: dict[str, str]) -> set[str]:
    """The tests of *suite* that pass when it is run with *options*."""
    command = [sys.executable, "-m", "pytest", "tests", "--continue-on-collection-errors"]
    done = subprocess.run(
        [*command, "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *options],
        cwd=suite,
        env=plain_environment() | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert report.exists(), f"the suite did not run:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return {
        f"{case.get('classname')}::{case.get('name')}"
        for case in ET.parse(report).iter("testcase")
        if not any(part.tag in {"failure", "error", "skipped"} for part in case)
    }


def plain_environment() -> dict[str, str]:
    """This process's environment without what steers pytest, or a model provider's key."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST") and not name.endswith("_API_KEY")
    }
