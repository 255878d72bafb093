"""The slow twin of the exact engine: plain Python, one record and one candidate label at a time.

Written from `docs/EXACT.md` alone and sharing no code with the package: it imports the standard library and
nothing else. Networks come as plain data:

    network = {
        "layers": [{"weight": [[int, …], …], "bias": [int, …] | None, "weight_exponent": int,
                    "bias_exponent": int, "before": {"kind": "relu" | …, "k": int, "exponent": int} | None,
                    "dropout": int | None}, …],
        "losses": [{"kind": "bce" | "squared" | "softmax", "outputs": int}, …],
    }
    clip = {"psi": float, "norm": "l1" | "l2", "fraction": int, "depth": int}

Weights are rows of outputs. A row comes back as one (weight, bias) pair a layer, integers of the common
exponent.
"""

import hashlib
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

P = 2**61 - 1
SIGMA = 1.0 + 2.0**-40

Net = dict[str, Any]
Row = list[tuple[list[list[int]], list[int]]]


def rounded(numerator: int, bits: int) -> int:
    """round(numerator / 2^bits), bits of any sign."""
    return math.floor(Fraction(numerator) / Fraction(2) ** bits + Fraction(1, 2))


def clamp(x: int, bound: int) -> int:
    return max(-bound, min(bound, x))


@cache
def exp_table(t: int) -> int:
    with localcontext() as context:
        context.prec = 60
        return int((Decimal(-t) / 256).exp() * 2**30 + Decimal("0.5"))


@cache
def sig_table(t: int) -> int:
    if t < 0:
        return 2**20 - sig_table(-t)
    return math.floor(Fraction(2**50, 2**30 + exp_table(t)) + Fraction(1, 2))


# Forward.


def activation(before: dict[str, Any], z: int, e: int) -> tuple[int, int]:
    """One number and its slope."""
    kind, h, k = before["kind"], before["exponent"], before.get("k", 256)
    if kind == "relu":
        a = max(0, min(255, rounded(z, e - h)))
        return a, int(0 < a < 255)
    if kind == "identity":
        a = clamp(rounded(z, e - h), 255)
        return a, int(abs(a) < 255)
    if kind == "leaky":
        a = clamp(rounded(z * 256 if z > 0 else z * k, e - h + 8), 255)
        return a, 0 if abs(a) == 255 else (256 if z > 0 else k)
    if kind == "elu":
        if z > 0:
            a, slope = clamp(rounded(z, e - h), 255), 256
        else:
            power = exp_table(min(4095, rounded(-z, e - 8)))
            a, slope = clamp(rounded(k * (power - 2**30), 38 - h), 255), rounded(k * power, 30)
        return a, 0 if abs(a) == 255 else slope
    if kind == "sigmoid":
        s = sig_table(clamp(rounded(z, e - 8), 4095))
        return min(255, rounded(s, 12)), rounded(s * (2**20 - s), 32)
    if kind == "tanh":
        s = sig_table(clamp(rounded(z, e - 9), 4095))
        return clamp(rounded(2 * s - 2**20, 12), 255), rounded(4 * s * (2**20 - s), 32)
    raise ValueError(kind)


def slope_form(before: dict[str, Any] | None) -> tuple[int, int]:
    """rb and r_max of an activation."""
    if before is None or before["kind"] in ("relu", "identity"):
        return 0, 1
    if before["kind"] in ("leaky", "elu"):
        return 8, max(256, before["k"])
    return 8, {"sigmoid": 64, "tanh": 256}[before["kind"]]


def dropout_form(k: int) -> tuple[int, int, int, int]:
    """g, m, rb and r_max of a dropout."""
    g = 0
    while (256 - k) * 2**g < 256:
        g += 1
    m = math.floor(Fraction(2**16, (256 - k) * 2**g) + Fraction(1, 2))
    return (g, m, -g, 1) if m == 256 else (g, m, 8 - g, m)


def kept(seed: bytes, layer: int, report: bytes, width: int, k: int) -> list[bool]:
    stream = hashlib.shake_128(
        b"maskedlark v2 dropout" + len(seed).to_bytes(2, "big") + seed + layer.to_bytes(2, "big") + report
    )
    return [byte >= k for byte in stream.digest(width)]


def forms(net: Net) -> list[dict[str, int]]:
    """Every layer's exponents and slope form."""
    found = []
    for layer in net["layers"]:
        exponent = 8 if layer["before"] is None else layer["before"]["exponent"]
        bits, top = slope_form(layer["before"])
        if layer["dropout"]:
            g, _, more, factor = dropout_form(layer["dropout"])
            exponent, bits, top = exponent - g, bits + more, top * factor
        found.append({"i": exponent, "e": exponent + layer["weight_exponent"], "rb": bits, "r_max": top})
    return found


def forward(
    net: Net, features: list[int], seed: bytes | None, report: bytes
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Every layer's input and the slopes before it, and the output's sums."""
    inputs, slopes, form = [], [], forms(net)
    numbers, sums = list(features), list[int]()
    for index, layer in enumerate(net["layers"]):
        slope = [1] * len(numbers)
        if layer["before"] is not None:
            pairs = [activation(layer["before"], z, form[index - 1]["e"]) for z in sums]
            numbers, slope = [a for a, _ in pairs], [r for _, r in pairs]
        if layer["dropout"]:
            numbers, slope = drop(layer["dropout"], numbers, slope, seed, index, report)
        inputs.append(numbers)
        slopes.append(slope)
        sums = []
        for j, row in enumerate(layer["weight"]):
            z = sum(w * a for w, a in zip(row, numbers, strict=True))
            if layer["bias"] is not None:
                z += layer["bias"][j] * 2 ** (form[index]["e"] - layer["bias_exponent"])
            sums.append(z)
    return inputs, slopes, sums


def drop(
    k: int, numbers: list[int], slope: list[int], seed: bytes | None, index: int, report: bytes
) -> tuple[list[int], list[int]]:
    g, m, _, factor = dropout_form(k)
    if seed is None:
        return [rounded(a, g) for a in numbers], slope
    keep = kept(seed, index, report, len(numbers), k)
    return (
        [a * m // 256 if stays else 0 for a, stays in zip(numbers, keep, strict=True)],
        [r * factor if stays else 0 for r, stays in zip(slope, keep, strict=True)],
    )


# One label's part of the network.


def own_rows(net: Net, label: int) -> range:
    start = sum(loss["outputs"] for loss in net["losses"][:label])
    return range(start, start + net["losses"][label]["outputs"])


def own_weight(net: Net, label: int, k: int) -> list[list[int]]:
    """Layer k's weight; at the output layer only the label's rows."""
    weight: list[list[int]] = net["layers"][k]["weight"]
    return [weight[j] for j in own_rows(net, label)] if k == len(net["layers"]) - 1 else weight


def row_sum(weight: list[list[int]]) -> int:
    return max(sum(abs(w) for w in row) for row in weight)


def col_sum(weight: list[list[int]]) -> int:
    return max(sum(abs(row[j]) for row in weight) for j in range(len(weight[0])))


def shifts(net: Net, label: int, depth: int = 0) -> tuple[list[int], list[int]]:
    """Section 5: the shift and the exponent of every layer's error."""
    top_layer, form = len(net["layers"]) - 1, forms(net)
    softmax = net["losses"][label]["kind"] == "softmax"
    x = (20 if depth else 13) if softmax else 0
    bound = 2**x
    shift, exponent = [0] * (top_layer + 1), [x] * (top_layer + 1)
    for k in range(top_layer, 0, -1):
        weight = own_weight(net, label, k)
        after = col_sum(weight) * bound
        if softmax and k == top_layer:
            after = min(after, max(abs(w) for row in weight for w in row) * (2 * bound + len(weight)))
        after *= form[k]["r_max"]
        x += net["layers"][k]["weight_exponent"] + form[k]["rb"]
        assert after < 2**52
        width = len(net["layers"][k - 1]["weight"])
        room = min(21, (52 - math.ceil(math.log2(width))) // 2)
        if k - 1:
            below = net["layers"][k - 1]["weight"]
            room = min(room, 51 - (col_sum(below) * form[k - 1]["r_max"]).bit_length())
        s = 0 if softmax else max(0, x - 16)
        while math.ceil(Fraction(after, 2**s)) > 2**room:
            s += 1
        bound, x = math.ceil(Fraction(after, 2**s)), x - s
        shift[k - 1], exponent[k - 1] = s, x
    return shift, exponent


def one_back(net: Net, label: int, k: int, slopes: list[list[int]], error: list[int]) -> list[int]:
    """From layer k's error to the one below, without any rounding."""
    weight = own_weight(net, label, k)
    return [
        sum(row[m] * d for row, d in zip(weight, error, strict=True)) * slope
        for m, slope in enumerate(slopes[k])
    ]


def back(
    net: Net, label: int, slopes: list[list[int]], start: list[int], shift: list[int]
) -> list[list[int]]:
    """Every layer's rounded error, first layer first, from the output's."""
    errors = [start]
    for k in range(len(net["layers"]) - 1, 0, -1):
        below = one_back(net, label, k, slopes, errors[0])
        errors.insert(0, [rounded(u, shift[k - 1]) if shift[k - 1] else u for u in below])
    return errors


# Norms and clip, in float where the page says float.


def power(numbers: list[int], norm: str) -> float:
    return float(sum(abs(x) for x in numbers) if norm == "l1" else sum(x * x for x in numbers))


def input_norms(net: Net, inputs: list[list[int]], norm: str, always_one: bool = False) -> list[float]:
    base = 2.0 if norm == "l1" else 4.0
    return [
        (power(a, norm) + base ** form["i"] * (layer["bias"] is not None or always_one)) * base ** -form["i"]
        for a, form, layer in zip(inputs, forms(net), net["layers"], strict=True)
    ]


def norm_of(errors: list[list[int]], exponent: list[int], alpha: list[float], norm: str) -> float:
    base, total = (2.0 if norm == "l1" else 4.0), 0.0
    for k in range(len(errors) - 1, -1, -1):
        total = total + power(errors[k], norm) * alpha[k] * base ** -exponent[k]
    return total if norm == "l1" else math.sqrt(total)


def ones(count: int, norm: str) -> float:
    return float(count) if norm == "l1" else math.sqrt(count)


def gains(net: Net, label: int, norm: str, entrance: int) -> list[float]:
    """From the entrance down: what an error of norm 1 there can grow to."""
    form, found = forms(net), [1.0]
    for k in range(entrance, 0, -1):
        weight = own_weight(net, label, k)
        if norm == "l1":
            nu = float(row_sum(weight))
        else:
            nu = math.sqrt(min(sum(w * w for row in weight for w in row), row_sum(weight) * col_sum(weight)))
        lengthened = nu * 2.0 ** -net["layers"][k]["weight_exponent"]
        found.insert(0, found[0] * lengthened * (form[k]["r_max"] * 2.0 ** -form[k]["rb"]))
    return found


def probabilities(z: list[int], e: int) -> list[int]:
    powers = [exp_table(min(4095, rounded(max(z) - x, e - 8))) for x in z]
    return [math.floor(Fraction(2**20 * value, sum(powers)) + Fraction(1, 2)) for value in powers]


def one_output(net: Net, clip: dict[str, Any], label: int, y: int, state: Any) -> list[list[int]]:
    """Every layer's clipped error of one candidate."""
    inputs, slopes, sums = state
    norm, fraction, e = clip["norm"], clip["fraction"], forms(net)[-1]["e"]
    z = sums[own_rows(net, label)[0]]
    if net["losses"][label]["kind"] == "bce":
        error, bits = sig_table(clamp(rounded(z, e - 8), 4095)) - 2**20 * y, 20
    else:
        error, bits = rounded(z, e - 12) - 2**12 * y, 12
    shift, exponent = shifts(net, label)
    units = back(net, label, slopes, [1], shift)
    length = norm_of(units, exponent, input_norms(net, inputs, norm), norm)
    most = 2**31 - 1
    if length:
        most = min(most, math.floor((clip["psi"] / len(net["losses"]) * 2.0**fraction) / (length * SIGMA)))
    wanted = int(Fraction(error) * Fraction(2) ** (fraction - bits))
    q = clamp(wanted, most)
    return [[q * u for u in layer] for layer in units]


def entrance_of(net: Net, clip: dict[str, Any]) -> int:
    depth: int = clip["depth"]
    return max(0, len(net["layers"]) - 1 - depth)


def softmax(net: Net, clip: dict[str, Any], label: int, y: int, state: Any) -> list[list[int]]:
    """Every layer's clipped error of one candidate."""
    inputs, slopes, sums = state
    norm, fraction, depth = clip["norm"], clip["fraction"], clip["depth"]
    alpha, mu = input_norms(net, inputs, norm, always_one=depth > 0), entrance_of(net, clip)
    p = probabilities([sums[j] for j in own_rows(net, label)], forms(net)[-1]["e"])
    exact = [x - 2**20 * (j == y) for j, x in enumerate(p)]
    coarse = [rounded(x, 7) - 2**13 * (j == y) for j, x in enumerate(p)]
    shift, exponent = shifts(net, label, depth)
    clear = back(net, label, slopes, exact if depth else coarse, shift)
    length = norm_of(clear, exponent, alpha, norm)
    gamma = gains(net, label, norm, mu)
    omega = 0.0 if depth else ones(len(p), norm) * 2.0**-14
    for k in range(mu - 1, -1, -1):
        if shift[k]:
            omega = omega + 2.0 ** (-exponent[k] - 1) * ones(len(net["layers"][k]["weight"]), norm) / gamma[k]
    width = len(net["layers"][mu]["weight"]) if depth else len(p)
    theta = ones(width, norm) * 2.0**-fraction * SIGMA
    reach = 0.0
    for k in range(mu - 1 if depth else mu, -1, -1):
        reach = reach + alpha[k] * (gamma[k] if norm == "l1" else gamma[k] * gamma[k])
    reach = reach if norm == "l1" else math.sqrt(reach)
    left = max(0.0, clip["psi"] / len(net["losses"]) - reach * theta)
    c = min(1.0, left / max((length + reach * omega) * SIGMA, 2.0**-100))
    if not depth:
        clear, exponent = [*clear[:-1], exact], [*exponent[:-1], 20]
    errors = {k: [truncated(c, d, fraction - exponent[k]) for d in clear[k]] for k in range(mu, len(clear))}
    for k in range(mu, 0, -1):
        errors[k - 1] = one_back(net, label, k, slopes, errors[k])
    return [errors[k] for k in range(len(clear))]


def truncated(c: float, d: int, bits: int) -> int:
    return math.trunc(c * float(d) * 2.0**bits)


# Rows and sums.


def error_exponents(net: Net, clip: dict[str, Any], label: int) -> list[int]:
    form, found = forms(net), [clip["fraction"]]
    if net["losses"][label]["kind"] != "softmax":
        return [clip["fraction"] + x for x in shifts(net, label)[1]]
    mu = entrance_of(net, clip)
    found = found * (len(form) - mu)
    for k in range(mu, 0, -1):
        found.insert(0, found[0] + net["layers"][k]["weight_exponent"] + form[k]["rb"])
    return found


def exponent_of(net: Net, clip: dict[str, Any]) -> int:
    """S: the gradient's one exponent."""
    found = []
    for label in range(len(net["losses"])):
        for f, form, layer in zip(error_exponents(net, clip, label), forms(net), net["layers"], strict=True):
            found.extend([f + form["i"]] + ([] if layer["bias"] is None else [f]))
    return max(found)


def row(net: Net, clip: dict[str, Any], label: int, y: int, state: Any) -> Row:
    """One candidate's clipped gradient, integers of exponent S."""
    kind = net["losses"][label]["kind"]
    errors = (softmax if kind == "softmax" else one_output)(net, clip, label, y, state)
    whole, own = exponent_of(net, clip), own_rows(net, label)
    found: Row = []
    for k, f in enumerate(error_exponents(net, clip, label)):
        error = errors[k]
        if k == len(net["layers"]) - 1:
            error = [0] * len(net["layers"][k]["weight"])
            for place, value in zip(own, errors[k], strict=True):
                error[place] = value
        i = forms(net)[k]["i"]
        weight = [[d * a * 2 ** (whole - f - i) for a in state[0][k]] for d in error]
        found.append(
            (weight, [] if net["layers"][k]["bias"] is None else [d * 2 ** (whole - f) for d in error])
        )
    return found


def flat(net: Net, one: Row) -> list[int]:
    """A row in the flat order, each weight in the model's own layout."""
    numbers: list[int] = []
    for layer, (weight, bias) in zip(net["layers"], one, strict=True):
        rows = [list(column) for column in zip(*weight, strict=True)] if layer.get("transposed") else weight
        numbers.extend(value for line in rows for value in line)
        numbers.extend(bias)
    return numbers


def share(
    net: Net, clip: dict[str, Any], records: list[dict[str, Any]], seed: bytes | None = None
) -> list[int]:
    """One helper's share. A record has "features", "candidates" and "masks" (a list a label), and an "id"."""
    total: list[int] = []
    for record in records:
        state = forward(net, record["features"], seed, record.get("id", b""))
        for label, candidates in enumerate(record["candidates"]):
            for y, mask in zip(candidates, record["masks"][label], strict=True):
                one = flat(net, row(net, clip, label, y, state))
                total = total or [0] * len(one)
                total = [(t + mask * g) % P for t, g in zip(total, one, strict=True)]
    return total


# Moments: section 11. bound = {"r": float, "norm": "l1" | "l2", "fraction": int}


def represented(net: Net, bound: dict[str, Any], features: list[int]) -> tuple[list[int], int]:
    """φ of one record, with its constant, and its clip factor. Asserts the bound in exact numbers."""
    phi, e = list(forward(net, features, None, b"")[0][-1]), forms(net)[-1]["i"]
    if net["layers"][-1]["bias"] is not None:
        phi.append(2**e)
    top, length = bound["r"] * 2.0 ** (e + bound["fraction"]), power(phi, bound["norm"])
    if bound["norm"] == "l2":
        length = math.sqrt(length)
    factor: int = 2 ** bound["fraction"]
    if length:
        factor = min(factor, math.floor(top / (length * SIGMA)))
    if bound["norm"] == "l1":
        assert factor * sum(map(abs, phi)) <= Fraction(top)
    else:
        assert factor**2 * sum(x * x for x in phi) <= Fraction(top) ** 2
    return phi, factor


def moments(net: Net, bound: dict[str, Any], records: list[dict[str, Any]], label: int) -> list[int]:
    """One helper's share of one label's moments, output by output. Records as in `share`."""
    outputs = net["losses"][label]["outputs"]
    width = len(net["layers"][-1]["weight"][0]) + (net["layers"][-1]["bias"] is not None)
    total = [0] * (outputs * width)
    for record in records:
        phi, factor = represented(net, bound, record["features"])
        for y, mask in zip(record["candidates"][label], record["masks"][label], strict=True):
            numeric = net["losses"][label]["kind"] != "softmax"
            for output, t in enumerate([y] if numeric else [int(j == y) for j in range(outputs)]):
                for j, x in enumerate(phi):
                    place = output * width + j
                    total[place] = (total[place] + mask * factor * x * t) % P
    return total


# Cells: section 12. partition = {"kind": "largest", "first": int, "count": int}
#     | {"kind": "buckets", "output": int, "edges": [float, …]}
#     | {"kind": "hash", "features": [int, …], "count": int}


def cell_count(partition: dict[str, Any]) -> int:
    count: int = len(partition["edges"]) + 1 if partition["kind"] == "buckets" else partition["count"]
    return count


def cell(net: Net | None, partition: dict[str, Any], features: list[int]) -> int:
    """The cell of one record."""
    if partition["kind"] == "hash":
        named = bytes(features[j] for j in partition["features"])
        digest = hashlib.sha256(b"maskedlark v2 cell" + named).digest()
        return int.from_bytes(digest[:8], "big") % cell_count(partition)
    assert net is not None
    z = forward(net, features, None, b"")[2]
    if partition["kind"] == "largest":
        best = 0
        for j in range(partition["count"]):
            if z[partition["first"] + j] > z[partition["first"] + best]:
                best = j
        return best
    value = Fraction(z[partition["output"]]) / Fraction(2) ** forms(net)[-1]["e"]
    return sum(Fraction(edge) <= value for edge in partition["edges"])


def cells(
    net: Net | None,
    partition: dict[str, Any],
    records: list[dict[str, Any]],
    label: int,
    space: list[int],
    ones: bool,
) -> tuple[list[list[int]], list[int]]:
    """One helper's share of a table, cell by cell, and how many records are in each."""
    table = [[0] * (1 if ones else len(space)) for _ in range(cell_count(partition))]
    sizes = [0] * len(table)
    for record in records:
        own = cell(net, partition, record["features"])
        sizes[own] += 1
        for y, mask in zip(record["candidates"][label], record["masks"][label], strict=True):
            if not ones:
                table[own][space.index(y)] = (table[own][space.index(y)] + mask) % P
            elif y == 1:
                table[own][0] = (table[own][0] + mask) % P
    return table, sizes


def runs(sizes: list[int], k: int) -> list[list[int]]:
    """Neighbouring buckets, counted together until they hold k; what is left joins the last run."""
    found: list[list[int]] = []
    own: list[int] = []
    for bucket in range(len(sizes)):
        own.append(bucket)
        if sum(sizes[each] for each in own) >= k:
            found.append(own)
            own = []
    if own and found:
        found[-1] += own
    return found
