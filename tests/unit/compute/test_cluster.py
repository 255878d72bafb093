"""The process that speaks with Ray may end at any moment, and many threads use it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from maskedlark.compute import ray
from maskedlark.compute.cluster import Driver, RayWorker
from maskedlark.compute.pool import WorkerDied
from maskedlark.compute.ray_connection import Cluster
from maskedlark.compute.task import Common
from tests.unit.compute import echo_driver

LANES, KILLS = 4, 3


def test_a_driver_that_ends_is_only_ever_a_worker_that_died(monkeypatch):
    """Other threads start it anew while one is between two of its steps."""
    monkeypatch.setattr(ray, "drive", echo_driver.drive)
    driver = Driver(Cluster("local", LANES, False, "helper-0"))
    over = threading.Event()

    def lane(place: int) -> int:
        worker, deaths, number = RayWorker(driver, place), 0, 0
        while not over.is_set():
            number += 1
            common, call = Common(b"%d-%d" % (place, number), b"common"), b"call %d" % number
            try:
                assert worker.perform(common, call) == call
            except WorkerDied:
                deaths += 1
        return deaths

    with ThreadPoolExecutor(LANES) as threads:
        lanes = [threads.submit(lane, place) for place in range(LANES)]
        try:
            for _ in range(KILLS):
                time.sleep(0.1)
                driver.start()
                process = driver._process
                assert process is not None
                process.kill()
            driver.start()
        finally:
            over.set()
    assert sum(each.result() for each in lanes) >= 1
    driver.close()


class EndedBetween:
    """A lock that another thread takes whenever it is let go, to end the process."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._lock = driver, threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        process = self._driver._process
        if process is not None:
            process.kill()
            process.join()
        self._driver._end()
        self._lock.release()


def test_a_driver_that_ended_between_two_steps_is_a_worker_that_died(monkeypatch):
    monkeypatch.setattr(ray, "drive", echo_driver.drive)
    driver = Driver(Cluster("local", 2, False, "helper-0"))
    monkeypatch.setattr(driver, "_lock", EndedBetween(driver))
    with pytest.raises(WorkerDied):
        RayWorker(driver, 1).perform(Common(b"1", b"common"), b"call")
