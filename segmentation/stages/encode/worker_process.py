"""Processes in which segments are encoded, started, lent to one file after the other, and ended."""

import select
import socket
import threading
from contextlib import suppress

from segmentation.errors import OutputError, one_line
from segmentation.stages.encode.worker_protocol import (
    EncoderSetup,
    FrameMemory,
    Reply,
    Request,
    receive,
    send,
    socket_pair,
)
from segmentation.system.child_process import LOOK, ChildProcess
from segmentation.system.closing import Closing
from segmentation.system.shared_memory import BlockPool

_IDLE_BYTES = 512 << 20  # frame memory that an idle worker keeps faulted in and page-locked for the next file


class EncoderWorker:
    """A process that runs `segment_worker`, the socket to it, and the frame memory that both processes map.

    The process ends when this end of the socket is closed, and so when this process dies.
    """

    def __init__(self, error_prefix: str) -> None:
        """Returns at once, while the process starts up. Raises `OutputError` where it can't be started."""
        self.frame_bytes = 0  # of the frames that the blocks were made for
        try:
            self.blocks = BlockPool()
        except OSError as exc:
            raise OutputError(f"{error_prefix}: {one_line(exc)}; --encode x264 does without one") from exc
        try:
            self._link, self._process = _start(error_prefix)
        except BaseException:
            self.blocks.close()
            raise
        with suppress(OSError):  # it is dead already, as the next message will show
            self.send(FrameMemory(self.blocks.size, self.blocks.fd))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Request) -> None:
        """Sends a message. Raises `OSError` when the process is dead."""

        def attempt() -> None:
            self._wait_for(select.POLLOUT)
            send(self._link, message)

        self._process.watched(attempt)

    def receive(self, *, wait: bool) -> Reply:
        """Returns the next message, as `worker_protocol.receive` does. Raises `EOFError` when the process is dead."""

        def attempt() -> Request | Reply:
            if wait:
                self._wait_for(select.POLLIN)
            return receive(self._link, wait=False)

        message = self._process.watched(attempt)
        assert isinstance(message, Reply)
        return message

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def end(self) -> None:
        """Makes the process end. A thread that waits in `receive` gets `EOFError`."""
        with suppress(OSError):  # the process is dead already
            self._link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the process, waits until it is gone, and frees the memory that nobody refers to."""
        self.end()
        self._process.close()
        self._link.close()
        self.blocks.close()

    def _wait_for(self, event: int) -> None:
        """Waits until the socket is ready, or closed. Raises `TimeoutError` after a moment."""
        poll = select.poll()
        poll.register(self._link, event)
        if not poll.poll(LOOK * 1000):
            raise TimeoutError

    def describe_death(self) -> str:
        """Says how the process ended, as the end of a sentence."""
        return self._process.describe_death()


class EncoderLease:
    """A worker while it encodes one file. Raises `OutputError` when the worker has died or the lease is over."""

    def __init__(self, service: "EncoderService", worker: EncoderWorker, setup: EncoderSetup) -> None:
        self.blocks = worker.blocks
        self.pid = worker.pid
        self._service, self._worker = service, worker
        self._error_prefix = setup.settings.error_prefix
        self._lock = threading.Lock()  # of the two flags: `interrupt` and `finish` may run in two threads
        self._over = self._interrupted = False

    def send(self, message: Request) -> None:
        """Sends a message to the process."""
        self._require_open()
        try:
            self._worker.send(message)
        except OSError as exc:
            raise self._error() from exc

    def receive(self, *, wait: bool) -> Reply | None:
        """Returns the next message, or without `wait` `None` if there is none yet."""
        self._require_open()
        try:
            return self._worker.receive(wait=wait)
        except BlockingIOError:
            return None
        except (EOFError, OSError) as exc:
            raise self._error() from exc

    def finish(self) -> None:
        """Returns the worker to the service. To be called when `Idle` was received."""
        with self._lock:
            self._over = True
        if not self._interrupted:
            self._service.take_back(self._worker)

    def interrupt(self) -> None:
        """Makes the process end, unless the lease is over. Threads that wait for a message get `OutputError`."""
        with self._lock:
            if not self._over:
                self._interrupted = True
                self._worker.end()

    def close(self) -> None:
        """Ends the process, unless the worker was returned."""
        self.interrupt()
        if self._interrupted:
            self._worker.close()

    def _require_open(self) -> None:
        if self._over or self._interrupted:
            raise self._error()

    def _error(self) -> OutputError:
        if self._over or self._interrupted:
            return OutputError(f"{self._error_prefix}: it was closed")
        death = self._worker.describe_death()
        return OutputError(f"{self._error_prefix}: the process that does it {death}; --encode x264 does without one")


class EncoderService(Closing):
    """Lends workers, and keeps idle ones for the next file. For any number of threads.

    Use as a context manager, or call `close`.
    """

    def __init__(self) -> None:
        self.started = 0  # processes since the beginning
        self._lock = threading.Lock()
        self._idle: list[EncoderWorker] = []
        self._closed = False

    def lease(self, setup: EncoderSetup) -> EncoderLease:
        """Returns a worker that has been sent `setup`: an idle one, or else a new one.

        Raises `OutputError` where no process can be started, or a new one has died at once.
        """
        while (worker := self._next_idle()) is not None:
            if worker.is_alive():
                with suppress(OutputError):  # it has died since
                    return self._begin(worker, setup)
            else:
                worker.close()
        worker = EncoderWorker(setup.settings.error_prefix)
        with self._lock:
            self.started += 1
        return self._begin(worker, setup)

    def take_back(self, worker: EncoderWorker) -> None:
        """Keeps an idle worker for the next file. For `EncoderLease` alone."""
        try:
            worker.blocks.trim(_IDLE_BYTES)
        except OSError:  # this kernel can't free a part of the memory, so all of the worker is ended
            worker.close()
            return
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                return
        worker.close()

    def close(self) -> None:
        """Ends all idle workers. A lent worker ends when its lease does."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def _next_idle(self) -> EncoderWorker | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _begin(self, worker: EncoderWorker, setup: EncoderSetup) -> EncoderLease:
        """Sends the setup to a worker. The worker is closed if that fails."""
        try:
            if worker.frame_bytes != setup.settings.frame_bytes:
                worker.blocks.trim(0)  # blocks of another size are of no use
                worker.frame_bytes = setup.settings.frame_bytes
            lease = EncoderLease(self, worker, setup)
            lease.send(setup)
        except BaseException:
            worker.close()
            raise
        return lease


def _start(error_prefix: str) -> tuple[socket.socket, ChildProcess]:
    """Starts a process. Returns the socket to it, too."""
    link, others = socket_pair()
    try:
        with others:
            process = ChildProcess("segmentation.stages.encode.segment_worker", others.fileno())
    except OSError as exc:
        link.close()
        raise OutputError(f"{error_prefix}: no process can be started for it ({one_line(exc)})") from exc
    return link, process
