import signal
import subprocess
import sys

import pytest

SERVE = "import time; from maskedlark.compute import child_process\n"
SERVE += "child_process.stop_with_input(); print(flush=True); time.sleep(600)"


def test_a_service_ends_when_whoever_holds_its_input_is_gone():
    words = [sys.executable, "-c", SERVE]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        service.stdout.readline()
        service.stdin.write(b"whatever is said")
        service.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            service.wait(0.2)
        service.stdin.close()
        assert service.wait(60) == -signal.SIGTERM
