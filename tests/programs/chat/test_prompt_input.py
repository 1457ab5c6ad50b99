"""Completion of file names with Tab."""

from agentloop_chat.prompt_input import named_files


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


def test_all_files_of_a_large_folder_are_listed(tmp_path):
    for number in range(12_000):
        (tmp_path / f"{number}").touch()
    assert len(named_files(tmp_path)) == 12_000
