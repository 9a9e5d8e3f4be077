"""Models: opening, generating, what it took."""

from __future__ import annotations

import collections
import collections.abc
import json
import os
import time

from ._ids import to_ids, to_list
from ._native import (
    ClosedError, GenaiError, Handle, InvalidError, StateError, Tree, UnsupportedError, check, ffi, lib, model_folder,
    new_error, on_log, path_bytes,
)
from ._text import Tokenizer, text_bytes

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any, AsyncIterator, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

_PROVIDERS = {
    "cpu": {"executor": "cpu_ref:captured", "stream": "cpu_ref", "barrier": "cpu_ref"},
    "cuda": {"executor": "cuda_ep:captured", "stream": "cuda_ep", "barrier": "cuda_ep", "pager": "pager_async"},
}
_SEARCH = {
    "do_sample": bool, "temperature": float, "top_k": int, "top_p": float, "min_p": float,
    "repetition_penalty": float, "presence_penalty": float, "frequency_penalty": float,
    "no_repeat_ngram_size": int, "min_length": int, "max_length": int, "random_seed": int,
    "batch_size": int, "num_beams": int, "num_return_sequences": int, "early_stopping": bool,
    "length_penalty": float, "diversity_penalty": float, "past_present_share_buffer": bool, "chunk_size": int,
}
_SLICE_S = 0.2  # of a prompt, between two looks for an interrupt


if TYPE_CHECKING:

    class Info(NamedTuple):
        """What a model is, and the defaults of its genai_config.json."""

        type: str
        vocab_size: int
        model_context: int
        context: int
        weights_bytes: int
        kv_bytes_per_position: int
        eos: Tuple[int, ...]
        bos: Optional[int]
        pad: Optional[int]
        all_logits: bool
        chunk: int
        any_cut: bool
        search: Dict[str, Any]


    class Statistics(NamedTuple):
        """What a model took so far; bytes and seconds."""

        executor: str
        stream: str
        barrier: str
        pager: str
        load_s: float
        host_peak_bytes: int
        host_pinned_bytes: int
        device_limit_bytes: int
        device_peak_bytes: int
        device_used_bytes: int
        weight_budget_bytes: int
        weights_bytes: int
        pinned_bytes: int
        ring_bytes: int
        in_place_bytes: int
        streamed_bytes_per_token: int
        h2d_bytes: int
        captures: int
        replays: int
        simulated_ns: int
        fallbacks: Dict[str, int]

    class Fit(NamedTuple):
        """What a model takes: genai_fit of <genai/genai.h>."""

        limit_bytes: int
        budget_bytes: int
        context: int
        weights_bytes: int
        pinned_bytes: int
        ring_bytes: int
        in_place_bytes: int
        streamed_bytes: int
        cache_bytes: int
        plan_bytes: int
        session_bytes: int
        driver_bytes: int
        device_bytes: int
        least_bytes: int
        host_bytes: int
        step_ns: int
        serial_ns: int
        resident_ns: int
        read_bytes: int
        read_in_place_bytes: int
        page_bytes: int
        ring_slots: int
        sequences: int
        cache_positions: int
        copy_bytes: int
        copies: int
        chunk: int

else:
    Info = collections.namedtuple("Info", (
        "type vocab_size model_context context weights_bytes kv_bytes_per_position eos bos pad "
        "all_logits chunk any_cut search "
    ))
    Statistics = collections.namedtuple("Statistics", (
        "executor stream barrier pager load_s host_peak_bytes host_pinned_bytes device_limit_bytes "
        "device_peak_bytes device_used_bytes weight_budget_bytes weights_bytes pinned_bytes "
        "ring_bytes in_place_bytes streamed_bytes_per_token h2d_bytes captures replays simulated_ns "
        "fallbacks "
    ))
    Fit = collections.namedtuple("Fit", (
        "limit_bytes budget_bytes context weights_bytes pinned_bytes ring_bytes in_place_bytes "
        "streamed_bytes cache_bytes plan_bytes session_bytes driver_bytes device_bytes least_bytes "
        "host_bytes step_ns serial_ns resident_ns read_bytes read_in_place_bytes page_bytes "
        "ring_slots sequences cache_positions copy_bytes copies chunk "
    ))


def fit(path: Any, sequences: int = 0, **options: Any) -> Fit:
    """What a model would take of the device, before its weights are read; options
    as those of Model.  sequences: that share the steps of an Engine."""
    c = path if isinstance(path, Config) else Config(path, **options)
    f, err = ffi.new("struct genai_fit *"), new_error()
    f.size = ffi.sizeof("struct genai_fit")
    if sequences:
        many = ffi.new("struct genai_engine_options *")
        many.size = ffi.sizeof("struct genai_engine_options")
        many.max_sequences = sequences
        tree, rt = open_runtime(c)
        with tree:
            check(lib.genai_engine_fit(rt.get(), path_bytes(c.path), many, f, err), err)
    else:
        o = _Open(c, 2, None)
        rt = o.rt
        with o.tree:
            check(lib.genai_model_get_fit(o.model.get(), f, err), err)
    rt.close()
    return Fit._make([int(getattr(f, name)) for name in Fit._fields])


class Config:
    """A model folder, and the keys of genai.ini that shall win over the file.

    Keys of [runtime] are arguments by their names; those of modules are "module.key"
    in sets, as --set has them."""

    def __init__(
        self, path: Any, *, config: Any = None, sets: Optional[Dict[str, Any]] = None, **keys: Any
    ) -> None:
        self.path = model_folder(os.fspath(path))
        self.file = None if config is None else os.fspath(config)
        self.sets: Dict[str, Any] = {}
        self.search: Dict[str, Any] = {}
        for k, v in keys.items():
            self.sets["runtime." + k] = v
        for k, v in (sets or {}).items():
            self[k] = v

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError("a key is a str, not %s" % type(key).__name__)
        if "." not in key:
            key = "runtime." + key
        elif not key.startswith(("runtime.", "module.")):
            key = "module." + key
        self.sets[key] = value

    def lines(self) -> List[bytes]:
        out = []
        for k, v in self.sets.items():
            if isinstance(v, bool):
                v = "on" if v else "off"
            if not isinstance(v, (str, int, float)):
                raise TypeError("%s is a str or a number, not %s" % (k, type(v).__name__))
            b = text_bytes("%s=%s" % (k, v))
            if b"\0" in b:
                raise ValueError("%s holds a zero byte" % k)
            out.append(b)
        return out

    # ---- the vocabulary of onnxruntime-genai ----

    def clear_providers(self) -> None:
        for k in ("executor", "stream", "barrier", "pager"):
            self.sets.pop("runtime." + k, None)

    def append_provider(self, name: str) -> None:
        known = _PROVIDERS.get(str(name).lower().replace("executionprovider", ""))
        if known is None:
            raise UnsupportedError("there is no provider %s: cpu, cuda" % name)
        for k, v in known.items():
            self.sets.setdefault("runtime." + k, v)

    def set_provider_option(self, provider: str, key: str, value: Any) -> None:
        if key == "device_id":
            self.sets["runtime.device"] = value
        elif key == "enable_cuda_graph" and "runtime.executor" in self.sets:
            how = "eager" if str(value).lower() in ("0", "false") else "captured"
            self.sets["runtime.executor"] = self.sets["runtime.executor"].split(":")[0] + ":" + how
        else:
            raise UnsupportedError("%s: there is no option %s: device_id, enable_cuda_graph" % (provider, key))

    def overlay(self, text: str) -> None:
        """Defaults of "search", over those of genai_config.json."""
        j = json.loads(text)
        if not isinstance(j, dict) or set(j) - {"search"} or not isinstance(j.get("search", {}), dict):
            raise UnsupportedError('an overlay has "search" and no more')
        self.search.update(j.get("search", {}))


class Completion(str):
    """A generated text; a str that knows where it comes from."""

    prompt_ids: List[int]
    ids: List[int]
    finish_reason: str  # eos, stop, length
    prompt_s: float
    decode_s: float

    @property
    def tokens_per_s(self) -> float:
        n = len(self.ids) - 1
        return n / self.decode_s if n > 0 and self.decode_s > 0 else 0.0


def open_runtime(c: Config) -> Tuple[Tree, Handle]:
    """The configuration read, the device up."""
    tree = Tree()
    keep: List[Any] = [ffi.new("char[]", x) for x in c.lines()]
    sets = ffi.new("const char *[]", keep)
    path = ffi.NULL if c.file is None else ffi.new("char[]", path_bytes(c.file))
    o = ffi.new("struct genai_runtime_options *")
    o.size = ffi.sizeof("struct genai_runtime_options")
    o.config_path, o.sets, o.n_sets, o.log = path, sets, len(keep), on_log
    rt, err = ffi.new("struct genai_runtime **"), new_error()
    with tree:
        check(lib.genai_open(o, rt, err), err)
    return tree, Handle(tree, lib.genai_close, rt[0], "runtime")


class _Open:
    """One runtime with one model."""

    def __init__(self, c: Config, flags: int, progress: Any) -> None:
        self.tree, self.rt = open_runtime(c)
        err = new_error()
        m = ffi.new("struct genai_model **")
        mo = ffi.new("struct genai_model_options *")
        mo.size = ffi.sizeof("struct genai_model_options")
        mo.flags = flags

        # a thread's signals are heard between the parts of the loading
        def step(_ctx: Any, what: Any, done: int, total: int) -> int:
            if progress is not None and progress(ffi.string(what).decode(), done, total):
                return 1
            return 0

        call = ffi.callback("int32_t(void *, const char *, uint64_t, uint64_t)", step, -1, self.tree.failed_callback)
        mo.progress = call
        rc = 0
        with self.tree:
            rc = lib.genai_model_open(self.rt.get(), path_bytes(c.path), mo, m, err)
        check(rc, err)
        self.model = Handle(self.tree, lib.genai_model_close, m[0], "model", self.rt)
        mo.progress = ffi.NULL


class Sequence_:
    """Tokens, and how many of them the device has seen."""

    def __init__(self, model: "Model") -> None:
        self._m = model
        self._tree = model._tree
        out, err = ffi.new("struct genai_session **"), new_error()
        with self._tree:
            check(lib.genai_session_open(model._model.get(), out, err), err)
        self._s = Handle(self._tree, lib.genai_session_close, out[0], "generator", model._model)
        self.tokens: List[int] = []
        self._from_device = False  # the last token is one that next() gave
        self._unsure = False  # a call was interrupted: the device may be further

    @property
    def open(self) -> bool:
        return self._s.open

    def close(self) -> None:
        self._s.close()

    def _get(self) -> Any:
        return self._s.get()

    def length(self) -> int:
        with self._tree:
            return int(lib.genai_session_length(self._get()))

    def reset(self) -> None:
        self.rewind(0)

    def rewind(self, n: int) -> None:
        if n < 0 or n > len(self.tokens):
            raise InvalidError("cannot rewind to %d: there are %d tokens" % (n, len(self.tokens)))
        err = new_error()
        with self._tree:
            s = self._get()
            # the last one is computed again, because its logits are wanted
            to = min(max(n - 1, 0), lib.genai_session_length(s))
            check(lib.genai_session_rewind(s, to, err), err)
        del self.tokens[n:]
        self._from_device = self._unsure = False

    def _slice(self) -> Tuple[int, bool]:
        i = self._m.info
        return i.chunk, i.any_cut and not self._m.statistics().ring_bytes

    def _append(self, p: Any, n: int, at_once: bool = False) -> None:
        err = new_error()
        if n <= 1 or at_once:
            with self._tree:
                check(lib.genai_session_append(self._get(), p, n, err), err)
            return
        most, may_cut = self._slice()
        k = min(most, 128) if may_cut else most
        done = 0
        before = time.monotonic()
        while done < n:
            part = min(k, n - done)
            with self._tree:
                check(lib.genai_session_append(self._get(), p + done, part, err), err)
            done += part
            now = time.monotonic()
            if may_cut:
                k = int(min(max(8, part * _SLICE_S / max(now - before, 1e-9)), 4 * k, most))
            before = now

    def append(self, ids: Any, at_once: bool = False) -> None:
        """Append and compute, all of it or nothing; at_once: in one step, at most
        a chunk, so that the logits are those of all ids."""
        p, n, keep = to_ids(ids)
        self.sync()
        self._unsure = True
        self._append(p, n, at_once)
        self.tokens.extend(keep.tolist())
        self._from_device = self._unsure = False

    def sync(self) -> None:
        """Compute what was chosen and not computed yet."""
        if self._unsure:
            self.rewind(len(self.tokens))
            self._unsure = False
        n = self.length()
        if n < len(self.tokens):
            p, count, _keep = to_ids(self.tokens[n:])
            self._append(p, count)
            self._from_device = False

    def next(self, ahead: bool) -> int:
        """The most probable token; the device chooses it."""
        if not self._from_device or self._unsure:
            self.sync()
        out, err = ffi.new("int64_t *"), new_error()
        self._unsure = True
        with self._tree:
            check(lib.genai_session_next(self._get(), int(ahead), out, err), err)
        self.tokens.append(out[0])
        self._from_device = True
        self._unsure = False
        return int(out[0])

    def logits(self, rows: int = 1) -> Any:
        """The last rows of the last append: an array [rows, vocabulary]."""
        import numpy as np

        self.sync()
        a = np.empty((rows, self._m.info.vocab_size), dtype=np.float32)
        n, err = ffi.new("size_t *"), new_error()
        with self._tree:
            check(
                lib.genai_session_logits(self._get(), ffi.cast("float *", ffi.from_buffer(a)), rows, n, err), err
            )
        return a[: n[0]]


def sampling_of(search: Dict[str, Any], seed_plus: int = 0) -> Any:
    """Search options as the library has them."""
    p = ffi.new("struct genai_sampling *")
    p.size = ffi.sizeof("struct genai_sampling")
    p.do_sample = bool(search["do_sample"])
    p.temperature, p.top_p, p.min_p = search["temperature"], search["top_p"], search["min_p"]
    p.repetition_penalty = search["repetition_penalty"]
    p.presence_penalty, p.frequency_penalty = search["presence_penalty"], search["frequency_penalty"]
    p.top_k, p.no_repeat_ngram = search["top_k"], search["no_repeat_ngram_size"]
    p.min_length = search["min_length"]
    seed = search.get("random_seed")
    if seed is None or seed < 0:
        seed = int.from_bytes(os.urandom(8), "little")
    p.seed = (seed + seed_plus) % 2**64
    return p


class Sampler:
    """The choice of the next token, by docs/SAMPLING.md."""

    def __init__(self, info: Info, search: Dict[str, Any], eos: Sequence[int], seed_plus: int = 0) -> None:
        p = sampling_of(search, seed_plus)
        out, err = ffi.new("struct genai_sampler **"), new_error()
        check(lib.genai_sampler_open(p, info.vocab_size, list(eos), len(eos), out, err), err)
        self._s = ffi.gc(out[0], lib.genai_sampler_close)
        self.greedy = bool(lib.genai_sampler_is_greedy(self._s))

    def accept(self, ids: Any) -> None:
        p, n, _keep = to_ids(ids)
        err = new_error()
        check(lib.genai_sampler_accept(self._s, p, n, err), err)

    def rewind(self, n: int) -> None:
        lib.genai_sampler_rewind(self._s, n)

    def pick(self, logits: Any) -> int:
        """logits: a row of float32, which is changed."""
        out, err = ffi.new("int64_t *"), new_error()
        check(lib.genai_sampler_pick(self._s, ffi.cast("float *", ffi.from_buffer(logits)), out, err), err)
        return int(out[0])


def check_search(options: Dict[str, Any]) -> Dict[str, Any]:
    """Known options, of their types."""
    out = {}
    for k, v in options.items():
        kind = _SEARCH.get(k)
        if kind is None:
            raise InvalidError("there is no search option %s: %s" % (k, ", ".join(sorted(_SEARCH))))
        if isinstance(v, bool) and kind is not bool or not isinstance(v, (int, float)) and not hasattr(v, "__index__"):
            raise TypeError("%s is %s, not %r" % (k, "a number" if kind is not bool else "a bool", v))
        out[k] = kind(v)
    for k in ("num_beams", "num_return_sequences"):
        if out.get(k, 1) != 1:
            raise UnsupportedError("%s is 1: one sequence a prompt" % k)
    return out


class Model:
    """A model folder, opened.

    >>> model = Model(folder, context=64)
    >>> len(model.generate([1, 17, 42], max_new_tokens=4, greedy=True, ignore_eos=True).ids)
    4
    """

    def __init__(
        self, path: Union[Any, Config], *, all_logits: bool = False, progress: Any = None, config: Any = None,
        sets: Optional[Dict[str, Any]] = None, **keys: Any,
    ) -> None:
        if isinstance(path, Config):
            if config is not None or sets or keys:
                raise TypeError("the keys are in the Config")
            c = path
        else:
            c = Config(path, config=config, sets=sets, **keys)
        o = _Open(c, 1 if all_logits else 0, progress)
        self._tree, self._rt, self._model = o.tree, o.rt, o.model
        self.config = c
        self._search = check_search(c.search)
        folder = c.path
        self.folder = os.path.dirname(folder) or "." if folder.endswith(".onnx") else folder
        self.info = self._get_info()
        self._idle: Optional[Sequence_] = None
        self._tok: Optional[Tokenizer] = None

    # ---- life ----

    def close(self) -> None:
        """Close it and what was made from it."""
        self._idle = None
        self._rt.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _get_info(self) -> Info:
        i = ffi.new("struct genai_model_info *")
        i.size = ffi.sizeof("struct genai_model_info")
        with self._tree:
            check(lib.genai_model_get_info(self._model.get(), i))
        top_k = 0 if i.top_k > i.vocab_size else int(i.top_k)
        search = {
            "do_sample": bool(i.do_sample), "temperature": i.temperature, "top_k": top_k, "top_p": i.top_p,
            "min_p": 0.0, "repetition_penalty": i.repetition_penalty, "presence_penalty": 0.0,
            "frequency_penalty": 0.0, "no_repeat_ngram_size": int(i.no_repeat_ngram),
            "min_length": int(i.min_length), "max_length": int(i.max_length),
        }
        return Info(
            ffi.string(i.type).decode("utf-8", "replace"), i.vocab_size, i.model_context, i.context, i.weights_bytes,
            i.kv_bytes_per_position, tuple(i.eos[k] for k in range(i.n_eos)), None if i.bos < 0 else i.bos,
            None if i.pad < 0 else i.pad, bool(i.all_logits), i.chunk, bool(i.any_cut), search,
        )

    def statistics(self) -> Statistics:
        s, err = ffi.new("struct genai_stats *"), new_error()
        s.size = ffi.sizeof("struct genai_stats")
        with self._tree:
            check(lib.genai_model_get_stats(self._model.get(), s, err), err)
        values = []
        for name in Statistics._fields[:-1]:
            v = getattr(s, name)
            values.append(v if isinstance(v, (int, float)) else ffi.string(v).decode("utf-8", "replace"))
        reasons = {
            ffi.string(s.fallbacks[k].reason).decode("utf-8", "replace"): int(s.fallbacks[k].count)
            for k in range(s.n_fallbacks)
        }
        return Statistics._make(values + [reasons])

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tok is None:
            self._tok = Tokenizer(self)
        return self._tok

    # ---- the vocabulary of onnxruntime-genai ----

    @property
    def type(self) -> str:
        return self.info.type

    @property
    def device_type(self) -> str:
        return "cuda" if self.statistics().stream.startswith("cuda") else "cpu"

    def create_multimodal_processor(self) -> Any:
        raise UnsupportedError("models of text only: there is no multimodal processor")

    # ---- generating ----

    def _search_of(
        self, greedy: bool, temperature: Any, top_k: Any, top_p: Any, min_p: Any, repetition_penalty: Any,
        presence_penalty: Any, frequency_penalty: Any, seed: Any,
    ) -> Dict[str, Any]:
        given = {
            "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
            "repetition_penalty": repetition_penalty, "presence_penalty": presence_penalty,
            "frequency_penalty": frequency_penalty, "random_seed": seed,
        }
        given = {k: v for k, v in given.items() if v is not None}
        s = dict(self.info.search)
        s.update(self._search)
        s.update(check_search(given))
        if any(k in given for k in ("temperature", "top_k", "top_p", "min_p", "random_seed")):
            s["do_sample"] = True  # to say how to draw is a wish to draw
        if greedy:
            s["do_sample"] = False
        return s

    def prompt_ids(self, prompt: Any, chat: bool = False) -> List[int]:
        """The ids of a prompt: a text; a conversation, as messages (or, with chat,
        a text that is the user's turn); or ids."""
        if isinstance(prompt, str):
            if chat:
                return self.tokenizer.chat_ids([{"role": "user", "content": prompt}])
            return self.tokenizer.ids(prompt)
        if isinstance(prompt, (list, tuple)) and prompt and isinstance(prompt[0], dict):
            return self.tokenizer.chat_ids(prompt)
        return to_list(prompt)

    def stream(
        self, prompt: Any, *, chat: bool = False, max_new_tokens: int = 256, stop: Union[str, Sequence[str]] = (),
        ignore_eos: bool = False, greedy: bool = False, temperature: Optional[float] = None,
        top_k: Optional[int] = None, top_p: Optional[float] = None, min_p: Optional[float] = None,
        repetition_penalty: Optional[float] = None, presence_penalty: Optional[float] = None,
        frequency_penalty: Optional[float] = None, seed: Optional[int] = None,
    ) -> "Stream":
        """Text as it comes: iterate; result is there at the end."""
        search = self._search_of(
            greedy, temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, seed
        )
        stops = [stop] if isinstance(stop, str) else list(stop)
        for s in stops:
            if not isinstance(s, str) or not s:
                raise TypeError("a stop is a text that is not empty, not %r" % (s,))
        if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 0:
            raise TypeError("max_new_tokens is a number of tokens, not %r" % (max_new_tokens,))
        self._model.get()
        return Stream(self, self.prompt_ids(prompt, chat), search, max_new_tokens, stops, ignore_eos)

    def generate(self, prompt: Any, **options: Any) -> Completion:
        """Continue a prompt; options as those of stream."""
        s = self.stream(prompt, **options)
        for _ in s:
            pass
        return s.result

    async def astream(self, prompt: Any, **options: Any) -> AsyncIterator[str]:
        """stream() for async code: the work is done in a thread."""
        import asyncio

        loop = asyncio.get_running_loop()
        end = object()
        s = await loop.run_in_executor(None, lambda: iter(self.stream(prompt, **options)))
        try:
            while True:
                piece = await loop.run_in_executor(None, next, s, end)
                if piece is end:
                    return
                yield piece  # type: ignore[misc]
        finally:
            await loop.run_in_executor(None, s.close)

    async def agenerate(self, prompt: Any, **options: Any) -> Completion:
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(None, lambda: self.generate(prompt, **options))

    def logits(self, ids: Any, all: bool = False) -> Any:
        """The logits behind a sequence of ids, float32: [vocabulary], or, with all
        (and all_logits when the model was opened), [ids, vocabulary]."""
        import numpy as np

        values = to_list(ids)
        if not all:
            q = self._take()
            try:
                q.append(values)
                return q.logits()[-1]
            finally:
                self._give(q)
        if not self.info.all_logits:
            raise StateError("open the model with all_logits=True")
        q = self._take()
        try:
            parts = []
            for at in range(0, len(values), self.info.chunk):
                part = values[at : at + self.info.chunk]
                q.append(part, at_once=True)
                parts.append(q.logits(len(part)))
            return np.concatenate(parts) if parts else np.empty((0, self.info.vocab_size), np.float32)
        finally:
            self._give(q)

    # A session has memory of its own: one is kept for the next call.
    def _take(self) -> Sequence_:
        q, self._idle = self._idle, None
        if q is None:
            return Sequence_(self)
        q.reset()
        return q

    def _give(self, q: Sequence_) -> None:
        # one that the garbage collector found with its stream is closed already
        if self._idle is None and q.open:
            self._idle = q
        else:
            q.close()


class Stream(collections.abc.Iterator):
    """An iterator over the pieces of a text."""

    def __init__(
        self, model: Model, ids: List[int], search: Dict[str, Any], most: int, stops: List[str], ignore_eos: bool
    ) -> None:
        self.prompt_ids = ids
        self.ids: List[int] = []
        self.text = ""
        self.finish_reason: Optional[str] = None
        self._prompt_s = self._decode_s = 0.0
        self._run = self._pieces(model, search, most, stops, ignore_eos)

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> str:
        return next(self._run)

    def close(self) -> None:
        """Stop: no more is computed."""
        self._run.close()

    @property
    def result(self) -> Completion:
        """All of it, so far."""
        c = Completion(self.text)
        c.prompt_ids, c.ids, c.finish_reason = self.prompt_ids, self.ids, self.finish_reason or "interrupted"
        c.prompt_s, c.decode_s = self._prompt_s, self._decode_s
        return c

    def _pieces(self, model: Model, search: Dict[str, Any], most: int, stops: List[str], ignore_eos: bool) -> Any:
        info = model.info
        limit = min(info.context, search["max_length"] or info.context)
        most = min(most, max(limit - len(self.prompt_ids), 0))
        if not self.prompt_ids:
            raise InvalidError("the prompt is empty")
        eos = () if ignore_eos else info.eos
        sampler = Sampler(info, search, eos)
        try:
            detok: Any = model.tokenizer.stream()
        except GenaiError:
            detok = None  # ids are given, and a folder may have no tokenizer
        held = ""
        q = model._take()
        try:
            begin = time.monotonic()
            q.append(self.prompt_ids)
            if not sampler.greedy:
                sampler.accept(self.prompt_ids)
            self._prompt_s = time.monotonic() - begin
            begin = time.monotonic()
            self.finish_reason = "length"
            for i in range(most):
                token = self._choose(q, sampler, i + 1 < most)
                self.ids.append(token)
                self._decode_s = time.monotonic() - begin
                if token in eos:
                    self.finish_reason = "eos"
                    break
                held += detok.decode(token) if detok is not None else ""
                found = [at for at in (held.find(s) for s in stops) if at >= 0]
                if found:
                    held = held[: min(found)]
                    self.finish_reason = "stop"
                    break
                n = len(held) - _may_begin(held, stops)
                if n:
                    piece, held = held[:n], held[n:]
                    self.text += piece
                    yield piece
            if self.finish_reason != "stop" and detok is not None:
                held += detok.flush()
                found = [at for at in (held.find(s) for s in stops) if at >= 0]
                if found:
                    held = held[: min(found)]
                    self.finish_reason = "stop"
            self._decode_s = time.monotonic() - begin
            if held:
                self.text += held
                yield held
        except GeneratorExit:
            self.finish_reason = "interrupted"
            raise
        finally:
            model._give(q)

    @staticmethod
    def _choose(q: Sequence_, sampler: Sampler, ahead: bool) -> int:
        if sampler.greedy:
            return q.next(ahead)
        token = sampler.pick(q.logits()[0])
        q.tokens.append(token)
        q._from_device = False
        return token


def _may_begin(text: str, stops: Sequence[str]) -> int:
    """How many of the last characters could be the beginning of a stop."""
    most = 0
    for s in stops:
        for k in range(min(len(s) - 1, len(text)), most, -1):
            if text.endswith(s[:k]):
                most = k
                break
    return most


__all__ = [
    "ClosedError", "Completion", "Config", "Fit", "Info", "Model", "Sampler", "Sequence_", "Statistics", "Stream",
    "check_search", "fit",
]
