"""Prepares text for training.

Writes into data/NAME: {text,tok,bpe}/{train,valid,test}.LANG, codes and data-bin.

    vaswani prepare demo_en_de                       text that comes with vaswani
    vaswani prepare multi30k_en_de --text FOLDER     a corpus you have
    vaswani prepare wmt14_en_de                      a public corpus (docs/wmt14-data.md)
    vaswani prepare --source-lang en --target-lang fr --train PREFIX --valid PREFIX
                    --test PREFIX --bpe 8000 --out data/mine        your own (PREFIX.en, PREFIX.fr)
                    (or FILE.tsv, both sides in two columns; --train may be given several times;
                    --valid-every N instead of --valid holds out every N-th training pair)
    vaswani prepare --like data/mine --test PREFIX --out data/more  the same codes and dictionary
    vaswani prepare trees --train FILE --valid FILE --test FILE     a treebank, for parsing

Each stage (raw, for archives; text, tok, codes, bpe, data-bin) is skipped if its result exists for
the same inputs and options. Text is streamed through --workers processes. If an output would
replace a file that this command did not write, or that has changed since, that file is first
renamed to …kept-1.
"""

from vaswani.data.read_recipe import PrepareOptions as Options


def run(options: Options) -> int:
    """Prepare the text that the arguments name."""
    from vaswani.data.preparation import prepare

    prepare(options)
    return 0
