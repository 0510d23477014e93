"""A packed model as transformers' Marian: ``MarianMTModel.from_pretrained``, without code of ours.

Marian is the paper's Transformer too: post-norm, biases, ReLU, embeddings times √d_model. Of its
positions it computes the paper's sines and cosines, but puts all sines before all cosines, where
the paper interleaves them. A Transformer does not know the order of d_model's dimensions: if every
matrix that reads or writes them is permuted alike, the function is the same. Its norms have an ε of
1e-5, which cannot be set.
"""

import contextlib
import math
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from safetensors.torch import save
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vaswani.common.errors import UserError
from vaswani.common.files import write_json
from vaswani.common.find import DOCS
from vaswani.decoding.engine import (
    Batch,
    BatchHypotheses,
    Engine,
    Progress,
    TokenHypothesis,
    ignore,
    most_tokens,
)
from vaswani.export.to_ctranslate2 import vocabulary
from vaswani.folders.model_folder import ModelFolder
from vaswani.folders.recipe import SENTENCEPIECE
from vaswani.folders.search_options import CPU_BATCH, TranslationOptions
from vaswani.packing.convert import to_fairseq
from vaswani_transformer.config import TransformerConfig
from vaswani_transformer.io.packed import shared_matrices

#: modules whose results are added to or scale the d_model dimensions; all others read them
WRITERS = ("out_proj", "fc2", "layer_norm")
#: transformers' name of the file of parameters
PARAMETERS = "model.safetensors"
#: both embeddings and the output, if they are one matrix
SHARED = "model.shared.weight"
#: fairseq's, whose dictionaries begin with <s>, <pad>, </s>, <unk>
PAD, END, UNKNOWN = 1, 2, 3


def check_expressible(folder: ModelFolder) -> None:
    """Raise UserError for norms and positions that Marian does not compute."""
    config = folder.config
    for side in ("encoder", "decoder"):
        if getattr(config, f"{side}_normalize_before"):
            raise UserError(
                f"{folder.path} cannot be exported to huggingface, because its {side} has norms "
                "before the sub-layers, and transformers' Marian has them after: use --to "
                "ctranslate2 or --to fairseq"
            )
    layout = config.sinusoid_layout
    learned = config.encoder_learned_pos or config.decoder_learned_pos
    if learned or layout in ("t2t", "fairseq"):
        positions = "learned positions" if learned else f"--sinusoid-layout {layout}"
        raise UserError(
            f"{folder.path} cannot be exported to huggingface, because transformers' Marian has "
            f"only the paper's sinusoids, and this model has {positions}: use --to ctranslate2 or "
            "--to fairseq"
        )


def marians_order(width: int) -> list[int]:
    """Return our dimension for each of Marian's: the paper's sines, then its cosines."""
    return [*range(0, width, 2), *range(1, width, 2)]


def to_marians_names(folder: ModelFolder, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters by Marian's names and in its order, float32.

    Args:
        folder: the packed model
        parameters: its state dict
    """
    order = torch.tensor(marians_order(folder.config.encoder_embed_dim))
    renamed = {}
    for name, value in to_fairseq(parameters).items():  # the names inside a layer are fairseq's
        module, _, kind = name.rpartition(".")
        if module.endswith(WRITERS):
            value = value.index_select(0, order)
        elif kind == "weight":
            value = value.index_select(1, order)
        renamed[f"model.{name}"] = value.float().contiguous()
    head = renamed.pop("model.decoder.output_projection.weight")
    if not has_one_matrix(folder.config):  # of the decoder's two, each is stored, even if one
        renamed["lm_head.weight"] = head
    else:
        del (
            renamed["model.encoder.embed_tokens.weight"],
            renamed["model.decoder.embed_tokens.weight"],
        )
        renamed[SHARED] = head
    renamed["final_logits_bias"] = torch.zeros(1, head.size(0))
    return renamed


def has_one_matrix(config: TransformerConfig) -> bool:
    """Return whether source, target and output share one matrix: Marian shares all or none."""
    return len(shared_matrices(config)) == 2


def configuration(config: TransformerConfig, types: tuple[int, int]) -> dict[str, Any]:
    """Return the contents of Marian's config.json.

    Args:
        config: the packed model's sizes
        types: sizes of the source's and the target's dictionary
    """
    names = {"layers": "layers", "attention_heads": "attention_heads", "ffn_dim": "ffn_embed_dim"}
    sizes = {}
    for side in ("encoder", "decoder"):
        for name, name_here in names.items():
            sizes[f"{side}_{name}"] = getattr(config, f"{side}_{name_here}")
    tied = has_one_matrix(config)
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": types[0],
        "decoder_vocab_size": types[1],
        "share_encoder_decoder_embeddings": tied,
        "tie_word_embeddings": tied,
        "d_model": config.encoder_embed_dim,
        **sizes,
        "activation_function": config.activation_fn,
        "scale_embedding": True,
        "max_position_embeddings": max(max_lengths(config)),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        **TOKENS,
        "forced_eos_token_id": None,  # Marian's default is 0, here <s>
        "dtype": "float32",
        "torch_dtype": "float32",  # as transformers below 5 calls it
    }


#: decoding begins and ends with </s>, as in fairseq
TOKENS = {
    "bos_token_id": None,
    "pad_token_id": PAD,
    "eos_token_id": END,
    "decoder_start_token_id": END,
}


def max_lengths(config: TransformerConfig) -> tuple[int, int]:
    """Return the most tokens that source and target may have."""
    return config.max_source_positions, config.max_target_positions


def generation_configuration(
    options: TranslationOptions, config: TransformerConfig
) -> dict[str, Any]:
    """Return generation_config.json: fairseq's beam search, as far as transformers supports it.

    A maximum length that depends on the source's has no counterpart: that of the longest source.

    Args:
        options: of the export's search
        config: the packed model's sizes
    """
    search: dict[str, Any] = {"num_beams": options.beam}
    if options.beam > 1:
        search.update(length_penalty=options.lenpen, early_stopping=True)
    if options.min_len:
        search["min_new_tokens"] = options.min_len
    if options.no_repeat_ngram_size:
        search["no_repeat_ngram_size"] = options.no_repeat_ngram_size
    if options.unkpen:
        search["sequence_bias"] = [[[UNKNOWN], -options.unkpen]]
    return {
        **TOKENS,
        "forced_eos_token_id": END,  # a translation that is cut has an end too
        "bad_words_ids": [[PAD]],  # its logit is 0, which others may be below
        **search,
        "max_new_tokens": most_tokens(options, *max_lengths(config)),
    }


def write_model(folder: ModelFolder, parameters: Mapping[str, Tensor], out: Path) -> None:
    """Write the files that transformers loads: parameters, configurations, vocabularies.

    Args:
        folder: the packed model, to decode by fairseq's length penalty
        parameters: its state dict
        out: a folder
    """
    source, target = (vocabulary(folder.dictionary(lang)) for lang in folder.langs)
    stored = save(to_marians_names(folder, parameters), metadata={"format": "pt"})
    (out / PARAMETERS).write_bytes(stored)
    write_json(out / "config.json", configuration(folder.config, (len(source), len(target))))
    decoding = generation_configuration(folder.search_options, folder.config)
    write_json(out / "generation_config.json", decoding)
    write_json(out / "vocab.json", {symbol: n for n, symbol in enumerate(source)})
    if target != source:
        write_json(out / "target_vocab.json", {symbol: n for n, symbol in enumerate(target)})
    if folder.recipe.subword == SENTENCEPIECE:
        tokenizer = tokenizer_configuration(folder, target != source)
        write_json(out / "tokenizer_config.json", tokenizer)


def tokenizer_configuration(folder: ModelFolder, two_vocabularies: bool) -> dict[str, Any]:
    """Return tokenizer_config.json, for SentencePiece's pieces.

    Args:
        folder: the packed model
        two_vocabularies: whether source and target have their own
    """
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": folder.recipe.source_lang,
        "target_lang": folder.recipe.target_lang,
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "separate_vocabs": two_vocabularies,
        "split_special_tokens": True,  # "</s>" in text is text
        "clean_up_tokenization_spaces": False,
        "model_max_length": folder.config.max_source_positions,
    }


def names_of_subword_model(folder: ModelFolder, target: str) -> list[str]:
    """Return the file names by which a target finds the subword model; the files are the same."""
    if target == "huggingface" and folder.recipe.subword == SENTENCEPIECE:
        return ["source.spm", "target.spm"]
    return [folder.subword_model.name] if folder.subword_model else []


# ---- compared --------------------------------------------------------------------------------


class MarianEngine(Engine):
    """transformers' Marian on a CPU.

    Args:
        folder: the packed model
        out: with the files of :func:`write_model` and the tokenizer's; its generation_config.json
            says how to search, except for the beam and the maximum length

    Raises:
        UserError: transformers does not find the parameters that Marian has.
        ImportError: it is not installed.
    """

    on_cpu = True
    batch_tokens = CPU_BATCH

    def __init__(self, folder: ModelFolder, out: Path) -> None:
        import transformers  # the only part that needs it

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self.lock = contextlib.nullcontext()
        self.source, self.target = (
            Dictionary.load(str(folder.dictionary(lang))) for lang in folder.langs
        )
        self.longest_source, self.longest_target = max_lengths(folder.config)
        self.model, loading = transformers.MarianMTModel.from_pretrained(
            out, output_loading_info=True, local_files_only=True
        )
        self.model.eval()
        wrong = {name: sorted(map(str, keys)) for name, keys in loading.items() if keys}
        if wrong:
            raise UserError(
                f"the Marian model of transformers {transformers.__version__} has other parameters "
                f"than the export ({wrong}): install a version that {DOCS / 'export.md'} names"
            )
        #: transformers' tokenizer; None: the folder has none
        self.tokenizer: Any = None
        if (out / "source.spm").is_file():
            self.tokenizer = transformers.MarianTokenizer.from_pretrained(
                out, local_files_only=True
            )

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """Return a batch in the model's form, padded on the right."""
        rows = [torch.tensor(ids) for ids in batch.ids]
        ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
        return {"input_ids": ids, "attention_mask": ids.ne(PAD).long()}

    def prepare_search(self, options: TranslationOptions) -> TranslationOptions:
        """Return the options unchanged; see ``Engine``."""
        return options

    def search(
        self, batches: Sequence[Batch], options: TranslationOptions, progress: Progress = ignore
    ) -> Generator[BatchHypotheses, None, None]:
        """Search the batches, as ``Engine.search``, but without scores: no caller reads them."""
        for batch in batches:
            max_tokens = most_tokens(options, max(map(len, batch.ids)), self.longest_target)
            beam = {"num_beams": options.beam, "max_new_tokens": max_tokens}
            with torch.no_grad():
                rows = self.model.generate(**self.inputs(batch), **beam).tolist()
            hypotheses = []
            for row in rows:
                end = (row + [END]).index(END, 1)  # the first token is what decoding starts with
                hypotheses.append([TokenHypothesis(row[1 : end + 1], math.nan, [])])
            progress(len(hypotheses))
            yield hypotheses

    def log_probabilities(self, batch: Batch, targets: list[list[str]]) -> list[list[float]]:
        """Return the log-probabilities of translations, as :meth:`Engine.log_probabilities`."""
        rows = [torch.tensor([*map(self.target.index, target), END]) for target in targets]
        labels = pad_sequence(rows, batch_first=True, padding_value=PAD)
        with torch.no_grad():
            logits = self.model(**self.inputs(batch), labels=labels).logits
        log_probs = logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
        return [row[: len(ids)].tolist() for row, ids in zip(log_probs, rows, strict=True)]
