"""Attached files, and the completion of file names with Tab."""

import asyncio

import pytest
from agentloop_chat.prompt_input import is_image, named_files, with_files


@pytest.mark.parametrize(
    ("name", "attached"),
    [
        ("a.txt#2-3", "line 2\nline 3\n"),
        ("a.txt#L2-L3", "line 2\nline 3\n"),
        ("a.txt#5,", "line 5\n"),
        ("a.txt#5-900", "line 5\n"),
        ("b#1.txt", "not a range"),
    ],
)
def test_lines_of_a_file_are_attached(tmp_path, name, attached):
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 6)))
    (tmp_path / "b#1.txt").write_text("not a range")
    told = []
    work = with_files("look", f"see @{name}", tmp_path, told.append, confirm=None)
    _, part = asyncio.run(work)
    assert part.text == f"{name.strip(',')}:\n{attached}"
    assert f"{len(attached)} bytes" in told[0]


@pytest.mark.parametrize("name", ["a.txt#20-45", "shot.png#1"])
def test_lines_that_a_file_does_not_have_are_not_attached(tmp_path, name):
    (tmp_path / "a.txt").write_text("one line\n")
    (tmp_path / "shot.png").write_bytes(b"\x89PNG\r\n\0more")
    told = []
    work = with_files("look", f"@{name}", tmp_path, told.append, confirm=None)
    assert asyncio.run(work) == "look"
    assert f"{name} was not attached" in told[0]


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\x89PNG\r\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\n\0\0\0WEBPVP8", "image/webp"),
    ],
)
def test_the_content_of_an_image_says_its_type_because_names_are_often_wrong(tmp_path, start, kind):
    (tmp_path / "shot.png").write_bytes(start + b"\0more")
    work = with_files("look", "@shot.png", tmp_path, str, confirm=None)
    _, part = asyncio.run(work)
    assert part.media_type == kind


def test_a_long_paste_is_not_looked_up_as_the_path_of_an_image(tmp_path):
    assert not is_image(tmp_path, "a/" * 1_000_000), "that would take hours"


def test_a_file_with_the_name_of_an_image_is_attached_as_text(tmp_path):
    (tmp_path / "shot.png").write_text("no image")
    work = with_files("look", "@shot.png", tmp_path, str, confirm=None)
    _, part = asyncio.run(work)
    assert part.text.endswith("no image"), "a provider would refuse it in every request"


def test_files_are_sorted_by_depth_and_name(tmp_path):
    for name in ("z.py", "a b.py", "b/y.py", "a/x.py", "a/deep/x.py", ".git/config", 'q"uote'):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "two\nlines").touch()
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert named_files(tmp_path) == [
        *('@"a b.py"', "@z.py", "@a/x.py", "@b/y.py", "@a/deep/x.py"),
    ]


def test_a_link_to_itself_does_not_hide_the_files_beside_it(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "z.py").touch()
    (tmp_path / "link.py").symlink_to("z.py")
    assert named_files(tmp_path) == ["@link.py", "@z.py"]


def test_all_files_of_a_large_folder_are_listed(tmp_path):
    for number in range(12_000):
        (tmp_path / f"{number}").touch()
    assert len(named_files(tmp_path)) == 12_000
