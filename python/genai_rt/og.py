"""The vocabulary of onnxruntime-genai.  Where a program says

    import onnxruntime_genai as og

this is instead

    import genai_rt.og as og
"""

from __future__ import annotations


from . import Config, Generator, GeneratorParams, Model, Tokenizer, TokenizerStream, __version__
from ._requests import Engine, Request
from ._native import HERE, UnsupportedError, log

import os as _os

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any


def is_cuda_available() -> bool:
    """Is the CUDA module here?  A device may still be missing."""
    return _os.path.exists(_os.path.join(HERE, "lib", "genai", "modules-1", "cuda_ep.so"))


def is_dml_available() -> bool:
    return False


def is_rocm_available() -> bool:
    return False


def is_openvino_available() -> bool:
    return False


def is_qnn_available() -> bool:
    return False


def is_webgpu_available() -> bool:
    return False


def set_log_options(**options: Any) -> None:
    """enabled: the logger genai_rt says something."""
    if "enabled" in options:
        log.disabled = not options["enabled"]


def register_execution_provider_library(name: str, _path: str) -> None:
    raise UnsupportedError("provider %s: modules are named by genai.ini" % name)


class Adapters:
    """There are none: merge them into the model."""

    def __init__(self, *_: Any) -> None:
        raise UnsupportedError("adapters: merge them into the model")


class Images:
    """There are none: models of text only."""

    def __init__(self, *_: Any) -> None:
        raise UnsupportedError("images: models of text only")

    @staticmethod
    def open(*_: Any) -> "Images":
        return Images()


class Audios(Images):
    """Likewise."""


__all__ = [
    "Adapters", "Audios", "Config", "Engine", "Generator", "GeneratorParams", "Images", "Model", "Request", "Tokenizer", "TokenizerStream", "__version__",
    "is_cuda_available", "is_dml_available", "is_openvino_available", "is_qnn_available", "is_rocm_available",
    "is_webgpu_available", "register_execution_provider_library", "set_log_options",
]
