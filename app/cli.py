"""The `tailrace` command."""

import signal
import sys
from collections.abc import Callable, Sequence

from app.settings import InvalidSettings, Settings
from app.version import VERSION

USAGE = """usage: tailrace COMMAND [OPTIONS]

A streaming gateway for large language models with exact logprobs.

commands:
  serve      serve a model over HTTP

options:
  --help     show this, or after a command its options
  --version  show the version"""

_BAD_USAGE = 2
_INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; exits with 2 where it doesn't exist or an option is bad. No command is --help."""
    command, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command in ("--help", "-h"):
        print(USAGE)
    elif command == "--version":
        print(f"tailrace {VERSION}")
    elif command in COMMANDS:
        COMMANDS[command](rest)
    else:
        _refuse(f"tailrace: error: there is no command {command!r}; see tailrace --help")


def serve(arguments: list[str]) -> None:
    """Serve until a signal."""
    try:
        settings = Settings.from_command_line(arguments)
        _serve(settings)
    except InvalidSettings as error:
        _refuse(f"tailrace serve: error: {error}")
    except KeyboardInterrupt:
        # While modules are imported, Ctrl-C is not the server's yet.
        sys.exit(_INTERRUPTED)


def _serve(settings: Settings) -> None:
    # Imported here: a bad option or --help answers without loading the whole house.
    from app.factory import create_app
    from app.listen_address import check_listen_address
    from app.logs import configure_logging
    from app.server import make_server

    configure_logging(settings.log_format, settings.log_level)
    app = create_app(settings)
    check_listen_address(settings)
    make_server(app, settings).run()


def _refuse(message: str) -> None:
    print(message, file=sys.stderr)
    sys.exit(_BAD_USAGE)


COMMANDS: dict[str, Callable[[list[str]], None]] = {"serve": serve}

if __name__ == "__main__":
    main()
