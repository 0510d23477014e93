"""Planted bugs: is there a test that notices each of them?

    python -m tests.mutants [--list] [NAME...]       make mutants

Each entry is one edit of one file, whose old text occurs there exactly once
(``unit/test_mutants.py`` checks this). It says which sentence of the paper, or which promise of
ours, the edit breaks, and names the tests that must then fail; only those are run, by
``tests/mutation.py``.
"""

import sys

from tests.mutation import Mutant, main

ATTENTION = "transformer_plugin/attention.py"
EMBEDDING = "transformer_plugin/embedding.py"
LAYERS = "transformer_plugin/layers.py"
ENCODER = "transformer_plugin/encoder.py"
DECODER = "transformer_plugin/decoder.py"
MODEL = "transformer_plugin/model.py"
LOSS = "transformer_plugin/loss.py"
CHUNKED = "transformer_plugin/fast/chunked_loss.py"
CRITERION = "transformer_plugin/criterion.py"
SCHEDULE = "transformer_plugin/lr_schedule.py"
OPTIMIZER = "transformer_plugin/optimizer.py"
SEARCH = "transformer_plugin/search/beam_search.py"
RULES = "transformer_plugin/search/scoring_rules.py"
HISTORY = "transformer_plugin/search/history.py"
CACHE = "transformer_plugin/cache.py"
GENERATOR = "transformer_plugin/search/generator.py"
INITIALISATION = "transformer_plugin/initialisation.py"
PRECISION = "transformer_plugin/precision.py"
DROPOUT = "transformer_plugin/fast/dropout.py"
KERNEL = "transformer_plugin/fast/attention.py"
LINEAR = "transformer_plugin/fast/linear.py"
PROCESSOR = "transformer_plugin/fast/processor.py"
AVERAGE = "vaswani/experiment/averaging.py"
CHOICE = "vaswani/experiment/best_checkpoint.py"
BLEU = "vaswani/scoring/bleu.py"
SCORE = "vaswani/commands/score.py"
PROOF = "vaswani/export/proof.py"
COMPARISON = "vaswani/export/comparison.py"
FOLDER = "vaswani/model_folder/folder.py"
WEIGHTS = "vaswani/model_folder/weights.py"
CLI = "vaswani/cli.py"
CONFIGURATION = "vaswani/experiment/fairseq_config.py"
SCOPE = "transformer_plugin/compat/scope.py"
RESUMING = "transformer_plugin/compat/resuming.py"
GENERATION = "transformer_plugin/compat/generation_options.py"
PARAMETERS = "transformer_plugin/checkpoints/parameters.py"
GENERATE = "vaswani/commands/generate.py"
WORKERS = "vaswani/decoding/workers.py"
ATTENTION_PAGE = "vaswani/attention_page/page.py"
SAVING = "transformer_plugin/compat/saving.py"
DATA = "transformer_plugin/compat/data.py"
REFUSALS = "transformer_plugin/compat/refusals.py"
DATA_BIN = "vaswani/data/data_bin.py"
OUTPUTS = "vaswani/common/artifact.py"
RECORD = "vaswani/experiment/run_record.py"
STAGE = "vaswani/data/stage.py"

MUTANTS = [
    # ---- attention --------------------------------------------------------------------------
    Mutant(
        "attention-not-scaled",
        ATTENTION,
        "key.transpose(-2, -1) / query.size(-1) ** 0.5",
        "key.transpose(-2, -1)",
        "3.2.1: 'We compute the dot products of the query with all keys, divide each by √d_k'",
        ("unit/test_attention.py::test_equation_1_by_hand",),
    ),
    Mutant(
        "walk-through-without-the-scale",
        ATTENTION,
        "query.size(-1) ** 0.5",
        "1.0",
        "examples/paper.py: the page stops where one of its claims does not hold",
        ("integration/test_walk_through.py::test_every_claim_of_the_page_holds",),
    ),
    Mutant(
        "kernel-not-scaled",
        KERNEL,
        "    if is_causal:\n        return F.scaled",
        "    query = query * query.size(-1) ** 0.5\n    if is_causal:\n        return F.scaled",
        "3.2.1, by the fused kernels: 'we scale the dot products by 1/√d_k'",
        ("unit/test_model.py::test_implementations_agree",),
    ),
    Mutant(
        "attention-softmax-over-queries",
        ATTENTION,
        "torch.softmax(scores, dim=-1,",
        "torch.softmax(scores, dim=-2,",
        "3.2.1: '... and apply a softmax function to obtain the weights on the values'",
        ("unit/test_attention.py::test_masked_keys_have_no_weight",),
    ),
    Mutant(
        "softmax-without-the-maximum",
        ATTENTION,
        "weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, "
        "torch.float32))",
        "weights = scores.exp() / scores.exp().sum(-1, keepdim=True)",
        "attention.py: weights are finite however large the scores (exp overflows above 88)",
        ("unit/test_attention.py::test_large_scores_have_finite_weights",),
    ),
    Mutant(
        "attention-dropout-missing",
        ATTENTION,
        "F.dropout(weights, dropout) @ value, weights",
        "weights @ value, weights",
        "--attention-dropout: in training each weight is dropped with this probability",
        ("unit/test_attention.py::test_attention_dropout",),
    ),
    Mutant(
        "causal-mask-off-by-one",
        ATTENTION,
        "return blocked.triu(1)",
        "return blocked.triu(2)",
        "3.1: 'the predictions for position i can depend only on the known outputs at positions "
        "less than i'",
        ("unit/test_attention.py::test_masked_keys_have_no_weight",),
    ),
    Mutant(
        "causal-mask-missing-in-kernel",
        KERNEL,
        "dropout_p=dropout, is_causal=True)",
        "dropout_p=dropout, is_causal=False)",
        "3.2.3: 'We need to prevent leftward information flow in the decoder'",
        ("unit/test_model.py::test_no_position_sees_a_later_one",),
    ),
    Mutant(
        "padding-not-masked",
        ATTENTION,
        'return mask.masked_fill(is_padding, float("-inf"))[:, None, None, :]',
        "return mask[:, None, None, :]",
        "a sentence's translation does not depend on the sentences beside it",
        ("unit/test_model.py::test_padding_and_neighbours_change_nothing",),
    ),
    Mutant(
        "heads-joined-in-wrong-order",
        ATTENTION,
        "joined = heads.transpose(1, 2).flatten(2)",
        "joined = heads.permute(0, 2, 3, 1).flatten(2)",
        "3.2.2: MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O",
        ("unit/test_attention.py::test_multi_head_is_concatenated_heads_times_w_o",),
    ),
    Mutant(
        "keys-are-values",
        ATTENTION,
        "key, value = self.kv_proj(memory)",
        "value, key = self.kv_proj(memory)",
        "3.2: 'The output is computed as a weighted sum of the values'; W^K and W^V have "
        "separate places in checkpoints",
        ("parity/test_torch_transformer.py::test_equal_to_nn_transformer",),
    ),
    Mutant(
        "cross-attention-cached-never",
        ATTENTION,
        "        if not known:\n",
        "        if True:\n",
        "attention.py: in decoding, keys and values of the source are computed once per sentence",
        ("unit/test_attention.py::test_cross_attention_computes_keys_and_values_once",),
    ),
    Mutant(
        "mask-on-another-device",
        ATTENTION,
        'float("-inf"), dtype=like.dtype, device=like.device)',
        'float("-inf"), dtype=like.dtype)',
        "every tensor is made on the device of its inputs",
        ("unit/test_devices.py::test_incremental_decoding_by_fairseqs_search",),
    ),
    # ---- embedding --------------------------------------------------------------------------
    Mutant(
        "embedding-not-scaled",
        EMBEDDING,
        "self.tokens(tokens) * math.sqrt(self.tokens.embedding_dim)",
        "self.tokens(tokens)",
        "3.4: 'In the embedding layers, we multiply those weights by √d_model'",
        ("unit/test_embedding.py::test_embeddings_are_scaled_and_positions_added",),
    ),
    Mutant(
        "positions-missing",
        EMBEDDING,
        "embedded + self.positions(positions, length, like=embedded)",
        "embedded",
        "3.5: 'we add \"positional encodings\" to the input embeddings'",
        ("unit/test_embedding.py::test_embeddings_are_scaled_and_positions_added",),
    ),
    Mutant(
        "positions-count-pads",
        EMBEDDING,
        "return (is_token.cumsum(dim=1) - 1).clamp(min=0) * is_token",
        "return torch.ones_like(tokens).cumsum(dim=1) - 1",
        "embedding.py: the first token of a sentence is at position 0 whatever the padding",
        ("unit/test_embedding.py::test_positions_count_real_tokens_on_either_side_of_padding",),
    ),
    Mutant(
        "positions-begin-at-1",
        EMBEDDING,
        'first = 2 if layout == "fairseq" else 0',
        'first = 2 if layout == "fairseq" else 1',
        "embedding.py: the first token of a sentence is at position 0",
        ("unit/test_embedding.py::test_paper_sinusoids_are_the_formula",),
    ),
    Mutant(
        "sinusoids-with-wrong-wavelengths",
        EMBEDDING,
        'half if layout == "paper" else max(half - 1, 1)',
        "max(half - 1, 1)",
        "3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d_model))",
        ("unit/test_embedding.py::test_paper_sinusoids_are_the_formula",),
    ),
    Mutant(
        "sine-is-cosine",
        EMBEDDING,
        "[angles.sin(), angles.cos()]",
        "[angles.cos(), angles.sin()]",
        "3.5: the sine at 2i, the cosine at 2i + 1",
        ("unit/test_embedding.py::test_paper_sinusoids_are_the_formula",),
    ),
    Mutant(
        "embedding-dropout-missing",
        EMBEDDING,
        "return self.dropout(embedded + ",
        "return (embedded + ",
        "5.4: 'we apply dropout to the sums of the embeddings and the positional encodings in both "
        "the encoder and decoder stacks'",
        ("unit/test_embedding.py::test_dropout_of_the_sum",),
    ),
    Mutant(
        "position-of-a-step-forgotten",
        EMBEDDING,
        "token_positions(tokens, self.tokens.padding_idx)[:, skip:]",
        "token_positions(tokens[:, skip:], self.tokens.padding_idx)",
        "decoding word by word gives what decoding all words at once gives",
        ("unit/test_embedding.py::test_skipped_tokens_keep_their_count",),
    ),
    Mutant(
        "positions-by-the-batch",
        EMBEDDING,
        "self.positions(positions, length, like=embedded)",
        "self.positions(\n"
        "            torch.arange(len(tokens))[:, None], max(length, len(tokens)), like=embedded\n"
        "        )",
        "3.5: a position is that of a token in its sentence, not that of its sentence in the batch",
        ("unit/test_embedding.py::test_embeddings_are_scaled_and_positions_added",),
    ),
    # ---- layers -----------------------------------------------------------------------------
    Mutant(
        "relu-missing",
        LAYERS,
        "F.relu(self.fc1(x))",
        "self.fc1(x)",
        "3.3: 'two linear transformations with a ReLU activation in between'",
        ("unit/test_layers.py::test_equation_2_by_hand",),
    ),
    Mutant(
        "residual-missing",
        LAYERS,
        "self.norm(self.dropout.added(x, sublayer_output))",
        "self.norm(self.dropout(sublayer_output))",
        "3.1: 'We employ a residual connection around each of the two sub-layers'",
        ("unit/test_layers.py::test_the_norm_is_of_the_sum",),
    ),
    Mutant(
        "norm-missing",
        LAYERS,
        "self.norm(self.dropout.added(x, sublayer_output))",
        "self.dropout.added(x, sublayer_output)",
        "3.1: '... followed by layer normalization'",
        ("unit/test_model.py::test_norm_comes_after_the_sum_and_no_norm_ends_the_stack",),
    ),
    Mutant(
        "norm-before-the-sum",
        LAYERS,
        "self.norm(self.dropout.added(x, sublayer_output))",
        "self.dropout.added(x, self.norm(sublayer_output))",
        "3.1: 'the output of each sub-layer is LayerNorm(x + Sublayer(x))'",
        ("unit/test_model.py::test_norm_comes_after_the_sum_and_no_norm_ends_the_stack",),
    ),
    Mutant(
        "norm-before-the-sublayer",
        LAYERS,
        "        attended, weights = self.self_attention(x, mask, need_weights=need_weights)\n"
        "        x = self.after_self_attention(x, attended)\n"
        "        x = self.after_feed_forward(x, self.feed_forward(x))\n"
        "        return x, weights",
        "        first, second = self.after_self_attention, self.after_feed_forward\n"
        "        attended, weights = self.self_attention(\n"
        "            first.norm(x), mask, need_weights=need_weights\n"
        "        )\n"
        "        x = first.dropout.added(x, attended)\n"
        "        x = second.dropout.added(x, self.feed_forward(second.norm(x)))\n"
        "        return x, weights",
        "3.1: 'the output of each sub-layer is LayerNorm(x + Sublayer(x))'",
        ("unit/test_model.py::test_norm_comes_after_the_sum_and_no_norm_ends_the_stack",),
    ),
    Mutant(
        "decoder-attends-to-itself-twice",
        LAYERS,
        "            x, memory, memory_mask, cache, need_weights[1]\n",
        "            x, x, x.new_full((x.size(1), x.size(1)), float('-inf')).triu(1), None,\n"
        "            need_weights[1],\n",
        "3.2.3: 'the memory keys and values come from the output of the encoder'",
        ("parity/test_torch_transformer.py::test_equal_to_nn_transformer",),
    ),
    Mutant(
        "dropout-after-the-sum",
        LAYERS,
        "self.norm(self.dropout.added(x, sublayer_output))",
        "self.norm(self.dropout(x + sublayer_output))",
        "5.4: 'We apply dropout to the output of each sub-layer, before it is added to the "
        "sub-layer input and normalized'",
        ("unit/test_model.py::test_dropout_comes_before_the_sum",),
    ),
    # ---- encoder and decoder ----------------------------------------------------------------
    Mutant(
        "encoder-ignores-attention-dropout",
        ENCODER,
        "dropout=cfg.attention_dropout,",
        "dropout=cfg.activation_dropout,",
        "--attention-dropout applies to every attention",
        ("unit/test_attention.py::test_attention_dropout_is_that_of_every_attention",),
    ),
    Mutant(
        "encoder-never-masks",
        ENCODER,
        'if is_padding.device.type == "cpu" and not is_padding.any():',
        'if is_padding.device.type == "cpu":',
        "a sentence's translation does not depend on the sentences beside it",
        ("unit/test_model.py::test_padding_and_neighbours_change_nothing",),
    ),
    Mutant(
        "encoder-output-keeps-its-order",
        ENCODER,
        "tensor.index_select(0, new_order)",
        "tensor[: len(new_order)]",
        "encoder.py: encoder_out with its batch in new_order, as beam search asks",
        ("unit/test_model.py::test_reordering_is_decoding_in_that_order",),
    ),
    Mutant(
        "causal-mask-missing",
        DECODER,
        "is_causal=not seen and x.size(1) > 1,",
        "is_causal=False,",
        "3.1: 'to prevent positions from attending to subsequent positions'",
        ("unit/test_model.py::test_no_position_sees_a_later_one",),
    ),
    Mutant(
        "causal-mask-missing-in-a-continuation",
        DECODER,
        "mask = causal_mask(prev_output_tokens.size(1), like=x)[seen:]",
        "mask = None",
        "decoding of several words at once gives what decoding word by word gives",
        ("unit/test_model.py::test_incremental_decoding_may_begin_with_several_tokens",),
    ),
    Mutant(
        "source-padding-seen-by-decoder",
        DECODER,
        'encoder_out["encoder_mask"][0] if encoder_out["encoder_mask"] else None',
        "None",
        "a sentence's translation does not depend on the sentences beside it",
        ("unit/test_model.py::test_padding_and_neighbours_change_nothing",),
    ),
    Mutant(
        "step-at-the-next-position",
        DECODER,
        "torch.full((1, 1), cache.length, device",
        "torch.full((1, 1), cache.length + 1, device",
        "3.5: a word has the same position in training and in decoding",
        ("parity/test_generator.py::test_float64_search_is_its_own_score",),
    ),
    Mutant(
        "padding-masks-swapped-in-decoding",
        DECODER,
        "        x, _ = self.run_layers(x, encoder_out, cache)\n",
        "        own = None\n"
        "        if encoder_out['encoder_mask']:\n"
        "            source = encoder_out['encoder_mask'][0].flip(-1)  # padded right\n"
        "            more = max(0, cache.length + 1 - source.size(-1))\n"
        "            own = nn.functional.pad(source, (0, more), value=float('-inf'))\n"
        "            own = own[..., : cache.length + 1].repeat_interleave(len(x) // len(own), 0)\n"
        "            encoder_out = {**encoder_out, 'encoder_mask': []}\n"
        "        x, _ = self.run_layers(x, encoder_out, cache, own)\n",
        "a sentence's translation does not depend on the sentences beside it",
        ("parity/test_generator.py::test_neighbours_change_nothing",),
    ),
    Mutant(
        "step-on-another-device",
        DECODER,
        "cache.length, device=tokens.device)",
        "cache.length)",
        "every tensor is made on the device of its inputs",
        ("unit/test_devices.py::test_decoding",),
    ),
    Mutant(
        "alignment-of-one-head",
        DECODER,
        "alignment.mean(dim=1)",
        "alignment[:, 0]",
        "decoder.py: attn is the last layer's cross-attention averaged over its heads",
        ("unit/test_model.py::test_alignment_is_the_mean_over_heads",),
    ),
    # ---- model and initialisation -----------------------------------------------------------
    Mutant(
        "output-matrix-not-shared",
        MODEL,
        "output_projection.weight = source_tokens.weight",
        "pass",
        "3.4: 'we share the same weight matrix between the two embedding layers and the "
        "pre-softmax linear transformation'",
        ("unit/test_model.py::test_one_matrix_for_source_target_and_output",),
    ),
    Mutant(
        "initialised-like-he",
        INITIALISATION,
        "nn.init.xavier_uniform_(module.weight)",
        "nn.init.kaiming_uniform_(module.weight)",
        "--init t2t: Glorot uniform, as in the authors' code at the paper's release",
        ("unit/test_model.py::test_initialisation_as_in_tensor2tensor",),
    ),
    Mutant(
        "embeddings-too-large",
        INITIALISATION,
        "std=module.embedding_dim**-0.5",
        "std=1.0",
        "--init: embeddings from N(0, 1/√d_model), so that √d_model scales them to size 1",
        ("unit/test_model.py::test_initialisation_as_in_tensor2tensor",),
    ),
    Mutant(
        "pad-has-an-embedding",
        INITIALISATION,
        "nn.init.zeros_(module.weight[module.padding_idx])",
        "pass",
        "--init: the padding row is zero",
        ("unit/test_model.py::test_initialisation_as_in_tensor2tensor",),
    ),
    Mutant(
        "fairseqs-projections-too-large",
        INITIALISATION,
        "math.sqrt(3 / sum(part.shape))",
        "math.sqrt(6 / sum(part.shape))",
        "--init fairseq: query, key and value matrices at 1/√2 of Glorot's",
        ("parity/test_initialisation.py::test_free_head_widths_keep_the_rule",),
    ),
    # ---- loss and criterion -----------------------------------------------------------------
    Mutant(
        "smoothing-shared-with-the-right-class",
        LOSS,
        "return epsilon / (classes - 1)",
        "return epsilon / classes",
        "5.4, as the authors' code has it: ε / (V - 1) for each wrong class",
        (
            "unit/test_criterion.py::test_cross_entropy_with_the_smoothed_distribution",
            "unit/test_loss.py::test_is_the_formula",
        ),
    ),
    Mutant(
        "smoothing-adds-mass",
        LOSS,
        "return (1.0 - epsilon - share) * nll + share * everywhere, nll",
        "return (1.0 - epsilon) * nll + share * everywhere, nll",
        "5.4: the smoothed target is a distribution",
        ("unit/test_criterion.py::test_cross_entropy_with_the_smoothed_distribution",),
    ),
    Mutant(
        "pads-have-a-loss",
        LOSS,
        "nll.masked_fill(pads, 0.0).sum()",
        "nll.sum()",
        "loss.py: targets equal to padding_idx are ignored",
        ("unit/test_criterion.py::test_pads_count_for_nothing",),
    ),
    Mutant(
        "projected-smoothing-with-one-class",
        CHUNKED,
        "(classes * z - logit_sums[rows])",
        "(z - logit_sums[rows])",
        "chunked_loss.py: projected_loss gives the same loss as the formula",
        ("unit/test_loss.py::test_is_the_formula",),
    ),
    Mutant(
        "projected-gradient-without-smoothing",
        CHUNKED,
        "share - (1.0 - epsilon)",
        "share - 1.0",
        "chunked_loss.py: the gradient on the logits is p - q",
        ("unit/test_loss.py::test_is_the_formula",),
    ),
    Mutant(
        "projected-features-without-the-uniform-part",
        CHUNKED,
        "grad_features -= share * column_sums.to(features.dtype)",
        "pass",
        "chunked_loss.py: the uniform part of q, ε_i everywhere, is subtracted from the products",
        ("unit/test_loss.py::test_is_the_formula",),
    ),
    Mutant(
        "projected-matrix-without-the-uniform-part",
        CHUNKED,
        "grad_matrix -= share * features.sum(0, dtype=grad_matrix.dtype)",
        "pass",
        "chunked_loss.py: the uniform part of q, ε_i everywhere, is subtracted from the products",
        ("unit/test_loss.py::test_is_the_formula",),
    ),
    Mutant(
        "fp16-gradient-without-the-uniform-part",
        CHUNKED,
        "p.sub_(share).mul_(grad_loss)",
        "p.mul_(grad_loss)",
        "chunked_loss.py: the gradient on the logits is p - q, also in float16",
        ("unit/test_loss.py::test_float16_gradients_do_not_vanish",),
    ),
    Mutant(
        "logarithm-of-nothing",
        CHUNKED,
        " and bool(p_y.ge(torch.finfo(p.dtype).tiny).all()):",
        ":",
        "chunked_loss.py: a target whose probability is 0 in float32 has a finite loss",
        ("unit/test_loss.py::test_impossible_targets",),
    ),
    Mutant(
        "projected-gradient-not-scaled",
        CHUNKED,
        "return grad_features * grad_loss, grad_weight * grad_loss,",
        "return grad_features, grad_weight,",
        "chunked_loss.py: the same gradients as the formula, whatever the gradient of the loss",
        ("unit/test_loss.py::test_is_the_formula",),
    ),
    Mutant(
        "pads-reach-the-projected-loss",
        CRITERION,
        "real = target.ne(self.padding_idx).nonzero()",
        "real = target.ge(0).nonzero()",
        "criterion.py: sums over real tokens only",
        ("parity/test_criterion_parity.py::test_registered_criterion",),
    ),
    Mutant(
        "loss-averaged-over-padding",
        CRITERION,
        "real = target.ne(self.padding_idx).nonzero().squeeze(1)  # [N]\n",
        "real = target.ge(0).nonzero().squeeze(1)\n        sample['ntokens'] = target.numel()\n",
        "criterion.py: losses and their average are over real tokens",
        ("parity/test_criterion_parity.py::test_registered_criterion",),
    ),
    Mutant(
        "labels-not-shifted",
        CRITERION,
        'target = sample["target"].reshape(-1)',
        'target = sample["net_input"]["prev_output_tokens"].reshape(-1)',
        "3.1: 'the output embeddings are offset by one position'",
        ("parity/test_criterion_parity.py::test_registered_criterion",),
    ),
    Mutant(
        "loss-in-nats",
        CRITERION,
        "bits = 1 / math.log(2)",
        "bits = 1.0",
        "criterion.py: logs loss and nll_loss in bits per token",
        ("unit/test_criterion.py::test_what_is_logged",),
    ),
    Mutant(
        "nll-per-sentence",
        CRITERION,
        'total("nll_loss") / tokens * bits',
        'total("nll_loss") / sample_size * bits',
        "criterion.py: nll_loss is per token, also with --sentence-avg",
        ("unit/test_criterion.py::test_nll_is_per_token_also_when_sentences_count",),
    ),
    Mutant(
        "gradient-divided-by-sentences",
        CRITERION,
        'sentences if self.sentence_avg else sample["ntokens"]',
        'sample["ntokens"] if self.sentence_avg else sentences',
        "--sentence-avg: only then is the gradient divided by the number of sentences",
        ("parity/test_criterion_parity.py::test_registered_criterion",),
    ),
    # ---- learning rate and optimizer --------------------------------------------------------
    Mutant(
        "warmup-missing",
        SCHEDULE,
        "min(step**-0.5, step * warmup_updates**-1.5)",
        "step**-0.5",
        "5.3: 'increasing the learning rate linearly for the first warmup_steps training steps'",
        ("unit/test_lr_schedule.py::test_equation_3",),
    ),
    Mutant(
        "rate-without-the-width",
        SCHEDULE,
        "return factor * d_model**-0.5 * min(",
        "return factor * min(",
        "5.3: lrate = d_model^-0.5 · …",
        ("unit/test_lr_schedule.py::test_equation_3",),
    ),
    Mutant(
        "warmup-to-the-wrong-power",
        SCHEDULE,
        "step * warmup_updates**-1.5",
        "step * warmup_updates**-1.0",
        "5.3: … min(step_num^-0.5, step_num · warmup_steps^-1.5)",
        ("unit/test_lr_schedule.py::test_equation_3",),
    ),
    Mutant(
        "schedule-one-update-behind",
        SCHEDULE,
        "learning_rate(num_updates + 1,",
        "learning_rate(max(num_updates, 1),",
        "lr_schedule.py: n = 1 at the first update",
        ("unit/test_lr_schedule.py::test_factor_and_warmup",),
    ),
    Mutant(
        "epsilon-in-torchs-place",
        OPTIMIZER,
        "return epsilon / math.sqrt(1.0 - beta2**step)",
        "return epsilon",
        "optimizer.py: the same numbers as fairseq's adam",
        ("unit/test_optimizer.py::test_epsilon",),
    ),
    Mutant(
        "updates-counted-anew-after-resuming",
        OPTIMIZER,
        'self.updates = max((int(values["step"]) for values in state.values()), default=0)',
        "self.updates = 0",
        "optimizer.py: continues from a saved state as if never interrupted",
        ("parity/test_optimizer.py::test_goes_on_from_either_state",),
    ),
    Mutant(
        "weight-decay-in-the-gradient",
        OPTIMIZER,
        "class CorrectedAdam(torch.optim.AdamW):",
        "class CorrectedAdam(torch.optim.Adam):",
        "optimizer.py: decoupled weight decay, as in fairseq's adam",
        ("parity/test_optimizer.py::test_the_same_parameters",),
    ),
    Mutant(
        "clipping-enlarges",
        OPTIMIZER,
        "(max_norm / (norm + 1e-6)).clamp(max=1.0)",
        "max_norm / (norm + 1e-6)",
        "--clip-norm: gradients with a greater norm are scaled down to it, others left alone",
        ("unit/test_optimizer.py::test_norm_of_gradients",),
    ),
    # ---- beam search ------------------------------------------------------------------------
    Mutant(
        "too-few-candidates",
        SEARCH,
        "top_candidates(totals, 2 * beam)",
        "top_candidates(totals, beam + 1)",
        "6.1: 'beam search with a beam size of 4'; up to k of the 2k candidates may be ends",
        ("parity/test_beam_search.py::test_generator_equals_slow_search",),
    ),
    Mutant(
        "last-types-never-chosen",
        SEARCH,
        "positions = torch.cat([positions, rest], dim=1)",
        "positions = positions",
        "beam_search.py: top_candidates is topk",
        ("parity/test_generator.py::test_top_candidates_is_topk",),
    ),
    Mutant(
        "caches-not-reordered",
        SEARCH,
        "if beam > 1 or len(chosen) < len(found):",
        "if len(chosen) < len(found):",
        "a hypothesis' score is its own log-probability",
        ("parity/test_generator.py::test_float64_search_is_its_own_score",),
    ),
    Mutant(
        "penalty-one-token-off",
        RULES,
        "return ((5 + lengths) / 6) ** self.alpha",
        "return ((6 + lengths) / 6) ** self.alpha",
        "6.1: 'length penalty α = 0.6' of Wu et al.: ((5 + |Y|) / 6)^α",
        ("parity/test_beam_search.py::test_gnmt_equals_slow_search",),
    ),
    Mutant(
        "stops-too-early",
        RULES,
        "((5 + self.limits) / 6) ** self.alpha",
        "((5 + length) / 6) ** self.alpha",
        "6.1: 'terminate early when possible', that is, when nothing better can come",
        ("parity/test_beam_search.py::test_gnmt_equals_slow_search",),
    ),
    Mutant(
        "fairseqs-penalty-without-the-end",
        RULES,
        "return lengths**self.power",
        "return (lengths + 1) ** self.power",
        "--length-penalty fairseq: log P / length^power, counting the end",
        ("parity/test_beam_search.py::test_generator_equals_slow_search",),
    ),
    Mutant(
        "ends-beyond-the-beam-count",
        RULES,
        "among_best[:, self.beam :] = False",
        "pass",
        "--length-penalty fairseq: an end counts if it is among the best k candidates",
        ("parity/test_generator.py::test_same_as_fairseqs",),
    ),
    Mutant(
        "unfinished-hypotheses-lost",
        RULES,
        "return is_end | unfinished, at_limit",
        "return is_end, at_limit",
        "--length-penalty gnmt: if nothing ended within the limit, live hypotheses are results",
        ("parity/test_beam_search.py::test_gnmt_without_an_end",),
    ),
    Mutant(
        "results-not-sorted",
        HISTORY,
        'order = np.lexsort((-scores, ends["sentences"]))',
        'order = np.lexsort((scores, ends["sentences"]))',
        "history.py: results sorted by sentence and score, best first",
        ("parity/test_beam_search.py::test_generator_equals_slow_search",),
    ),
    # ---- cache and generator ----------------------------------------------------------------
    Mutant(
        "cache-keeps-its-order",
        CACHE,
        "torch.index_select(filled, 1, order, out",
        "torch.index_select(filled, 1, torch.arange(len(order)), out",
        "cache.py: row i becomes what row order[i] was",
        ("unit/test_model.py::test_reordering_is_decoding_in_that_order",),
    ),
    Mutant(
        "cache-forgets-when-it-grows",
        CACHE,
        "steps[: self.length] = self.steps[: self.length]",
        "pass",
        "cache.py: what is cached is copied into the larger tensor",
        ("unit/test_model.py::test_more_steps_than_the_cache_has_room_for_at_first",),
    ),
    Mutant(
        "cache-counts-calls",
        CACHE,
        "self.length += positions",
        "self.length += 1",
        "decoding of several words at once gives what decoding word by word gives",
        ("unit/test_model.py::test_incremental_decoding_may_begin_with_several_tokens",),
    ),
    Mutant(
        "cache-mixes-sentences",
        CACHE,
        "layer[name] = tensor.index_select(0, order)",
        "layer[name] = tensor[: len(order)]",
        "cache.py: sentence i becomes what sentence order[i] was",
        ("unit/test_model.py::test_reordering_is_decoding_in_that_order",),
    ),
    Mutant(
        "pad-may-be-said",
        GENERATOR,
        'log_probs[:, options.pad] = float("-inf")',
        "pass",
        "generator.py: results equal those of fairseq's search, which never chooses a pad",
        ("parity/test_beam_search.py::test_generator_equals_slow_search",),
    ),
    Mutant(
        "unknown-words-rewarded",
        GENERATOR,
        "log_probs[:, options.unk] -= options.unk_penalty",
        "log_probs[:, options.unk] += options.unk_penalty",
        "--unkpen: as in fairseq's search",
        ("parity/test_generator.py::test_same_as_fairseqs",),
    ),
    Mutant(
        "least-length-off-by-one",
        GENERATOR,
        "if length <= options.min_len:",
        "if length < options.min_len:",
        "--min-len: as in fairseq's search",
        ("parity/test_beam_search.py::test_generator_equals_slow_search",),
    ),
    Mutant(
        "greatest-length-off-by-one",
        GENERATOR,
        'limit = min(longest + (self.length_penalty == "fairseq"), self.max_len)',
        "limit = min(longest, self.max_len)",
        "--max-len-a, --max-len-b: as in fairseq's search",
        ("parity/test_beam_search.py::test_generator_equals_slow_search",),
    ),
    Mutant(
        "temperature-upside-down",
        GENERATOR,
        "logits / options.temperature",
        "logits * options.temperature",
        "--temperature: as in fairseq's search",
        ("parity/test_generator.py::test_same_as_fairseqs",),
    ),
    # ---- precision, dropout, matrix products ------------------------------------------------
    Mutant(
        "bf16-is-fp16",
        PRECISION,
        "torch.autocast(device.type, dtype=torch.bfloat16)",
        "torch.autocast(device.type, dtype=torch.float16)",
        "--precision bf16: matrix products in bfloat16",
        ("unit/test_precision.py::test_products_are_in_bfloat16",),
    ),
    Mutant(
        "bf16-where-it-is-slow",
        PRECISION,
        'if precision == "bf16" and has_bf16_units(device.type):',
        'if precision == "bf16":',
        "--precision bf16: fp32 on a device without bfloat16 units",
        ("unit/test_precision.py::test_products_are_in_bfloat16",),
    ),
    Mutant(
        "dropout-not-scaled",
        DROPOUT,
        "return mask.mul_(1 / (1 - p)).to(like.dtype)",
        "return mask.to(like.dtype)",
        "5.4, Srivastava et al.: the expectation of each element is unchanged",
        ("unit/test_dropout.py::test_values",),
    ),
    Mutant(
        "dropout-in-evaluation",
        DROPOUT,
        "return self.p if self.training or self.in_inference else 0.0",
        "return self.p",
        "dropout.py: only in training, unless fairseq's --retain-dropout asks for it",
        ("unit/test_dropout.py::test_module",),
    ),
    Mutant(
        "dropout-one-level-off",
        DROPOUT,
        "LEVELS // 2 - dropped + 1",
        "LEVELS // 2 - dropped",
        "dropout.py: 0 with probability p, rounded to 1 / LEVELS",
        ("unit/test_dropout.py::test_every_level_counts",),
    ),
    Mutant(
        "dropout-on-the-residual",
        DROPOUT,
        "torch.addcmul(residual, x, keep_mask(residual, self.p))",
        "(residual + x) * keep_mask(residual, self.p)",
        "5.4: dropout on the sub-layer's output, 'before it is added to the sub-layer input'",
        ("unit/test_dropout.py::test_added_to_a_residual",),
    ),
    Mutant(
        "bias-gradient-is-a-mean",
        LINEAR,
        "grad_bias = rows.sum(0)",
        "grad_bias = rows.mean(0)",
        "linear.py: the same as torch.nn.functional.linear",
        ("unit/test_linear.py::test_equal_to_torch",),
    ),
    Mutant(
        "packed-weights-outlive-a-change",
        LINEAR,
        "self.packed is not None and self.packed_version == self.weight._version",
        "self.packed is not None",
        "linear.py: packed weights are forgotten when the weights change",
        ("unit/test_linear.py::test_packed_weights_are_forgotten",),
    ),
    Mutant(
        "readable-model-with-fast-products",
        LINEAR,
        "        if self.readable:\n",
        "        if False:\n",
        "--attention-impl readable: the whole model as the formulas are written",
        ("parity/test_readable.py::test_one_switch_is_the_whole_model",),
    ),
    Mutant(
        "readable-model-with-chunked-loss",
        DECODER,
        'self.computes_losses = str(cfg.attention_impl) != "readable"',
        "self.computes_losses = True",
        "--attention-impl readable: the whole model as the formulas are written",
        ("parity/test_readable.py::test_one_switch_is_the_whole_model",),
    ),
    Mutant(
        "amx-not-recognised",
        PROCESSOR,
        'if "amx_bf16" in facts:',
        'if "amx_tile_fp64" in facts:',
        "processor.py: a CPU with AMX has its own line of the table",
        ("unit/test_processor.py",),
    ),
    Mutant(
        "onednn-on-every-amd-processor",
        PROCESSOR,
        'if not ("AuthenticAMD" in facts and avx512 and has_onednn):',
        'if not ("AuthenticAMD" in facts and has_onednn):',
        "processor.py: oneDNN for float32 where an AMD processor has AVX-512",
        ("unit/test_processor.py",),
    ),
    Mutant(
        "every-amd-processor-is-the-widest",
        PROCESSOR,
        "return AMD_FAMILY_25 if",
        "return AMD_AVX512 if",
        "processor.py: AMD's family 25 has its own line of the table",
        ("unit/test_processor.py",),
    ),
    Mutant(
        "weight-gradients-by-onednn-everywhere",
        LINEAR,
        "if choices_for(grad.device.type).weight_gradients_by_onednn and by_onednn(",
        "if by_onednn(",
        "processor.py: which library computes the gradients of weights",
        ("unit/test_linear.py::test_library_of_a_weights_gradient",),
    ),
    # ---- averaging and scoring --------------------------------------------------------------
    Mutant(
        "average-of-the-last-two",
        AVERAGE,
        "tensor.lerp_(model[name].to(tensor.dtype), 1 / k)",
        "tensor.lerp_(model[name].to(tensor.dtype), 1 / 2)",
        "6.1: 'a single model obtained by averaging the last 5 checkpoints'",
        ("unit/test_average.py::test_mean",),
    ),
    Mutant(
        "average-in-half-precision",
        AVERAGE,
        "half = dtype in (torch.float16, torch.bfloat16)",
        "half = False",
        "averaging.py: half precision is rounded once, at the end",
        ("unit/test_average.py::test_half_precision_is_rounded_once",),
    ),
    Mutant(
        "average-unties-matrices",
        AVERAGE,
        "yield {name: final[first] for name, first in owner.items()}",
        "yield {name: final[first].clone() for name, first in owner.items()}",
        "averaging.py: names that share one tensor stay shared",
        ("unit/test_average.py::test_tied_matrices_stay_one",),
    ),
    Mutant(
        "an-average-whatever-its-loss",
        CHOICE,
        "sorted(zip(losses, (one.path for one in candidates), strict=True))",
        "zip(losses, (one.path for one in candidates), strict=True)",
        "best_checkpoint.py: what has the lowest validation loss is decoded",
        ("unit/test_average.py::test_where_a_single_checkpoint_is_best_none_is_made",),
    ),
    Mutant(
        "smoothed-loss-chooses",
        "vaswani/experiment/validation.py",
        'loss = found.get("nll_loss", found["loss"])',
        'loss = found["loss"]',
        "validation.py: label smoothing does not choose between an average and its parts",
        ("integration/test_average.py::test_the_loss_of_any_parameters_by_one_validation",),
    ),
    Mutant(
        "validation-with-dropout",
        "vaswani/experiment/validation.py",
        "self.trainer.valid_step(batch)",
        "self.trainer.train_step([batch])",
        "validation.py: the loss is the one that training computes",
        ("integration/test_average.py::test_the_loss_of_any_parameters_by_one_validation",),
    ),
    Mutant(
        "bleu-smoothed",
        BLEU,
        'BLEU(tokenize="none", smooth_method="none", force=True)',
        'BLEU(tokenize="none", force=True)',
        "bleu.py: multi-bleu.perl's definition, no smoothing",
        ("unit/test_bleu.py::test_n_grams_counted_by_hand",),
    ),
    Mutant(
        "bleu-without-case",
        BLEU,
        'smooth_method="none", force=True)',
        'smooth_method="none", force=True, lowercase=True)',
        "bleu.py: tokenised figures are case-sensitive",
        ("unit/test_bleu.py::test_n_grams_counted_by_hand",),
    ),
    Mutant(
        "compounds-split-by-characters",
        BLEU,
        'return _COMPOUND.sub(rb"\\1 ##AT##-##AT## \\2", line.encode("utf-8")).decode("utf-8")',
        'return re.sub(r"(\\S)-(\\S)", r"\\1 ##AT##-##AT## \\2", line)',
        "docs/scoring.md: compounds are split as the authors' script does, on bytes",
        ("unit/test_bleu.py::test_compounds",),
    ),
    Mutant(
        "score-with-sides-swapped",
        SCORE,
        'bleu.multi_bleu("tokenised BLEU", hypotheses, references)',
        'bleu.multi_bleu("tokenised BLEU", references, hypotheses)',
        "BLEU counts the translation's n-grams that the reference has, and penalises brevity",
        ("unit/test_score.py::test_translations_and_references_have_their_sides",),
    ),
    Mutant(
        "score-in-the-source-language",
        SCORE,
        "bleu.moses_tokens(side, system.pair[1])",
        "bleu.moses_tokens(side, system.pair[0])",
        "Moses tokenises by the rules of the target language",
        ("unit/test_score.py::test_tokens_are_those_of_the_target_language",),
    ),
    Mutant(
        "score-compared-with-runs-alone",
        SCORE,
        "if options.run and not Path(name).is_file():",
        "if options.run:",
        "docs/scoring.md: a run is compared with another run, or with a file",
        ("integration/test_scoring.py::test_a_run_is_compared_with_a_file",),
    ),
    # ---- exports ----------------------------------------------------------------------------
    Mutant(
        "export-exponent-of-another-slope",
        PROOF,
        "return alpha * length / (5 + length)",
        "return alpha * length / (6 + length)",
        "docs/export.md: λ has the slope of the paper's length penalty at the mean length",
        ("unit/test_export.py::test_the_nearest_exponent_has_the_same_slope",),
    ),
    Mutant(
        "export-worse-by-any-bleu",
        COMPARISON,
        "not abs(gap) <= most",
        "not gap <= most",
        "docs/export.md: beyond a tolerance an export fails",
        ("unit/test_export.py::test_tolerances",),
    ),
    Mutant(
        "export-whose-model-may-differ",
        COMPARISON,
        "if self.root_mean_square <= self.tolerance:",
        "if self.root_mean_square >= 0:",
        "docs/export.md: both models give the same translations the same log-probabilities",
        (
            "unit/test_export.py::test_tolerances",
            "integration/test_export_ctranslate2.py::test_a_broken_model_is_refused",
        ),
    ),
    Mutant(
        "export-read-though-altered",
        FOLDER,
        "if sums.get(name) != sha256_of(path / name):",
        "if name not in sums:",
        "docs/export.md: SHA256SUMS: an altered export or model folder is refused",
        (
            "unit/test_export.py::test_what_is_not_whole_is_refused",
            "unit/test_model_folder.py::test_what_is_not_whole_is_refused",
        ),
    ),
    # ---- how a training goes on and ends ----------------------------------------------------
    Mutant(
        "patience-counts-anew",
        "vaswani/experiment/patience.py",
        "counted.update(extra_state.get(PATIENCE, {}))",
        "counted.update({})",
        "docs/promises.md: --patience is remembered across a restart",
        ("integration/test_trainings_end.py::test_patience_survives_a_kill",),
    ),
    Mutant(
        "rate-counts-updates-of-before",
        "vaswani/experiment/training_progress.py",
        "self.bar.n = self.bar.initial = self.bar.last_print_n = updates",
        "self.bar.n = self.bar.initial = updates",
        "progress.py: the bar shows the updates per second of this start",
        ("unit/test_progress.py::test_the_bars_rate_is_that_of_this_start",),
    ),
    Mutant(
        "command-always-continues",
        "vaswani/common/signals.py",
        'return "; the same command continues" if _saved() else ""',
        'return "; the same command continues" if True else ""',
        "docs/promises.md: 'the same command continues' is said only where something was saved",
        (
            "unit/test_endings.py::test_the_same_command_continues_only_where_something_is_saved",
            "integration/test_translate.py::test_the_same_command_continues",
        ),
    ),
    Mutant(
        "spin-though-chosen",
        "vaswani/experiment/busy_cores.py",
        "any(environ.get(name) for name in CHOSEN)",
        "any(environ.get(name) for name in CHOSEN[1:])",
        "docs/training.md: GOMP_SPINCOUNT stays as the user set it",
        (
            "unit/test_busy_cores.py::"
            "test_only_on_busy_cores_and_never_over_the_users_choice[given6-0.0-False]",
        ),
    ),
    Mutant(
        "closed-stream-is-none",
        CLI,
        "        if getattr(sys, name) is None:",
        "        if False:",
        "docs/promises.md: a standard stream that is closed is the null device",
        ("unit/test_endings.py::test_a_closed_stream_is_the_null_device",),
    ),
    Mutant(
        "weights-of-any-type",
        WEIGHTS,
        "if kind not in FLOATS:",
        "if not kind:",
        "docs/promises.md: a model folder's weights are those that config.json describes",
        ("unit/test_model_schema.py::test_weights_are_those_of_the_model",),
    ),
    Mutant(
        "user-dir-replaced",
        CONFIGURATION,
        "config.common.user_dir = user_dir",
        "config.common.user_dir = str(plugin_dir())",
        "docs/promises.md: a model of your own in a user-dir trains",
        ("integration/test_user_dir.py::test_yaml_and_command_line_alike",),
    ),
    # ---- other people's tasks ---------------------------------------------------------------
    Mutant(
        "refusals-for-every-task",
        SCOPE,
        "return kind is TranslationTask or",
        'return hasattr(kind, "load_dataset") or',
        "docs/promises.md: another plugin's task is left to fairseq",
        ("unit/test_compat.py::test_only_translation_compares_dictionaries",),
    ),
    Mutant(
        "dictionaries-compared-though-reset",
        RESUMING,
        "if other and not reset_optimizer:",
        "if other:",
        "docs/promises.md: where the optimizer is reset, another training begins",
        ("integration/test_nothing_lost.py::test_another_training_may_begin_with_other_words",),
    ),
    # ---- docs/promises.md: nothing is lost --------------------------------------------------
    Mutant(
        "checkpoint-not-read-back",
        SAVING,
        "        _read_back(aside)\n",
        "",
        "a checkpoint replaces another only after it has been read back",
        ("unit/test_saving.py::test_what_cannot_be_written_leaves_the_older_file",),
    ),
    Mutant(
        "interrupt-is-a-failed-write",
        SAVING,
        "isinstance(error, (KeyboardInterrupt, OSError)):",
        "isinstance(error, OSError):",
        "Ctrl-C leaves the older checkpoint in place, and ends the training",
        ("unit/test_saving.py::test_an_interrupt_stays_one_and_leaves_the_older_file",),
    ),
    Mutant(
        "checkpoint-copy-not-compared",
        SAVING,
        "if not filecmp.cmp(src_path, aside, shallow=False):",
        "if not Path(aside).is_file():",
        "checkpoint_best.pt and checkpoint_last.pt are replaced by an equal copy",
        ("unit/test_saving.py::test_a_copy_that_differs_does_not_replace_the_older_file",),
    ),
    Mutant(
        "oldest-checkpoint-taken",
        RESUMING,
        "in sorted(found, reverse=True):",
        "in sorted(found):",
        "without checkpoint_last.pt, training continues from the newest checkpoint",
        (
            "integration/test_nothing_lost.py"
            "::test_without_the_last_checkpoint_it_goes_on_from_the_newest",
        ),
    ),
    Mutant(
        "missing-restore-file-starts-over",
        RESUMING,
        "if not checkpoint_utils.PathManager.exists(wanted):",
        "if not wanted:",
        "a --restore-file that does not exist is refused",
        ("integration/test_nothing_lost.py::test_a_restore_file_that_does_not_exist_is_refused",),
    ),
    Mutant(
        "one-update-too-many",
        RESUMING,
        "if updates >= (limits.max_update or math.inf):",
        "if updates > (limits.max_update or math.inf):",
        "a run that has reached its updates is not trained further",
        (
            "integration/test_nothing_lost.py"
            "::test_a_training_that_is_done_is_not_trained_further[7]",
        ),
    ),
    Mutant(
        "users-config-replaced",
        RECORD,
        "if foreign and not ours:",
        "if len(foreign) > 1 and not ours:",
        "a run's folder with a config.yaml or env.json of your own is refused",
        ("integration/test_nothing_lost.py::test_a_users_config_yaml_is_not_replaced",),
    ),
    Mutant(
        "refused-start-not-undone",
        RECORD,
        "if self._checkpoints() != self.checkpoints:",
        "if self._checkpoints() == self.checkpoints:",
        "a refused start leaves an older run's records as they were",
        ("unit/test_run_record.py::test_a_refused_start_brings_the_records_back",),
    ),
    Mutant(
        "line-after-half-a-line",
        "vaswani/experiment/training_progress.py",
        'self.stream.write("\\n" if half else "")',
        'self.stream.write("")',
        "a run's statistics survive a line cut short by a full disk",
        ("unit/test_run_record.py::test_half_a_line_hides_no_other",),
    ),
    Mutant(
        "seconds-of-this-start-alone",
        "vaswani/experiment/training_progress.py",
        "return self.earlier + time.monotonic() - self.begun",
        "return time.monotonic() - self.begun",
        "a run's seconds are those of all its starts",
        ("unit/test_progress.py::test_seconds_are_those_of_every_start",),
    ),
    Mutant(
        "error-of-a-process-without-its-kind",
        "vaswani/experiment/launch.py",
        "kinds.get(found.group(1), UserError)",
        "kinds.get(found.group(2), UserError)",
        "the failure of one of several processes is reported in one sentence",
        ("unit/test_spawned_process.py::test_our_sentences_stay_sentences",),
    ),
    Mutant(
        "old-folder-not-renamed-back",
        OUTPUTS,
        "between the two renamings\n            old.rename(folder)",
        "between the two renamings\n            pass",
        "a folder that is replaced is either the old one or the new one",
        ("unit/test_outputs.py::test_an_interrupted_replacement_leaves_the_old_folder_or_the_new",),
    ),
    Mutant(
        "lock-is-shared",
        "vaswani/common/files.py",
        "fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.lockf(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "two training runs never write into one folder",
        ("unit/test_distributed.py::test_a_lock_is_one_processs_until_it_is_killed",),
    ),
    Mutant(
        "training-with-a-lock-of-its-own",
        "vaswani/commands/train.py",
        'with locked(folder / ".lock", f"{folder} is being trained"):',
        'with locked(folder / f".lock{os.getpid()}", f"{folder} is being trained"):',
        "two training runs never write into one folder",
        ("integration/test_distributed.py::test_a_second_training_of_a_run_is_refused",),
    ),
    # ---- docs/promises.md: the same training goes on ----------------------------------------
    Mutant(
        "resumed-epoch-begins-anew",
        RESUMING,
        "extra_state, iterator = original(cfg, trainer, **options)",
        "extra_state, iterator = original(cfg, trainer, **options)\n"
        "                iterator = trainer.get_train_iterator(epoch=iterator.epoch)",
        "a run killed at any moment and continued ends as an uninterrupted one does",
        ("integration/test_resume.py::test_parameters_are_those_of_the_unbroken_run",),
    ),
    Mutant(
        "dictionaries-compared-as-sets",
        "transformer_plugin/compat/dictionaries.py",
        '"\\n".join(found.symbols)',
        '"\\n".join(sorted(found.symbols))',
        "dictionaries other than a checkpoint's are refused, even of the same size",
        (
            "integration/test_nothing_lost.py::test_training_with_other_words_is_refused[--save-dir]",
        ),
    ),
    Mutant(
        "diverged-one-update-before",
        "transformer_plugin/compat/divergence.py",
        "update = trainer.get_num_updates() + 1",
        "update = trainer.get_num_updates()",
        "if training diverges, the error names the update",
        ("integration/test_nothing_lost.py::test_a_training_that_diverges_ends_in_a_sentence",),
    ),
    Mutant(
        "changed-options-said-where-all-is-reset",
        RESUMING,
        "if not reset_optimizer and trainer.data_parallel_rank == 0:",
        "if reset_optimizer and trainer.data_parallel_rank == 0:",
        "options that changed since the checkpoint was saved are named in one line",
        ("integration/test_nothing_lost.py::test_options_that_changed_are_said",),
    ),
    Mutant(
        "run-goes-on-with-another-seed",
        RECORD,
        'keys += [("optimizer", "_name"), ("common", "seed")]',
        'keys += [("optimizer", "_name")]',
        "an existing run is not continued with another model, language, seed or optimizer",
        ("unit/test_run_record.py::test_another_run_is_refused_naming_the_key_and_the_way_out",),
    ),
    Mutant(
        "file-missing-in-one-process",
        "vaswani/experiment/launch.py",
        "for name in sorted({*found, *first})",
        "for name in sorted(found)",
        "processes that see different data from the first stop with one sentence",
        ("unit/test_run_record.py::test_processes_with_other_data_are_named_in_every_one",),
    ),
    Mutant(
        "every-training-ends-by-its-epochs",
        "vaswani/experiment/training_progress.py",
        '"reason": self.reason or "max_epoch",',
        '"reason": "max_epoch",',
        "the end of a training says which option ended it; finished.json records it",
        (
            "integration/test_trainings_end.py::test_why_a_training_ended_is_said_and_recorded"
            "[stop_time_hours-overrides2-1]",
        ),
    ),
    # ---- docs/promises.md: text -------------------------------------------------------------
    Mutant(
        "what-is-not-ours-removed",
        STAGE,
        "    elif os.path.lexists(output):\n        keep(output)",
        "    elif os.path.lexists(output):\n        remove(output)",
        "anything that prepare did not make is renamed to NAME.kept-1",
        (
            "integration/test_prepare_keeps.py"
            "::test_what_was_there_before_is_renamed_and_named[tok-folder]",
        ),
    ),
    Mutant(
        "edited-text-known-by-its-size",
        "vaswani/data/ownership.py",
        'return "sha256" not in marker or hashes(path, left) == marker["sha256"]',
        "return True",
        "anything that has changed since is renamed to NAME.kept-1",
        (
            "integration/test_prepare_keeps.py"
            "::test_what_was_changed_since_is_kept_and_ours_replaced[edit-option3]",
        ),
    ),
    Mutant(
        "text-in-a-folder-of-an-output",
        "vaswani/data/inputs.py",
        "if lies_in(path, output):",
        "if path == output:",
        "text inside an output is refused before anything is touched",
        (
            "integration/test_prepare_keeps.py"
            "::test_text_inside_an_output_is_refused_before_anything_is_touched[text]",
        ),
    ),
    Mutant(
        "half-a-replacement-not-recorded",
        STAGE,
        'write_marker(output, {**recorded, "next": coming})',
        "write_marker(output, recorded)",
        "after a stop at any moment, repeating the command ends with the same bytes",
        ("integration/test_prepare_keeps.py::test_stopped_at_each_step_of_a_replacement[9--9]",),
    ),
    Mutant(
        "half-a-stage-left-on-a-full-disk",
        STAGE,
        "        finally:\n            remove(aside.parent)",
        "        finally:\n            pass",
        "after a full disk, what was there stays as it was",
        ("integration/test_prepare_trouble.py::test_a_full_disk_in_any_stage[tok]",),
    ),
    Mutant(
        "text-without-line-feeds-is-one-line",
        "vaswani/data/text.py",
        "if returns - both > (lines if feeds else 0):",
        "if returns - both > lines:",
        "text that is CR-only is refused, with the file and the line",
        ("integration/test_prepare_odd_text.py::test_files_that_are_not_what_they_seem",),
    ),
    Mutant(
        "end-of-sentence-in-a-text",
        "vaswani/data/bpe.py",
        "line, count = spelt_out(self.split(line))",
        "line, count = self.split(line), spelt_out(line)[1]",
        "no word is taken for one of fairseq's own symbols",
        (
            "integration/test_prepare_odd_text.py"
            "::test_fairseqs_own_symbols_are_spelt_out_and_counted[</s>]",
        ),
    ),
    Mutant(
        "archive-recorded-unopened",
        "vaswani/data/download.py",
        'problem = f"it {error.what}"',
        "problem = None",
        "a checksum is recorded only for an archive that opens and has the texts",
        ("unit/test_download.py::test_what_is_no_whole_archive_is_not_recorded",),
    ),
    Mutant(
        "archive-bomb-unpacked",
        "vaswani/data/extract.py",
        "if member.offset_data + member.size > most:",
        "if member.offset_data > most:",
        "archive bombs are refused before they are unpacked",
        ("unit/test_extract.py::test_an_archive_bomb_is_refused_before_it_is_unpacked",),
    ),
    Mutant(
        "corpus-of-any-checksum",
        "scripts/multi30k.sh",
        '        is_the_text "$part" "$sum" ||\n',
        '        gzip -cdf "$part" >/dev/null ||\n',
        "scripts/multi30k.sh keeps a download only if its SHA-256 is the corpus's",
        ("integration/test_multi30k_script.py::test_a_page_in_place_of_the_text_is_not_kept",),
    ),
    # ---- docs/promises.md: experiments and data ---------------------------------------------
    Mutant(
        "another-seed-than-fairseqs",
        CONFIGURATION,
        "    check_config(config)\n    return config",
        "    check_config(config)\n    config.common.seed += 1\n    return config",
        "model, loss and schedule are the same with fairseq's commands and with vaswani",
        ("integration/test_stock_commands.py::test_train_by_yaml",),
    ),
    Mutant(
        "updates-below-zero",
        "vaswani/experiment/option_rules.py",
        '"max_update": COUNT,',
        '"max_update": LIMIT,',
        "options that cannot work are refused before the first update",
        (
            "unit/test_option_values.py::test_a_value_is_refused_by_its_option"
            "[optimization.max_update=-1]",
        ),
    ),
    Mutant(
        "last-of-two-keys-wins",
        "vaswani/experiment/strict_yaml.py",
        "            seen.add(key.value)\n",
        "            seen.add(key)\n",
        "a duplicate key is refused, with the line",
        ("unit/test_strict_yaml.py::test_what_would_be_read_as_something_else",),
    ),
    Mutant(
        "nearest-name-of-none",
        "vaswani/common/errors.py",
        "n=1, cutoff=0.5)",
        "n=1, cutoff=1.0)",
        "an unknown key or component is refused with the nearest known name",
        ("unit/test_cli.py::test_unknown_experiments_name_the_nearest",),
    ),
    Mutant(
        "weights-trained-in-bfloat16",
        REFUSALS,
        'for name in ("bf16", "memory_efficient_bf16"):',
        'for name in ("memory_efficient_bf16",):',
        "fairseq's own bf16 does not train the plugin's models",
        ("unit/test_option_values.py::test_fairseqs_bf16_of_our_models_is_refused_by_the_trainer",),
    ),
    Mutant(
        "layers-without-end",
        REFUSALS,
        "if layers > MOST_LAYERS:",
        "if layers < 0:",
        "a model that does not fit in the machine's memory is refused",
        ("unit/test_option_values.py::test_a_huge_model_is_refused_before_memory_is_taken",),
    ),
    Mutant(
        "index-longer-than-its-text",
        DATA,
        "if held != (ends[-1] if count else 0):",
        "if held < (ends[-1] if count else 0):",
        "a damaged text is refused in seconds",
        ("integration/test_damaged_data.py::test_a_damaged_index_is_named[another binary]",),
    ),
    Mutant(
        "overlong-validation-stops-training",
        DATA_BIN,
        'use == "validation" or dataset.skip',
        'use == "training" and dataset.skip',
        "an overlong validation sentence is left out, as in training",
        ("integration/test_damaged_data.py::test_what_is_too_long_is_left_out_and_counted",),
    ),
    Mutant(
        "unknown-words-trained-on",
        DATA_BIN,
        "if tokens.unknown == 1:",
        "if tokens.unknown > 1:",
        "text of nothing but unknown words is not trained on",
        ("integration/test_damaged_data.py::test_text_of_unknown_words_is_refused",),
    ),
    Mutant(
        "last-batch-dropped",
        "transformer_plugin/compat/batches.py",
        "batches = [*batches, indices[kept:]]",
        "batches = [*batches]",
        "no sentence is lost when the size of the last batch is not a multiple of 8 "
        "(fairseq-fixed)",
        ("unit/test_compat.py::test_every_sentence_is_in_a_batch",),
    ),
    Mutant(
        "offsets-of-32-bits",
        DATA,
        "self._sizes[there:] = map(int, self._sizes[there:])",
        "self._sizes[there:] = list(self._sizes[there:])",
        "more than 2 GB of text is binarised correctly by several workers (numpy 2)",
        ("integration/test_damaged_data.py::test_parts_of_more_than_2_gb_are_joined",),
    ),
    Mutant(
        "tokens-of-one-accumulated-batch",
        "transformer_plugin/batch_size.py",
        "updates = self.updates(accumulated, gpus)",
        "updates = self.updates(1, gpus)",
        "the number of tokens per update is logged, with a warning when it is not the experiment's",
        ("integration/test_task.py::test_accumulated_batches_count",),
    ),
    Mutant(
        "earlier-starts-forgotten",
        RECORD,
        '"earlier_starts": earlier}',
        '"earlier_starts": []}',
        "what a run was trained with is recorded",
        ("integration/test_vaswani.py::test_a_run_leaves_what_it_promises_and_continues",),
    ),
    Mutant(
        "documents-left-out-of-the-wheel",
        "setup.py",
        'for name in ("configs", "docs"):',
        'for name in ("configs",):',
        "every document that a help text or a message names comes with the wheel",
        ("integration/test_wheel.py::test_what_it_names_is_in_it",),
    ),
    # ---- docs/promises.md: checkpoints from elsewhere ---------------------------------------
    Mutant(
        "names-in-a-checkpoint-are-called",
        "transformer_plugin/checkpoints/reading.py",
        'raise pickle.UnpicklingError(f"GLOBAL {name} is not allowed in a checkpoint")',
        "return super().find_class(module_name, global_name)",
        "nothing that a checkpoint names is run",
        (
            "integration/test_bad_checkpoints.py"
            "::test_a_pickle_with_code_is_refused_and_nothing_runs[system-zip-True]",
        ),
    ),
    Mutant(
        "checksums-of-a-checkpoint-skipped",
        "transformer_plugin/checkpoints/reading.py",
        "    if is_zip:\n        _check_sums(stream, name)",
        "    if not is_zip:\n        _check_sums(stream, name)",
        "a truncated or altered checkpoint is refused",
        (
            "integration/test_bad_checkpoints.py"
            "::test_a_bad_file_is_refused_in_one_sentence[bit-in-a-weight]",
        ),
    ),
    Mutant(
        "archive-that-expands-read",
        "transformer_plugin/checkpoints/outline.py",
        "if size and inside > size:",
        "if size and len(members) > size:",
        "refusing a checkpoint takes no more memory and time than its size warrants",
        ("unit/test_outline.py::test_a_bomb_is_refused_at_once[expands]",),
    ),
    Mutant(
        "more-layers-than-were-saved",
        PARAMETERS,
        "if declared != actual if ours else",
        "if declared < actual if ours else",
        "no model is built that is far larger than the parameters stored with it",
        (
            "integration/test_bad_checkpoints.py"
            "::test_a_model_is_no_larger_than_the_parameters_beside_it"
            "[vaswani_transformer_tiny-encoder_layers]",
        ),
    ),
    Mutant(
        "one-finite-number-is-enough",
        PARAMETERS,
        "not torch.isfinite(tensor).all()",
        "not torch.isfinite(tensor).any()",
        "parameters with NaN or infinity are not used; the parameter is named",
        (
            "integration/test_bad_checkpoints.py::test_what_is_no_number_is_not_decoded"
            "[vaswani_transformer_tiny-nan]",
        ),
    ),
    Mutant(
        "old-format-read-in-silence",
        "transformer_plugin/checkpoints/reading.py",
        "            _warn_of_old_format(name)\n",
        "",
        "the pre-zip format, in which damage goes unnoticed, is read with a warning",
        ("unit/test_outline.py::test_old_formats_are_read_with_a_warning",),
    ),
    # ---- docs/promises.md: decoding and scores ----------------------------------------------
    Mutant(
        "bytes-are-a-list-of-sentences",
        "vaswani/decoding/translator.py",
        "if isinstance(sentences, (str, bytes)) or",
        "if isinstance(sentences, str) or",
        "in Python, an argument of the wrong type is a TypeError with a sentence",
        (
            "integration/test_translate.py::test_what_translate_takes"
            "[the house-options2-a list of sentences, not bytes]",
        ),
    ),
    Mutant(
        "first-shard-every-time",
        GENERATION,
        "cfg.distributed_training.distributed_rank = shard",
        "cfg.distributed_training.distributed_rank = 0",
        "each documented decoding option changes what it should",
        ("integration/test_every_generation_flag.py::test_shards_are_parts_of_the_whole",),
    ),
    Mutant(
        "option-without-effect-not-named",
        GENERATION,
        "                logger.warning(sentence)",
        "                logger.debug(sentence)",
        "a decoding option that changes nothing is named in a warning",
        (
            "integration/test_every_generation_flag.py"
            "::test_what_changes_nothing_is_said[--no-early-stop]",
        ),
    ),
    Mutant(
        "more-translations-than-the-beam",
        "vaswani/model_folder/search_options.py",
        "    if nbest > beam:\n",
        "    if nbest > 2 * beam:\n",
        "a decoding option that cannot work is refused in one sentence",
        (
            "integration/test_translations.py::test_an_impossible_option_is_one_sentence"
            "[options12---nbest 3 asks for more translations than --beam 2 finds]",
        ),
    ),
    Mutant(
        "translations-as-they-come",
        GENERATE,
        "lines[number] = bpe.undo(rest[1])",
        "lines[len(seen) - 1] = bpe.undo(rest[1])",
        "translations are in the order of the source",
        ("integration/test_translations.py::test_several_translations_of_a_sentence",),
    ),
    Mutant(
        "overlong-line-by-its-number-from-0",
        GENERATE,
        "return lines, [number + 1 for number",
        "return lines, [number for number",
        "a sentence too long to translate is counted and named",
        ("integration/test_vaswani.py::test_blank_and_overlong_sentences_keep_their_lines",),
    ),
    Mutant(
        "text-known-by-its-lengths",
        "vaswani/decoding/decoding_text.py",
        'for end in (".idx", ".bin")]',
        'for end in (".idx",)]',
        "all translations come from one decoding run, identified by its text too",
        ("integration/test_translations.py::test_another_text_of_the_same_lengths_is_translated",),
    ),
    Mutant(
        "edited-translations-replaced",
        "vaswani/decoding/translations.py",
        "            path.rename(kept)\n",
        "",
        "edited translations are set aside: neither passed off as the model's nor lost",
        (
            "integration/test_translations.py"
            "::test_results_that_were_changed_are_not_passed_off_nor_destroyed[edited]",
        ),
    ),
    Mutant(
        "averages-without-their-lock",
        "vaswani/commands/average.py",
        'with locked(output.parent / ".average.lock", busy, leave=False):',
        "with writing(output):",
        "two average at once do not write one file",
        ("unit/test_average.py::test_two_at_once_do_not_write_one_file",),
    ),
    Mutant(
        "next-command-without-its-folder",
        "vaswani/commands/average.py",
        'print(f"next: vaswani generate {what}{subset}"',
        'print(f"next: vaswani generate {path.name}{subset}"',
        "the commands that new, train and average print next work as printed",
        ("integration/test_next_commands.py::test_a_run_with_a_single_checkpoint",),
    ),
    Mutant(
        "input-known-by-its-name",
        OUTPUTS,
        "if same_file(path, source):",
        "if path == source:",
        "no command overwrites a file that it reads",
        ("unit/test_outputs.py::test_scores_do_not_replace_what_is_scored",),
    ),
    Mutant(
        "two-lines-swapped",
        WORKERS,
        'found = dict(zip(sample["id"].tolist(), results, strict=True))',
        "found = dict(zip(sorted(sentences), results, strict=True))",
        "the files are the same for any number of processes",
        (
            "integration/test_generate_workers.py"
            "::test_the_same_to_the_last_digit_in_any_number_of_processes[ours]",
        ),
    ),
    Mutant(
        "killed-process-not-noticed",
        WORKERS,
        "        if process.exitcode:\n",
        "        if process.exitcode > 0:\n",
        "the death of one process ends all of them with one sentence",
        (
            "integration/test_generate_workers.py"
            "::test_what_goes_wrong_in_a_process_is_one_sentence[killed]",
        ),
    ),
    Mutant(
        "processes-keep-each-other-alive",
        WORKERS,
        "                other.close()\n",
        "                other.fileno()\n",
        "a killed command leaves no process behind",
        ("integration/test_generate_workers.py::test_a_killed_command_leaves_no_process_behind",),
    ),
    Mutant(
        "raw-text-in-lower-case",
        "vaswani/model_folder/text_recipe.py",
        "return line.lower() if self.recipe.lowercase else line",
        "return line.lower()",
        "raw text is translated as prepare and generate do it",
        ("integration/test_translate.py::test_raw_text_is_translated_as_prepare_and_generate_do",),
    ),
    Mutant(
        "pickle-in-a-model-folder",
        FOLDER,
        "named = path.suffix in _PICKLES and path.name not in known",
        "named = path.suffix in known",
        "a model folder that contains a pickle is refused",
        ("unit/test_model_folder.py::test_what_is_not_whole_is_refused",),
    ),
    Mutant(
        "last-shard-left-out",
        "vaswani/commands/translate.py",
        "windows * n // options.num_shards for n in",
        "windows // options.num_shards * n for n in",
        "the joined shards equal the whole",
        ("integration/test_translate.py::test_shards_joined_are_the_whole[3-2]",),
    ),
    Mutant(
        "failed-proof-of-no-consequence",
        "vaswani/commands/export.py",
        "    proof.tell(options.to)\n",
        '    print("\\n".join(proof.lines()))\n',
        "an export that fails its proof leaves nothing",
        ("integration/test_export_fairseq.py::test_a_proof_that_fails_leaves_nothing",),
    ),
    Mutant(
        "full-disk-of-an-export-not-said",
        FOLDER,
        "with writing(folder), aside(folder) as part:",
        "with aside(folder) as part:",
        "an export that meets a full disk leaves nothing, and says so in one sentence",
        (
            "integration/test_export_fairseq.py"
            "::test_a_full_disk_leaves_what_was_there[shutil.copyfile]",
        ),
    ),
    Mutant(
        "data-of-before-made-again",
        "vaswani/commands/prepare.py",
        "codes: List[Any] = [recipe.bpe, recipe.bpe_counts]",
        "codes: List[Any] = [recipe.bpe_counts, recipe.bpe]",
        "data of version 0.1.0 are read, and not made again",
        ("integration/test_frozen.py::test_prepared_data_are_not_made_again",),
    ),
    Mutant(
        "half-a-line-in-a-translation",
        "vaswani/decoding/translated.py",
        "            self.stream.truncate(done)\n            self.stream.seek(done)\n",
        "            self.stream.seek(0, 2)\n",
        "a killed translate --output continues with the same command",
        ("integration/test_translate.py::test_the_same_command_continues",),
    ),
    Mutant(
        "style-of-the-page-from-elsewhere",
        ATTENTION_PAGE,
        '"style": beside("css"),',
        '"style": \'@import "page.css";\',',
        "the page of attention needs no network",
        ("unit/test_attention_page.py::test_the_page_needs_nothing_from_elsewhere",),
    ),
    Mutant(
        "sentence-ends-the-pages-script",
        ATTENTION_PAGE,
        '.replace("<", "\\\\u003c")',
        "",
        "the page of attention runs no code from the sentence",
        ("unit/test_attention_page.py::test_words_cannot_end_the_element_they_stand_in",),
    ),
    # ---- docs/promises.md: how a command ends -----------------------------------------------
    Mutant(
        "terminated-is-interrupted",
        CLI,
        "return signals.TERMINATED if terminated else signals.INTERRUPTED",
        "return signals.INTERRUPTED",
        "SIGTERM ends in at most one line, with exit code 143",
        (
            "unit/test_endings.py::test_a_signal_during_imports_is_one_line"
            "[SIGTERM-143-terminated-False]",
        ),
    ),
    Mutant(
        "full-disk-without-the-files-name",
        OUTPUTS,
        'f"there is no space left for {path}: free some"',
        'f"there is no space left in {path.parent}: free some"',
        "a full disk is reported in one sentence with the file's name",
        ("unit/test_outputs.py::test_a_full_disk_is_said_of_the_file",),
    ),
    # ---- docs/promises.md: fairseq stays whole ----------------------------------------------
    Mutant(
        "batches-of-no-generator",
        "transformer_plugin/compat/batches.py",
        "if not isinstance(indices, np.ndarray):",
        "if isinstance(indices, list):",
        "fairseq's own models and tasks work as without the plugin: batches of any iterable",
        ("integration/test_fairseq_stays_whole.py::test_batches_are_made_of_any_iterable",),
    ),
    Mutant(
        "validation-before-other-tasks-train",
        "transformer_plugin/compat/batches.py",
        "        if not is_translation(self.task):\n            return original(self",
        "        if not self.task:\n            return original(self",
        "other tasks give the same numbers, to the last bit and digit",
        (
            "integration/test_other_tasks.py::test_the_same_numbers_as_without_the_plugin"
            "[denoising, trained]",
        ),
    ),
    Mutant(
        "their-model-too-large",
        REFUSALS,
        "        if is_known(name):\n",
        "        if name:\n",
        "another plugin's task and model are left to fairseq",
        ("unit/test_compat.py::test_the_sizes_of_another_plugins_model_are_its_own",),
    ),
    Mutant(
        "their-layer-replaced",
        "transformer_plugin/compat/decoding.py",
        "        original(layer, *args, **kwargs)\n",
        "        original(layer, *args, **kwargs)\n"
        "        layer.forward = functools.partial(layer.forward)\n",
        "fairseq's transformer and its generator can be compiled to TorchScript",
        ("integration/test_fairseq_stays_whole.py::test_their_transformer_becomes_torchscript",),
    ),
]

if __name__ == "__main__":
    sys.exit(main(MUTANTS))
