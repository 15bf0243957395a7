"""Nodes of an ONNX graph, written one after another, with names that no column has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

INSIDE = "inside/"
"""Names of values in the graph begin with this."""
ML = "ai.onnx.ml"
OWN = "com.microsoft"
"""Operators that onnxruntime adds to ONNX."""
OPSETS = {ML: 3, OWN: 1}


class Nodes:
    """Collects nodes and constants; each method returns the name of a value."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], Any] = {}

    def constant(self, values: Any, kind: type = np.int64) -> str:
        """A tensor of these values. Equal constants are one."""
        from onnx import numpy_helper

        array: NDArray[Any] = np.ascontiguousarray(values, kind).reshape(np.shape(values))
        key = str(array.dtype), array.shape, array.tobytes()
        if key not in self.constants:
            name = f"{INSIDE}constant{len(self.constants)}"
            self.constants[key] = numpy_helper.from_array(array, name)
        return str(self.constants[key].name)

    def add(self, operator: str, *given: str, **options: Any) -> str:
        """The result of an operator for values with these names."""
        from onnx import helper

        result = f"{INSIDE}{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(given), [result], **options))
        return result

    def cast(self, value: str, kind: type) -> str:
        """A value as numbers of another type."""
        from onnx import helper

        return self.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def look_up(self, texts: str, table: dict[str, int], default: int) -> str:
        """The number that belongs to each string, int64, in the shape of the strings."""
        return self.add(
            "LabelEncoder",
            texts,
            domain=ML,
            keys_strings=list(table),
            values_int64s=list(table.values()),
            default_int64=default,
        )

    def column_of(self, values: str) -> str:
        """(N,) -> (N, 1)"""
        return self.add("Unsqueeze", values, self.constant([1]))

    def put_in_front(self, proto: Any, inputs: list[Any]) -> None:
        """Put the nodes before those of a model, with these inputs instead of its own."""
        from onnx import helper

        rest = list(proto.graph.node)
        del proto.graph.node[:], proto.graph.input[:]
        proto.graph.node.extend([*self.nodes, *rest])
        proto.graph.initializer.extend(self.constants.values())
        proto.graph.input.extend(inputs)
        known = {entry.domain for entry in proto.opset_import}
        for domain in sorted({node.domain for node in self.nodes} - known - {""}):
            proto.opset_import.append(helper.make_opsetid(domain, OPSETS[domain]))
