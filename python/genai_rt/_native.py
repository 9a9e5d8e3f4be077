"""The library: where it is, its errors as exceptions, who may call it when."""

from __future__ import annotations

import collections
import logging
import os
import threading
import weakref

from ._cdef import ffi

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Optional

HERE = os.path.dirname(os.path.abspath(__file__))


def _part(folder: str, name: str) -> str:
    """What a wheel has in itself; else the system's, by its name alone."""
    path = os.path.join(HERE, folder, name)
    return path if os.path.exists(path) else name


LIBRARY = _part("lib", "libgenai.so.0")
PROGRAM = _part("bin", "genai")

# its threads may run until the process is gone: never unmapped
lib: Any = ffi.dlopen(LIBRARY, ffi.RTLD_NOW | ffi.RTLD_NODELETE)
log = logging.getLogger("genai_rt")


# ---- errors ----


class GenaiError(Exception):
    """What the library refused; str() is its text, code its GENAI_E_*."""

    code = 0


class InvalidError(GenaiError, ValueError):
    """An argument that cannot be."""


class NoMemoryError(GenaiError, MemoryError):
    """The host has no memory left."""


class IOFailed(GenaiError, OSError):
    """A file could not be read."""


class FormatError(GenaiError, ValueError):
    """A file, a template or a text that is not what it should be."""


class UnsupportedError(GenaiError, NotImplementedError):
    """What this library, or the module in use, does not have."""


class ConfigError(GenaiError, ValueError):
    """The configuration: file, line and key are in the text."""


class ModuleError(GenaiError, ImportError):
    """A module could not be loaded, or is none."""


class AbiError(GenaiError, ImportError):
    """A module for another version."""


class NoDeviceError(GenaiError):
    """The device is not there."""


class DeviceError(GenaiError):
    """The device failed, or computed what is no number."""


class LimitError(GenaiError):
    """More than there is room for: memory, context, a bound."""


class StateError(GenaiError):
    """Not now."""


class BusyError(GenaiError):
    """Somebody else has it."""


class DeadlineError(GenaiError, TimeoutError):
    """It took too long."""


class ForkedError(GenaiError):
    """A child after fork uses what its parent opened: open it anew there, or use
    multiprocessing's "spawn"."""


class InterruptedLoad(GenaiError):
    """Stopped by a progress function."""


class NotFoundError(GenaiError, FileNotFoundError):
    """A file that is not there."""


class OrderError(GenaiError):
    """The check of [runtime] check = order found a missing wait."""


class ClosedError(GenaiError, ValueError):
    """The object, or what it belongs to, was closed."""


_CLASSES = {
    -1: InvalidError,
    -2: NoMemoryError,
    -3: IOFailed,
    -4: FormatError,
    -5: UnsupportedError,
    -6: ConfigError,
    -7: ModuleError,
    -8: AbiError,
    -9: NoDeviceError,
    -10: DeviceError,
    -11: LimitError,
    -12: StateError,
    -13: BusyError,
    -14: DeadlineError,
    -15: UnsupportedError,
    -16: ForkedError,
    -17: InterruptedLoad,
    -18: NotFoundError,
    -19: OrderError,
}


def error_class(code: int) -> Any:
    return _CLASSES.get(code, GenaiError)


def model_folder(path: str) -> str:
    """path, or the folder of its import if it is a GGUF file."""
    try:
        with open(path, "rb") as f:
            if f.read(4) != b"GGUF":
                return path
    except OSError:
        return path
    import subprocess

    # the program imports, and knows what was imported before
    r = subprocess.run([PROGRAM, "--quiet", "import", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if r.returncode:
        text = r.stderr.decode("utf-8", "replace").strip()
        raise FormatError(text[len("genai: error: ") :] if text.startswith("genai: error: ") else text)
    return os.fsdecode(r.stdout.rstrip(b"\n"))


def new_error() -> Any:
    """An error record for a call."""
    return ffi.new("struct genai_error *", {"size": ffi.sizeof("struct genai_error")})


def check(rc: int, err: Any = None) -> None:
    """Raise what rc and err say, if it is an error."""
    if rc >= 0:
        return
    text = ffi.string(err.text).decode("utf-8", "replace") if err is not None else ""
    e = _CLASSES.get(rc, GenaiError)(text or "genai: error %d" % rc)
    e.code = rc
    raise e


class Owned:
    """A pointer that is freed with its last user: closing while another thread is
    in a call takes effect when that call is over."""

    def __init__(self, pointer: Any, free: Any, what: str) -> None:
        self.what = what
        self._pointer = ffi.gc(pointer, free)

    def get(self) -> Any:
        p = self._pointer
        if p is None:
            raise ClosedError("the %s is closed" % self.what)
        return p

    def close(self) -> None:
        self._pointer = None


def path_bytes(path: Any) -> bytes:
    """A path as the system has it."""
    b = os.fsencode(path)
    if b"\0" in b:
        raise ValueError("a path with a zero byte")
    return b


# ---- who may call when ----


class _Node:
    """What is open in the library, until it and all below it are dropped."""

    def __init__(self, close: Callable[[Any], None], handle: Any, parent: Optional["_Node"]) -> None:
        self.close = close
        self.handle = handle
        self.parent = parent
        self.users = 1  # itself, and each child
        if parent is not None:
            parent.users += 1


class Tree:
    """A runtime and all below it.  It belongs to one thread at a time, so every
    call goes through here, with the GIL released while it runs.  What is dropped
    while somebody is inside, as the garbage collector may, is closed when that call
    is over; children before parents, in whatever order they are dropped."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.RLock()
        self._inside = False
        self._trash: Deque[_Node] = collections.deque()
        self._callback_error: Optional[BaseException] = None

    def check_process(self) -> None:
        if os.getpid() != self.pid:  # the lock may be held by a thread that is not here
            e = ForkedError(
                "a child after fork cannot use what its parent opened: open it anew, or start children by spawn"
            )
            e.code = -16
            raise e

    def __enter__(self) -> "Tree":
        self.check_process()
        self._lock.acquire()
        if self._inside:
            self._lock.release()
            raise StateError("called from inside of a call to the same model")
        self._inside = True
        return self

    def __exit__(self, *_: Any) -> None:
        e, self._callback_error = self._callback_error, None
        self._inside = False
        self._lock.release()
        self._sweep()
        if e is not None:
            raise e

    def _sweep(self) -> None:
        # what another thread leaves while we hold the lock, we see afterwards
        while self._trash and not self._inside and self._lock.acquire(blocking=False):
            try:
                if self._inside:
                    return
                self._inside = True
                while self._trash:
                    node: Optional[_Node] = self._trash.popleft()
                    while node is not None:
                        node.users -= 1
                        if node.users:
                            break
                        node.close(node.handle)
                        node = node.parent
                self._inside = False
            finally:
                self._lock.release()

    def failed_callback(self, _type: Any, value: BaseException, _tb: Any) -> None:
        """What a Python function raised while the library was calling it."""
        self._callback_error = value

    def drop(self, node: _Node) -> None:
        """Close it, now if nobody is inside, else soon."""
        if os.getpid() == self.pid:
            self._trash.append(node)
            self._sweep()


class Handle:
    """An object of the library, closed once, with all below it."""

    def __init__(
        self, tree: Tree, close: Callable[[Any], None], handle: Any, what: str, parent: Optional["Handle"] = None
    ) -> None:
        self.what = what
        self._handle = handle
        self._parent = parent
        self._node: _Node = _Node(close, handle, None if parent is None else parent._node)
        self._children: "weakref.WeakSet[Handle]" = weakref.WeakSet()
        if parent is not None:
            parent._children.add(self)
        self._final = weakref.finalize(self, tree.drop, self._node)
        # a process that ends takes all of it along
        self._final.atexit = False

    @property
    def open(self) -> bool:
        return self._final.alive

    def get(self) -> Any:
        if not self._final.alive:
            raise ClosedError("the %s is closed" % self.what)
        return self._handle

    def close(self) -> None:
        for child in list(self._children):
            child.close()
        self._final()


# ---- log lines ----


@ffi.callback("void(void *, int32_t, const char *)")
def on_log(_ctx: Any, level: int, text: Any) -> None:
    """A line of the library's becomes one of the logger genai_rt."""
    levels = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}
    log.log(levels.get(level, logging.DEBUG), "%s", ffi.string(text).decode("utf-8", "replace"))
