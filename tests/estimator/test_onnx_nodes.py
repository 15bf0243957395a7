"""Nodes and constants of an ONNX graph."""

from __future__ import annotations

import numpy as np
import pytest

from tailwise.onnx.nodes import INSIDE, OPSETS, Nodes
from tests.estimator.onnx_graphs import ran

onnx = pytest.importorskip("onnx")


def test_equal_constants_are_one_and_kinds_and_shapes_differ() -> None:
    nodes = Nodes()
    names = [nodes.constant(1), nodes.constant(1), nodes.constant([1]), nodes.constant(1, np.float64)]
    assert names[0] == names[1] and len(set(names)) == 3 == len(nodes.constants)
    assert all(name.startswith(INSIDE) for name in names)


def test_values_are_computed_and_looked_up() -> None:
    nodes = Nodes()
    code = nodes.look_up("word", {"one": 1, "two": 2}, -1)
    result = nodes.column_of(nodes.cast(nodes.add("Add", code, code), np.float32))
    found = ran(nodes, result, word=np.array(["two", "", "one"], dtype=object))
    assert found.dtype == np.float32 and found.tolist() == [[4.0], [-2.0], [2.0]]


def test_a_model_imports_the_operators_that_nodes_need_once() -> None:
    nodes = Nodes()
    nodes.look_up("word", {"one": 1}, 0)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [], [])
    for known in ([], [onnx.helper.make_opsetid("ai.onnx.ml", 2)]):
        proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18), *known])
        nodes.put_in_front(proto, [])
        versions = [entry.version for entry in proto.opset_import if entry.domain == "ai.onnx.ml"]
        assert versions == ([2] if known else [OPSETS["ai.onnx.ml"]])
        assert [node.op_type for node in proto.graph.node] == ["LabelEncoder", "Identity"]
