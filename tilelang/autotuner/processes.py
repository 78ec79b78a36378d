"""Processes for what may crash, hang or lose its GPU: it costs itself and nothing else.

A *fork server* is a process that has imported this package and does nothing but fork: a child of it
starts in milliseconds, has never touched a GPU, and does not run the user's script again. There is
one for each process that asks, for as long as that lives. A child calls functions that it is sent,
one after the other. When the process that asks ends, even by SIGKILL, so do the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")

_SIZE = struct.Struct("q")
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h

FORK_SAFE = {"TVM_FFI_DISABLE_TORCH_C_DLPACK": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""The fork server's environment: tvm_ffi's import asks torch for GPUs, for the sake of older torch,
and torch answers by initialising the driver, which no fork of the process could use then."""


class CallFailed(RuntimeError):
    """A function raised in its process; the text has the class and the message.

    `kind` is the name of the class.
    """

    def __init__(self, kind: str, text: str):
        super().__init__(f"{kind}: {text}")
        self.kind, self._text = kind, text

    def __reduce__(self) -> tuple[Any, ...]:
        """Executors send it to where the search runs."""
        return type(self), (self.kind, self._text)


class ProcessLost(RuntimeError):
    """A process has ended, or was ended because it took too long."""


# In the fork server and its children.


def serve_forks(descriptor: int) -> None:
    """Forks a child for each socket that arrives, and tells its number."""
    control = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks gets it, and ends us
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children leave nothing behind

    while True:
        header, sockets, _, _ = socket.recv_fds(control, _SIZE.size, 1)
        if not header:
            return
        surroundings = pickle.loads(_receive(control, _SIZE.unpack(header)[0]))
        pid = os.fork()
        if pid == 0:
            control.close()
            _serve_child(sockets[0], *surroundings)
        os.close(sockets[0])
        control.sendall(_SIZE.pack(pid))


def _receive(control: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = control.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _serve_child(
    descriptor: int, environment: dict[str, str], folder: str, path: list[str]
) -> None:
    """Ends the process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    with contextlib.suppress(OSError):  # a folder that is gone has no files to name
        os.chdir(folder)
    status = 1
    try:
        connection = Connection(descriptor)
        while True:
            function, arguments = pickle.loads(connection.recv_bytes())
            connection.send_bytes(_answer(function, arguments))
    except EOFError:
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps((None, function(*arguments)))
    except Exception as error:  # noqa: BLE001 (the other side raises it)
        return pickle.dumps(((type(error).__name__, str(error)), None))


# In the process that asks.


class _ForkServer:
    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        program = (
            f"import sys; sys.path[:] = {json.dumps([p for p in sys.path if isinstance(p, str)])}\n"
            "from tilelang.autotuner.processes import serve_forks\n"
            f"serve_forks({theirs.fileno()})"
        )
        # The environment of now is sent with each request.
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **FORK_SAFE},
        )
        theirs.close()

    def fork(self, theirs: socket.socket) -> int:
        """The number of a new process that serves the other end of `theirs`."""
        surroundings = pickle.dumps((dict(os.environ), os.getcwd(), sys.path))
        try:
            with self._lock:
                header = _SIZE.pack(len(surroundings))
                socket.send_fds(self._control, [header], [theirs.fileno()])
                self._control.sendall(surroundings)
                return int(_SIZE.unpack(_receive(self._control, _SIZE.size))[0])
        except (EOFError, OSError) as error:
            raise ProcessLost(
                f"the process that starts others has ended with {self._process.poll()}; what it "
                "said is above"
            ) from error

    def is_alive(self) -> bool:
        """Whether it serves this process."""
        return self.owner == os.getpid() and self._process.poll() is None


_fork_server: _ForkServer | None = None
_idle: list[Child] = []
_lock = threading.Lock()


def _renew() -> None:
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_renew)


def start_fork_server() -> _ForkServer:
    """The fork server of this process; its import goes on beside what the caller does."""
    global _fork_server
    with _lock:
        if _fork_server is None or not _fork_server.is_alive():
            _fork_server = _ForkServer()
        return _fork_server


class Child:
    """A process that calls functions.

    Example: ``with contextlib.closing(Child()) as child: child.call(math.sqrt, 2.0, seconds=1)``
    """

    def __init__(self) -> None:
        server = start_fork_server()
        self.owner = os.getpid()
        ours, theirs = socket.socketpair()
        with theirs:
            self.pid = server.fork(theirs)
        self._connection = Connection(ours.detach())

    def call(self, function: Callable[..., T], *arguments: Any, seconds: float | None = None) -> T:
        """What a function of a module, with arguments that pickle, returns there.

        Raises `CallFailed` where it raises; `ProcessLost` where the process ends, or is ended
        because it takes more than `seconds`: then this object is closed.
        """
        try:
            self._connection.send_bytes(pickle.dumps((function, arguments)))
            if not self._connection.poll(seconds):
                raise ProcessLost(f"it takes more than {seconds:g} s")
            error, value = pickle.loads(self._connection.recv_bytes())
        except BaseException as lost:
            # An interrupt, too: the answer would be taken for the next one's.
            self.close()
            if isinstance(lost, EOFError | OSError):
                raise ProcessLost("its process has ended: a crash, or no memory") from lost
            raise
        if error is not None:
            raise CallFailed(*error)
        found: T = value
        return found

    def close(self) -> None:
        """Ends the process, whatever it does."""
        if not self._connection.closed:
            self._connection.close()
            if self.owner == os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)


def call_apart(function: Callable[..., T], *arguments: Any, seconds: float | None = None) -> T:
    """Calls a function in a process of its own, or in one that an earlier call has left; as
    `Child.call`. May be called from several threads, for which there are several processes."""
    with _lock:
        child = _idle.pop() if _idle else None
    child = child or Child()
    try:
        return child.call(function, *arguments, seconds=seconds)
    finally:
        if not child._connection.closed:
            with _lock:
                _idle.append(child)


def close_idle() -> None:
    """Ends the processes that calls have left."""
    with _lock:
        children = _idle[:]
        _idle.clear()
    for child in children:
        child.close()
