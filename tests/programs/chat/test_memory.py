"""The AGENTS.md of a directory, its parents and the user: none of them stops the chat."""

import os
from types import SimpleNamespace

import pytest
from agentloop_chat.memory import memory_files


@pytest.fixture
def places(tmp_path):
    """A repository, a package in it, the user's directory, and dotfiles elsewhere."""
    root, own, dotfiles = tmp_path / "repo", tmp_path / "own", tmp_path / "dotfiles"
    package = root / "package"
    for folder in (root / ".git", package, own, dotfiles):
        folder.mkdir(parents=True)
    return SimpleNamespace(root=root, package=package, own=own, dotfiles=dotfiles)


def read(places):
    """Return the texts of the files for the package, and the names of those that are left out."""
    told = []
    files = memory_files(places.package, places.own, told.append)
    return [file.read_text() for file in files], told


def test_a_users_file_may_be_any_link_and_a_repositorys_file_a_link_inside_the_repository(places):
    (places.dotfiles / "rules.md").write_text("mine")
    (places.own / "AGENTS.md").symlink_to(places.dotfiles / "rules.md")
    (places.root / "AGENTS.md").write_text("of the root")
    (places.package / "AGENTS.md").symlink_to("../AGENTS.md")
    assert read(places) == (["mine", "of the root", "of the root"], [])


@pytest.mark.parametrize(
    "content",
    ["latin-1", "utf-16", "link out", "dangling link", "loop", "directory", "pipe"],
)
def test_an_unusable_file_is_reported_and_left_out(places, content):
    (places.package / "AGENTS.md").write_text("fine")
    file = places.root / "AGENTS.md"
    match content:
        case "latin-1" | "utf-16":
            file.write_bytes("Grüße".encode(content))
        case "link out":
            (places.dotfiles / "secret").write_text("secret")
            file.symlink_to(places.dotfiles / "secret")
        case "dangling link":
            file.symlink_to("missing")
        case "loop":
            file.symlink_to("AGENTS.md")
        case "directory":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
    texts, [told] = read(places)
    assert texts == ["fine"]
    assert f"{file} is ignored" in told


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root: chown")
def test_a_file_of_another_user_above_the_directory_is_left_out(places):
    for folder in (places.root, places.package):
        (folder / "AGENTS.md").write_text(folder.name)
        os.chown(folder / "AGENTS.md", 12345, -1)
    texts, [told] = read(places)
    assert texts == ["package"]
    assert "another user" in told
