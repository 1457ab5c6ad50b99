"""Bounds: compact input that expands to a huge size uses limited resources."""

import json
import subprocess
import sys

import pytest

from tests import ROOT

pytest.importorskip("mcp")

EXPECTED = {  # a bomb, and a word of the text returned to the model
    "a_line_of_a_gigabyte": "huge:1:needle",
    "a_file_of_line_ends": "offset=",
    "ten_edits_that_each_make_ten_of_one": "limit",
    "a_tool_that_returns_tiny_parts": "298,000 more parts",
    "a_hook_command_that_floods": "CalledProcessError",
    "a_server_with_20_000_tools": "1000 tools",
    "a_server_with_20_mb_of_descriptions": "longer than",
    "a_server_that_answers_with_300_000_parts": "299,000 more parts",
    "a_server_that_answers_with_150_mb": "effects",
    "forty_background_commands_that_print": "bash_kill",
    "a_hook_with_a_long_reason": "omitted",
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory in the format of Linux")
@pytest.mark.parametrize("bomb", EXPECTED)
def test_a_bomb_uses_little_memory_and_time_and_does_not_block_the_event_loop(bomb, tmp_path):
    line = [sys.executable, "-m", "tests.doubles.bombs", bomb, str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, check=True)
    cost = json.loads(done.stdout)
    assert EXPECTED[bomb] in cost["text"]
    assert cost["megabytes"] < 200
    assert cost["cpu"] < 2  # CPU seconds of this process, independent of the load of the machine
    assert cost["held"] < 0.3
    assert len(cost["text"]) < 110_000
