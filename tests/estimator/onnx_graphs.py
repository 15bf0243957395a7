"""Runs the nodes that `tailwise.onnx.nodes` collects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tailwise.onnx.nodes import Nodes


def ran(nodes: Nodes, result: str, **inputs: NDArray[Any]) -> NDArray[Any]:
    """The value with this name as onnxruntime computes it from these inputs, (N,) each."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    helper, given = onnx.helper, []
    for name, values in inputs.items():
        kind = np.dtype(np.str_) if values.dtype == object else values.dtype
        given.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), ["rows"]))
    last = helper.make_node("Identity", [result], ["result"])
    graph = helper.make_graph([last], "test", [], [helper.make_empty_tensor_value_info("result")])
    opset = helper.make_opsetid("", 18)
    proto = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    nodes.put_in_front(proto, given)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found: NDArray[Any] = session.run(None, inputs)[0]
    return found
