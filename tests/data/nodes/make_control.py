"""Node tests of If, Loop and Scan: what onnxruntime's CPU kernels give.  Needs onnx,
onnxruntime, numpy; writes folders here, and into ../control graphs that end with an
error."""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

HERE = os.path.dirname(os.path.abspath(__file__))
F, I, B = T.FLOAT, T.INT64, T.BOOL


def value(name, kind, shape):
    return h.make_tensor_value_info(name, kind, shape)


def number(name, x, kind=np.int64):
    return nh.from_array(np.array(x, kind), name)


def case(name, nodes, inputs, outputs, data, init=()):
    g = h.make_graph(nodes, "g", inputs, outputs, list(init))
    m = h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(m)
    folder = os.path.join(HERE, name)
    os.makedirs(folder + "/test_data_set_0", exist_ok=True)
    onnx.save(m, folder + "/model.onnx")
    s = onnxruntime.InferenceSession(m.SerializeToString())
    got = s.run(None, {i.name: d for i, d in zip(inputs, data)})
    for kind, values, infos in (("input", data, inputs), ("output", got, outputs)):
        for k, v in enumerate(values):
            t = nh.from_array(np.asarray(v), infos[k].name)
            with open(f"{folder}/test_data_set_0/{kind}_{k}.pb", "wb") as f:
                f.write(t.SerializeToString())


x = np.arange(6, dtype=np.float32).reshape(2, 3)


def branches():
    # one branch reads a value of the graph around it, one a stored tensor of it
    a = h.make_graph([h.make_node("Mul", ["y", "x"], ["a"])], "a", [], [value("a", F, [2, 3])])
    b = h.make_graph([h.make_node("Add", ["x", "w"], ["b"])], "b", [], [value("b", F, [2, 3])])
    return h.make_node("If", ["c"], ["z"], "choose", then_branch=a, else_branch=b)


for c in (True, False):
    case(
        "if_" + str(c).lower(),
        [h.make_node("Neg", ["x"], ["y"]), branches()],
        [value("x", F, [2, 3]), value("c", B, [])],
        [value("z", F, [2, 3])],
        [x, np.array(c)],
        [number("w", [1, 2, 3], np.float32)],
    )


def loop(inner, carried=F):
    body = h.make_graph(
        inner, "body", [value("i", I, []), value("go", B, []), value("s", carried, None)],
        [value("on", B, []), value("t", carried, None), value("seen", F, [3])],
        [number("limit", 20, np.float32)] if "limit" in str(inner) else [],
    )
    return h.make_node("Loop", ["n", "", "s0"], ["last", "all"], "count", body=body)


step = [
    h.make_node("Add", ["s", "w"], ["t"]),
    h.make_node("ReduceSum", ["t"], ["total"], keepdims=0),
    h.make_node("Less", ["total", "limit"], ["on"]),
    h.make_node("Cast", ["i"], ["fi"], to=F),
    h.make_node("Mul", ["t", "fi"], ["seen"]),
]
for name, n in (("loop_count", 3), ("loop_until", 100), ("loop_never", 0)):
    case(
        name, [loop(step)], [value("n", I, []), value("s0", F, [3])],
        [value("last", F, [3]), value("all", F, [None, 3])],
        [np.array(n), x[0]], [number("w", [1, 2, 3], np.float32)],
    )

# an If in a Loop in which the If reads values of both graphs around it
odd = h.make_graph([h.make_node("Sub", ["s", "w"], ["o"])], "odd", [], [value("o", F, None)])
even = h.make_graph([h.make_node("Add", ["s", "fi"], ["e"])], "even", [], [value("e", F, None)])
case(
    "loop_if",
    [loop([
        h.make_node("Cast", ["i"], ["fi"], to=F),
        h.make_node("Mod", ["i", "two"], ["left"]),
        h.make_node("Cast", ["left"], ["c"], to=B),
        h.make_node("If", ["c"], ["t"], "which", then_branch=odd, else_branch=even),
        h.make_node("Identity", ["go"], ["on"]),
        h.make_node("Identity", ["t"], ["seen"]),
    ])],
    [value("n", I, []), value("s0", F, [3])],
    [value("last", F, [3]), value("all", F, [None, 3])],
    [np.array(5), x[1]], [number("w", [1, 2, 3], np.float32), number("two", 2)],
)

# both ways, along other axes than the first
body = h.make_graph(
    [h.make_node("Add", ["s", "u"], ["p"]), h.make_node("Mul", ["p", "v"], ["q"]),
     h.make_node("Identity", ["p"], ["r"])],
    "body", [value("s", F, [2]), value("u", F, [2]), value("v", F, [2])],
    [value("p", F, [2]), value("q", F, [2]), value("r", F, [2])],
)
case(
    "scan_axes",
    [h.make_node("Scan", ["s0", "x", "y"], ["last", "q", "r"], "sweep", body=body, num_scan_inputs=2,
                 scan_input_axes=[1, -2], scan_input_directions=[1, 0],
                 scan_output_axes=[1, 0], scan_output_directions=[0, 1])],
    [value("s0", F, [2]), value("x", F, [2, 3]), value("y", F, [3, 2])],
    [value("last", F, [2]), value("q", F, [2, 3]), value("r", F, [3, 2])],
    [x[:, 0].copy(), x, x.reshape(3, 2) - 2],
)

# no control flow, but a product of a type that only such graphs have
D = T.DOUBLE
y = np.arange(12, dtype=np.float64).reshape(2, 3, 2) / 7
case("matmul_double", [h.make_node("MatMul", ["x", "y"], ["m"]), h.make_node("MatMul", ["m", "w"], ["z"])],
     [value("x", D, [2, 3]), value("y", D, [2, 3, 2])], [value("z", D, [2, 2, 5])],
     [x.astype(np.float64) / 3, y], [number("w", np.arange(10).reshape(2, 5) / 9, np.float64)])


# ---- graphs that end with an error ----


def bad(name, nodes, inputs, outputs, init=()):
    g = h.make_graph(nodes, "g", inputs, outputs, list(init))
    m = h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    onnx.save(m, f"{HERE}/../control/{name}.onnx")


S = [value("s0", F, [3])]
R = [value("last", F, None)]
body = h.make_graph(
    [h.make_node("Identity", ["go"], ["on"]), h.make_node("Identity", ["s"], ["t"])],
    "body", [value("i", I, []), value("go", B, []), value("s", F, [3])],
    [value("on", B, []), value("t", F, [3])],
)
bad("endless", [h.make_node("Loop", ["", "", "s0"], ["last"], "turn", body=body)], S, R)
bad("few", [h.make_node("Loop", ["", "", "s0", "s0"], ["last"], "turn", body=body)], S, R)
body = h.make_graph(
    [h.make_node("Identity", ["go"], ["on"]),
     h.make_node("Concat", ["s", "s"], ["t"], axis=0), h.make_node("Identity", ["t"], ["u"])],
    "body", [value("i", I, []), value("go", B, []), value("s", F, None)],
    [value("on", B, []), value("t", F, None), value("u", F, None)],
)
bad("shapes", [h.make_node("Loop", ["n", "", "s0"], ["last", "all"], "turn", body=body)],
    S, R + [value("all", F, None)], [number("n", 5)])
bad("condition", [h.make_node("If", ["s0"], ["last"], "turn", then_branch=h.make_graph(
    [h.make_node("Neg", ["s0"], ["t"])], "t", [], [value("t", F, None)]),
    else_branch=h.make_graph(
    [h.make_node("Neg", ["s0"], ["e"])], "e", [], [value("e", F, None)]))], S, R)
bad("axis", [h.make_node("Scan", ["s0", "s0"], ["last"], "turn", num_scan_inputs=1,
    scan_input_axes=[2], body=h.make_graph(
    [h.make_node("Add", ["a", "b"], ["t"])], "body",
    [value("a", F, [3]), value("b", F, [])], [value("t", F, [3])]))], S, R)
g, name = None, "s0"
for depth in range(20):
    t = h.make_graph(
        [h.make_node("Neg", ["s0"], [f"t{depth}"])] if g is None else
        [h.make_node("If", ["c"], [f"t{depth}"], f"turn{depth}", then_branch=g, else_branch=g2)],
        "t", [], [value(f"t{depth}", F, None)])
    g2 = h.make_graph([h.make_node("Neg", ["s0"], [f"e{depth}"])], "e", [],
                      [value(f"e{depth}", F, None)])
    g = t
bad("deep", [h.make_node("If", ["c"], ["last"], "turn", then_branch=g, else_branch=g2)],
    S, R, [number("c", True, np.bool_)])
