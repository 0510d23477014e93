# %% [markdown]
# # A walk through "Attention Is All You Need"
#
# This page goes through the sections of the paper
# ([arXiv:1706.03762](https://arxiv.org/abs/1706.03762)), beginning with attention, of which the
# layers are made. Each has an equation, **the function of this project that computes it**, a few
# numbers, and a picture. No part of the model is written a second time for the page: what you see
# printed is the code that trains the real models. What a few lines can check is followed by an
# `assert`, so that the page stops where a claim does not hold. Try it: remove
# `/ query.size(-1) ** 0.5` from `attention` (vaswani_transformer/attention.py), and run the
# page again.
#
# It runs in half a minute on one core: `python examples/paper.py`, or in a notebook, `paper.ipynb`.
# It needs torch and matplotlib; the last section, which translates with a trained model, also what
# prepares its text (`pip install -e '.[text,plots]'`).

# %%
import copy
import inspect
import math
import time

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from vaswani import Translator
from vaswani.attention_page.maps import attend, view
from vaswani.common.environment import plugin_dir
from vaswani.experiment.averaging import average_models
from vaswani_transformer import Transformer, Vocabulary, base
from vaswani_transformer.attention import SelfAttention, attention, causal_mask
from vaswani_transformer.embedding import (
    InputEmbedding,
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
)
from vaswani_transformer.layers import AddAndNorm, EncoderLayer, FeedForward
from vaswani_transformer.loss import label_smoothed_loss, smoothing_per_class
from vaswani_transformer.schedule import learning_rate
from vaswani_transformer.search.loop import search_loop
from vaswani_transformer.search.scoring_rules import GnmtRule
from vaswani_transformer.vocabulary import PAD

torch.manual_seed(0)
plt.rcParams.update({"figure.figsize": (8, 3), "figure.constrained_layout.use": True})


def code(function):
    """Print the source of one of our functions or classes."""
    print(inspect.getsource(function))


def heat(axis, matrix, title, **labels):
    """Draw a matrix: rows from top to bottom, the darker the larger."""
    matrix = matrix.detach().numpy()
    lightest = min(0.0, float(matrix.min()))
    axis.imshow(matrix, cmap="Blues", vmin=lightest, aspect="auto", interpolation="nearest")
    axis.set(title=title, **labels)


# %% [markdown]
# ## 3.2.1 Scaled dot-product attention
#
# $$\mathrm{Attention}(Q, K, V) =
# \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V \qquad(1)$$
#
# Each query is compared with every key. The softmax turns the comparisons into weights that sum to
# one, and the result is the average of the values with these weights.

# %%
code(attention)

# %% [markdown]
# Three words with vectors of two numbers. The first two words are alike, so they attend mostly to
# each other. Shapes are [batch, heads, words, width], here [1, 1, 3, 2].

# %%
words = torch.tensor([[2.0, 0.0], [1.8, 0.4], [0.0, 2.0]])[None, None]
attended, weights = attention(words, words, words)
print("weights, one row per query:\n", weights[0, 0])
print("attended values:\n", attended[0, 0])

assert torch.allclose(weights.sum(-1), torch.ones(1, 1, 3))
by_hand = [math.exp(score / math.sqrt(2)) for score in (4.0, 3.6, 0.0)]  # q₁·k₁, q₁·k₂, q₁·k₃
assert torch.allclose(weights[0, 0, 0], torch.tensor(by_hand) / sum(by_hand))

# %% [markdown]
# ### Why divide by $\sqrt{d_k}$?
#
# The paper's footnote 4: if the components of $q$ and $k$ are independent, with mean 0 and variance
# 1, then $q \cdot k = \sum_{i=1}^{d_k} q_i k_i$ has variance $d_k$. We measure it from the weights
# that our function returns: the logarithm of a softmax is its input minus something common to all
# keys, so over the keys both have the same variance. To undo the division, the queries are
# multiplied by $\sqrt{d_k}$.

# %%
WIDTHS = [4, 16, 64, 256, 1024]


def queries_and_keys(width):
    """500 queries, each with 16 keys of its own; every component is drawn from N(0, 1)."""
    shapes = (500, 1, 1, width), (500, 1, 16, width)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def variance_of_scores(width, times):
    """The variance over the keys, averaged over the queries."""
    query, key = queries_and_keys(width)
    _, weights = attention(times * query, key, key)
    return float(weights.log().var(dim=-1).mean())


scaled = [variance_of_scores(d_k, times=1) for d_k in WIDTHS]
unscaled = [variance_of_scores(d_k, times=math.sqrt(d_k)) for d_k in WIDTHS]
for d_k, small, large in zip(WIDTHS, scaled, unscaled, strict=True):
    print(f"d_k = {d_k:4}: variance of the scores {small:5.2f}; without the division {large:7.1f}")
    assert abs(small - 1) < 0.15
    assert abs(large / d_k - 1) < 0.15

# %% [markdown]
# A softmax of large scores is nearly a choice of one key, and then it hardly changes when the
# scores change a little: its gradient vanishes. A mask is *added* to the scores, so the gradient
# at a mask of zeros is the gradient at the scores.


# %%
def gradient_at_scores(width, times):
    """How much the greatest weight depends on the scores: the norm of its gradient."""
    query, key = queries_and_keys(width)
    mask = torch.zeros(500, 1, 1, 16, dtype=torch.float64, requires_grad=True)
    _, weights = attention(times * query, key, key, mask)
    (gradient,) = torch.autograd.grad(weights.amax(-1).sum(), mask)
    return float(gradient.norm(dim=-1).mean())


with_scale = [gradient_at_scores(d_k, times=1) for d_k in WIDTHS]
without_scale = [gradient_at_scores(d_k, times=math.sqrt(d_k)) for d_k in WIDTHS]

figure, (left, right) = plt.subplots(1, 2)
left.semilogx(WIDTHS, unscaled, "o-", base=2, label="q·k")
left.semilogx(WIDTHS, scaled, "o-", base=2, label="q·k / √d_k")
left.set(title="variance of the scores", xlabel="d_k", yscale="log")
left.legend()
right.semilogx(WIDTHS, without_scale, "o-", base=2, label="q·k")
right.semilogx(WIDTHS, with_scale, "o-", base=2, label="q·k / √d_k")
right.set(title="gradient of the softmax", xlabel="d_k", ylim=0)
plt.show()

assert max(with_scale) < 1.2 * min(with_scale)  # the same at every width
assert without_scale[-1] < with_scale[-1] / 3

# %% [markdown]
# **Notice** that with the division neither curve depends on the width. Without it the variance
# grows in proportion to the width, and at $d_k = 1024$ three quarters of the gradient are lost.
#
# ### Additive attention
#
# "The two most commonly used attention functions are additive attention, and dot-product
# attention." Additive attention (Bahdanau et al., 2015) compares by a small network,
# $v^\top \tanh(W q + U k)$. It is not part of our model, so here it is, to be compared with.


# %%
def additive_scores(query, key, w, u, v):
    """[T, d] and [S, d] → [T, S]; on the way it makes T · S · d numbers."""
    return torch.tanh((query @ w)[:, None] + (key @ u)[None]) @ v


def keys_in_use(weights):
    """exp(entropy): 16 if all of 16 keys have the same weight, 1 if one has all of it."""
    return float(torch.special.entr(weights).sum(-1).exp().mean())


def used_by_each(width):
    """Keys in use with untrained additive attention, q·k / √d_k and q·k."""
    query, key = torch.randn(500, width), torch.randn(16, width)
    w, u = (nn.init.xavier_uniform_(torch.empty(width, width)) for _ in range(2))
    v = nn.init.xavier_uniform_(torch.empty(width, 1))[:, 0]
    q, k = query[None, None], key[None, None]
    return [
        keys_in_use(torch.softmax(additive_scores(query, key, w, u, v), dim=-1)),
        keys_in_use(attention(q, k, k)[1]),
        keys_in_use(attention(math.sqrt(width) * q, k, k)[1]),
    ]


in_use = [used_by_each(d_k) for d_k in WIDTHS]

# %% [markdown]
# And their cost, for sentences of 32 to 256 words and $d_k = 64$:


# %%
def milliseconds(function):
    """The quickest of five calls."""
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        function()
        times.append(1000 * (time.perf_counter() - begun))
    return min(times)


LENGTHS = [32, 64, 128, 256]
w, u, v = torch.randn(64, 64), torch.randn(64, 64), torch.randn(64)
additive_times, dot_times = [], []
for length in LENGTHS:
    x = torch.randn(length, 64)
    heads = x[None, None]
    additive_times.append(milliseconds(lambda x=x: additive_scores(x, x, w, u, v).softmax(-1) @ x))
    dot_times.append(milliseconds(lambda x=heads: attention(x, x, x)))

figure, (left, right) = plt.subplots(1, 2)
for values, name in zip(zip(*in_use, strict=True), ("additive", "q·k / √d_k", "q·k"), strict=True):
    left.semilogx(WIDTHS, values, "o-", base=2, label=name)
left.set(title="keys in use, of 16", xlabel="d_k", ylim=(0, 16))
left.legend()
right.semilogx(LENGTHS, additive_times, "o-", base=2, label="additive")
right.semilogx(LENGTHS, dot_times, "o-", base=2, label="dot-product")
right.set(title="milliseconds", xlabel="words", yscale="log")
right.legend()
plt.show()

additive, dot, unscaled_dot = in_use[-1]
assert min(additive, dot) > 6 and unscaled_dot < 2
assert additive_times[-1] > dot_times[-1]

# %% [markdown]
# **Notice** on the left that additive attention needs no scale: the $\tanh$ keeps its scores small
# at any width, as the division does for dot products. The unscaled dot product is nearest to these
# two at the smallest $d_k$, and looks at a single key at the largest: "for small values of $d_k$
# the two mechanisms perform similarly", but additive attention is the better one "for larger
# values of $d_k$", and the division is the paper's remedy. On the right, "dot-product attention is
# much faster and more space-efficient in practice, since it can be implemented using highly
# optimized matrix multiplication code": the additive one makes 64 numbers for each pair of words,
# the dot product makes one.
#
# ## 3.2.3 Masks
#
# A query must not look at padding, and in the decoder it must not look at later words. "We
# implement this inside of scaled dot-product attention by masking out (setting to −∞) all values
# in the input of the softmax which correspond to illegal connections."
#
# $$\mathrm{softmax}\left(\frac{QK^T}{\sqrt{d_k}} + M\right)V, \qquad
# M_{ij} = -\infty \text{ where } i \text{ must not look at } j, \text{ else } 0$$

# %%
code(causal_mask)

# %%
query, key = torch.randn(1, 1, 6, 16), torch.randn(1, 1, 6, 16)
is_padding = torch.tensor([[True, True, False, False, False, False]])  # fairseq pads on the left
masks = {
    "no mask": None,
    "causal": causal_mask(6),
    "padding": ~is_padding[:, None, None, :],
}
figure, axes = plt.subplots(1, 3, figsize=(8, 2.6))
for axis, (name, mask) in zip(axes, masks.items(), strict=True):
    _, weights = attention(query, key, key, mask)
    heat(axis, weights[0, 0], name, xlabel="key", ylabel="query")
    assert torch.allclose(weights.sum(-1), torch.ones(1, 1, 6))  # a mask takes no weight away
plt.show()

_, causal = attention(query, key, key, masks["causal"])
_, unpadded = attention(query, key, key, masks["padding"])
assert causal[0, 0].triu(1).eq(0).all() and unpadded[..., :2].eq(0).all()

# %% [markdown]
# **Notice** that the weight of what is hidden goes to what is not: each row still sums to one. In
# the causal picture the first word can only look at itself.
#
# ## 3.2.2 Multi-head attention
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, …, \mathrm{head}_h)\,W^O
# \quad\text{where}\quad \mathrm{head}_i = \mathrm{Attention}(QW^Q_i, KW^K_i, VW^V_i)$$
#
# In our class all $W^Q_i$, $W^K_i$ and $W^V_i$ are slices of one matrix, so that one product
# computes them all.

# %%
self_attention = SelfAttention(embed_dim=64, num_heads=8)
x = torch.randn(1, 10, 64)
out, weights = self_attention(x, need_weights=True)

query, key, value = (
    self_attention.split_heads(part) for part in self_attention.qkv_proj(x).chunk(3, dim=-1)
)
heads = [
    attention(query[:, [i]], key[:, [i]], value[:, [i]])[0][:, 0]  # [1, 10, 8]
    for i in range(8)
]
assert torch.allclose(out, self_attention.out_proj(torch.cat(heads, dim=-1)), atol=1e-5)

figure, axes = plt.subplots(2, 4, figsize=(8, 4))
for number, axis in enumerate(axes.flat):
    heat(axis, weights[0, number], f"head {number + 1}", xticks=[], yticks=[])
plt.show()

parameters = {
    h: sum(p.numel() for p in SelfAttention(embed_dim=64, num_heads=h).parameters())
    for h in (1, 2, 4, 8)
}
print("parameters for each number of heads:", parameters)
assert set(parameters.values()) == {4 * 64 * 64 + 4 * 64}  # W^Q, W^K, W^V, W^O and their biases

# %% [markdown]
# **Notice** that each head attends differently, even with random weights, and that eight heads have
# as many parameters as one: "due to the reduced dimension of each head, the total computational
# cost is similar to that of single-head attention with full dimensionality."
#
# Why several? "With a single attention head, averaging inhibits this." A head that attends to two
# words returns their average, and an average forgets which word was which. Two heads do not:

# %%
subject, object_ = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
there, back = torch.stack([subject, object_]), torch.stack([object_, subject])  # two word orders

both = torch.zeros(1, 1, 1, 2)  # this query likes both keys the same
keys = torch.eye(2)[None, None]
one_head = [attention(both, keys, v[None, None])[0] for v in (there, back)]

each = torch.tensor([[30.0, 0.0], [0.0, 30.0]])[None, :, None]  # head 1: first word; 2: second
two_heads = [
    attention(each, keys.expand(1, 2, 2, 2), v.expand(1, 2, 2, 2))[0] for v in (there, back)
]
print("one head: ", one_head[0].flatten(), one_head[1].flatten())
print("two heads:", two_heads[0].flatten(), two_heads[1].flatten())
assert torch.equal(one_head[0], one_head[1])
assert not torch.allclose(two_heads[0], two_heads[1], atol=0.9)

# %% [markdown]
# ## 3.1 The encoder: residual connections and norms
#
# $$\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$$
#
# The norm comes after the sum. Many published implementations normalise the input of the sub-layer
# instead. That is another model: it also needs a norm at the end of each stack
# ([more](../docs/bugs.md#seen-in-published-code)).

# %%
code(AddAndNorm.forward)
code(EncoderLayer.forward)

# %%
add_and_norm = AddAndNorm(embed_dim=64, dropout=0.0)
x = 5 + 3 * torch.randn(2, 10, 64)
normed = add_and_norm(x, torch.randn(2, 10, 64))
print(f"before: mean {x.mean():.2f}, variance {x.var():.2f}")
print(f"after:  mean {normed.mean():.2f}, variance {normed.var():.2f}")
assert normed.mean(-1).abs().max() < 1e-5  # of every word on its own
assert (normed.var(-1, unbiased=False) - 1).abs().max() < 1e-3

# %%
summed = normed = torch.randn(1, 10, 64)
spreads = []
with torch.no_grad():
    for sublayer in [FeedForward(embed_dim=64, ffn_embed_dim=256) for _ in range(24)]:
        summed = summed + sublayer(summed)
        normed = add_and_norm(normed, sublayer(normed))
        spreads.append((float(summed.std()), float(normed.std())))

plt.figure(figsize=(4, 2.5))
for values, name in zip(zip(*spreads, strict=True), ("x + Sublayer(x)", "normed"), strict=True):
    plt.plot(range(1, 25), values, label=name)
plt.xlabel("sub-layers")
plt.ylabel("standard deviation")
plt.legend()
plt.show()
assert spreads[-1][0] > 1.5 and abs(spreads[-1][1] - 1) < 0.01

# %% [markdown]
# **Notice** that each sum adds to the size of the numbers, also in a model that has not learned
# anything. With the norm, the 24th sub-layer receives numbers of the same size as the first.
#
# ## 3.3 Position-wise feed-forward networks
#
# $$\mathrm{FFN}(x) = \max(0, xW_1 + b_1)W_2 + b_2 \qquad(2)$$
#
# "Another way of describing this is as two convolutions with kernel size 1." So it is:

# %%
code(FeedForward.forward)

# %%
ffn = FeedForward(embed_dim=64, ffn_embed_dim=256)
x = torch.randn(1, 8, 64)
hidden = F.relu(F.conv1d(x.transpose(1, 2), ffn.fc1.weight[:, :, None], ffn.fc1.bias))
convolved = F.conv1d(hidden, ffn.fc2.weight[:, :, None], ffn.fc2.bias).transpose(1, 2)
assert torch.allclose(ffn(x), convolved, atol=1e-5)

# %% [markdown]
# "Applied to each position separately and identically": no word learns of another. We look at which
# input words each output word depends on, by the gradient.


# %%
def dependence(layer, length=8):
    """[output word, input word]: the norm of the gradient of one by the other."""
    x = torch.randn(1, length, 64)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x)[0].sum(-1), x)
    return jacobian[:, 0].norm(dim=-1)


self_attention = SelfAttention(embed_dim=64, num_heads=8)
layers = {
    "feed-forward": ffn,
    "self-attention": lambda x: self_attention(x)[0],
    "masked self-attention": lambda x: self_attention(x, is_causal=True)[0],
}
figure, axes = plt.subplots(1, 3, figsize=(8, 2.6))
for axis, (name, layer) in zip(axes, layers.items(), strict=True):
    heat(axis, dependence(layer).gt(0).float(), name, xlabel="input", ylabel="output")
plt.show()

assert torch.equal(dependence(ffn).gt(0), torch.eye(8, dtype=torch.bool))
assert torch.equal(dependence(layers["masked self-attention"]).triu(1), torch.zeros(8, 8))
assert dependence(layers["self-attention"]).gt(0).all()

# %% [markdown]
# **Notice** that words meet in attention only, and that a single self-attention layer connects
# every word with every other: Table 1's "maximum path length" of one step.
#
# ## 3.4 Embeddings and softmax
#
# "We share the same weight matrix between the two embedding layers and the pre-softmax linear
# transformation. In the embedding layers, we multiply those weights by $\sqrt{d_{model}}$."
#
# $$x_i = \sqrt{d_{model}}\;E_{y_i} + PE(i), \qquad
# P(y_{i+1} \mid y_1, …, y_i) = \mathrm{softmax}(E\,h_i)$$

# %%
code(InputEmbedding.embed)

# %%
LETTERS = Vocabulary("abcdefghij")
END = LETTERS.eos()


def new_model(width=32, layers=1):
    """The whole model, with sizes for a page like this one."""
    sizes = {"layers": layers, "embed_dim": width, "ffn_embed_dim": 2 * width, "attention_heads": 4}
    options = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()}
    return Transformer(base(**options, dropout=0.0), len(LETTERS), len(LETTERS))


model = new_model()
matrix = model.encoder.embedding.tokens.weight
assert matrix is model.decoder.embedding.tokens.weight
assert matrix is model.decoder.output_projection.weight

# %% [markdown]
# Why the factor? As a pre-softmax matrix the weights have to be small (standard deviation
# $1/\sqrt{d_{model}}$), so that the logits start near variance 1. As embeddings they would then be
# far smaller than the positions, which are sines and cosines. The factor makes them as large.

# %%
MODEL_WIDTHS = [32, 64, 128, 256, 512]
tokens = torch.arange(4, len(LETTERS))[None]
small, large, positions = [], [], []
for d_model in MODEL_WIDTHS:
    embedding = new_model(d_model).encoder.embedding
    added = sinusoids(tokens.size(1), d_model).float()
    with torch.no_grad():
        large.append(float((embedding(tokens) - added).std()))  # what 3.4 makes of the words
        small.append(float(embedding.tokens(tokens).std()))
    positions.append(float(added.square().mean().sqrt()))
    assert abs(large[-1] - 1) < 0.2
    assert abs(positions[-1] - math.sqrt(0.5)) < 0.01  # the mean of sin² and cos² is 1/2

plt.figure(figsize=(5, 3))
plt.semilogx(MODEL_WIDTHS, large, "o-", base=2, label="words × √d_model")
plt.semilogx(MODEL_WIDTHS, positions, "k--", base=2, label="positions")
plt.semilogx(MODEL_WIDTHS, small, "o-", base=2, color="C3", label="words without the factor")
plt.xlabel("d_model")
plt.ylabel("typical size")
plt.ylim(0)
plt.legend()
plt.show()

assert 14 < positions[-1] / small[-1] < 18

# %% [markdown]
# **Notice** that at the paper's width of 512 the positions would be sixteen times as large as the
# words. What that costs in training is in [docs/bugs.md](../docs/bugs.md#a), bug A.
#
# ## 3.5 Positional encoding
#
# ### Without positions, order is lost
#
# Shuffle the words, and the encoder's outputs are shuffled in the same way, and not otherwise
# changed: without positions the encoder is *permutation-equivariant*.


# %%
def encoded(x):
    """Embedded words through all layers of the encoder."""
    for layer in model.encoder.layers:
        x, _ = layer(x, None)
    return x


model = new_model(layers=2).eval()
tokens = torch.arange(4, 12)[None]
order = torch.tensor([3, 7, 0, 5, 1, 6, 2, 4])
bare = model.encoder.embedding.tokens(tokens) * math.sqrt(32)
placed, placed_shuffled = (model.encoder.embedding(t) for t in (tokens, tokens[:, order]))

without_positions = (encoded(bare[:, order]) - encoded(bare)[:, order]).norm(dim=-1)[0]
with_positions = (encoded(placed_shuffled) - encoded(placed)[:, order]).norm(dim=-1)[0]
print("each word's output, shuffled or not, differs by")
print("without positions:", without_positions.detach().numpy().round(5))
print("with positions:   ", with_positions.detach().numpy().round(1))
assert without_positions.max() < 1e-4
assert with_positions.min() > 0.1

# %% [markdown]
# ### Sines and cosines
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}}) \qquad
# PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$

# %%
code(sinusoids)

# %%
table = sinusoids(2000, 64)
offsets = torch.arange(-60, 61)
figure, (left, right) = plt.subplots(1, 2)
heat(left, table[:80], "the first 80 positions", xlabel="dimension", ylabel="position")
for position, style in ((100, "-"), (500, "--"), (1500, ":")):
    right.plot(offsets, table[position + offsets] @ table[position], style, label=f"pos {position}")
right.set(title="PE(pos) · PE(pos + k)", xlabel="k")
right.legend()
plt.show()

expected = [math.sin(7 / 10000 ** (10 / 64)), math.cos(7 / 10000 ** (10 / 64))]  # pos 7, i = 5
assert torch.allclose(table[7, 10:12], torch.tensor(expected, dtype=torch.float64))
assert torch.allclose(table[100 + offsets] @ table[100], table[1500 + offsets] @ table[1500])

# %% [markdown]
# **Notice** on the left that dimensions turn slower and slower from left to right. On the right the
# three curves are one: how similar two positions are depends on their distance alone.
#
# "We hypothesized it would allow the model to easily learn to attend by relative positions, since
# for any fixed offset $k$, $PE_{pos+k}$ can be represented as a linear function of $PE_{pos}$."
# Here is the function: a rotation of each pair of dimensions, by $k$ times its frequency.

# %%
frequencies = 10000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)


def rotation(k):
    """The matrix that moves any position on by k."""
    cosines, sines = (k * frequencies).cos(), (k * frequencies).sin()
    return torch.block_diag(
        *(torch.tensor([[c, s], [-s, c]]) for c, s in zip(cosines, sines, strict=True))
    )


for k in (1, 10, 365):
    moved = table[: 2000 - k] @ rotation(k).T  # one matrix for all positions
    assert torch.allclose(moved, table[k:])
    print(f"PE(pos + {k}) = M PE(pos): greatest error {(moved - table[k:]).abs().max():.1e}")

# %% [markdown]
# ### Positions beyond the trained length
#
# The sinusoids "may allow the model to extrapolate to sequence lengths longer than the ones
# encountered during training". They exist at any position. Learned positions, which gave "nearly
# identical results" (Table 3, row E), end where their table ends. Whether a *model* extrapolates is
# another question: we come to it below.

# %%
far = torch.tensor([[100_000]])
print("position 100,000:", SinusoidalPositions(8)(far, 100_001, like=torch.zeros(1))[0, 0])
try:
    LearnedPositions(50, 8)(torch.tensor([[50]]), 51, like=torch.zeros(1))
except ValueError as error:
    print("learned:", error)
else:
    raise AssertionError("a table of 50 rows has no row 50")

# %% [markdown]
# ## 5.3 The learning rate
#
# $$lrate = d_{model}^{-0.5} \cdot
# \min(step^{-0.5},\; step \cdot warmup\_steps^{-1.5}) \qquad(3)$$

# %%
code(learning_rate)

# %%
steps = range(1, 50_000, 50)
figure, (left, right) = plt.subplots(1, 2)
for d_model, warmup in ((512, 4000), (512, 8000), (1024, 4000), (256, 4000)):
    rates = [learning_rate(step, d_model, warmup) for step in steps]
    left.plot(steps, rates, label=f"d_model {d_model}, warm-up {warmup}")
left.set(title="equation 3", xlabel="updates", xlim=(0, 20_000))
left.legend(fontsize=7)
for batch in (25_000, 4_000):
    rates = [learning_rate(step, 512, 4000) for step in steps]
    right.plot([step * batch / 1e6 for step in steps], rates, label=f"{batch:,} tokens an update")
right.set(title="the same against the text seen", xlabel="million tokens", xlim=(0, 200))
right.legend(fontsize=7)
plt.show()

peak = learning_rate(4000, 512, 4000)
assert math.isclose(peak, (512 * 4000) ** -0.5)
assert peak > learning_rate(3999, 512, 4000) and peak > learning_rate(4001, 512, 4000)
assert math.isclose(learning_rate(8000, 512, 4000), peak / math.sqrt(2))
assert math.isclose(learning_rate(4000, 1024, 4000), peak / math.sqrt(2))
assert math.isclose(learning_rate(4000, 512, 16000), peak / 8)  # still in its warm-up

# %% [markdown]
# **Notice** what each number does. A wider model takes smaller steps, by $1/\sqrt{d_{model}}$. A
# longer warm-up lowers the peak, and later all curves of one width are the same. The batch is not
# in the formula at all: with a sixth of the paper's 25,000 tokens an update, the warm-up is over
# after a sixth of the text, at the same rate but with noisier gradients. So a small batch usually
# needs a longer warm-up, or gradients added up over several batches (fairseq's `--update-freq`).
#
# ## 5.4 Label smoothing
#
# The target is not "this word, certainly" but "this word with $1 - \epsilon_{ls}$, any other with a
# share of $\epsilon_{ls}$".

# %%
code(label_smoothed_loss)
code(smoothing_per_class)


# %%
def loss_at(confidence, epsilon, classes=5):
    """The loss when the right class has this probability, and the others share the rest."""
    probabilities = torch.full((1, classes), (1 - confidence) / (classes - 1), dtype=torch.float64)
    probabilities[0, 3] = confidence
    loss, _ = label_smoothed_loss(probabilities.log(), torch.tensor([3]), epsilon, padding_idx=0)
    return float(loss)


confidences = torch.linspace(0.3, 0.999, 700).tolist()
target = torch.full((5,), smoothing_per_class(0.1, 5))
target[3] = 0.9
assert math.isclose(target.sum(), 1, rel_tol=1e-6)

figure, (left, right) = plt.subplots(1, 2)
left.bar(range(5), target.tolist())
left.set(title="the target of class 3, ε = 0.1", xlabel="class")
for epsilon in (0.0, 0.1, 0.2):
    losses = [loss_at(confidence, epsilon) for confidence in confidences]
    right.plot(confidences, losses, label=f"ε = {epsilon}")
    best = confidences[losses.index(min(losses))]
    assert abs(best - min(1 - epsilon, 0.999)) < 0.002
right.set(title="loss", xlabel="probability of the right class", ylim=(0, 2))
right.legend()
plt.show()

# %% [markdown]
# **Notice** where each curve is lowest: at $1 - \epsilon$. A model that is surer than that is
# punished. "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and
# BLEU score." And the lowest loss is not zero: do not compare losses across values of $\epsilon$.
#
# ## 5 Training, in two seconds
#
# Now all of it together: a model of one layer per side and width 32 learns to copy strings of 2 to
# 10 letters. The loop below is what fairseq does for the real models: the loss of 5.4, the
# schedule of 5.3, and Adam with the paper's $\beta_2 = 0.98$.


# %%
def strings(length, count, generator):
    """Random strings as source, decoder input (shifted right) and target."""
    letters = torch.randint(4, len(LETTERS), (count, length), generator=generator)
    end = torch.full((count, 1), END)
    with_end = torch.cat([letters, end], dim=1)
    return with_end, torch.cat([end, letters], dim=1), with_end


def loss_of(model, source, previous, target, epsilon=0.1):
    """The label-smoothed loss per token."""
    log_probs = torch.log_softmax(model(source, previous), dim=-1)
    return label_smoothed_loss(log_probs, target, epsilon, PAD)[0] / target.numel()


def train(model, updates, generator):
    """Returns the loss after each update, and the last ten checkpoints, ten updates apart."""
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses, checkpoints = [], []
    for update in range(1, updates + 1):
        for group in adam.param_groups:
            group["lr"] = learning_rate(update, d_model=32, warmup_steps=100, factor=0.5)
        length = int(torch.randint(2, 11, (), generator=generator))
        loss = loss_of(model, *strings(length, 32, generator))
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
        if update > updates - 100 and update % 10 == 0:
            checkpoints.append(copy.deepcopy(model.state_dict()))
    return losses, checkpoints


torch.manual_seed(1)
generator = torch.Generator().manual_seed(1)
model = new_model()
losses, checkpoints = train(model, 600, generator)
least = loss_at(0.9, 0.1, classes=len(LETTERS))  # the entropy of the smoothed target
print(f"loss: {losses[0]:.2f} at first, {losses[-1]:.2f} at the end; least possible: {least:.2f}")
assert losses[0] > 2 and least < losses[-1] < 1.2

# %% [markdown]
# ## 6.1 Averaging checkpoints
#
# "We used a single model obtained by averaging the last 5 checkpoints." The parameters keep jumping
# around a good place, since each batch pulls them elsewhere; their mean lies nearer to it:
#
# $$\bar\theta = \frac{1}{n} \sum_{k=1}^{n} \theta_{T-k+1}$$

# %%
code(average_models)

# %%
test = [strings(length, 100, torch.Generator().manual_seed(2)) for length in range(2, 11)]


def test_loss(state):
    """Of the model with these parameters, on strings that it was not trained on."""
    model.load_state_dict(state)
    with torch.no_grad():
        return sum(float(loss_of(model, *batch)) for batch in test) / len(test)


single = [test_loss(state) for state in checkpoints]
named = [(f"checkpoint {number}", state) for number, state in enumerate(checkpoints)]
averages = [test_loss(average_models(named[-count:])) for count in range(1, 11)]

figure, (left, right) = plt.subplots(1, 2)
left.plot(losses)
left.set(title="loss in training", xlabel="updates")
right.plot(range(1, 11), single[::-1], "o", color="0.6", label="the n-th last checkpoint")
right.plot(range(1, 11), averages, "o-", color="C1", label="the mean of the last n")
right.set(title="loss on other strings", xlabel="n")
right.legend()
plt.show()

mean = average_models(named)
name = "encoder.layers.0.feed_forward.fc1.weight"
assert torch.allclose(mean[name], torch.stack([s[name] for s in checkpoints]).mean(0), atol=1e-6)
assert averages[-1] < sum(single) / len(single)

# %% [markdown]
# **Notice** that some of the checkpoints are much worse than others, and the mean of all ten is
# almost as good as the best of them, here the last (0.594 to 0.590), and better than any other:
# nobody has to know which one that is. (Averaging helps near the end of training. A mean that
# reaches back to where the loss was still falling is worse than its parts.)
#
# ### What it learned, and how far
#
# The decoder's attention over the source: to write the fifth letter, look at the fifth.

# %%
model.load_state_dict(mean)
model.eval()
source, previous, target = strings(8, 1, generator)
with torch.no_grad():
    memory = model.encoder(source)
    _, weights = model.decoder.features(previous, memory, need_weights=True)
    accuracy = {}
    for length in range(2, 17):
        batch = strings(length, 200, generator)
        right_letters = model(batch[0], batch[1]).argmax(-1).eq(batch[2])
        accuracy[length] = float(right_letters.all(dim=1).float().mean())

figure, (left, right) = plt.subplots(1, 2)
heat(
    left, weights.cross_attention[0][0].amax(0), "strongest head", xlabel="source", ylabel="target"
)
right.bar(list(accuracy), [100 * share for share in accuracy.values()])
right.axvspan(10.5, 16.5, color="0.9", zorder=0)
right.set(title="% of strings copied, by length", xlabel="letters", xticks=range(2, 17, 2))
plt.show()

assert sum(accuracy[length] for length in range(2, 9)) / 7 > 0.9
assert accuracy[16] < 0.5

# %% [markdown]
# **Notice** the diagonal on the left. On the right, the grey lengths are longer than any in
# training. The sinusoids have values there, but this model has never seen them, and it fails
# within a few letters. The paper's "may" is a hypothesis, and a small model does not support it.
#
# ## 6.1 Beam search and its length penalty
#
# "We used beam search with a beam size of 4 and length penalty $\alpha = 0.6$." A hypothesis $Y$
# scores $\log P(Y) \,/\, ((5 + |Y|) / 6)^\alpha$ (Wu et al., 2016). To follow it by hand we
# replace the model by a table: after these words, this word with this probability. The search is
# the same one that decodes the real models.

# %%
code(search_loop)

# %%
VOCABULARY = ["</s>", "the", "a", "cat", "dog", "sat"]
NEXT = {
    "": {"the": 0.50, "a": 0.40, "</s>": 0.02},
    "the": {"cat": 0.34, "dog": 0.33, "sat": 0.20, "</s>": 0.05},
    "a": {"cat": 0.60, "</s>": 0.38},
    "the cat": {"</s>": 0.45, "sat": 0.45},
    "the dog": {"</s>": 0.45, "sat": 0.45},
    "a cat": {"sat": 0.60, "</s>": 0.30},
}
OTHERWISE = {"</s>": 0.98}  # the other words share what is left


def distribution(prefix):
    """The probabilities of all next words."""
    known = NEXT.get(" ".join(prefix), OTHERWISE)
    rest = (1 - sum(known.values())) / (len(VOCABULARY) - len(known))
    return [known.get(word, rest) for word in VOCABULARY]


class Table:
    """In place of a model: what the search asks of one (search/incremental.py)."""

    def __init__(self):
        self.prefixes: list = [()]  # of each row
        self.steps = []  # the prefixes at each step, to be printed

    def log_probs(self, tokens, length):
        """Of each word after each row's prefix, which ``tokens`` continue."""
        if length > 1:
            rows = zip(self.prefixes, tokens, strict=True)
            self.prefixes = [(*old, VOCABULARY[new]) for old, new in rows]
        self.steps.append(self.prefixes)
        return torch.tensor([distribution(prefix) for prefix in self.prefixes]).log()

    def reorder(self, rows):
        """Row i continues what was row rows[i]."""
        self.prefixes = [self.prefixes[row] for row in rows]

    def keep_sentences(self, sentences):
        """Nothing to drop: there is only one sentence."""


def search(beam, alpha, show=False):
    """The best hypothesis and its score."""
    table, rule = Table(), GnmtRule(alpha, limits=torch.tensor([6.0]), nbest=1)
    history = search_loop(table, rule, 1, beam, end=0, limit=6, device=torch.device("cpu"))
    for number, step in enumerate(history.steps if show else [], start=1):
        print(f"step {number}")
        kept = iter(range(beam))
        rows = zip(step["parents"][0], step["tokens"][0], step["scores"][0], strict=True)
        for parent, token, score in rows:
            fate = "finished" if token == 0 else "goes on" if next(kept, None) is not None else ""
            words = " ".join((*table.steps[number - 1][parent], VOCABULARY[token]))
            print(f"   {words:20} log P = {score:.2f}   {fate}")
    found = history.hypotheses(rule.penalty, beam)
    return " ".join(VOCABULARY[token] for token in found.tokens[0]), float(found.scores[0])


best, score = search(beam=2, alpha=0.6, show=True)
print(f"best: '{best}', log P / penalty = {score:.2f}")

# %% [markdown]
# **Notice** that each step looks at $2k = 4$ candidates, so that even if $k$ of them are ends, $k$
# can go on. "the" is the likeliest first word, but in step 2 "a cat" overtakes "the cat": a search
# that keeps a single hypothesis would have dropped "a" by then.
#
# After step 4 the best finished hypothesis is better than anything that could still come, so the
# search stops. Is it really the best? We try every sentence up to six words:


# %%
def every_sentence(prefix=(), log_p=0.0):
    """All complete sentences of the table with their log P."""
    for word, probability in zip(VOCABULARY, distribution(prefix), strict=True):
        total = log_p + math.log(probability)
        if word == "</s>":
            yield " ".join((*prefix, word)), total
        elif len(prefix) < 5 and total > -9:  # the others are too unlikely to win
            yield from every_sentence((*prefix, word), total)


sentences = list(every_sentence())


def penalty(sentence, alpha):
    """((5 + |Y|) / 6)^α, where the end counts as a word."""
    return ((5 + len(sentence.split())) / 6) ** alpha


print(f"{len(sentences)} sentences that are not all too unlikely")
for alpha in (0.0, 0.6, 1.0):
    best, score = max(
        ((y, log_p / penalty(y, alpha)) for y, log_p in sentences), key=lambda pair: pair[1]
    )
    greedy, found = search(1, alpha), search(2, alpha)
    print(f"α = {alpha}: best '{best}' {score:.3f}; beam 2 '{found[0]}'; beam 1 '{greedy[0]}'")
    assert found[0] == best and math.isclose(found[1], score, rel_tol=1e-5)
    assert greedy[1] < score
assert search(2, 0.0)[0] == "a </s>" and search(2, 0.6)[0] == "a cat sat </s>"

# %%
alphas = [0.1 * tenth for tenth in range(13)]
plt.figure(figsize=(5, 3))
for sentence in ("a </s>", "a cat </s>", "a cat sat </s>", "the cat sat </s>"):
    log_p = dict(sentences)[sentence]
    plt.plot(alphas, [log_p / penalty(sentence, alpha) for alpha in alphas], label=sentence)
plt.axvline(0.6, color="0.7", linestyle="--")
plt.xlabel("α")
plt.ylabel("score")
plt.legend(fontsize=7)
plt.show()

# %% [markdown]
# **Notice** that log-probabilities are negative, and each further word makes them smaller. With
# $\alpha = 0$ the short sentence wins. Dividing by a penalty that grows with the length lifts the
# longer ones, and at the paper's 0.6 the order has changed.
#
# ## A trained model
#
# `make demo` trains a model with two layers per side, four heads in each attention, and a million
# parameters, to translate short English sentences with numbers, dates, times or amounts into
# German. One such model is in [examples/demo_en_de](demo_en_de/README.md). It knows no other
# sentences.

# %%
translator = Translator.from_pretrained(plugin_dir().parent / "examples" / "demo_en_de")
seen = attend(translator, "The meeting is on the 3rd of March 1987.", None, most=100_000)
print(seen.source, "→", seen.target)
weights, german, english = view(seen, "cross", "words")

figure, axes = plt.subplots(1, 4, figsize=(10, 3.2), sharey=True)
for number, axis in enumerate(axes):
    heat(axis, torch.from_numpy(weights[-1][number]), f"head {number + 1}")
    axis.set_xticks(range(len(english)), english, rotation=90)
    axis.set_yticks(range(len(german)), german)
plt.show()

assert seen.target == "Die Sitzung ist am 3. März 1987."
mean = weights[-1].mean(axis=0)
for word, partner in {"am": "on", "März": "March", "1987": "1987"}.items():
    assert english[mean[german.index(word)].argmax()] == partner
heads = [english[looks[german.index("Die")].argmax()] for looks in weights[-1]]
assert sorted(heads) == ["The", "The", "meeting", "meeting"]

# %% [markdown]
# **Notice** what the heads of the last layer look at in the source to write each word, from top to
# bottom. Nobody told the model which words belong together, and yet to write "März" every head
# looks at "March". To write "Die" two look at "The" and two at "meeting", with whose translation
# the German article has to agree. [A page](demo_en_de_attention/attention.html) has every layer:
# open it in a browser.
#
# ## Where to go on
#
# - [docs/paper.md](../docs/paper.md): every part of the paper, its code here, and its tests
# - [docs/fidelity.md](../docs/fidelity.md): where the paper leaves something open, or we differ
# - [docs/bugs.md](../docs/bugs.md): what mistakes look like in training, as a quiz
# - `make demo`: a translation model, trained in a few minutes
