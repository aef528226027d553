"""The embedded engine's process: `python -m engines.local.worker --address ipc:///path`.

Several gateways may dial in; each hears of its own requests only, in at most one frame a step. Started with --owned,
it ends as soon as its standard input does: when whoever started it closes it, or dies.
"""

import argparse
import contextlib
import logging
import os
import sys
import threading
from pathlib import Path

import msgspec
import zmq

from engines.local.gateways import Gateways
from engines.local.load_error import ModelLoadError
from engines.local.options import LocalEngineOptions
from engines.local.wire import Progress

IPC = "ipc://"


def main(arguments: list[str] | None = None) -> int:
    """Run the process: bind, load, serve."""
    parser = argparse.ArgumentParser(prog="engines.local.worker", description=__doc__)
    parser.add_argument("--address", required=True, help="where gateways dial in, such as ipc:///run/tailrace.sock")
    parser.add_argument("--options", default="{}", help="LocalEngineOptions as JSON")
    parser.add_argument("--gateway-timeout", type=float, default=15.0, help="seconds of silence of a gateway that left")
    parser.add_argument("--owned", action="store_true", help="end with standard input")
    parsed = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    if parsed.owned:
        threading.Thread(target=end_with_input, args=(parsed.address,), daemon=True).start()
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.set_hwm(0)
    socket.linger = 0
    socket.bind(parsed.address)
    gateways = Gateways(socket, parsed.gateway_timeout)
    try:
        serve(gateways, msgspec.json.decode(parsed.options, type=LocalEngineOptions))
    except ModelLoadError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        context.destroy(linger=0)
    return 0


def serve(gateways: Gateways, options: LocalEngineOptions) -> None:
    """Load the model, telling the gateways how it goes, and serve. Raises ModelLoadError.

    torch is imported only here, so that gateways can dial in from the process's first moments.
    """
    from engines.local.start_up import build_core, describe
    from engines.local.worker_loop import WorkerLoop

    def report(text: str) -> None:
        for _ in gateways.receive(0):
            pass
        for identity, _ in gateways:
            gateways.send(identity, Progress(text))

    core, loaded = build_core(options, report)
    report(f"ready: {loaded.name}")
    WorkerLoop(gateways, core, describe(loaded, options)).run()


def end_with_input(address: str) -> None:
    """Wait for the end of standard input, then end the process at once, in whatever it is: nothing is left to save."""
    while os.read(0, 4096):
        pass
    path = Path(address.removeprefix(IPC))
    with contextlib.suppress(OSError):
        path.unlink()
        path.parent.rmdir()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
