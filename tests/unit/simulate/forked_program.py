"""What a forked process is told to run in a test: it says what it draws and who it is, then does as told."""

import multiprocessing
import os
import random
import secrets
import signal
import sys
import uuid

import numpy as np

from maskedlark.compute.child_process import stop_with_input
from maskedlark.randomness import SystemRandomness
from maskedlark.wire.hpke import OpeningKey

KEY = OpeningKey(bytes(range(32))).sealing
DRAWS = (
    SystemRandomness().bytes(16).hex(),
    # The encapsulated key, which OpenSSL draws.
    KEY.seal(b"", b"")[:16].hex(),
    secrets.token_hex(16),
    uuid.uuid4().hex,
    random.random(),
    np.random.default_rng().random(),
    np.random.random(),
    multiprocessing.current_process().authkey.hex(),
)

if __name__ == "__main__":
    print(*DRAWS, flush=True)
    assert __spec__ is not None
    print(*sys.argv[1:], os.getpgid(0) == os.getpid(), __spec__.name, flush=True)
    match sys.argv[1]:
        case "exit":
            sys.exit(int(sys.argv[2]))
        case "read":
            stop_with_input()
            signal.pause()
