"""Text: tokenizers, streams of text, chat templates."""

from __future__ import annotations

import json
import os
import threading

from ._ids import take_ids, to_ids, to_list
from ._native import NotFoundError, Owned, check, ffi, lib, new_error, path_bytes

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

NO_SPECIAL, SPECIALS_AS_TEXT, KEEP_SPECIAL = 1, 2, 4
_CONTINUE, _NO_ANSWER = 1, 2


def text_bytes(text: Any) -> bytes:
    """UTF-8 of a str, or bytes as they are."""
    if isinstance(text, (bytes, bytearray)):
        return bytes(text)
    if not isinstance(text, str):
        raise TypeError("a text is a str, not %s" % type(text).__name__)
    return text.encode("utf-8")


class TokenizerStream:
    """Text as ids come; one thread at a time."""

    def __init__(self, tokenizer: "Tokenizer", keep_special: bool = False) -> None:
        if not isinstance(tokenizer, Tokenizer):
            raise TypeError("a TokenizerStream is made from a Tokenizer, not %s" % type(tokenizer).__name__)
        out, err = ffi.new("struct genai_detok **"), new_error()
        tok = tokenizer._tok.get()
        check(lib.genai_detok_open(tok, KEEP_SPECIAL if keep_special else 0, out, err), err)
        self._borrowed = tok
        self._d = Owned(out[0], lib.genai_detok_close, "stream")
        self._lock = threading.Lock()

    def _give(self, call: Any, *args: Any) -> str:
        with self._lock:
            text, n, err = ffi.new("const char **"), ffi.new("size_t *"), new_error()
            check(call(self._d.get(), *args, text, n, err), err)
            return bytes(ffi.buffer(text[0], n[0])).decode("utf-8") if n[0] else ""

    def decode(self, token: Any) -> str:
        """The text that this id completes, in whole characters; often empty.  An
        integer, or an array or a list of one or more."""
        if hasattr(token, "__index__") and not getattr(token, "ndim", 0):
            return self._give(lib.genai_detok_push, int(token))
        return "".join(self._give(lib.genai_detok_push, t) for t in to_list(token))

    def flush(self) -> str:
        """What is left: an incomplete character becomes U+FFFD."""
        return self._give(lib.genai_detok_flush)

    def close(self) -> None:
        with self._lock:
            self._d.close()


class Tokenizer:
    """Text to ids and back; safe on any thread.  From a model, its folder, or a
    tokenizer.json."""

    def __init__(self, source: Any) -> None:
        folder = getattr(source, "folder", source)
        self.folder = os.fspath(folder)
        self._info = getattr(source, "info", None)
        out, err = ffi.new("struct genai_tokenizer **"), new_error()
        check(lib.genai_tokenizer_open(path_bytes(folder), out, err), err)
        self._tok = Owned(out[0], lib.genai_tokenizer_close, "tokenizer")
        self._templates: Dict[Any, Any] = {}

    def close(self) -> None:
        self._tok.close()

    def __len__(self) -> int:
        return int(lib.genai_tokenizer_size(self._tok.get()))

    # ---- ids ----

    def token_id(self, token: str) -> Optional[int]:
        """The id of an exact token; None if there is none."""
        i = lib.genai_tokenizer_id(self._tok.get(), text_bytes(token))
        return None if i < 0 else int(i)

    def is_special(self, token_id: int) -> bool:
        return bool(lib.genai_tokenizer_is_special(self._tok.get(), token_id))

    def _of_model(self, key: str, default: Any) -> Any:
        return getattr(self._info, key) if self._info is not None else default

    @property
    def bos_token_id(self) -> Optional[int]:
        return self._of_model("bos", None)

    @property
    def pad_token_id(self) -> Optional[int]:
        return self._of_model("pad", None)

    @property
    def eos_token_ids(self) -> List[int]:
        return list(self._of_model("eos", []))

    def ids(self, text: Union[str, bytes], special: bool = True, specials_as_text: bool = False) -> List[int]:
        """The ids of a text: with the tokenizer's own additions (special), and
        with what spells a special token being one, unless it shall be text."""
        b = text_bytes(text)
        flags = (0 if special else NO_SPECIAL) | (SPECIALS_AS_TEXT if specials_as_text else 0)
        out, n, err = ffi.new("int64_t **"), ffi.new("size_t *"), new_error()
        check(lib.genai_tokenizer_encode(self._tok.get(), b, len(b), flags, out, n, err), err)
        return take_ids(lib, out[0], n[0])

    def text(self, ids: Any, keep_special: bool = False) -> str:
        """The text of a whole sequence of ids."""
        p, n, _keep = to_ids(ids)
        out, bytes_, err = ffi.new("char **"), ffi.new("size_t *"), new_error()
        check(lib.genai_tokenizer_decode(self._tok.get(), p, n, KEEP_SPECIAL if keep_special else 0, out, bytes_, err), err)
        try:
            return bytes(ffi.buffer(out[0], bytes_[0])).decode("utf-8") if bytes_[0] else ""
        finally:
            lib.genai_free(out[0])

    def stream(self, keep_special: bool = False) -> TokenizerStream:
        return TokenizerStream(self, keep_special)

    # ---- conversations ----

    def _template(self, text: Optional[str], tools: bool) -> Any:
        key = text if text else tools
        found = self._templates.get(key)
        if found is None:
            out, err = ffi.new("struct genai_template **"), new_error()
            if text:
                b = text_bytes(text)
                check(lib.genai_template_parse(b"template", b, len(b), out, err), err)
            else:
                check(lib.genai_template_open(path_bytes(self.folder), int(tools), out, err), err)
            found = self._templates[key] = ffi.gc(out[0], lib.genai_template_close)
        return found

    def has_template(self) -> bool:
        try:
            self._template(None, False)
        except NotFoundError:
            return False
        return True

    def _chat(
        self, messages: Any, tools: Any, add_generation_prompt: bool, continue_final: bool,
        template: Optional[str], variables: Optional[Dict[str, Any]],
    ) -> Tuple[Any, bytes, Any]:
        v: Dict[str, Any] = dict(variables or {})
        v["messages"] = json.loads(messages) if isinstance(messages, (str, bytes)) else list(messages)
        if tools:
            v["tools"] = json.loads(tools) if isinstance(tools, (str, bytes)) else list(tools)
        options = ffi.new("struct genai_chat_options *")
        options.size = ffi.sizeof("struct genai_chat_options")
        options.flags = (_CONTINUE if continue_final else 0) | (0 if add_generation_prompt else _NO_ANSWER)
        text = json.dumps(v, ensure_ascii=False).encode("utf-8")
        return self._template(template, bool(tools)), text, options

    def chat(
        self, messages: Any, *, tools: Any = None, add_generation_prompt: bool = True,
        continue_final: bool = False, template: Optional[str] = None, **variables: Any,
    ) -> str:
        """A conversation as a prompt: messages are dicts with "role" and
        "content", or that as JSON; more variables go to the template."""
        t, v, o = self._chat(messages, tools, add_generation_prompt, continue_final, template, variables)
        out, n, err = ffi.new("char **"), ffi.new("size_t *"), new_error()
        check(lib.genai_template_chat(t, v, len(v), o, out, n, err), err)
        try:
            return bytes(ffi.buffer(out[0], n[0])).decode("utf-8") if n[0] else ""
        finally:
            lib.genai_free(out[0])

    def chat_ids(
        self, messages: Any, *, tools: Any = None, add_generation_prompt: bool = True,
        continue_final: bool = False, template: Optional[str] = None, **variables: Any,
    ) -> List[int]:
        """The same as ids.  What spells a special token in a message stays text."""
        t, v, o = self._chat(messages, tools, add_generation_prompt, continue_final, template, variables)
        out, n, err = ffi.new("int64_t **"), ffi.new("size_t *"), new_error()
        check(lib.genai_template_encode(t, self._tok.get(), v, len(v), o, out, n, err), err)
        return take_ids(lib, out[0], n[0])

    # ---- the vocabulary of onnxruntime-genai ----

    def encode(self, text: str) -> Any:
        """The ids as an array of int32."""
        import numpy as np

        return np.array(self.ids(text), dtype=np.int32)

    def decode(self, ids: Any) -> str:
        return self.text(ids)

    def encode_batch(self, texts: Iterable[str]) -> Any:
        """An array of a row a text, with pad_token_id on the left of the shorter
        ones."""
        import numpy as np

        rows = [self.ids(t) for t in texts]
        longest = max((len(r) for r in rows), default=0)
        pad = self.pad_token_id
        out = np.full((len(rows), longest), 0 if pad is None else pad, dtype=np.int32)
        for i, r in enumerate(rows):
            if r:
                out[i, longest - len(r) :] = r
        return out

    def decode_batch(self, rows: Sequence[Any]) -> List[str]:
        return [self.text(r) for r in rows]

    def to_token_id(self, token: str) -> int:
        i = self.token_id(token)
        if i is None:
            raise ValueError("there is no token %r" % token)
        return i

    def create_stream(self) -> TokenizerStream:
        return TokenizerStream(self)

    def apply_chat_template(
        self, messages: Any, tools: Any = None, add_generation_prompt: bool = True,
        template_str: Optional[str] = None, **variables: Any,
    ) -> str:
        return self.chat(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, template=template_str, **variables
        )
