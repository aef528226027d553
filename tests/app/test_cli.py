import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from app.version import VERSION

ROOT = Path(__file__).parent.parent.parent

INTERRUPTED_IMPORT = """
import signal, sys
from app.cli import main

class CtrlC:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == "app.factory":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, CtrlC)
main(["serve"])
"""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_bad_flag_is_one_line_and_exit_code_2() -> None:
    done = run("serve", "--port", "x")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("tailrace serve: error: --port (TAILRACE_PORT): ")


def test_a_bad_variable_is_one_line_and_exit_code_2() -> None:
    done = run("serve", TAILRACE_DTYPE="int8")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "TAILRACE_DTYPE" in line


@pytest.mark.parametrize("engine", ["http://127.0.0.1:1", "zmq+x://h", "nothing"])
def test_an_unknown_engine_is_refused_by_name(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--engine", engine])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert engine.split("/", maxsplit=1)[0] in line
    assert line.endswith("there are local and scripted")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_names_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments)
    assert "serve" in capsys.readouterr().out


def test_no_command_at_all_is_help() -> None:
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "serve a model over HTTP" in done.stdout


def test_a_port_in_use_is_one_line_before_the_engine_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        done = run("serve", "--port", port)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("tailrace serve: error: can't listen with --host 127.0.0.1 --port " + port)


def test_ctrl_c_during_the_imports_leaves_no_trace() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"tailrace {VERSION}\n"


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["server"])
    assert caught.value.code == 2
    assert "'server'" in capsys.readouterr().err
