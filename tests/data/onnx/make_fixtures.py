#!/usr/bin/env python3
"""make_fixtures.py - how the files beside it were made.

make_fixtures.py FOLDER... copies model.onnx of folders written by the model
builder of onnxruntime-genai, writes reference.onnx and tensor files with the
onnx package, and counts.inc with what that package finds in each model.
The weights of the copied models are not kept: tests make a data file of the
right length."""
import os
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

HERE = os.path.dirname(os.path.abspath(__file__))
rows = []


def count(path, data_bytes):
    g = onnx.load(path, load_external_data=False).graph
    constants = sum(n.op_type == "Constant" for n in g.node)
    rows.append('{"%s", %d, %d, %d, %d, %d},' % (
        os.path.basename(path), data_bytes, len(g.node) - constants,
        len(g.initializer) + constants, len(g.input), len(g.output)))


def reference():
    """Each type twice: typed fields, and raw_data of the same values."""
    values = [0, 1, 2, 3, 5]
    inits = []
    for name in ("FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 FLOAT16 DOUBLE "
                 "UINT32 UINT64 BFLOAT16 UINT4 INT4 BOOL").split():
        dtype = getattr(T, name)
        v = [x % 2 for x in values] if name == "BOOL" else list(values)
        if name.startswith(("INT", "FLOAT", "BFLOAT", "DOUBLE")):
            v[1] = -v[1]
        typed = helper.make_tensor("typed_" + name, dtype, [5], v)
        array = onnx.numpy_helper.to_array(typed)
        raw = onnx.numpy_helper.from_array(array, "raw_" + name)
        assert raw.HasField("raw_data") and not typed.HasField("raw_data")
        inits += [typed, raw]
    x = helper.make_tensor_value_info("x", T.FLOAT, ["n"])
    seq = helper.make_tensor_sequence_value_info("s", T.FLOAT, None)
    y = helper.make_tensor_value_info("y", T.FLOAT, ["n"])
    node = helper.make_node("Relu", ["x"], ["y"], name="r", doc_string="doc")
    g = helper.make_graph([node], "reference", [x, seq], [y], inits,
                          doc_string="text for people")
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 21)])
    m.ir_version = 10
    m.producer_name = "onnx"
    helper.set_model_props(m, {"key": "value"})
    onnx.checker.check_model(m)
    path = os.path.join(HERE, "reference.onnx")
    onnx.save(m, path)
    count(path, 0)


def tensors():
    a = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    t = onnx.numpy_helper.from_array(a, "raw")
    open(os.path.join(HERE, "raw.pb"), "wb").write(t.SerializeToString())
    t = helper.make_tensor("typed", T.INT64, [3], [-1, 0, 1 << 40])
    open(os.path.join(HERE, "typed.pb"), "wb").write(t.SerializeToString())


for folder in sys.argv[1:]:
    folder = folder.rstrip("/")
    target = os.path.join(HERE, os.path.basename(folder) + ".onnx")
    shutil.copyfile(os.path.join(folder, "model.onnx"), target)
    os.chmod(target, 0o644)
    count(target, os.path.getsize(os.path.join(folder, "model.onnx.data")))
reference()
tensors()
with open(os.path.join(HERE, "counts.inc"), "w") as f:
    f.write("/* name, data bytes, nodes, tensors, inputs, outputs */\n")
    f.write("\n".join(rows) + "\n")
