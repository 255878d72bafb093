"""What to do about a node that helpers cannot compute, in a line. Run by the ad server."""

from maskedlark.exact.chain import ONE_CHAIN

SCALED = (
    "features are bytes and stand for byte / 256; scale them before they become bytes, and export the model "
    "without its scaler"
)
_ONE_RECORD = "makes one record's gradient depend on others, or is not in the table of operations; drop it"
_NO_GRADIENT = "a tree has no gradient; train a network, or trees on labels from one release (docs/CELLS.md)"
_CLASS = "is a class, which has no gradient; train the output of probabilities or scores"
ADVICE = {
    "BatchNormalization": "statistics of a batch make one record's gradient depend on others; drop it, "
    "or fold it into the layer before it after training",
    "LayerNormalization": _ONE_RECORD,
    "Conv": "convolution is not in the table of operations; use Gemm",
    "Gather": "embeddings are not in the table of operations; give a category a column of 0 and 255 for each "
    "of its values",
    "ArgMax": _CLASS,
    "ArrayFeatureExtractor": _CLASS,
    "Scaler": SCALED,
    "Mul": f"{SCALED}; between layers, fold it into a weight",
    "Sub": f"{SCALED}; between layers, fold it into a bias",
    "Div": f"{SCALED}; between layers, fold it into a weight",
    "Imputer": "features are bytes, and none is missing; fill gaps before they become bytes",
    "OneHotEncoder": "features are bytes; give a category a column of 0 and 255 for each of its values",
    "SVMClassifier": "a support vector machine has no layers; train a network",
    "SVMRegressor": "a support vector machine has no layers; train a network",
    "TreeEnsembleClassifier": _NO_GRADIENT,
    "TreeEnsembleRegressor": _NO_GRADIENT,
    "Normalizer": "only after the probabilities of a linear classifier; drop it",
}
NOT_IN_TABLE = "it is not in the table of operations; replace or drop it"
TWO_PATHS = f"joins two paths (a residual connection, or wide and deep); {ONE_CHAIN}"
