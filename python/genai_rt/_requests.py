"""Engine and Request as onnxruntime-genai has them: the program makes the steps."""

from __future__ import annotations

import collections

from ._engine import Answer, Engine as _Engine
from ._generator import GeneratorParams
from ._ids import to_list
from ._model import Model, sampling_of
from ._native import InvalidError, StateError

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, List, Optional


class Request:
    """A prompt, and the tokens that come of it."""

    def __init__(self, params: GeneratorParams) -> None:
        if not isinstance(params, GeneratorParams):
            raise TypeError("a Request is made from GeneratorParams, not %s" % type(params).__name__)
        self._params = params
        self._search = dict(params.search)
        self._prompt: List[int] = []
        self._answer: Optional[Answer] = None
        self._seen = 0
        self._ready = False  # it waits for step() to hand it out
        self._data: Any = None

    def add_tokens(self, ids: Any) -> None:
        if self._answer is not None:
            raise StateError("the request is in an engine already")
        self._prompt += to_list(ids)

    def set_opaque_data(self, data: Any) -> None:
        self._data = data

    def get_opaque_data(self) -> Any:
        return self._data

    def has_unseen_tokens(self) -> bool:
        return self._answer is not None and self._seen < len(self._answer.ids)

    def get_unseen_token(self) -> int:
        if self._answer is None or not self.has_unseen_tokens():
            raise StateError("the request has no token that was not seen")
        self._seen += 1
        return self._answer.ids[self._seen - 1]

    def is_done(self) -> bool:
        """All tokens are there; the last ones may not have been seen."""
        a = self._answer
        if a is not None and a.error is not None:
            raise a.error
        return a is not None and a.finish_reason is not None

    def _news(self) -> bool:
        a = self._answer
        return a is not None and (self._seen < len(a.ids) or a.finish_reason is not None)


class Engine:
    """Requests that share steps.  It has the model's weights to itself: what the
    Model of the same folder has on a device stays there until that is closed."""

    def __init__(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise TypeError("an Engine is made from a Model, not %s" % type(model).__name__)
        self._model = model
        self._engine = _Engine(model.config)
        self._requests: Dict[int, Request] = {}
        self._queue: Deque[Request] = collections.deque()

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def add_request(self, request: Request) -> None:
        if not isinstance(request, Request):
            raise TypeError("a Request is needed, not %s" % type(request).__name__)
        if request._answer is not None:
            raise StateError("the request is in an engine already")
        if request._params.model is not self._model:
            raise InvalidError("the request's parameters are another model's")
        info, search = self._model.info, request._search
        most = min(search["max_length"] or info.context, info.context) - len(request._prompt)
        if most < 1:
            raise InvalidError("%d tokens leave no room in max_length %d"
                               % (len(request._prompt), most + len(request._prompt)))
        request._answer = self._engine._queue_ids(request._prompt, most, sampling_of(search))
        self._requests[request._answer.number] = request

    def remove_request(self, request: Request) -> None:
        """It ends, if it has not; nothing of it is handed out any more."""
        a = request._answer if isinstance(request, Request) else None
        if a is None or self._requests.pop(a.number, None) is not request:
            raise InvalidError("the request is not in this engine")
        if request in self._queue:
            self._queue.remove(request)
        if a.finish_reason is None:
            a.cancel()

    def has_pending_requests(self) -> bool:
        """Is there more to come, or something that was not handed out?"""
        return bool(self._queue) or any(r._answer.finish_reason is None or not r._ready
                                        for r in self._requests.values() if r._answer)

    def step(self) -> Optional[Request]:
        """A request that has got tokens, or has ended, once there is one; None
        where nothing is to come."""
        while not self._queue and self.has_pending_requests():
            running = [r for r in self._requests.values() if r._answer and r._answer.finish_reason is None]
            if running:
                self._engine._wait_any()
            for r in self._requests.values():
                a = r._answer
                if a is None or r._ready or not r._news():
                    continue
                r._ready = a.finish_reason is not None  # for the last time
                self._queue.append(r)
        return self._queue.popleft() if self._queue else None
