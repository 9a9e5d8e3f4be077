"""Many requests at once on one model: <genai/engine.h>."""

from __future__ import annotations

import atexit
import collections
import collections.abc
import os
import threading
import weakref

from ._ids import to_ids
from ._model import Config, open_runtime
from ._native import (
    ClosedError, GenaiError, Handle, InvalidError, check, error_class, ffi, lib, new_error, path_bytes,
)
from ._text import text_bytes

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

_ECHO, _IGNORE_EOS, _NO_SPECIAL = 1, 2, 16
_DONE = 3
_FINISH = {1: "eos", 2: "stop", 3: "length", 4: "cancelled", 5: "deadline", 6: "error"}


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """An engine's thread says what happens: not to an interpreter that is gone."""
    for e in list(_engines):
        if os.getpid() == e._tree.pid:
            e.close()


class Answer(collections.abc.Iterator):
    """What a request gets: iterate over pieces of text, or take result()."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._pieces: "collections.deque[str]" = collections.deque()
        self.number = 0
        self.ids: List[int] = []
        self.text = ""
        self.finish_reason: Optional[str] = None
        self.error: Optional[GenaiError] = None
        self.prompt_tokens = self.cached_tokens = 0

    def __next__(self) -> str:
        while not self._pieces:
            if self.finish_reason is not None:
                if self.error is not None:
                    raise self.error
                raise StopIteration
            self._engine._wait(self)
        return self._pieces.popleft()

    def result(self) -> str:
        """All of the text, when it is there."""
        for _ in self:
            pass
        return self.text

    def cancel(self) -> None:
        """End it within a step; its finish_reason is "cancelled"."""
        self._engine._cancel(self.number)


class Engine:
    """A model for many requests, which share its steps; an answer has the same
    tokens as alone.  Any thread may ask; whoever waits takes what there is for all.

    >>> with Engine(folder, context=64) as engine:
    ...     answers = [engine.submit(ids, max_new_tokens=4) for ids in ([1, 2], [3, 4])]
    ...     [len(a.ids) for a in answers if a.result() is not None]
    [4, 4]
    """

    def __init__(
        self, path: Any, *, max_sequences: int = 0, config: Any = None, sets: Optional[Dict[str, Any]] = None,
        **keys: Any,
    ) -> None:
        c = path if isinstance(path, Config) else Config(path, config=config, sets=sets, **keys)
        self._tree, rt = open_runtime(c)
        o = ffi.new("struct genai_engine_options *")
        o.size = ffi.sizeof("struct genai_engine_options")
        o.max_sequences = max_sequences
        out, err = ffi.new("struct genai_engine **"), new_error()
        with self._tree:
            check(lib.genai_engine_open(rt.get(), path_bytes(c.path), o, out, err), err)
        self._rt = rt
        self._engine = Handle(self._tree, lib.genai_engine_close, out[0], "engine", rt)
        self._event = ffi.new("struct genai_event *")
        self._taking = threading.Lock()  # events go to one thread at a time
        self._using = 0  # calls that are in the library now
        self._idle = threading.Condition()
        self._answers: Dict[int, Answer] = {}
        _engines.add(self)

    def close(self) -> None:
        """Requests that are not finished end."""
        with self._idle:
            handle, self._engine_open = self._engine, False
            while self._using:
                self._idle.wait(0.1)
        handle.close()
        self._rt.close()
        for a in list(self._answers.values()):
            a.finish_reason = a.finish_reason or "cancelled"
        self._answers.clear()

    _engine_open = True

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # The functions of an engine may be called at once, from open to close.
    def _call(self, f: Any, *args: Any) -> Any:
        self._tree.check_process()
        with self._idle:
            if not self._engine_open:
                raise ClosedError("the engine is closed")
            self._using += 1
        try:
            return f(self._engine.get(), *args)
        finally:
            with self._idle:
                self._using -= 1
                self._idle.notify_all()

    def submit(
        self, prompt: Union[str, Any], *, max_new_tokens: int = 256, stop: Union[str, Sequence[str]] = (),
        ignore_eos: bool = False, greedy: bool = True, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        min_p: float = 0.0, repetition_penalty: float = 1.0, presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0, seed: int = 0, priority: int = 0,
    ) -> Answer:
        """Queue a prompt, a text or ids.  It is the most probable tokens unless
        greedy is False."""
        r = ffi.new("struct genai_request *")
        r.size = ffi.sizeof("struct genai_request")
        r.n, r.max_tokens, r.priority = 1, max_new_tokens, priority
        r.flags = _IGNORE_EOS if ignore_eos else 0
        keep: List[Any] = []
        if isinstance(prompt, (str, bytes)):
            b = text_bytes(prompt)
            keep.append(ffi.from_buffer(b))
            r.text, r.text_bytes = keep[-1], len(b)
        else:
            p, n, values = to_ids(prompt)
            if not n:
                raise InvalidError("the prompt is empty")
            keep.append(values)
            r.ids, r.n_ids = p, n
        stops = [ffi.new("char[]", text_bytes(s)) for s in ([stop] if isinstance(stop, str) else stop)]
        if stops:
            keep.append(ffi.new("const char *[]", stops))
            r.stops, r.n_stops = keep[-1], len(stops)
        if not greedy:
            s = ffi.new("struct genai_sampling *")
            s.size = ffi.sizeof("struct genai_sampling")
            s.do_sample, s.temperature, s.top_k, s.top_p, s.min_p = 1, temperature, top_k, top_p, min_p
            s.repetition_penalty, s.presence_penalty = repetition_penalty, presence_penalty
            s.frequency_penalty, s.seed = frequency_penalty, seed
            keep.append(s)
            r.sampling = s
        return self._queue(r)

    def _queue_ids(self, prompt: List[int], most: int, sampling: Any) -> Answer:
        p, n, _values = to_ids(prompt)
        if not n:
            raise InvalidError("the prompt is empty")
        r = ffi.new("struct genai_request *")
        r.size = ffi.sizeof("struct genai_request")
        r.n, r.max_tokens, r.ids, r.n_ids, r.sampling = 1, most, p, n, sampling
        return self._queue(r)

    def _queue(self, r: Any) -> Answer:
        out, err = ffi.new("uint64_t *"), new_error()
        a = Answer(self)
        with self._taking:  # no event of it may come before it is known
            check(self._call(lib.genai_engine_submit, r, out, err), err)
            a.number = int(out[0])
            self._answers[a.number] = a
        return a

    def generate(self, prompts: Sequence[Any], **options: Any) -> List[str]:
        """The answers of many prompts, together; options as those of submit."""
        if isinstance(prompts, (str, bytes)):
            raise TypeError("prompts are a list")
        answers = [self.submit(p, **options) for p in prompts]
        return [a.result() for a in answers]

    def _cancel(self, number: int) -> None:
        err = new_error()
        check(self._call(lib.genai_engine_cancel, number, err), err)

    def _wait(self, waiting: Answer) -> None:
        """Take an event, or wait a little for one: a signal is heard between."""
        with self._taking:
            if waiting._pieces or waiting.finish_reason is not None:
                return  # another thread took it
            self._take()

    def _wait_any(self) -> None:
        with self._taking:
            self._take()

    def _take(self) -> None:
        ev, err = self._event, new_error()
        ev.size = ffi.sizeof("struct genai_event")
        rc = self._call(lib.genai_engine_next, 100, ev, err)
        check(rc, err)
        if rc:
            return
        a = self._answers.get(int(ev.request))
        if a is None:
            return
        text = bytes(ffi.buffer(ev.text, ev.text_bytes)).decode("utf-8") if ev.text_bytes else ""
        if ev.id >= 0:
            a.ids.append(int(ev.id))
        if text:
            a.text += text
            a._pieces.append(text)
        if ev.kind == _DONE:
            self._done(a, ev)

    def _done(self, a: Answer, ev: Any) -> None:
        a.prompt_tokens, a.cached_tokens = int(ev.n_prompt), int(ev.n_cached)
        if ev.code:
            text = ffi.string(ev.error).decode("utf-8", "replace") if ev.error else ""
            a.error = error_class(ev.code)(text)
            a.error.code = int(ev.code)
        a.finish_reason = _FINISH.get(int(ev.finish), "error")
        if ev.last:
            del self._answers[a.number]

    def statistics(self) -> Dict[str, Any]:
        """Counts since it was opened, as <genai/engine.h> has them; kinds is a list."""
        s = ffi.new("struct genai_engine_stats *")
        s.size = ffi.sizeof("struct genai_engine_stats")
        check(self._call(lib.genai_engine_get_stats, s))
        names = [n for n, _ in ffi.typeof("struct genai_engine_stats").fields if n not in ("size", "reserved", "kinds")]
        counts: Dict[str, Any] = {n: int(getattr(s, n)) for n in names}
        counts["kinds"] = [{n: int(getattr(k, n)) for n, _ in ffi.typeof(k).fields} for k in s.kinds]
        return counts
