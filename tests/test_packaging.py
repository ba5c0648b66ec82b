"""The wheel and the sdist are whole: what they hold is enough to run the demo on a machine with only Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.recordings import EXAMPLES, REPO

PIP = ["-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, REPO, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def command(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed command in an environment that has the wheel and what it asks for, and nothing else."""
    home = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(home, with_pip=True)
    folder = home / ("Scripts" if sys.platform == "win32" else "bin")
    (wheel,) = dist.glob("*.whl")
    run(folder / "python", *PIP, "install", wheel, cwd=home)
    return folder / "clearstate"


def run(*words: str | Path, cwd: Path) -> str:
    """What a command prints; fails with all it said when it fails."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words],
        check=False,
        cwd=cwd,
        env=outside,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_package_its_types_what_reports_are_made_of_and_its_licences_and_nothing_else(
    dist: Path,
) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {path.relative_to(REPO / "src").as_posix() for path in (REPO / "src").rglob("*.py")}
    assets = {path.relative_to(REPO / "src").as_posix() for path in (REPO / "src/clearstate/report/assets").iterdir()}
    assert "clearstate/report/assets/charts-licences.txt" in assets
    assert sources | assets | {"clearstate/py.typed"} == {name for name in names if ".dist-info/" not in name}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_sdist_holds_the_sources_the_tests_and_the_example(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"pyproject.toml", "LICENSE", "README.md", "Makefile", "examples/digits.t7", "tests/recordings.tar.xz"}
    assert expected <= names
    assert not [name for name in names if name.startswith((".venv/", ".cache/", "build/", "dist/"))]


def test_an_empty_environment_gets_numpy_and_a_terminal_library_and_no_torch(command: Path) -> None:
    names = "import importlib.metadata as m; print(*(d.metadata['Name'].lower() for d in m.distributions()))"
    installed = set(run(command.parent / "python", "-c", names, cwd=command.parent).split())
    assert {"clearstate", "numpy", "typer", "rich"} <= installed
    assert "torch" not in installed


def test_the_wheel_runs_the_demo_in_an_empty_environment(command: Path, tmp_path: Path) -> None:
    old, small = EXAMPLES / "digits.t7", tmp_path / "digits-small.t7"
    inventory = run(command, "inspect", old, cwd=tmp_path)
    assert "transient" in inventory
    assert "parameter" in inventory
    run(command, "clear", old, "-o", small, cwd=tmp_path)
    assert small.stat().st_size < old.stat().st_size // 10
    assert run(command, "verify", old, small, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [small.name]


def test_the_makefile_demo_says_what_the_packaging_test_runs() -> None:
    makefile = (REPO / "Makefile").read_text()
    commands = re.findall(r"\$\(BIN\)/clearstate (\w+)", makefile)
    assert commands == ["inspect", "clear", "verify"]
