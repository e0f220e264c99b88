"""Reference logits in float64: for each encoding a short function after its paper's formula.

A function (c, b, h, t, j) returns one logit.  c is a :class:`Case`; b, h, t and j are the indices
of a sentence, a head, a query and a key.
"""

import itertools
import math

import pytest
import torch
from support.parts import encoding_of, places_of

from fairseq_posenc.encodings import ENCODINGS, Places
from fairseq_posenc.encodings.content import Content

B, H, D = 2, 2, 4
#: small sizes, and clip distances below the lengths of the texts
SMALL = {
    **{"shaw_max_distance": 2, "deberta_max_distance": 3, "nezha_max_distance": 2},
    **{"cope_max_position": 3, "fire_width": 5, "dape_width": 5, "sandwich_dim": 6},
    **{"t5_num_buckets": 8, "t5_max_distance": 6},
}
# query and key lengths: training, one decoding step, several tokens at once, the first token
LENGTHS = [(6, 6), (1, 6), (3, 6), (1, 1)]
#: the registered encodings whose logits depend on queries, keys or hidden states
CONTENT = [name for name, entry in ENCODINGS.items() if entry.content]


class Parts:
    """The modules of an encoding outside of any model, in float64, with random parameters."""

    def __init__(self, name, **flags):
        self.encoding = encoding_of(name, **{"heads": H, "head_dim": D, **SMALL, **flags})
        self.shared, self.tables = self.encoding.shared_bias, self.encoding.vectors
        self.terms = self.encoding.build_content_bias()
        for module in (self.shared, self.terms, self.tables):
            for parameter in module.parameters() if module else ():
                torch.nn.init.normal_(parameter)
            if module:
                module.double()

    def logits(self, q, k, scale=1.0, x=None, places=None, **more):
        """The summands of the logits that depend on queries, keys or hidden states."""
        places = places or places_of(q.size(2), k.size(2))
        content = Content(x, q, k, scale, places, **more)
        return self.terms(content, self.encoding.distance_vectors(places, q), {})


class Case(Parts):
    """An encoding with queries and keys: the last *length* of *keys* tokens are queries.

    Keys are at *positions* (B, S), by default 0, 1, 2 and so on.  The first *padded* tokens of the
    last sentence are padding.
    """

    def __init__(self, name, length, keys, positions=None, padded=0, **flags):
        super().__init__(name, **flags)
        self.options, self.causal = self.encoding.options, self.encoding.stack.causal
        self.scale, self.first = 0.3, keys - length
        self.q, self.k = random(B, H, length, D), random(B, H, keys, D)
        self.x = random(B, keys, H * D)
        self.padding = torch.zeros(B, keys, dtype=torch.bool)
        self.padding[-1, :padded] = True
        self.places, self.at = places_of(length, keys), torch.arange(keys).expand(B, -1)
        if positions is not None:
            self.at = positions
            self.places = Places(positions[:, self.first :], positions, int(positions.max()) + 1)

    def computed(self):
        """The logits (B, H, T, S) that the package computes."""
        total = 0.0 if self.shared is None else self.shared(self.places).double()
        if self.terms is not None:
            more = {"padding_mask": self.padding, "key_states": self.terms.key_states(self.x)}
            total = total + self.logits(self.q, self.k, self.scale, self.x, self.places, **more)
        return total.detach().expand(B, H, self.q.size(2), -1)

    def by_hand(self):
        """The logits (B, H, T, S) that the functions in LOGITS compute."""
        out = torch.zeros(B, H, self.q.size(2), self.k.size(2), dtype=torch.double)
        for b, h, t, j in itertools.product(*map(range, out.shape)):
            for name in set(self.encoding.name.split("+")) & set(LOGITS):
                out[b, h, t, j] += float(LOGITS[name](self, b, h, t, j))
        return out

    def distance(self, b, t, j):
        """The position of query t minus the position of key j."""
        return int(self.at[b, self.first + t] - self.at[b, j])


def clip(value, least, most):
    return max(least, min(most, value))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def alibi(c, b, h, t, j):
    return -(2 ** (-8 * (h + 1) / H)) * abs(c.distance(b, t, j))


def kerple(c, b, h, t, j, module=None):
    module, d = module or c.shared["kerple"], abs(c.distance(b, t, j))
    r1, shape = module.scale[h].exp(), module.shape[h]
    if c.options.kerple_kernel == "power":
        return -r1 * d ** (2 * sigmoid(shape))
    return -r1 * math.log(1 + math.exp(shape) * d)


def fire(c, b, h, t, j, module=None):
    module, d = module or c.shared["fire"], c.distance(b, t, j)
    i, threshold = int(c.at[b, c.first + t]), module.log_length.exp()

    def psi(x):
        return math.log(module.log_c.exp() * x + 1)

    if d < 0:  # in an encoder: i and j are exchanged, and the input is negated
        x = 0.0 if c.causal else -psi(-d) / psi(max(threshold, int(c.at[b, j])))
    else:
        x = psi(d) / psi(max(threshold, i))
    hidden = (module.weight_in * x + module.bias_in).relu()
    return module.weight_out[h] @ hidden + module.bias_out[h]


def sandwich(c, b, h, t, j):
    """p_i · p_j / (8h/H) up to a constant for each query, which does not change a softmax."""
    total = sum(math.cos(c.distance(b, t, j) / 10000 ** (2 * n / 6)) for n in range(1, 4))
    return (total - 3) / (8 * (h + 1) / H)


def bucket(distance, buckets, most, causal):
    """T5's bucket of a distance (key minus query): exact, then logarithmic, then the last one."""
    if not causal:
        side = buckets // 2 if distance > 0 else 0
        return side + bucket(-abs(distance), buckets // 2, most, True)
    back, exact = max(0, -distance), buckets // 2
    if back < exact:
        return back
    share = math.log(back / exact) / math.log(most / exact)
    return min(buckets - 1, exact + int(share * (buckets - exact)))


def t5(c, b, h, t, j):
    row = bucket(-c.distance(b, t, j), 8, 6, c.causal)
    if not c.options.t5_products:
        return c.shared["t5"].table.weight[row, h]
    parts = c.shared["t5"].products
    r = parts.table.weight[row]
    q, k = ((p.weight @ r).view(H, D)[h] for p in (parts.q_proj, parts.k_proj))
    return (q @ k) / math.sqrt(2 * D)


def untied(module, p):
    """TUPE's U^Q and U^K, each (N, H, D), applied to the rows p (N, C) after layer norm."""
    mean, variance = p.mean(-1, keepdim=True), p.var(-1, keepdim=True, unbiased=False)
    p = (p - mean) / (variance + 1e-5).sqrt() * module.norm.weight + module.norm.bias
    projected = [p @ f.weight.t() + f.bias for f in (module.q_proj, module.k_proj)]
    return [x.view(len(p), -1, module.head_dim) for x in projected]


def tupe(c, b, h, t, j):
    """TUPE Eq. 7, the second summand."""
    module, i, j = c.shared["tupe"], c.at[b, c.first + t], c.at[b, j]
    if module.free is not None:
        return module.free[h, i, j]
    q, k = untied(module, module.table.weight[torch.stack((i, j))])
    return q[0, h] @ k[1, h] / math.sqrt(2 * D)


def shaw(c, b, h, t, j):
    """Shaw et al. Eq. 4, the second summand."""
    vector = shaw_vector(c, c.terms["shaw"].key_table, h, c.distance(b, t, j))
    return c.scale * c.q[b, h, t] @ vector


def shaw_vector(c, table, h, distance):
    row = clip(-distance, -2, 0 if c.causal else 2) + 2
    return table.weight[row].view(-1, D)[h if c.options.shaw_per_head else 0]


def nezha(c, b, h, t, j):
    return c.scale * c.q[b, h, t] @ sines(clip(-c.distance(b, t, j), -2, 2), D)


def sines(distance, dim):
    angles = [distance / 10000 ** (2 * t / dim) for t in range(dim // 2)]
    pairs = [(math.sin(x), math.cos(x)) for x in angles]
    return torch.tensor(pairs, dtype=torch.double).flatten()


def transformer_xl(c, b, h, t, j):
    """RoFormer Eq. 34, the last three summands."""
    term, q, k = c.terms["transformer_xl"], c.q[b, h, t], c.k[b, h, j]
    r = (term.proj.weight @ sines(c.distance(b, t, j), H * D))[h * D : (h + 1) * D]
    return c.scale * (q @ r + term.u[h, 0] @ k + term.v[h, 0] @ r)


def deberta(c, b, h, t, j):
    """DeBERTa Eq. 4, the last two summands, with δ of Eq. 3."""
    term, table = c.terms["deberta"], c.tables["deberta"].table.weight
    to_key, head = c.distance(b, t, j), slice(h * D, h * D + D)
    to_query = to_key if c.options.deberta_released else -to_key
    r_k, r_q = (table[clip(d, -3, 2) + 3] for d in (to_key, to_query))
    to_position = c.q[b, h, t] @ (term.k_proj.weight @ r_k)[head]
    return c.scale * (to_position + c.k[b, h, j] @ (term.q_proj.weight @ r_q)[head])


def cope(c, b, h, t, j):
    q, i, e = c.q[b, h, t], c.first + t, c.terms["cope"].table.weight
    gates = [sigmoid(c.scale * q @ c.k[b, h, m]) * (not c.padding[b, m]) for m in range(j, i + 1)]
    p = min(3.0, sum(gates))
    low = min(int(p), 2)
    return c.scale * q @ (e[low] + (p - low) * (e[low + 1] - e[low]))


def fox_gate(c, b, h, m):
    return sigmoid(c.terms["fox"].weight[h] @ c.x[b, m] + c.terms["fox"].bias[h])


def fox(c, b, h, t, j):
    """Lin et al. 2503.02130, Eq. 5 to 7."""
    return sum(math.log(fox_gate(c, b, h, m)) for m in range(j + 1, c.first + t + 1))


def dape(c, b, h, t, j):
    term, bias = c.terms["dape"], c.options.dape_bias
    more = () if bias == "alibi" else (term.bias,)
    static = torch.tensor([float(LOGITS[bias](c, b, g, t, j, *more)) for g in range(H)]).double()
    products = c.scale * (c.q[b, :, t] * c.k[b, :, j]).sum(-1)
    hidden = term.first.weight @ torch.cat((products, static)) + term.first.bias
    hidden = torch.where(hidden > 0, hidden, 0.01 * hidden)
    return static[h] + term.second.weight[h] @ hidden + term.second.bias[h]


LOGITS = {
    f.__name__: f
    for f in (alibi, kerple, fire, sandwich, t5, tupe, shaw, nezha, transformer_xl, deberta, cope)
}
LOGITS.update(fox=fox, dape=dape)
lengths = pytest.mark.parametrize("length, keys", LENGTHS)


def rotation_matrix(m, dim, base=10000.0, pairing="interleaved"):
    """R_m of RoFormer Eq. 7 in float64, written out entry by entry."""
    matrix = torch.zeros(dim, dim, dtype=torch.float64)
    for i in range(dim // 2):
        a, b = (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + dim // 2)
        angle = m * base ** (-2.0 * i / dim)
        matrix[a, a] = matrix[b, b] = math.cos(angle)
        matrix[a, b], matrix[b, a] = -math.sin(angle), math.sin(angle)
    return matrix


def random(*shape):
    return torch.randn(*shape, dtype=torch.double)
