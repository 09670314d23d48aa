"""The Dask cluster that rows are spread over: how it is found, and whether its workers can do the work."""

import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .._checks import short
from .._version import __version__
from ..errors import InputError

if TYPE_CHECKING:
    import distributed

# Seconds in which a scheduler has to answer.
PATIENCE = 5.0


def load_distributed() -> ModuleType:
    """Dask's package for clusters, or a sentence that says how to get it."""
    try:
        import distributed
    except ImportError as error:
        raise InputError(
            'rows on a cluster need Dask, which is not installed; pip install "coresetvi[distributed]"'
        ) from error
    return distributed


def connect(client: object) -> "distributed.Client":
    """A client that answers, with workers that have this version of the package.

    `client` is a Dask client, a cluster, the address of a scheduler, or None for the client started last.
    """
    found = find_client(client)
    if getattr(found, "asynchronous", False):
        raise InputError("client is asynchronous, which scan cannot wait for; make it with Client(address)")
    with clear_words(found):
        check_alive(found)
        check_workers(found)
    return found


def find_client(client: object) -> "distributed.Client":
    distributed = load_distributed()
    if isinstance(client, distributed.Client):
        found: Any = client
        return found
    if client is None:
        try:
            current: Any = distributed.get_client()
            return current
        except ValueError as error:
            raise InputError(
                "a Dask data frame needs a cluster, and no Dask client has been started; "
                "pass client=, the address of a scheduler, say, or dask.distributed.Client()"
            ) from error
    if not isinstance(client, str | distributed.deploy.Cluster):
        raise InputError(
            f"client is {short(client)}; pass a dask.distributed.Client or the address of a scheduler"
        )
    try:
        return distributed.Client(client, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"client={short(client)} does not lead to a Dask scheduler ({error}); "
            "check the address, and that the scheduler runs"
        ) from error


def check_alive(client: "distributed.Client") -> None:
    """Refuse a client whose scheduler is not there."""
    if client.status != "running":
        raise lost(client)


def check_workers(client: "distributed.Client") -> None:
    """Refuse a cluster without workers, or with one that lacks the package or has another version of it."""
    # A function of Python's own: a worker without the package could not look up one of ours.
    versions: Any = client.run(pkgutil.resolve_name, "coresetvi._version:__version__", on_error="return")
    if not versions:
        raise InputError(
            f"the Dask scheduler at {address_of(client)} has no workers; "
            "start some (cluster.scale(2), say) before the scan"
        )
    for worker, found in versions.items():
        if isinstance(found, ImportError | AttributeError):
            raise InputError(
                f"the Dask worker at {worker} does not have coresetvi; install version {__version__} there"
            )
        if isinstance(found, BaseException):
            raise found
        if found != __version__:
            raise InputError(
                f"the Dask worker at {worker} has coresetvi {found}, but {__version__} is used here; "
                "install the same version on both sides"
            )


def results(client: "distributed.Client", futures: "Sequence[distributed.Future]") -> list:
    """What the futures hold; if some have failed, the error of the first of them."""
    distributed = load_distributed()
    with clear_words(client):
        check_alive(client)
        distributed.wait(futures)
        for future in futures:
            if future.status == "error":
                future.result()  # raises what was raised on the worker
        gathered: Any = client.gather(list(futures))
    return gathered


@contextmanager
def clear_words(client: "distributed.Client") -> Iterator[None]:
    """What Dask raises when a cluster breaks, in one sentence."""
    distributed = load_distributed()
    gone = (
        distributed.CancelledError,
        distributed.comm.CommClosedError,
        # Not in the oldest versions that we work with.
        getattr(distributed.client, "ClosedClientError", distributed.CancelledError),
        distributed.TimeoutError,
    )
    try:
        yield
    except distributed.KilledWorker as error:
        raise InputError(
            "workers of the Dask cluster died again and again at the same work, for want of memory perhaps; "
            "see their logs, and use smaller partitions or larger workers"
        ) from error
    except gone as error:
        raise lost(client) from error


def lost(client: "distributed.Client") -> InputError:
    return InputError(
        f"the Dask scheduler at {address_of(client)} is not there any more; "
        "start a cluster and scan again with its client"
    )


def address_of(client: "distributed.Client") -> str:
    """The address of the scheduler, as far as it is known."""
    return str(getattr(client.scheduler, "address", None) or "its address")
