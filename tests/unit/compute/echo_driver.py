"""In place of the process that speaks with Ray: one that answers every call with the call itself."""

import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from maskedlark.compute.child_process import follow_parent
from maskedlark.compute.local import receive
from maskedlark.compute.ray import DONE
from maskedlark.compute.task import success


def drive(_cluster: object, _ours: object, _first: bool, control: Connection, *places: Connection) -> None:
    follow_parent()
    control.send_bytes(success(None))
    held: set[bytes] = set()
    for place in places:
        threading.Thread(target=_serve, args=(place, held), daemon=True).start()
    with suppress(EOFError):
        while True:
            key, data = receive(control, 2)
            held.add(key) if data else held.discard(key)
            control.send_bytes(DONE)


def _serve(place: Connection, held: set[bytes]) -> None:
    with suppress(EOFError, OSError):
        while True:
            key, call = receive(place, 2)
            assert key in held, "this process was not given it"
            place.send_bytes(call)
