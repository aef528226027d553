"""The loop of the embedded engine's process: messages in, a step, frames out."""

from collections import defaultdict

import msgspec

from engines.local.engine_core import EngineCore
from engines.local.gateways import Gateways
from engines.local.step_output import StepOutput, build_frame
from engines.local.wire import Abort, Goodbye, Hello, Ping, Pong, Ready, Submit, ToEngine
from engines.protocol import EngineInfo

IDLE_POLL_MS = 1000


class WorkerLoop:
    """The loop between the gateways and the engine's steps: it never waits while there is work."""

    def __init__(self, gateways: Gateways, core: EngineCore, info: EngineInfo) -> None:
        self._gateways = gateways
        self._core = core
        self._info = info

    def run(self) -> None:
        """Serve without end."""
        for identity, _ in self._gateways:
            self._greet(identity)
        while True:
            self._turn()

    def _turn(self) -> None:
        for identity, message in self._gateways.receive(0 if self._core.busy else IDLE_POLL_MS):
            self._take(identity, message)
        for identity in self._gateways.forget_silent():
            self._core.drop(identity)
        self._publish(self._core.step() if self._core.busy else [])

    def _take(self, identity: bytes, message: ToEngine) -> None:
        match message:
            case Submit(request):
                self._core.submit(identity, request)
            case Abort(request_ids):
                self._core.abort(identity, request_ids)
            case Ping():
                self._send(identity, Pong())
            case Hello():
                self._greet(identity)
            case Goodbye():
                self._gateways.forget(identity)
                self._core.drop(identity)

    def _greet(self, identity: bytes) -> None:
        names = {known: gateway.engine_id for known, gateway in self._gateways}
        if identity in names:
            self._send(identity, Ready(msgspec.structs.replace(self._info, engine_id=names[identity])))

    def _send(self, identity: bytes, message: Pong | Ready) -> None:
        if not self._gateways.send(identity, message):
            self._core.drop(identity)

    def _publish(self, outputs: list[StepOutput]) -> None:
        """Send each gateway its rows; those without any hear when the counts changed."""
        rows: dict[bytes, list[StepOutput]] = defaultdict(list)
        for output in outputs:
            rows[output.owner].append(output)
        counts = (self._core.running, self._core.waiting)
        for identity, gateway in self._gateways:
            if identity not in rows and gateway.counts == counts:
                continue
            frame = build_frame(
                rows[identity],
                engine_id=gateway.engine_id,
                step=self._core.steps,
                running=counts[0],
                waiting=counts[1],
            )
            gateway.counts = counts
            if not self._gateways.send(identity, frame):
                self._core.drop(identity)
