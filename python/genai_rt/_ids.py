"""Token ids as the library takes them: int64, one after the other."""

from __future__ import annotations

import array
import operator

from ._native import ffi

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any, List, Tuple

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def _from_array(a: Any) -> Tuple[Any, int, Any]:
    import numpy as np

    a = np.asarray(a)
    if a.ndim == 2 and 1 in a.shape:
        a = a.reshape(-1)
    if a.ndim != 1:
        raise TypeError("ids are one sequence, not an array of %d dimensions" % a.ndim)
    if a.size and a.dtype.kind not in "iu":
        raise TypeError("ids are integers, not %s" % a.dtype)
    if a.dtype.kind == "u" and a.size and int(a.max()) > HIGHEST:
        raise OverflowError("an id does not fit into 64 bits")
    a = np.ascontiguousarray(a, dtype=np.int64)
    return ffi.cast("int64_t *", ffi.from_buffer(a)), int(a.size), a


def _index(x: Any) -> int:
    if isinstance(x, bool):
        raise TypeError("ids are integers, not bool")
    return operator.index(x)


def to_ids(ids: Any) -> Tuple[Any, int, Any]:
    """Pointer, count, and what has to live as long as the pointer.  Lists, ranges,
    any iterable of integers, arrays of any integer type and strides."""
    if isinstance(ids, (str, bytes, bytearray)):
        raise TypeError("ids are integers, not text")
    if hasattr(ids, "__array_interface__") or hasattr(ids, "__array__"):
        return _from_array(ids)
    if isinstance(ids, memoryview):
        if ids.ndim != 1 or ids.format not in tuple("bBhHiIlLqQnN"):
            raise TypeError("ids are one sequence of integers, not a buffer of %r" % ids.format)
        ids = ids.tolist()
    try:
        values = array.array("q", [_index(x) for x in ids])
    except OverflowError:
        raise OverflowError("an id does not fit into 64 bits") from None
    return ffi.cast("int64_t *", ffi.from_buffer(values)), len(values), values


def to_list(ids: Any) -> List[int]:
    """The same as a list."""
    _, _, keep = to_ids(ids)
    return list(keep.tolist())


def take_ids(lib: Any, p: Any, n: int) -> List[int]:
    """A list of what the library gave, which is freed."""
    if not n:
        lib.genai_free(p)
        return []
    try:
        return list(ffi.unpack(ffi.cast("int64_t *", p), n))
    finally:
        lib.genai_free(p)
