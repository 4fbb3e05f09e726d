"""The command ``toolnexus-stores``. One module for each of its commands, imported when it is run.

A new command is a module with a function, and a line in `_app` that adds it.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

__all__ = ["main"]

_REQUIRES = ("typer", "rich")
_USAGE = 2  # as every command of this kind answers to wrong usage
_EXITS = (
    "Exit status: 0 every claimed promise is kept; 1 a promise is broken, or an expected failure "
    "is none; 2 the store could not be tested, or was not asked for properly; 3 not all that was "
    "claimed was tested."
)


def main() -> None:
    """Run the command line; ends the process."""
    missing = [name for name in _REQUIRES if importlib.util.find_spec(name) is None]
    if missing:
        print(  # noqa: T201 - nothing nicer is installed
            f"toolnexus-stores needs {' and '.join(missing)}: pip install 'toolnexus-stores[cli]'",
            file=sys.stderr,
        )
        sys.exit(_USAGE)
    _app()()


def _app() -> typer.Typer:
    import typer  # noqa: PLC0415 - an extra

    from .check import check  # noqa: PLC0415 - needs it

    app = typer.Typer(
        name="toolnexus-stores",
        help="Durable conversation stores for the agent runtime toolnexus.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def commands() -> None:
        """Durable conversation stores for the agent runtime toolnexus."""

    app.command("check", epilog=_EXITS)(check)
    return app
