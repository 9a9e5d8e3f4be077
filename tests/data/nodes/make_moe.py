"""Node tests of MoE and QMoE: what onnxruntime's CPU kernels give, and where
they have none, numpy.  Needs onnx, onnxruntime, numpy; writes folders here."""
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

E, K = 4, 2
HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(13)


def floats(*dims):
    return rng.standard_normal(dims).astype("f")


def model(op, inputs, attrs, rows, width):
    names, stored, bound, feeds = [], [], [], {}
    for i, a in enumerate(inputs):
        names.append("" if a is None else f"in{i}")
        if a is None:
            continue
        if i < 2 or i == 14:
            kind = helper.np_dtype_to_tensor_dtype(a.dtype)
            bound.append(helper.make_tensor_value_info(names[-1], kind, a.shape))
            feeds[names[-1]] = a
        else:
            stored.append(numpy_helper.from_array(a, names[-1]))
    node = helper.make_node(op, names, ["y"], name="experts",
                            domain="com.microsoft", **attrs)
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, (rows, width))
    graph = helper.make_graph([node], op, bound, [out], stored)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10), feeds


def numbers(q, scale, zero, bits, block):
    """Codes as floats; zero: as stored, floats, or None."""
    per, mask = 8 // bits, (1 << bits) - 1

    def unpack(p):
        parts = [p >> bits * i & mask for i in range(per)]
        return np.stack(parts, -1).reshape(*p.shape[:-1], -1).astype("f")

    if scale.ndim == 2:  # one for a row: its zero points lie along the rows
        block = q.shape[-1] * per
        scale = scale[:, :, None]
        if zero is not None and zero.dtype == np.uint8:
            zero = unpack(zero)[:, : scale.shape[1]]
        zero = zero if zero is None else zero[:, :, None]
    elif zero is not None and zero.dtype == np.uint8:
        zero = unpack(zero)[:, :, : scale.shape[2]]
    zero = float(1 << bits - 1) if zero is None else zero.repeat(block, 2)
    return (unpack(q) - zero) * scale.repeat(block, 2)


def by_numpy(x, logits, fc, attrs, own=None):
    """fc: three of (weights, bias) or (None, None)."""
    act, fusion = attrs["activation_type"], attrs.get("swiglu_fusion", 0)
    limit = attrs.get("swiglu_limit", np.inf)
    out = np.zeros_like(x)
    for m, row in enumerate(logits):
        chosen = np.argsort(-row, kind="stable")[:K]
        p = np.exp(row - row.max())
        w = (p / p.sum() if own is None else own[m])[chosen]
        if attrs.get("normalize_routing_weights"):
            w = w / w.sum()
        for e, share in zip(chosen, w):
            def product(i, v):
                bias = fc[i][1]
                return fc[i][0][e] @ v + (0 if bias is None else bias[e])
            h = product(0, x[m])
            up = None
            if fc[2][0] is not None:
                up = product(2, x[m])
            elif fusion == 1:
                h, up = h[0::2], h[1::2]
            elif fusion == 2:
                h, up = np.split(h, 2)
            if act == "swiglu":
                h = np.minimum(h, limit)
                h = h / (1 + np.exp(-attrs["activation_alpha"] * h))
                up = np.clip(up, -limit, limit) + attrs["activation_beta"]
            elif act == "silu":
                h = h / (1 + np.exp(-h))
            elif act == "gelu":
                h = h / 2 * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h**3)))
            elif act == "relu":
                h = np.maximum(h, 0)
            a = h if up is None else h * up
            out[m] += share * product(1, a)
    return out


def write(name, op, inputs, attrs, want):
    x = inputs[0]
    proto, feeds = model(op, inputs, attrs, *x.shape)
    if want is None or os.environ.get("COMPARE"):
        options = ort.SessionOptions()
        options.log_severity_level = 4
        try:
            got = ort.InferenceSession(
                proto.SerializeToString(), options,
                providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        except Exception:
            got = None
        if want is None:
            want = got
        elif got is not None:
            print(name, np.abs(got - want).max(), file=sys.stderr)
    data = os.path.join(HERE, name, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(proto, os.path.join(HERE, name, "model.onnx"))
    for i, (key, a) in enumerate(feeds.items()):
        onnx.save_tensor(numpy_helper.from_array(a, key),
                         os.path.join(data, f"input_{i}.pb"))
    onnx.save_tensor(numpy_helper.from_array(want, "y"),
                     os.path.join(data, "output_0.pb"))


SWIGLU = dict(activation_type="swiglu", activation_alpha=1.702,
              activation_beta=1.0, swiglu_limit=1.5)


def moe(name, attrs, up=1, fc3=False, bias=True, mine=False):
    d, i, m = 24, 12, 3
    fc = [(floats(E, i * up, d) / 3, floats(E, i * up) if bias else None),
          (floats(E, d, i), floats(E, d) if bias else None),
          (floats(E, i, d) / 3, floats(E, i)) if fc3 else (None, None)]
    x, logits = floats(m, d), floats(m, E)
    inputs = [x, logits, *fc[0], *fc[1], *fc[2]]
    while inputs[-1] is None:
        inputs.pop()
    attrs = dict(attrs, k=K)
    write("moe_" + name, "MoE", inputs, attrs,
          by_numpy(x, logits, fc, attrs) if mine else None)


def qmoe(name, attrs, bits=4, block=16, zero=None, own=False, mine=False,
         spoilt=False):
    d, i, m = 32, 16, 3

    def one(n, k):
        q = rng.integers(0, 256, (E, n, k * bits // 8), dtype=np.uint8)
        dims = (E, n, k // block) if block else (E, n)
        s = rng.uniform(0.02, 0.1, dims).astype("f") * 16 / (1 << bits)
        z = None
        if zero == "packed":
            last = (dims[-1] * bits + 7) // 8
            z = rng.integers(0, 256, (*dims[:-1], last), dtype=np.uint8)
        elif zero == "floats":
            z = rng.uniform(0, (1 << bits) - 1, dims).astype("f")
        return q, s, floats(E, n), z

    fc = [one(2 * i, d), one(d, i)]
    x, logits = floats(m, d), floats(m, E)
    if spoilt:  # expert 1 in row 0 only
        logits[:] = [[1, 3, 0, 2], [1, -3, 0, 2], [3, -1, 2, 0]]
        fc[0][1][1, 5] = np.nan
    weights = rng.uniform(0.1, 1, (m, E)).astype("f") if own else None
    inputs = [x, logits, *fc[0][:3], *fc[1][:3], None, None, None,
              fc[0][3], fc[1][3], None, weights]
    while inputs[-1] is None:
        inputs.pop()
    attrs = dict(SWIGLU, **attrs, k=K, expert_weight_bits=bits, swiglu_fusion=1)
    if block:
        attrs["block_size"] = block
    fcs = [(numbers(q, s, z, bits, block), b) for q, s, b, z in fc]
    write("qmoe_" + name, "QMoE", inputs, attrs,
          by_numpy(x, logits, fcs + [(None, None)], attrs, weights)
          if mine else None)


NORM = dict(normalize_routing_weights=1)
moe("relu", dict(activation_type="relu"))
moe("silu", dict(activation_type="silu", **NORM), bias=False)
moe("gelu", dict(activation_type="gelu"))
moe("identity", dict(activation_type="identity", **NORM))
moe("swiglu", dict(SWIGLU, swiglu_fusion=1, **NORM), up=2)
moe("swiglu_halves", dict(SWIGLU, swiglu_fusion=2), up=2, mine=True)
moe("swiglu_fc3", dict(SWIGLU, swiglu_fusion=0), fc3=True, mine=True)
moe("silu_fc3", dict(activation_type="silu", **NORM), fc3=True, mine=True)
qmoe("symmetric", NORM)
qmoe("packed", NORM, zero="packed")
qmoe("packed_own_weights", {}, zero="packed", own=True)
qmoe("own_weights", NORM, own=True)
qmoe("per_row", NORM, block=0)
qmoe("per_row_packed", NORM, block=0, zero="packed")
qmoe("per_row_8_bits", NORM, bits=8, block=0)
qmoe("floats", {}, zero="floats", mine=True)
qmoe("8_bits", {}, bits=8, zero="packed", mine=True)
qmoe("2_bits", NORM, bits=2, zero="packed", mine=True)
qmoe("not_normalized", {}, mine=True)
qmoe("nan_scale", NORM, mine=True, spoilt=True)
