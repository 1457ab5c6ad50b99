"""Shell: commands with time limits, bounded output and allow lists."""

import asyncio
import os
import re
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from agentloop import Agent, ScriptedModel, ToolError
from agentloop.models.scripted import call
from agentloop.toolkits import shell as module
from agentloop.toolkits.shell import Shell, wait_for
from tests.properties import given, st

SECRET_NAMES = [
    "OPENAI_API_KEY",
    "GITHUB_TOKEN",
    "DB_PASSWORD",
    "MYSQL_PWD",
    "PGPW",
    "DB_PW",
    "PW",
    "API_KEY_2",
    "SECRET_KEY_BASE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GITHUB_PAT",
    "A_JWT",
    "CLIENT_PEM",
    "BEARER",
    "AZURE_SAS",
    "DB_DSN",
    "COOKIE_SALT",
    "APP_SIGNING",
    "CARD_PIN",
    "TLS_PFX",
    "WALLET_MNEMONIC",
]
SECRETS = [
    "sk-proj-0123456789abcdef",
    "ghp_0123456789abcdef",
    "github_pat_0123456789abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.e30.abc",
    "-----BEGIN PRIVATE KEY-----",
    "host=x password=hunter2",
    "Bearer abc",
    "Authorization: 'xoxb-0123456789'",
    "postgres://u:p/w@h/db",
    "sv=2020&sig=abc",
    "hf_0123456789abcdef",
    "npm_0123456789abcdef",
    "pypi-0123456789abcdef",
    "glrt-0123456789abcdef",
    "xapp-0123456789abcdef",
    "SG.0123456789abcdef",
    "ya29.0123456789abcdef",
    "rk_live_0123456789",
    "gsk_0123456789abcdef",
    "dop_v1_0123456789abcdef",
]
ORDINARY = {  # variables that developers have, and programs need
    "SSH_AUTH_SOCK": "/tmp/ssh-x/agent.1",
    "GPG_TTY": "/dev/pts/1",
    "KUBECONFIG": "/home/me/.kube/staging:/home/me/.kube/config",
    "NETRC": "/home/me/.netrc",
    "PGPASSFILE": "/home/me/.pgpass",
    "PGHOST": "db.example.com",
    "DATABASE_URL": "postgres://app:app@localhost:5432/app",
    "TEST_DATABASE_URL": "postgresql://me@db.example.com/test",
    "REDIS_URL": "redis://:local@127.0.0.1:6379/0",
    "PIP_INDEX_URL": "https://pypi.example.com/simple",
    "GIT_REMOTE": "ssh://git@example.com/me/project",
    "AWS_PROFILE": "staging",
    "AWS_SHARED_CREDENTIALS_FILE": "/home/me/.aws/credentials",
    "DOCKER_HOST": "ssh://me@build.example.com",
    "DOCKER_CONTEXT": "staging",
    "GOPRIVATE": "example.com/mine",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca.pem",
    "REQUESTS_CA_BUNDLE": "/etc/ssl/certs/ca.pem",
    "CURL_CA_BUNDLE": "/etc/ssl/certs/ca.pem",
    "XDG_SESSION_ID": "2",
    "TERM_SESSION_ID": "w0t0p0",
    "XAUTHORITY": "/run/user/1000/.Xauthority",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    "POSTGRES_PASSWORD_FILE": "/run/secrets/postgres",
    "MAX_TOKENS": "4096",
    "TOKENIZERS_PARALLELISM": "false",
    "KEYCLOAK_REALM": "dev",
    "RANDOM_SEED": "42",
    "AUTHOR": "Ada",
    "COMPASSION": "1",
}
FORBIDDEN_COMMANDS = [
    "",
    "touch ran",
    " touch ran",
    "LS=1 touch ran",
    "ls > ran",
    "ls a >> ran",
    "ls; touch ran",
    "lsx; touch ran",
    "ls && touch ran",
    "ls & touch ran",
    "ls | tee ran",
    "ls $(touch ran)",
    "ls `touch ran`",
    'ls "$(touch ran)"',
    "ls <(touch ran)",
    "ls ${x:=$(touch ran)}",
    "ls\ntouch ran",
    "ls\r\ntouch ran",
    "ls a\\\ntouch ran",
    "ls $'\\n' touch ran",
    "ls\0; touch ran",
    "ls\u2028touch ran",
]
WAIT_FOR_CHILD = "sleep 1000 & echo $! > pipe; wait"
OPERATORS = [";", "\n", "\r", "|", "&", "&&", "||", "$", "`", "(", ")", "<", ">", "{", "}", "\\"]

WAIT_FOR = "until [ -e {} ]; do sleep 0.05; done"
HANG = "echo $$ > pid; exec sleep 1000"
BWRAP = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="requires a POSIX shell")


@pytest.fixture
def sh(tmp_path):
    (tmp_path / "root").mkdir()
    return Shell(tmp_path / "root")


@pytest.fixture(params=["bash", "sh"])
def program(request, monkeypatch):
    programs = {request.param: shutil.which(request.param)}
    monkeypatch.setattr(module.shutil, "which", programs.get)


async def error_of(awaitable):
    with pytest.raises(ToolError) as raised:
        await awaitable
    return str(raised.value)


def is_gone(pid):
    """Return whether a process has ended, including zombie processes."""
    with suppress(OSError):  # the process has just ended, or /proc does not exist
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def has_ended(pid):
    """Wait until a process has ended, bounded by the time limit of the test."""
    while not is_gone(pid):
        await asyncio.sleep(0.01)
    return True


class TestShell:
    async def test_an_agent_runs_commands(self, sh):
        llm = ScriptedModel(call("bash", command="echo hello > a.txt; cat a.txt"), "done")
        assert await Agent(llm=llm, tools=sh.tools).query("go") == "done"
        assert llm.requests[-1].messages[-1].text == "hello"
        assert (sh.root / "a.txt").read_text() == "hello\n"

    async def test_a_command_returns_output_errors_and_the_exit_code(self, sh, program):
        assert await sh.bash("echo out; echo err >&2; exit 3") == "out\nerr\n[Exit code 3.]"
        assert await sh.bash("true") == "[No output.]"
        assert "[Killed by signal 9.]" in await sh.bash("kill -9 $$")
        assert "[Exit code 2.]" in await sh.bash("if") or "yntax" in await sh.bash("if")

    async def test_the_working_directory_is_kept_between_calls(self, sh, program):
        await sh.bash("mkdir -p 'a b/c' && cd 'a b'")
        assert await sh.bash("pwd") == str(sh.root / "a b")
        await sh.bash("cd c && exit 1")
        assert await sh.bash("pwd") == str(sh.root / "a b/c")

    async def test_a_working_directory_outside_of_the_root_is_not_kept(self, sh):
        assert f"starts in {sh.root} again" in await sh.bash("cd /")
        assert await sh.bash("pwd") == str(sh.root)
        os.symlink("/", sh.root / "link")
        await sh.bash("cd link")
        assert await sh.bash("pwd") == str(sh.root)

    async def test_variables_that_look_like_secrets_are_dropped(self, sh, monkeypatch):
        for name in SECRET_NAMES:
            monkeypatch.setenv(name, "sk-very-secret")
        for number, value in enumerate([*SECRETS, "postgres://me:sk-very-secret@host/db"]):
            monkeypatch.setenv(f"HARMLESS_NAME_{number}", value)
        monkeypatch.setenv("HARMLESS", "value")
        monkeypatch.setenv("HARMLESS_PATH", "/opt/sk-learn-environment/bin:/home/me@host/x")
        sh.env["TEST_TOKEN"] = "given"
        text = await sh.bash("env; echo path=$PATH")
        assert "sk-very-secret" not in text
        assert "HARMLESS_NAME" not in text
        harmless = "HARMLESS_PATH=/opt/sk-learn-environment/bin:/home/me@host/x"
        expected = {harmless, "HARMLESS=value", f"PWD={sh.root}", f"path={os.environ['PATH']}"}
        assert expected | {"TEST_TOKEN=given"} <= {*text.splitlines()}

    async def test_commands_get_the_ordinary_variables_of_a_developer(
        self, sh, monkeypatch, tmp_path
    ):
        credentials = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path)}  # a path that exists
        for name, value in (ORDINARY | credentials).items():
            monkeypatch.setenv(name, value)
        printed = (await sh.bash("env")).splitlines()
        assert {f"{n}={v}" for n, v in (ORDINARY | credentials).items()} - {*printed} == set()

    async def test_withheld_variables_are_named_and_can_be_passed_by_name(self, sh, monkeypatch):
        monkeypatch.setenv("DEPLOY_TOKEN", "t")
        monkeypatch.setenv("DATABASE_URL", "postgres://me:pw@db.example.com/x")
        assert {"DEPLOY_TOKEN", "DATABASE_URL"} <= {*sh.withheld}
        sh = Shell(sh.root, pass_env=["DATABASE_*"])
        assert "DATABASE_URL" not in sh.withheld
        assert (
            await sh.bash("echo $DEPLOY_TOKEN $DATABASE_URL") == "postgres://me:pw@db.example.com/x"
        )
        assert Shell(sh.root, pass_env=["*"]).withheld == []

    @pytest.mark.parametrize("frames", [1_000, 100_000])
    async def test_of_a_progress_bar_only_the_last_state_reaches_the_model(self, sh, frames):
        bar = r"\r\033[32m%6d of all [#####     ]\033[0m"
        output = await sh.bash(f"echo start; printf '{bar}' $(seq {frames}); echo; echo end")
        lines = output.splitlines()
        assert [lines[0], *lines[-2:]] == ["start", f"{frames:6} of all [#####     ]", "end"]
        assert len(output) <= 130

    async def test_colours_titles_and_backspaces_do_not_reach_the_model(self, sh):
        text = r"\033]0;title\007\033[1mN\bNA\bAME\033[0m |\b/\b-\bdone\r\n"
        assert await sh.bash(f"printf '{text}'") == "NAME done"

    async def test_very_long_output_keeps_its_start_and_end(self, sh):
        output = await sh.bash("echo start; yes | head -c 2000000; echo end")
        assert output.startswith("start\ny")
        assert output.endswith("y\nend")
        assert "bytes omitted" in output
        assert len(output) < 2 * module.HALF + 100

    @pytest.mark.parametrize("first", ["", "trap '' TERM HUP; "])
    async def test_a_timeout_kills_the_process_group_and_keeps_the_output(
        self, sh, monkeypatch, first
    ):
        os.mkfifo(sh.root / "pipe")
        started: list[int] = []

        async def time_out(work, seconds, *, grace):  # expires after the child has started
            if started:
                return await wait_for(work, seconds, grace=grace)
            waiting = asyncio.ensure_future(work)
            started.append(int(await asyncio.to_thread((sh.root / "pipe").read_text)))
            waiting.cancel()
            raise TimeoutError

        monkeypatch.setattr(module, "wait_for", time_out)
        error = await error_of(sh.bash(f"echo hello; {first}{WAIT_FOR_CHILD}"))
        assert error == "hello\n[Killed: not finished after 120 seconds.]"
        assert await has_ended(started[0])

    async def test_background_processes_of_a_command_end_with_the_command(self, sh):
        assert await has_ended(int(await sh.bash("sleep 1000 & echo $!")))

    @pytest.mark.skipif(not shutil.which("setsid"), reason="requires setsid")
    @pytest.mark.parametrize("program", ["sleep 1000", "yes"])
    async def test_a_process_that_left_the_group_blocks_neither_calls_nor_threads(
        self, sh, program
    ):
        child = f"setsid sh -c 'echo $$ > pid; exec {program}' &"
        threads = threading.active_count()
        output = await sh.bash(f"echo hi; {child} while ! [ -s pid ]; do :; done")
        while threading.active_count() > threads:
            await asyncio.sleep(0)
        with suppress(ProcessLookupError):  # terminated by its closed pipe
            os.kill(int((sh.root / "pid").read_text()), signal.SIGKILL)
        assert output.startswith("hi")

    async def test_an_interrupted_agent_leaves_no_process(self, sh):
        os.mkfifo(sh.root / "pipe")
        llm = ScriptedModel(call("bash", command=WAIT_FOR_CHILD))
        agent = Agent(llm=llm, tools=sh.tools)
        task = asyncio.create_task(agent.run("go"))
        pid = int(await asyncio.to_thread((sh.root / "pipe").read_text))
        agent.interrupt()
        assert (await task).stop_reason == "interrupted"
        assert await has_ended(pid)

    async def test_a_command_that_ended_while_the_program_was_stopped_was_not_killed(self, sh):
        running = asyncio.ensure_future(sh.bash("echo $$ > pid; sleep 0.2; echo over", timeout=1))
        await pid_in(sh)
        time.sleep(2)  # as if Ctrl-Z had stopped the program
        assert await running == "over"

    async def test_an_invalid_timeout_is_rejected(self, sh):
        for timeout in (0, -1, float("nan"), float("inf"), 1e9):
            assert "number of seconds" in await error_of(sh.bash("touch ran", timeout=timeout))
        assert os.listdir(sh.root) == []

    async def test_a_pattern_does_not_allow_a_second_command(self, sh):
        sh.allow = ["ls", "ls *"]
        for command in FORBIDDEN_COMMANDS:
            assert "Not run" in await error_of(sh.bash(command))
        assert os.listdir(sh.root) == []

    async def test_plain_words_match_a_wildcard_and_operators_only_a_listed_command(self, sh):
        sh.allow = ["ls", "echo *", "echo a | wc -c", "echo *|*"]
        assert await sh.bash("ls") == "[No output.]"
        assert await sh.bash("echo 'a b' --x=1,2 ./c") == "a b --x=1,2 ./c"
        assert (await sh.bash("echo a | wc -c")).strip() == "2"
        assert "plain words" in await error_of(sh.bash("echo a | wc -l"))

    def test_the_suggested_patterns_do_not_allow_programs_that_write_or_execute(self, tmp_path):
        advice, _, warning = " ".join(Shell.__doc__.split()).partition("Patterns aren't a sandbox")
        suggested = re.findall('"([^"]+)"', advice)
        assert {"ls *", "pwd"} < {*suggested}
        for program in ("rg", "sort", "git log", "find", "python"):
            assert f'"{program} *"' in warning
            with pytest.raises(ToolError):
                Shell(tmp_path, allow=suggested).check(f"{program} x")
        for text in ({"allow": "ls *"}, {"command": "docker exec -i box bash"}):
            with pytest.raises(TypeError, match="list"):
                Shell(tmp_path, **text)

    @given(st.text(max_size=5), st.sampled_from(OPERATORS), st.text(max_size=5))
    def test_no_operator_at_any_position_matches_a_pattern(self, before, operator, after):
        with pytest.raises(ToolError):
            Shell(allow=["*"]).check(before + operator + after)

    async def test_a_command_may_be_long_and_contain_any_text_except_nul(self, sh, program):
        long = f"echo '{'x' * 300_000}' | wc -c; echo \"a'b\" \\$HOME {{}} %s"
        assert (await sh.bash(long)).split("\n")[-1] == "a'b $HOME {} %s"
        assert (await sh.bash(long)).split()[0] == "300001"
        assert "NUL" in await error_of(sh.bash("touch\0 ran"))
        assert "can't be started" in await error_of(sh.bash("echo \ud800"))
        assert os.listdir(sh.root) == []

    async def test_a_command_that_prints_its_own_wrapper_ends_normally(self, sh, program):
        text = await sh.bash(
            "trap; cat /proc/$$/cmdline; set -x; cd /tmp; cd - > /dev/null; echo end"
        )
        assert "trap" in text
        assert text.endswith("\nend")
        assert "starts in" not in text
        assert sh.cwd == sh.root

    async def test_a_command_with_tracing_ends_normally(self, sh, program):
        for _ in range(10):  # sometimes the end marker was read before the shell exited
            text = await sh.bash("mkdir -p a; set -ex; cd a; cd ..; echo hi; false")
            assert re.fullmatch(r"(\++ .+\n)+hi\n\++ false\n\[Exit code 1\.\]", text)
        assert sh.cwd == sh.root

    async def test_output_after_the_end_of_the_shell_is_returned(self, sh):
        sh.command = ["bash", "-c", "bash; echo behind; sleep 0.1; echo later; exit 7"]
        assert await sh.bash("cd ..; mkdir root/b; cd root/b; echo hi") == (
            "hi\nbehind\nlater\n[Exit code 7.]"
        )
        assert sh.cwd == sh.root / "b"

    @pytest.mark.skipif(sys.platform == "darwin", reason="file names must be UTF-8")
    async def test_a_working_directory_with_an_undecodable_name_is_kept(self, sh, program):
        os.mkdir(os.fsencode(sh.root) + b"/\xff")
        assert await sh.bash("cd $(printf '\\377'); mkdir b") == "[No output.]"
        assert await sh.bash("pwd") == f"{sh.root}/\ufffd"
        assert await sh.bash("ls; cd ..") == "b"
        assert sh.cwd == sh.root

    async def test_a_command_that_redirects_its_output_still_reports_its_directory(
        self, sh, program
    ):
        await sh.bash("mkdir a; exec > out 2>&1; cd a")
        assert await sh.bash("pwd; cat ../out; wait; jobs; cat") == str(sh.root / "a")


# ---- background commands


async def text_until(sh, id, end):
    """Return the output of a background command up to and including `end`."""
    text = ""
    while end not in text:
        text += (await sh.bash_output(id)).removesuffix("\n[It is still running.]")
    return text.replace("[Nothing new.]", "")


async def start(sh, command):
    text = await sh.bash(command, background=True)
    return re.search(r"Its id is (\w+)", text)[1]


async def pid_in(sh):
    """Return the process id that a process has written to a file."""
    file = sh.root / "pid"
    while not (file.exists() and file.read_text().strip()):
        await asyncio.sleep(0.01)
    return int(file.read_text())


class TestBackground:
    async def test_a_running_command_moves_to_the_background_and_outlives_its_timeout(self, sh):
        command = f"echo $$ > pid; {WAIT_FOR.format('stop')}; echo over"
        running = asyncio.ensure_future(sh.bash(command, timeout=1))
        await pid_in(sh)
        assert sh.move_to_background()
        [id] = re.findall(r"Its id is (\w+)", await running)
        assert [*sh.background] == [id]
        await asyncio.sleep(1.2)
        (sh.root / "stop").touch()
        assert "over" in await sh.bash_output(id, 60)
        assert not sh.move_to_background(), "no command is running"
        assert await sh.bash("echo next") == "next"

    async def test_a_command_stays_in_the_foreground_if_16_are_in_the_background(self, sh):
        ids = [await start(sh, "exec sleep 1000") for _ in range(16)]
        running = asyncio.ensure_future(
            sh.bash(f"echo $$ > pid; {WAIT_FOR.format('go')}; echo over")
        )
        await pid_in(sh)
        assert not sh.move_to_background()
        (sh.root / "go").touch()
        assert await running == "over"
        assert [*sh.background] == ids
        sh.close()

    async def test_an_agent_starts_a_server_reads_its_output_and_kills_it(self, sh):
        def follow(name):
            def reply(messages, tools):
                [id] = re.findall(r"Its id is (\w+)", messages[2].text)
                return call(name, id=id, **({"wait": 60} if name == "bash_output" else {}))

            return reply

        first = call("bash", command=f"{WAIT_FOR.format('stop')}; echo stopped", background=True)
        stop = call("bash", command="touch stop; ls")
        llm = ScriptedModel(first, stop, follow("bash_output"), follow("bash_kill"), "done")
        agent = Agent(llm=llm, tools=sh.tools)
        assert await agent.query("go") == "done"
        results = [m.text for m in agent.messages if type(m).__name__ == "ToolMessage"]
        assert results[1:3] == ["stop", "stopped\n[It has ended.]"]
        assert "read its end already" in results[3]

    async def test_new_output_is_returned_once_and_the_end_with_the_exit_code(self, sh):
        id = await start(
            sh,
            f"{WAIT_FOR.format('begin')}; echo one; {WAIT_FOR.format('go')}; echo two; exit 3",
        )
        await sh.bash("touch begin")
        assert await text_until(sh, id, "one") == "one"
        assert await sh.bash_output(id) == "[Nothing new.]\n[It is still running.]"
        assert await sh.bash("touch go; pwd") == str(sh.root), "other commands run concurrently"
        assert await sh.bash_output(id, wait=60) == "two\n[Exit code 3.]"
        assert "read its end already" in await error_of(sh.bash_output(id))

    async def test_an_immediate_failure_is_returned_at_once(self, sh, monkeypatch):
        monkeypatch.setattr(module, "FIRST_LOOK", 60)
        text = await sh.bash("echo port in use; exit 1", background=True)
        assert text.endswith(".\nport in use\n[Exit code 1.]")
        broken = Shell(sh.root, command=["no-such-program"])
        assert "can't be started" in await error_of(broken.bash("ls", background=True))

    async def test_a_background_command_is_killed_with_its_child_processes(self, sh):
        id = await start(sh, f"trap '' TERM; ({HANG}) & wait")
        pid = int(await pid_in(sh))
        assert await sh.bash_kill(id) == "[Nothing new.]\n[Killed.]"
        assert await has_ended(pid)
        assert "read its end already" in await error_of(sh.bash_kill(id))

    async def test_the_output_of_a_background_command_is_bounded(self, sh):
        id = await start(
            sh, f"{WAIT_FOR.format('go')}; echo start; yes | head -c 2000000; echo end"
        )
        await sh.bash("touch go")
        text = await sh.bash_output(id, wait=60)
        assert text.startswith("start\ny")
        assert text.endswith("y\nend\n[It has ended.]")
        assert "bytes omitted" in text
        assert len(text) < 2 * module.HALF + 100

    async def test_a_background_command_must_match_the_allow_list(self, sh):
        sh.allow = ["ls"]
        assert "Not run" in await error_of(sh.bash("touch ran", background=True))
        assert os.listdir(sh.root) == []

    async def test_closing_the_shell_kills_background_commands(self, sh):
        await start(sh, HANG)
        pid = await pid_in(sh)
        sh.close()
        assert await has_ended(pid)

    async def test_a_background_command_continues_after_a_cancelled_run(self, sh):
        llm = ScriptedModel(
            call("bash", command=HANG, background=True), call("bash", command="wait; sleep 1000")
        )
        task = asyncio.create_task(Agent(llm=llm, tools=sh.tools).run("go"))
        pid = await pid_in(sh)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert not is_gone(pid)
        sh.close()
        assert await has_ended(pid)

    def test_a_background_command_ends_with_run_sync_and_the_next_run_reports_the_end(self, sh):
        def look(messages, tools):
            return call("bash_output", id=re.search(r"Its id is (\w+)", messages[2].text)[1])

        llm = ScriptedModel(call("bash", command=HANG, background=True), "started", look, "done")
        agent = Agent(llm=llm, tools=sh.tools)
        agent.run_sync("go")
        agent.run_sync("look")
        assert agent.messages[-2].text == "[Nothing new.]\n[Killed.]"


# ---- shells in other environments, started with a command prefix


class TestElsewhere:
    @pytest.mark.skipif(not shutil.which("setsid"), reason="requires setsid")
    async def test_closed_input_ends_processes_that_signals_cannot_reach(self, sh):
        remote = Shell(sh.root, command=["setsid", "--wait", "bash"])
        id = await start(remote, f"(sleep 1000 & echo $! > child); {HANG}")
        pid = await pid_in(remote)
        await remote.bash_kill(id)
        assert await has_ended(pid)
        assert await has_ended(int((sh.root / "child").read_text()))

    async def test_the_working_directory_may_exist_only_in_the_other_environment(self, tmp_path):
        remote = Shell(tmp_path / "not here", command=["sh"])
        assert "Exit code" in await remote.bash("pwd")
        anywhere = Shell(command=["sh"])
        await anywhere.bash(f"cd {tmp_path}")
        assert await anywhere.bash("pwd") == str(tmp_path)

    async def test_an_unavailable_environment_is_an_error_returned_to_the_model(self, tmp_path):
        missing = Shell(tmp_path, command=["no-such-program", "bash"])
        assert "can't be started" in await error_of(missing.bash("ls"))
        stopped = Shell(tmp_path, command=["sh", "-c", "echo no such container >&2; exit 1"])
        assert await stopped.bash("ls") == "no such container\n[Exit code 1.]"

    async def test_bwrap_isolates_commands(self, sh, tmp_path):
        if shutil.which("bwrap") is None:
            pytest.skip("requires bwrap")
        root = str(sh.root)
        remote = Shell(root, command=[*BWRAP, "--bind", root, root, "--unshare-net", "bash"])
        if "bwrap:" in (text := await remote.bash("true")):
            pytest.skip(text)
        text = await remote.bash(f"mkdir a; cd a; echo 1 > one; echo 2 > {tmp_path}/two; pwd")
        assert "Read-only file system" in text
        assert text.endswith(f"{root}/a")
        assert await remote.bash("cat one; echo $$") == "1\n2", (
            "the second process of a separate namespace"
        )
        assert os.listdir(tmp_path) == ["root"]
        assert await remote.bash("cd ..") == "[No output.]"
        id = await start(remote, HANG)
        await pid_in(remote)
        assert await remote.bash_kill(id) == "[Nothing new.]\n[Killed.]"
