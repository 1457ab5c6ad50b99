"""The distributions: contents, metadata, repeatable builds, and the lowest versions of packages.

`python -m tests.library.test_packaging EXTRA...` prints the requirements of the package, or only of
extras, with the lowest versions that pyproject.toml permits. `.ci/run` tests a part with these.
"""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = ("chat", "durable", "fast", "mcp", "otel", "prices")  # features
PARTS = ("core/test_structure", "core/test_log", "library/test_api", "programs/test_readme")


def requirements(*extras: str) -> list[str]:
    """Return the requirements of the package, or of some extras."""
    optional = PROJECT["optional-dependencies"]
    return [text for extra in extras for text in optional[extra]] or PROJECT["dependencies"]


def lowest(*extras: str) -> list[str]:
    """Return the requirements with the lowest permitted version of each package."""
    return [re.sub(",<.*", "", text).replace(">=", "==") for text in requirements(*extras)]


def built(folder: Path) -> list[Path]:
    """Build the sdist and the wheel, and return their paths."""
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
    return [*folder.glob("*.tar.gz"), *folder.glob("*.whl")]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    pytest.importorskip("hatchling")
    return built(tmp_path_factory.mktemp("distributions"))


def test_two_builds_are_identical(distributions, tmp_path):
    again = built(tmp_path)
    assert [path.name for path in again] == [path.name for path in distributions]
    for first, second in zip(distributions, again, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_the_wheel_is_small_and_contains_two_typed_packages_and_the_licence(distributions):
    wheel = distributions[1]
    assert wheel.stat().st_size < 450_000
    names = ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names}
    [info] = top - {"agentloop", "agentloop_chat"}
    assert {"agentloop/py.typed", "agentloop_chat/py.typed", f"{info}/licenses/LICENSE"} <= {*names}
    assert not [name for name in names if "test" in name.lower() or "__pycache__" in name]
    tracked = [
        *(ROOT / "agentloop").rglob("*.py"),
        *(ROOT / "examples/agentloop_chat").glob("*.py"),
    ]
    assert len([name for name in names if name.endswith(".py")]) == len(tracked)


def test_an_installed_wheel_has_the_commands_of_both_packages(distributions, tmp_path):
    site = tmp_path / "site"
    ZipFile(distributions[1]).extractall(site)
    env = {**os.environ, "PYTHONPATH": str(site)}
    for code in ("import agentloop.__main__ as it", "import agentloop_chat as it"):
        command = [sys.executable, "-c", f"{code}; print(it.__file__)"]
        said = subprocess.check_output(command, cwd=tmp_path, env=env, text=True)
        assert said.startswith(str(site))


def test_the_page_of_an_index_has_no_link_that_leads_nowhere(distributions):
    wheel = ZipFile(distributions[1])
    [name] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    metadata = message_from_bytes(wheel.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload(decode=True).decode()
    assert text.startswith("# agentloop\n")
    assert "](" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert not re.findall(r"\]\((?!https?:|#)", text)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_unpacked_sdist_passes_its_own_tests_and_builds_the_same_wheel(distributions, tmp_path):
    sdist, wheel = distributions
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    paths = [f"tests/{part}.py" for part in PARTS]
    options = ["-q", "-p", "no:cacheprovider"]
    for command in (["hatchling", "build", "-t", "wheel"], ["pytest", *options, *paths]):
        env = {**os.environ, "AGENTLOOP_SLOW": "", "SOURCE_DATE_EPOCH": "1767225600"}
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-5000:]
    assert (folder / "dist" / wheel.name).read_bytes() == wheel.read_bytes()


def test_each_requirement_has_a_lowest_version_which_the_groups_share():
    assert {*PROJECT["optional-dependencies"]} == {*EXTRAS, "test"}
    groups = PYPROJECT["dependency-groups"].values()
    tools = [text for group in groups for text in group if isinstance(text, str)]
    for requirement in [*requirements(), *requirements(*EXTRAS)]:
        name, version = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
        assert f"{name}=={version}" in [*lowest(), *lowest(*EXTRAS)]
        assert not [text for text in tools if text.startswith(f"{name}>") and text != requirement]


if __name__ == "__main__":
    print("\n".join(lowest(*sys.argv[1:])))
