"""How a command speaks and ends: one clear line for a fault, an exit code that means something.

0 done, 1 our fault or the run's, 2 the operator's, 130 interrupted. Never a raw traceback: it
goes to a file. What can be piped goes to stdout, everything for a person to stderr.
"""

import errno
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from protocol.errors import KinfolkError, OperatorError

__all__ = ["Commands", "fail", "set_up_logging"]

# What the machine refuses and a person must mend: a full or read-only disk, missing rights,
# too few file descriptors, a name that no file can have.
_MACHINE_FAULTS = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EIO,
        errno.ELOOP,
        errno.EMFILE,
        errno.ENAMETOOLONG,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EPERM,
        errno.EROFS,
    }
)
_LOG_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class Commands(click.Group):
    """A group of commands that share the endings above, and `-v` for their logs."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        if not isinstance(cmd, click.Group):
            cmd.params.append(_verbose_option())
        super().add_command(cmd, name)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> Any:  # noqa: ANN401 - click's signature
        """Run, and end the process unless `standalone_mode` is off, as click's own does."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except Exception as error:  # noqa: BLE001 - the one place where all of them end
            fail(error)
        sys.exit(code if isinstance(code, int) else 0)


def fail(error: Exception) -> NoReturn:
    """Tell an error in its one line and end the process with its code."""
    match error:
        case click.Abort():
            click.echo("Interrupted.", err=True)
            sys.exit(130)
        case click.ClickException():
            error.show()
            sys.exit(error.exit_code)
        case OperatorError():
            _tell(str(error.args[0]), error.hint)
            sys.exit(2)
        case KinfolkError():
            _tell(str(error))
            sys.exit(1)
        case OSError() if error.errno in _MACHINE_FAULTS:
            where = f": {error.filename!s:.200}" if error.filename else ""
            _tell(f"{error.strerror}{where}")
            sys.exit(2)
        case _:
            _tell(
                f"unexpected {type(error).__name__}: {error}",
                f"this is a bug of Kinfolk; its traceback is in {_kept_traceback(error)}",
            )
            sys.exit(1)


def _tell(message: str, hint: str = "") -> None:
    click.secho(f"Error: {message}", fg="red", err=True)
    if hint:
        click.echo(f"  {hint}", err=True)


def _kept_traceback(error: Exception) -> str:
    try:
        handle, name = tempfile.mkstemp(prefix="kinfolk-", suffix=".traceback")
        with os.fdopen(handle, "w") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return "no file: none could be written"
    return name


class _Lines(logging.Handler):
    """Writes to whatever stderr is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), err=True)
        except Exception:  # noqa: BLE001 - as every handler: logging must not raise
            self.handleError(record)


def set_up_logging(verbosity: int) -> None:
    """Log to stderr from here on: 0 warnings, 1 changes of state, 2 every message."""
    lines = _Lines()
    lines.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s", "%H:%M:%S")
    )
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Lines)]:
        root.removeHandler(handler)
    root.addHandler(lines)
    root.setLevel(_LOG_LEVELS[min(verbosity, 2)])


def _verbose_option() -> click.Option:
    return click.Option(
        ["-v", "--verbose"],
        count=True,
        expose_value=False,
        is_eager=True,
        callback=lambda _context, _option, count: set_up_logging(count),
        help="Log changes of state; twice: every message.",
    )
