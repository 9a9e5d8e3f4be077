"""genai: models of text whose weights need not fit the GPU.

    import genai_rt
    model = genai_rt.Model("DIR", weight_budget="50%")
    print(model.generate("Why is the sky blue?", chat=True))

genai_rt.og has the vocabulary of onnxruntime-genai; docs/PYTHON.md has both."""

from __future__ import annotations

from ._engine import Answer, Engine
from ._generator import Generator, GeneratorParams
from ._model import Completion, Config, Fit, Info, Model, Statistics, Stream, fit
from ._native import (
    AbiError, BusyError, ClosedError, ConfigError, DeadlineError, DeviceError, ForkedError, FormatError, GenaiError,
    InterruptedLoad, InvalidError, IOFailed, LimitError, ModuleError, NoDeviceError, NoMemoryError, NotFoundError,
    OrderError, StateError, UnsupportedError,
)
from ._text import Tokenizer, TokenizerStream
from ._version import __version__

__all__ = [
    "AbiError", "Answer", "BusyError", "ClosedError", "Completion", "Config", "ConfigError", "DeadlineError", "DeviceError", "Engine", "Fit",
    "ForkedError", "FormatError", "GenaiError", "Generator", "GeneratorParams", "IOFailed", "Info", "InterruptedLoad",
    "InvalidError", "LimitError", "Model", "ModuleError", "NoDeviceError", "NoMemoryError", "NotFoundError",
    "OrderError", "StateError", "Statistics", "Stream", "Tokenizer", "TokenizerStream", "UnsupportedError",
    "__version__", "fit",
]
