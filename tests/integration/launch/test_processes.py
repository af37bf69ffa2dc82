"""Processes end together: whatever they ignore, leave behind, or lose."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from peer.launch.processes import Command, Ended, Happening, Line, Processes, Signals
from protocol.clock import MonotonicClock

PATIENCE_S = 20.0  # for what takes milliseconds on a quiet machine


def command(name: str, script: str) -> Command:
    return Command(name, [sys.executable, "-I", "-S", "-c", script], dict(os.environ))


@pytest.fixture
def signals() -> Iterator[Signals]:
    with Signals() as opened:
        yield opened


def processes(signals: Signals, *, grace_s: float = PATIENCE_S) -> Processes:
    return Processes(MonotonicClock(), signals, grace_s=grace_s)


def all_of(running: Processes) -> list[Happening]:
    happenings: list[Happening] = []
    while running.running:
        happenings += running.poll(PATIENCE_S)
    return happenings


def first_line(running: Processes) -> str:
    line = running.poll(PATIENCE_S)[0]
    assert isinstance(line, Line)
    return line.text


def is_gone(pid: int) -> bool:
    """Wait until a process has ended."""
    try:
        psutil.Process(pid).wait(PATIENCE_S)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def test_every_line_comes_before_the_end_and_says_its_stream(signals: Signals) -> None:
    script = (
        "import sys; print('one'); print('two\\r'); print('no end', end='');"
        "print('bad', file=sys.stderr); sys.exit(3)"
    )
    with processes(signals) as running:
        running.start(command("a", script))
        happenings = all_of(running)
    assert happenings[-1] == Ended("a", 3)
    said = [line for line in happenings if isinstance(line, Line)]
    assert [line.text for line in said if not line.is_error] == ["one", "two", "no end"]
    assert [line.text for line in said if line.is_error] == ["bad"]


def test_a_line_that_never_ends_is_cut(signals: Signals) -> None:
    with processes(signals) as running:
        running.start(command("a", "print('x' * (5 << 20))"))
        lines = [line.text for line in all_of(running) if isinstance(line, Line)]
    assert len(lines) > 1
    assert "".join(lines) == "x" * (5 << 20)


def test_a_process_that_a_signal_killed_says_which(signals: Signals) -> None:
    with processes(signals) as running:
        running.start(command("a", "import os; os.kill(os.getpid(), 9)"))
        assert all_of(running) == [Ended("a", -signal.SIGKILL)]


def test_a_program_that_is_not_there_ends_at_once(signals: Signals) -> None:
    with processes(signals) as running:
        running.start(Command("a", ["/nowhere/program"], {}))
        happenings = all_of(running)
    assert happenings[-1] == Ended("a", 1)
    assert any("No such file" in line.text for line in happenings if isinstance(line, Line))


def test_a_process_that_ends_well_when_asked_is_not_killed(signals: Signals) -> None:
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit('bye'));"
        "print('up', flush=True); signal.pause()"
    )
    with processes(signals) as running:
        running.start(command("a", script))
        assert first_line(running) == "up"
        assert list(running.end()) == [Line("a", "bye", is_error=True), Ended("a", 1)]


def test_a_process_that_ignores_being_asked_is_killed(signals: Signals) -> None:
    script = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); signal.pause()"
    )
    with processes(signals, grace_s=0.2) as running:
        running.start(command("a", script))
        assert first_line(running) == "up"
        assert list(running.end()) == [Ended("a", -signal.SIGKILL)]


def test_what_a_process_leaves_behind_ends_with_it(signals: Signals) -> None:
    script = (
        "import subprocess, sys;"
        "print(subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']).pid)"
    )
    with processes(signals) as running:
        running.start(command("a", script))
        happenings = all_of(running)  # ends although the grandchild holds the pipes
    line = happenings[0]
    assert isinstance(line, Line)
    assert is_gone(int(line.text))


def test_an_exception_ends_everything(signals: Signals) -> None:
    pid = 0
    with pytest.raises(RuntimeError, match="ours"), processes(signals) as running:
        running.start(
            command("a", "import os, signal; print(os.getpid(), flush=True); signal.pause()")
        )
        pid = int(first_line(running))
        raise RuntimeError("ours")
    assert is_gone(pid)


def test_signals_are_counted_and_the_second_one_ends_the_wait(signals: Signals) -> None:
    script = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); signal.pause()"
    )
    with processes(signals, grace_s=10 * PATIENCE_S) as running:
        running.start(command("a", script))
        assert first_line(running) == "up"
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert list(running.end()) == [Ended("a", -signal.SIGKILL)]
    assert signals.received == [signal.SIGINT, signal.SIGTERM]


def test_processes_end_when_the_launcher_is_killed(tmp_path: Path) -> None:
    launcher = tmp_path / "launcher.py"
    launcher.write_text(
        "import os, sys\n"
        "from peer.launch.processes import Command, Processes, Signals\n"
        "from protocol.clock import MonotonicClock\n"
        "with Signals() as signals, Processes(MonotonicClock(), signals, grace_s=9) as running:\n"
        "    script = 'import os, signal; print(os.getpid(), flush=True); signal.pause()'\n"
        "    argv = [sys.executable, '-I', '-S', '-c', script]\n"
        "    running.start(Command('a', argv, dict(os.environ)))\n"
        "    print(running.poll(60)[0].text, flush=True)\n"
        "    running.poll(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(launcher)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    assert is_gone(pid)
