"""What to do about a node that helpers cannot compute, in a line. Run by the ad server."""

from maskedlark.exact import chain
from maskedlark.exact.chain import ONE_CHAIN

SCALED = (
    "features are bytes and stand for byte / 256; scale them before they become bytes, fit the model again "
    "on byte / 256, and export it without its scaler"
)
_ONE_RECORD = "makes one record's gradient depend on others, or is not in the table of operations; drop it"
_NO_GRADIENT = "a tree has no gradient; train a network, or trees on labels from one release (docs/CELLS.md)"
_CLASS = "is a class, which has no gradient; train the output of probabilities or scores"
_NO_LAYERS = "a support vector machine has no layers; train a network"
_OF_WEIGHTS = "between layers, fold it into a weight"
NEVER = {
    "BatchNormalization": f"{chain.OF_A_BATCH}, or fold it into the layer before it after training",
    "LayerNormalization": _ONE_RECORD,
    "Conv": chain.CONVOLUTION,
    "LSTM": chain.RECURRENT,
    "GRU": chain.RECURRENT,
    "RNN": chain.RECURRENT,
    "Attention": chain.ATTENTION,
    "Gather": f"embeddings, and picking numbers, are not in the table of operations; {chain.EMBEDDING}",
    "Scaler": SCALED,
    "Imputer": "features are bytes, and none is missing; fill gaps before they become bytes",
    "OneHotEncoder": chain.EMBEDDING,
    "SVMClassifier": _NO_LAYERS,
    "SVMRegressor": _NO_LAYERS,
    "TreeEnsembleClassifier": _NO_GRADIENT,
    "TreeEnsembleRegressor": _NO_GRADIENT,
}
"""Of what fits nowhere: exporters surround it by nodes that nobody wrote, so it is named before them."""
ADVICE = NEVER | {
    "Slice": "takes a part of the numbers; train all of them",
    "ArgMax": _CLASS,
    "ArrayFeatureExtractor": _CLASS,
    "Mul": _OF_WEIGHTS,
    "Sub": "between layers, fold it into a bias",
    "Div": _OF_WEIGHTS,
    "Normalizer": "only after the probabilities of a linear classifier; drop it",
}
ARITHMETIC = ("Mul", "Sub", "Div")
NOT_IN_TABLE = f"it {chain.NOT_IN_TABLE}"
BOTH_COMPUTED = f"of two computed values, as SiLU and gates have it, {chain.NOT_IN_TABLE}"
COLUMNS = (
    'each is one column of the probabilities; export with options={"zipmap": False}, which leaves them one'
)
TWO_PATHS = f"joins two paths (a residual connection, or wide and deep); {ONE_CHAIN}"
