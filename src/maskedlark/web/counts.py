"""What every service counts of its requests. All of it is seen by whoever sends them, and by the line.

Nothing here is a secret: routes, methods, statuses, sizes, times and kinds of problems are in the answers,
and depend on what is public, which tests of side channels hold the services to.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Counts:
    """The counts of one app."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "maskedlark_requests",
            "Requests that were answered, by the declared path.",
            ["route", "method", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "maskedlark_request_seconds",
            "From the head of a request to the end of its answer.",
            ["route", "method"],
            registry=registry,
            buckets=SECONDS,
        )
        self.in_flight = Gauge(
            "maskedlark_requests_in_flight", "Requests that are being answered now.", registry=registry
        )
        self.bytes_in = Counter(
            "maskedlark_request_body_bytes", "Bytes of bodies that were read.", ["route"], registry=registry
        )
        self.bytes_out = Counter(
            "maskedlark_response_body_bytes", "Bytes of bodies that were sent.", ["route"], registry=registry
        )
        self.problems = Counter(
            "maskedlark_problems",
            "Problem documents that were answered, by the last part of their type.",
            ["type"],
            registry=registry,
        )
        self.signed = Counter(
            "maskedlark_signed_requests",
            "Requests by the pinned origin that signed them.",
            ["origin"],
            registry=registry,
        )
