"""GeneratorParams and Generator: the loop of onnxruntime-genai."""

from __future__ import annotations


from ._ids import to_list
from ._model import Model, Sampler, Sequence_, check_search
from ._native import InvalidError, StateError, UnsupportedError

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any, Dict, List


class GeneratorParams:
    """How to search."""

    def __init__(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise TypeError("GeneratorParams are made from a Model, not %s" % type(model).__name__)
        self.model = model
        self.search: Dict[str, Any] = dict(model.info.search)
        self.search.update(model._search)

    def set_search_options(self, **options: Any) -> None:
        self.search.update(check_search(options))

    def get_search_options(self) -> Dict[str, Any]:
        return dict(self.search)

    def try_graph_capture_with_max_batch_size(self, _size: int) -> None:
        """The configuration says what is recorded ([runtime] executor)."""

    def set_guidance(self, *_: Any, **__: Any) -> None:
        raise UnsupportedError("guidance: what is generated cannot be constrained")

    def set_model_input(self, name: str, _value: Any) -> None:
        raise UnsupportedError("input %s: models get tokens and no more" % name)


class _Row:
    def __init__(self, g: "Generator", i: int) -> None:
        info = g.model.info
        self.q = Sequence_(g.model)
        self.sampler = Sampler(info, g.search, info.eos, i)
        self.padding = 0  # of the tokens, those that only fill the array up
        self.done = False
        self.last = -1
        self.logits: Any = None

    def length(self) -> int:
        return self.padding + len(self.q.tokens)

    def append(self, ids: List[int]) -> None:
        self.q.append(ids)
        self.sampler.accept(ids)
        self.done = False
        self.logits = None

    def rewind(self, n: int) -> None:
        self.q.rewind(n)
        self.sampler.rewind(n)
        self.done = False
        self.logits = None


class Generator:
    """One sequence, or batch_size of them."""

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        if not isinstance(model, Model) or not isinstance(params, GeneratorParams):
            raise TypeError("a Generator is made from a Model and GeneratorParams")
        if params.model is not model:
            raise InvalidError("the parameters are another model's")
        self.model = model
        self.search = dict(params.search)
        n = int(self.search.get("batch_size", 1))
        if n < 1:
            raise InvalidError("batch_size is %d, not at least 1" % n)
        context = model.info.context
        self.max_length = min(self.search["max_length"] or context, context)
        self._rows = [_Row(self, i) for i in range(n)]

    def close(self) -> None:
        for r in self._rows:
            r.q.close()

    def __enter__(self) -> "Generator":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- tokens in ----

    def append_tokens(self, ids: Any) -> None:
        """A sequence of ids; for a batch, an array of a row each, whose shorter
        rows are filled up with pad_token_id on the left."""
        if len(self._rows) == 1:
            self._append([to_list(ids)])
            return
        rows = [to_list(r) for r in ids]
        if len(rows) == 1 and len(self._rows) > 1 or len(rows) != len(self._rows):
            raise InvalidError("%d rows for a batch of %d" % (len(rows), len(self._rows)))
        self._append(rows)

    def _append(self, rows: List[List[int]]) -> None:
        if any(not r for r in rows):
            raise InvalidError("there are no tokens to append")
        longest = max(r.length() for r in self._rows) + max(len(r) for r in rows)
        if longest > self.max_length:
            raise InvalidError("%d tokens are more than max_length %d" % (longest, self.max_length))
        pad = self.model.info.pad
        for r, ids in zip(self._rows, rows):
            k = 0
            if len(rows) > 1 and pad is not None and not r.q.tokens:
                while k < len(ids) - 1 and ids[k] == pad:
                    k += 1
            r.append(ids[k:])
            r.padding += k

    # ---- tokens out ----

    def is_done(self) -> bool:
        return all(r.done for r in self._rows)

    def generate_next_token(self) -> None:
        if any(not r.q.tokens for r in self._rows):
            raise StateError("there is nothing to continue: append tokens first")
        if self.is_done():
            raise StateError("the generator is done: rewind it, or append tokens")
        pad = self.model.info.pad
        for r in self._rows:
            if r.done:
                r.last = self.model.info.eos[0] if pad is None else pad
                continue
            # the token after the last one that may be is not computed
            ahead = r.length() + 1 < self.max_length
            if r.logits is not None:
                token = r.sampler.pick(r.logits)
                r.logits = None
            elif r.sampler.greedy:
                token = -1
            else:
                token = r.sampler.pick(r.q.logits()[0])
            if token < 0:
                token = r.q.next(ahead)
                r.sampler.accept([token])
            else:
                r.q.tokens.append(token)
                r.q._from_device = False
            r.last = token
            r.done = token in self.model.info.eos or r.length() >= self.max_length

    def get_next_tokens(self) -> Any:
        """The tokens of the last step, an array of int32, one a sequence."""
        import numpy as np

        return np.array([r.last for r in self._rows], dtype=np.int32)

    def get_sequence(self, index: int) -> Any:
        """Prompt and answer, an array of int32."""
        import numpy as np

        if not 0 <= index < len(self._rows):
            raise IndexError("sequence %d of %d" % (index, len(self._rows)))
        return np.array(self._rows[index].q.tokens, dtype=np.int32)

    def token_count(self) -> int:
        return max(r.length() for r in self._rows)

    def rewind_to(self, length: int) -> None:
        """Forget all but the first tokens."""
        if length < 0 or length > self.token_count():
            raise InvalidError("cannot rewind to %d: there are %d tokens" % (length, self.token_count()))
        for r in self._rows:
            n = min(max(length - r.padding, 0), len(r.q.tokens))
            r.rewind(n)
            if not length:
                r.padding = 0

    # ---- logits ----

    def get_logits(self) -> Any:
        """Of the last position: an array [batch, 1, vocabulary] of float32."""
        import numpy as np

        return np.stack([r.q.logits() if r.logits is None else r.logits[None].copy() for r in self._rows])

    def set_logits(self, logits: Any) -> None:
        """The next token is chosen from these."""
        import numpy as np

        a = np.asarray(logits)
        if a.dtype.kind not in "fiu":
            raise TypeError("logits are numbers, not %s" % a.dtype)
        shape = (len(self._rows), self.model.info.vocab_size)
        if a.size != shape[0] * shape[1]:
            raise InvalidError("logits have the shape %s, not %s" % (a.shape, (shape[0], 1, shape[1])))
        a = np.array(a, dtype=np.float32, order="C").reshape(shape)
        for r, row in zip(self._rows, a):
            r.logits = row

    def get_output(self, name: str) -> Any:
        if name != "logits":
            raise UnsupportedError("output %s: there is logits" % name)
        return self.get_logits()

    def set_runtime_option(self, key: str, _value: Any) -> None:
        raise UnsupportedError("there is no runtime option %s" % key)

    def set_inputs(self, _inputs: Any) -> None:
        raise UnsupportedError("models get tokens and no more: append_tokens")
