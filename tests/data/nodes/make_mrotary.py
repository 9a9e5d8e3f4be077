"""Node tests of MRotaryEmbedding: what onnxruntime's CPU kernel gives.  Needs
onnx, onnxruntime, numpy; writes folders here."""
import os

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(5)


def write(name, dims, section, **attrs):
    half = sum(section)
    feeds = {"x": rng.standard_normal(dims).astype("f"),
             "positions": rng.integers(0, 16, (3, dims[0], dims[-2]))}
    angles = np.outer(np.arange(16), 0.7 ** np.arange(half))
    stored = [numpy_helper.from_array(np.cos(angles).astype("f"), "cos"),
              numpy_helper.from_array(np.sin(angles).astype("f"), "sin")]
    node = helper.make_node("MRotaryEmbedding",
                            ["x", "positions", "cos", "sin"], ["y"],
                            name="turn", domain="com.microsoft",
                            mrope_section=section, **attrs)
    bound = [helper.make_tensor_value_info(
        k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in feeds.items()]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)
    graph = helper.make_graph([node], "g", bound, [out], stored)
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    want = ort.InferenceSession(
        model.SerializeToString(),
        providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    data = os.path.join(HERE, name, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(model, os.path.join(HERE, name, "model.onnx"))
    for i, (key, a) in enumerate(feeds.items()):
        onnx.save_tensor(numpy_helper.from_array(a, key),
                         os.path.join(data, f"input_{i}.pb"))
    onnx.save_tensor(numpy_helper.from_array(want, "y"),
                     os.path.join(data, "output_0.pb"))


write("mrotary_sections", (2, 3, 32), [2, 3, 3], mrope_layout=0, num_heads=2)
write("mrotary_turns", (1, 4, 64), [6, 5, 5], mrope_layout=1, num_heads=2)
write("mrotary_part", (1, 4, 48), [3, 3, 2], mrope_layout=1, num_heads=2,
      rotary_embedding_dim=16)
write("mrotary_heads", (2, 3, 4, 16), [4, 2, 2], mrope_layout=1)
write("mrotary_interleaved", (1, 4, 32), [4, 2, 2], mrope_layout=0,
      interleaved=1, num_heads=2)
