"""Nodes that keep every number: a record must be one row before and after, or the model is refused.

Run by the ad server. Shapes come from ONNX's own inference, for batches of two sizes. A node that could move
numbers from one record to another is refused.
"""

from onnx import ModelProto, TensorProto, TensorShapeProto
from onnx.shape_inference import InferenceError, infer_shapes

from maskedlark.exact.errors import ModelDoesNotFit

MOVES = {
    "Identity": "has no known shape; export the model again",
    "ZipMap": "has no known shape; export the model again",
    "Cast": "has no known shape; export the model again",
    "Flatten": "mixes records; use axis 1",
    "Reshape": "could mix records; use a Flatten, and declare the number of features",
    "Squeeze": "could drop the batch; name an axis of size 1",
    "Unsqueeze": "could move the batch; leave axis 0 alone",
}
"""The nodes, and what to change if records do not stay rows."""
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
_BATCHES = (1, 7)
"""A node that preserves both preserves any: Squeeze drops a batch of 1, a fixed Reshape fits one size."""
Shape = tuple[int | None, ...]


def of_records(model: ModelProto, features: str) -> dict[str, Shape]:
    """One record's shape in every value whose rows are records, None where the file leaves a size open."""
    small, large = (_inferred(model, features, batch) for batch in _BATCHES)
    return dict(small & large)


def _inferred(model: ModelProto, features: str, batch: int) -> set[tuple[str, Shape]]:
    """The same for a batch of this size, or of the size that the file fixes."""
    own = ModelProto()
    own.CopyFrom(model)
    # Do not rely on what a file declares about values other than its features.
    del own.graph.value_info[:], own.graph.output[:]
    for node in own.graph.node:
        if node.op_type == "Dropout":
            del node.input[1:]  # Some write the ratio as a vector of one number, which inference refuses.
    tensor = next(value.type.tensor_type for value in own.graph.input if value.name == features)
    if tensor.elem_type not in FLOATS:
        raise ModelDoesNotFit(features, "takes no floats; features are floats, byte / 256")
    if not tensor.shape.dim:  # Then as at helpers: a row of numbers per record.
        tensor.shape.dim.extend([TensorShapeProto.Dimension(), TensorShapeProto.Dimension()])
    rows = tensor.shape.dim[0].dim_value or batch
    tensor.shape.dim[0].dim_value = rows
    try:
        graph = infer_shapes(own, data_prop=True).graph
    except (InferenceError, RuntimeError, ValueError) as error:
        raise ModelDoesNotFit("the model", "is damaged; export it again") from error
    shapes = {
        value.name: tuple(dim.dim_value or None for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info)
    }
    return {(name, shape[1:]) for name, shape in shapes.items() if shape[:1] == (rows,)}
