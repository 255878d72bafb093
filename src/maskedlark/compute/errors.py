"""Errors of engines: settings that they cannot run with, and workers that are gone."""

from maskedlark.errors import MaskedLarkError


class BadEngine(MaskedLarkError):
    """The engine of the settings cannot run. Found at the start; says what to change."""


class RayMissing(BadEngine):
    """Ray is an optional dependency, and is not installed."""


class ClusterAway(BadEngine):
    """No Ray cluster answers at the address, or this machine is none of its nodes."""


class NotAuthenticated(BadEngine):
    """The cluster takes work from anybody, or does not take ours: there is no token, or a wrong one."""


class NotEncrypted(BadEngine):
    """The cluster has other machines, and Ray is not told to use TLS between them."""


class ClusterTaken(BadEngine):
    """Another helper uses the cluster: on one cluster, their shares would be pooled."""


class ClusterTooSmall(BadEngine):
    """The cluster has not enough processors or GPUs for the workers that are wanted."""


class UnusableDevice(BadEngine):
    """A worker, or the helper itself, cannot compute on the device of the settings."""


class OtherVersion(BadEngine):
    """A worker has another Python, Ray or maskedlark than this process, or none."""


class WorkersLost(MaskedLarkError):
    """The workers of a request ended again and again. Nothing of it was kept: send the same request again."""


class WorkFailed(MaskedLarkError):
    """An error in a worker that cannot be sent to this process. Its class is named."""
